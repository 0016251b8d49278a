package store

import (
	"encoding/hex"
	"time"

	"freshgo/core/manifest"
)

// Description lists the contents of a store, in a form that encodes to JSON. The fields of the only type of a
// homogeneous store are empty in a heterogeneous store, and the other way round.
type Description struct {
	Path        string             `json:"path"`
	UUID        string             `json:"uuid"`
	Version     int                `json:"format_version"`
	Created     string             `json:"created"` // RFC 3339, UTC
	Generator   string             `json:"generator"`
	History     []VersionEntry     `json:"history"`
	NumNodes    int64              `json:"num_nodes"` // of all types
	NumEdges    int64              `json:"num_edges"` // of all types
	NumBytes    int64              `json:"n_bytes"`   // of all arrays, checksums excluded
	Topology    []ArrayDescription `json:"topology"`
	Order       *ArrayDescription  `json:"order"` // the user's id of each row of the tensors; null: the row is the id
	Tensors     []ArrayDescription `json:"tensors"`
	EdgeTensors []ArrayDescription `json:"edge_tensors"`
	Splits      []ArrayDescription `json:"splits"`
	WeightsOf   string             `json:"weights_of"` // the edge tensor that topology has by position; empty: none
	Unnumbered  bool               `json:"unnumbered"` // the numbers of edges were left out
	NodeTypes   []NodeDescription  `json:"node_types"`
	EdgeTypes   []EdgeDescription  `json:"edge_types"`
	Attachments []ArrayDescription `json:"attachments"`
}

// VersionEntry describes the operation that made one version of a store, its conversion first.
type VersionEntry struct {
	Action    string `json:"action"`    // "convert", "relayout", "update", "append", "propagate"
	Details   string `json:"details"`   // for people
	Time      string `json:"time"`      // RFC 3339, UTC
	Generator string `json:"generator"` // name and version of the program
}

// NodeDescription describes a node type.
type NodeDescription struct {
	Name     string             `json:"name"`
	NumNodes int64              `json:"num_nodes"`
	Order    *ArrayDescription  `json:"order"` // as of Description
	Tensors  []ArrayDescription `json:"tensors"`
	Splits   []ArrayDescription `json:"splits"`
}

// EdgeDescription describes an edge type.
type EdgeDescription struct {
	Source    string             `json:"source"`
	Relation  string             `json:"relation"`
	Target    string             `json:"target"`
	NumEdges  int64              `json:"num_edges"`
	Topology  []ArrayDescription `json:"topology"`
	Tensors   []ArrayDescription `json:"tensors"`
	WeightsOf string             `json:"weights_of"` // as of Description, as is Unnumbered

	Unnumbered bool `json:"unnumbered"`
}

// ArrayDescription describes one file.
type ArrayDescription struct {
	Name        string  `json:"name"`
	File        string  `json:"file"`
	DType       string  `json:"dtype"` // as it is read, as is Shape
	Shape       []int64 `json:"shape"`
	Stored      string  `json:"stored"` // the type in which it is stored: DType, or a form of package narrow
	RowBytes    int     `json:"row_bytes"`
	RowsPerPage int     `json:"rows_per_page"` // 0: packed back to back
	NumBytes    int64   `json:"n_bytes"`
	// How a tensor of nodes was computed; absent from the user's own.
	Aggregate *Aggregate `json:"aggregate,omitempty"`

	// Of floats that are stored in fewer bytes: what that changed; and of Int8Columns the columns. Else null.
	Error   *NarrowError `json:"error"`
	Scales  []float32    `json:"scales"`
	Offsets []float32    `json:"offsets"`
}

// NarrowError is the error of storing floats in fewer bytes, over all finite numbers: see Narrowed.
type NarrowError struct {
	Max             float64 `json:"max"`
	SumSquareError  float64 `json:"sum_square_error"`
	SumSquareValues float64 `json:"sum_square_values"`
}

// Describe returns what the store holds, from its manifest alone.
func (s *Store) Describe() Description {
	id := s.UUID()
	d := Description{
		Path: s.path, UUID: hex.EncodeToString(id[:]), Version: int(manifest.VersionOf(s.manifest)),
		Created:   time.Unix(0, s.manifest.GetCreatedUnixNs()).UTC().Format(time.RFC3339),
		Generator: s.manifest.GetGenerator(),
		Topology:  describeAll(nil), Tensors: describeAll(nil), EdgeTensors: describeAll(nil), Splits: describeAll(nil),
		NodeTypes: []NodeDescription{}, EdgeTypes: []EdgeDescription{}, Attachments: describeAll(s.attachments),
	}
	for _, c := range historyOf(s.manifest) {
		when := time.Unix(0, c.GetUnixNs()).UTC().Format(time.RFC3339)
		d.History = append(d.History, VersionEntry{c.GetAction(), c.GetDetails(), when, c.GetGenerator()})
	}
	for i := range s.nodeTypes {
		d.NodeTypes = append(d.NodeTypes, s.nodeTypes[i].describe())
		d.NumNodes += s.nodeTypes[i].Count
	}
	for i := range s.edgeTypes {
		d.EdgeTypes = append(d.EdgeTypes, s.edgeTypes[i].describe())
		d.NumEdges += s.edgeTypes[i].NumEdges
	}
	for _, a := range s.arrays() {
		d.NumBytes += a.Bytes
	}
	if !s.Heterogeneous() {
		node, edge := d.NodeTypes[0], d.EdgeTypes[0]
		d.Topology, d.EdgeTensors = edge.Topology, edge.Tensors
		d.Order, d.Tensors, d.Splits = node.Order, node.Tensors, node.Splits
		d.WeightsOf, d.Unnumbered = edge.WeightsOf, edge.Unnumbered
		d.NodeTypes, d.EdgeTypes = d.NodeTypes[:0], d.EdgeTypes[:0]
	}
	return d
}

func (t *NodeType) describe() NodeDescription {
	d := NodeDescription{Name: t.Name, NumNodes: t.Count, Tensors: describeAll(t.Tensors), Splits: describeAll(t.Splits)}
	if t.Order != nil {
		order := describe("order", t.Order)
		d.Order = &order
	}
	return d
}

func (e *EdgeType) describe() EdgeDescription {
	d := EdgeDescription{
		Source: e.Source, Relation: e.Relation, Target: e.Target, NumEdges: e.NumEdges, Tensors: describeAll(e.Tensors),
		Unnumbered: e.Unnumbered,
		Topology:   []ArrayDescription{describe("indptr", e.Indptr), describe("indices", e.Indices)},
	}
	if e.EdgeIDs != nil {
		d.Topology = append(d.Topology, describe(edgeIDsName, e.EdgeIDs))
	}
	if w := e.Weights; w != nil {
		d.WeightsOf = w.Of
		d.Topology = append(d.Topology, describe("weights", &w.Array), describe("weight_sums", &w.Sums))
	}
	return d
}

func describeAll(tensors []Tensor) []ArrayDescription {
	out := make([]ArrayDescription, len(tensors)) // never nil: JSON readers expect a list
	for i := range tensors {
		t := &tensors[i]
		out[i] = describe(t.Name, &t.Array)
		out[i].Aggregate = t.Aggregate
		if n := t.Narrow; n != nil {
			dtype, shape := t.Values()
			out[i].DType, out[i].Shape, out[i].Stored = dtype.Label(), append([]int64{t.Rows}, shape...), n.Form.String()
			out[i].Error = &NarrowError{n.MaxError, n.SumSquareError, n.SumSquare}
			out[i].Scales, out[i].Offsets = n.Scales, n.Offsets
		}
	}
	return out
}

func describe(name string, a *Array) ArrayDescription {
	return ArrayDescription{
		Name: name, File: a.File, DType: a.DType.Label(), Shape: append([]int64{a.Rows}, a.RowShape...),
		Stored: a.DType.Label(), RowBytes: a.Layout.RowBytes, RowsPerPage: a.Layout.RowsPerPage, NumBytes: a.Bytes,
	}
}
