package sample

import (
	"freshgo/core/offsets"
	"freshgo/core/packed"
)

// plainGraph is a homogeneous graph, as its one relation.
type plainGraph struct {
	NumNodes  int64
	Indptr    []int64
	Indices32 []int32
	Indices64 []int64
	Packed    *packed.Array
	Adjacency Adjacency
}

func (g plainGraph) relation() Relation {
	of := Relation{Indices32: g.Indices32, Indices64: g.Indices64, Packed: g.Packed, Adjacency: g.Adjacency}
	if g.Indptr != nil {
		of.Indptr = offsets.Of(g.Indptr)
	}
	return of
}

func (g plainGraph) graph() Graph {
	return Graph{NumNodes: []int64{g.NumNodes}, Relations: []Relation{g.relation()}}
}

// plainConfig is a Config for one relation.
type plainConfig struct {
	Fanouts  []int64
	Replace  bool
	Weights  *Weights
	Labor    *Labor
	Walks    []Walk
	Subgraph SubgraphType
	Temporal *Temporal
	Disjoint bool
}

func (c plainConfig) config() Config {
	out := Config{Fanouts: [][]int64{c.Fanouts}, Replace: c.Replace, Subgraph: c.Subgraph,
		Disjoint: c.Disjoint}
	if c.Labor != nil {
		out.Sampler = c.Labor
	}
	if c.Weights != nil {
		out.Weights = []*Weights{c.Weights}
	}
	if c.Walks != nil {
		out.Metapaths = []Metapath{{Path: []int{0}, Walks: c.Walks}}
	}
	if c.Temporal != nil {
		out.Temporal = []*Temporal{c.Temporal}
	}
	if c.Subgraph == Bidirectional {
		out.Reverse = []int{0}
	}
	return out
}

func newPlain(g plainGraph, cfg plainConfig) (*Sampler, error) { return New(g.graph(), cfg.config()) }

// plainDemand returns the demand of a graph with one node type and one relation.
func plainDemand(nodes, edges int64) Demand {
	return Demand{Nodes: []int64{nodes}, Edges: []int64{edges}}
}
