package loader

import (
	"context"
	"errors"
	"fmt"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// TypedGraphInput is a graph with types of nodes and edges in the user's memory.
type TypedGraphInput struct {
	NodeTypes []GraphNodes
	EdgeTypes []GraphEdges
}

// GraphNodes is the nodes of one type.
type GraphNodes struct {
	Name     string
	NumNodes int64
	Tensors  []GraphTensor
}

// GraphEdges is the edges of one type, from nodes of type Source to nodes of type Target.
type GraphEdges struct {
	Source, Relation, Target string
	EdgeIndex                store.Source // integers [2, edges]; row 0 the source, row 1 the target
	Tensors                  []GraphTensor
}

// TypedGraph is a graph with types in memory, as Graph is one without: the in-edges of each type of edges by target, built once, one type after
// the other, and kept outside the Go heap, and the user's tensors in place.
type TypedGraph struct {
	nodes  []typedNodes
	edges  []typedEdges
	budget *mem.Budget
}

type typedNodes struct {
	name    string
	count   int64
	tensors []tensor
}

type typedEdges struct {
	source, target int // places of node types
	name           [3]string
	csc            *store.CSC
	tensors        []tensor
}

// NewTypedGraph indexes the edges. Types that do not exist, ids out of range of their type and row counts that disagree are errors; a cancelled
// ctx leaves nothing behind.
func NewTypedGraph(ctx context.Context, in TypedGraphInput) (*TypedGraph, error) {
	var nodes []store.NodeInput
	place := map[string]int{}
	for i, t := range in.NodeTypes {
		nodes, place[t.Name] = append(nodes, store.NodeInput{Name: t.Name}), i
	}
	var edges []store.EdgeInput
	for _, t := range in.EdgeTypes {
		edges = append(edges, store.EdgeInput{Source: t.Source, Relation: t.Relation, Target: t.Target})
	}
	if err := store.CheckTypes(nodes, edges); err != nil {
		return nil, err
	}
	g := &TypedGraph{budget: mem.NewBudget(0)}
	err := g.build(ctx, in, place)
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *TypedGraph) build(ctx context.Context, in TypedGraphInput, place map[string]int) error {
	var err error
	for _, t := range in.NodeTypes {
		if t.NumNodes < 0 {
			return fmt.Errorf("%w: %d nodes of type %q", store.ErrInvalid, t.NumNodes, t.Name)
		}
		n := typedNodes{name: t.Name, count: t.NumNodes}
		for _, rows := range t.Tensors {
			checked, wrong := newTensor(rows, t.Name+"."+rows.Name, false, t.NumNodes)
			n.tensors, err = append(n.tensors, checked), errors.Join(err, wrong)
		}
		g.nodes = append(g.nodes, n)
	}
	for _, t := range in.EdgeTypes {
		name := fmt.Sprintf("(%s, %s, %s).", t.Source, t.Relation, t.Target)
		e := typedEdges{source: place[t.Source], target: place[t.Target], name: [3]string{t.Source, t.Relation, t.Target}}
		csc, wrong := store.BuildRelation(ctx, t.EdgeIndex, name+"edge_index", g.nodes[e.source].count, g.nodes[e.target].count, g.budget)
		if wrong != nil {
			return errors.Join(err, wrong)
		}
		e.csc = csc
		g.edges = append(g.edges, e)
		for _, rows := range t.Tensors {
			checked, wrong := newTensor(rows, name+rows.Name, true, csc.NumEdges())
			g.edges[len(g.edges)-1].tensors = append(g.edges[len(g.edges)-1].tensors, checked)
			err = errors.Join(err, wrong)
		}
	}
	return err
}

// Sampled returns what the sampler draws from: node types and relations in the order of the input. It is valid until Close.
func (g *TypedGraph) Sampled() sample.HeteroGraph {
	var out sample.HeteroGraph
	for _, t := range g.nodes {
		out.NumNodes = append(out.NumNodes, t.count)
	}
	for _, e := range g.edges {
		out.Relations = append(out.Relations, sample.Relation{
			Source: e.source, Target: e.target, Indptr: e.csc.Indptr, Indices32: e.csc.Indices32, Indices64: e.csc.Indices64,
		})
	}
	return out
}

// NumTensors is the number of tensors of all types.
func (g *TypedGraph) NumTensors() (n int) {
	for _, t := range g.nodes {
		n += len(t.tensors)
	}
	for _, e := range g.edges {
		n += len(e.tensors)
	}
	return n
}

// NumTypes is the number of types of nodes and of edges.
func (g *TypedGraph) NumTypes() (nodes, edges int) { return len(g.nodes), len(g.edges) }

// Close frees the indices; the tensors stay the user's. Idempotent.
func (g *TypedGraph) Close() {
	for _, e := range g.edges {
		e.csc.Close()
	}
	g.edges = nil
}
