package store

import (
	"fmt"
	"slices"
)

// NodeType is the nodes of one type and what belongs to them. Its slices are not to be changed.
type NodeType struct {
	Name    string // empty in a homogeneous store
	Count   int64
	Tensors []Tensor // a row for each node, in the order that Order tells
	Splits  []Tensor // rows are node ids, int64
	Order   *Array   // the user's id of each row of the tensors, uint32; nil: the row is the id
	file    string   // begins the names of its files: nothing in a homogeneous store
	in      *directory
}

// EdgeType is the edges of one type, from nodes of one type to nodes of one type. Its slices are not to be changed.
type EdgeType struct {
	Source, Relation, Target string // all empty in a homogeneous store
	Topology
	Tensors []Tensor // a row for each edge, in the user's order
	Weights *Weights // of one of the tensors by position; nil where Convert was not asked for them
	file    string   // begins the names of its files: nothing in a homogeneous store
}

// Topology is the adjacency by target (CSC): the in-edges of node t are at positions Indptr[t] to Indptr[t+1] of
// Indices.
type Topology struct {
	NumSources int64  // nodes that edges come from; in a homogeneous store as many as NumNodes
	NumNodes   int64  // nodes that edges go to
	NumEdges   int64  //
	Indptr     *Array // int64, NumNodes+1 rows
	Indices    *Array // int32 or int64: the source of each edge
	EdgeIDs    *Array // uint32, uint40 or int64: the user's number of each edge; nil when it is the position
	Unnumbered bool   // the user's numbers of edges are not known: EdgeIDs is nil, and there are no tensors of edges
}

// String returns the type as messages have it: (author, writes, paper), or "all edges" of a homogeneous store.
func (e *EdgeType) String() string { return edgeTypeName(e.Source, e.Relation, e.Target) }

func edgeTypeName(source, relation, target string) string {
	if source == "" && relation == "" && target == "" {
		return "all edges"
	}
	return fmt.Sprintf("(%s, %s, %s)", source, relation, target)
}

// Heterogeneous reports whether node types and edge types have names, be there only one of each. A homogeneous store
// has one node type and one edge type, both without a name.
func (s *Store) Heterogeneous() bool { return s.nodeTypes[0].Name != "" }

// NodeTypes returns the node types: one without a name in a homogeneous store.
func (s *Store) NodeTypes() []NodeType { return slices.Clone(s.nodeTypes) }

// EdgeTypes returns the edge types: one without names in a homogeneous store.
func (s *Store) EdgeTypes() []EdgeType { return slices.Clone(s.edgeTypes) }

// NodeType returns a node type. An unknown one is ErrNotFound, with those that exist.
func (s *Store) NodeType(name string) (*NodeType, error) {
	if i := s.nodeTypeNumber(name); i >= 0 {
		return &s.nodeTypes[i], nil
	}
	names := make([]string, len(s.nodeTypes))
	for i := range s.nodeTypes {
		names[i] = s.nodeTypes[i].Name
	}
	return nil, fmt.Errorf("store: node type %q, the node types of %s are %q: %w", name, s.path, names, ErrNotFound)
}

// EdgeType returns an edge type. An unknown one is ErrNotFound, with those that exist.
func (s *Store) EdgeType(source, relation, target string) (*EdgeType, error) {
	names := make([]string, len(s.edgeTypes))
	for i := range s.edgeTypes {
		e := &s.edgeTypes[i]
		if e.Source == source && e.Relation == relation && e.Target == target {
			return e, nil
		}
		names[i] = e.String()
	}
	return nil, fmt.Errorf("store: edge type %s, the edge types of %s are %v: %w",
		edgeTypeName(source, relation, target), s.path, names, ErrNotFound)
}

// firstNodes numbers the nodes of all types one after the other: node v of type t has the number firstNodes()[t]+v. The
// last element is the number of nodes.
func (s *Store) firstNodes() []int64 {
	first := make([]int64, len(s.nodeTypes)+1)
	for i := range s.nodeTypes {
		first[i+1] = first[i] + s.nodeTypes[i].Count
	}
	return first
}

// nodeTypeNumber returns the place of a node type that exists.
func (s *Store) nodeTypeNumber(name string) int {
	return slices.IndexFunc(s.nodeTypes, func(t NodeType) bool { return t.Name == name })
}

// arrays lists every array of the store.
func (s *Store) arrays() []*Array {
	var all []*Array
	for i := range s.nodeTypes {
		all = append(all, s.nodeTypes[i].arrays()...)
	}
	for i := range s.edgeTypes {
		all = append(all, s.edgeTypes[i].arrays()...)
	}
	return append(all, arraysOf(s.attachments)...)
}

func (t *NodeType) arrays() []*Array {
	var all []*Array
	if t.Order != nil {
		all = append(all, t.Order)
	}
	return append(append(all, arraysOf(t.Tensors)...), arraysOf(t.Splits)...)
}

func (e *EdgeType) arrays() []*Array {
	all := []*Array{e.Indptr, e.Indices}
	if e.EdgeIDs != nil {
		all = append(all, e.EdgeIDs)
	}
	return append(append(all, e.Weights.arrays()...), arraysOf(e.Tensors)...)
}

func arraysOf(tensors []Tensor) []*Array {
	all := make([]*Array, len(tensors))
	for i := range tensors {
		all[i] = &tensors[i].Array
	}
	return all
}

// nodeLabel stands before the names of what belongs to a node type: "paper." or nothing.
func nodeLabel(name string) string {
	if name == "" {
		return ""
	}
	return name + "."
}

// edgeLabel stands before the names of what belongs to an edge type: "(author, writes, paper)." or nothing.
func edgeLabel(source, relation, target string) string {
	if source == "" && relation == "" && target == "" {
		return ""
	}
	return edgeTypeName(source, relation, target) + "."
}
