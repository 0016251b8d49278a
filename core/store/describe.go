package store

import (
	"encoding/hex"
	"time"

	"freshgo/core/manifest"
)

// Description says what a store holds, in a form that encodes to JSON.
type Description struct {
	Path        string             `json:"path"`
	UUID        string             `json:"uuid"`
	Version     int                `json:"format_version"`
	Created     string             `json:"created"` // RFC 3339, UTC
	Generator   string             `json:"generator"`
	NumNodes    int64              `json:"num_nodes"`
	NumEdges    int64              `json:"num_edges"`
	NumBytes    int64              `json:"n_bytes"` // of all arrays, checksums excluded
	Topology    []ArrayDescription `json:"topology"`
	Order       *ArrayDescription  `json:"order"` // the user's id of each row of the tensors; null: the row is the id
	Tensors     []ArrayDescription `json:"tensors"`
	EdgeTensors []ArrayDescription `json:"edge_tensors"`
	Splits      []ArrayDescription `json:"splits"`
}

// ArrayDescription describes one file.
type ArrayDescription struct {
	Name        string  `json:"name"`
	File        string  `json:"file"`
	DType       string  `json:"dtype"`
	Shape       []int64 `json:"shape"`
	RowBytes    int     `json:"row_bytes"`
	RowsPerPage int     `json:"rows_per_page"` // 0: packed back to back
	NumBytes    int64   `json:"n_bytes"`
}

// Describe returns what the store holds, from its manifest alone.
func (s *Store) Describe() Description {
	id := s.UUID()
	d := Description{
		Path: s.path, UUID: hex.EncodeToString(id[:]), Version: manifest.Version,
		Created:   time.Unix(0, s.manifest.GetCreatedUnixNs()).UTC().Format(time.RFC3339),
		Generator: s.manifest.GetGenerator(),
		NumNodes:  s.topology.NumNodes, NumEdges: s.topology.NumEdges,
		Topology: []ArrayDescription{describe("indptr", s.topology.Indptr), describe("indices", s.topology.Indices)},
		Tensors:  describeAll(s.nodes), EdgeTensors: describeAll(s.edges), Splits: describeAll(s.splits),
	}
	if s.topology.EdgeIDs != nil {
		d.Topology = append(d.Topology, describe("edge_ids", s.topology.EdgeIDs))
	}
	if s.order != nil {
		order := describe("order", s.order)
		d.Order = &order
	}
	for _, a := range s.arrays() {
		d.NumBytes += a.Bytes
	}
	return d
}

func describeAll(tensors []Tensor) []ArrayDescription {
	out := make([]ArrayDescription, len(tensors)) // never nil: JSON readers expect a list
	for i := range tensors {
		out[i] = describe(tensors[i].Name, &tensors[i].Array)
	}
	return out
}

func describe(name string, a *Array) ArrayDescription {
	return ArrayDescription{
		Name: name, File: a.File, DType: a.DType.Label(), Shape: append([]int64{a.Rows}, a.RowShape...),
		RowBytes: a.Layout.RowBytes, RowsPerPage: a.Layout.RowsPerPage, NumBytes: a.Bytes,
	}
}
