package draw

import (
	"context"
	"errors"
	"fmt"

	"freshgo/core/graph"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// GraphInput is a graph in the user's memory. A homogeneous one has one node type and one edge type, all of whose names
// are empty.
type GraphInput struct {
	NodeTypes []GraphNodes
	EdgeTypes []GraphEdges
	Memory    int64 // bytes that the index may take while it is made; 0: unlimited
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

// GraphTensor is dense rows in memory of the user's, who keeps them alive and
// unmoved until the Graph is closed.
type GraphTensor struct {
	Name     string
	DType    manifest.DType
	RowShape []int64
	Rows     []byte
}

// Graph is a graph in memory: the in-edges of each edge type indexed by target, built once, one type after the other,
// and kept outside the Go heap, and the user's tensors in place. It serves any number of loaders and is closed after
// them.
type Graph struct {
	Nodes  []graphNodes
	Edges  []graphEdges
	Budget *mem.Budget
}

type graphNodes struct {
	name    string
	Count   int64
	tensors []Tensor
}

type graphEdges struct {
	Source, Target int // places of node types
	name           [3]string
	CSC            *store.CSC
	tensors        []Tensor
}

// unnamed reports whether the graph is homogeneous.
func (in *GraphInput) unnamed() bool {
	if len(in.NodeTypes) != 1 || len(in.EdgeTypes) != 1 {
		return false
	}
	e := &in.EdgeTypes[0]
	return in.NodeTypes[0].Name == "" && e.Source == "" && e.Relation == "" && e.Target == ""
}

// NewGraph indexes the edges of a graph in memory. Types that do not exist, ids out of range of their type and row
// counts that disagree are errors, and so is an index for which there is no memory (*mem.BudgetError); a cancelled ctx
// leaves nothing behind.
func NewGraph(ctx context.Context, in GraphInput) (*Graph, error) {
	var nodes []store.NodeInput
	place := map[string]int{}
	for i, t := range in.NodeTypes {
		nodes, place[t.Name] = append(nodes, store.NodeInput{Name: t.Name}), i
	}
	var edges []store.EdgeInput
	for _, t := range in.EdgeTypes {
		edges = append(edges, store.EdgeInput{Source: t.Source, Relation: t.Relation, Target: t.Target})
	}
	var names naming = namedTypes{}
	if in.unnamed() {
		if names = (oneType{}); in.NodeTypes[0].NumNodes < 1 {
			return nil, fmt.Errorf("%w: %d nodes, expected at least 1", store.ErrInvalid, in.NodeTypes[0].NumNodes)
		}
	} else if err := store.CheckTypes(nodes, edges); err != nil {
		return nil, err
	}
	g := &Graph{Budget: mem.NewBudget(in.Memory)}
	err := g.build(ctx, in, place, names)
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Graph) build(ctx context.Context, in GraphInput, place map[string]int, names naming) error {
	var err error
	for _, t := range in.NodeTypes {
		if t.NumNodes < 0 {
			return fmt.Errorf("%w: node type %q has %d nodes, expected at least 0", store.ErrInvalid, t.Name, t.NumNodes)
		}
		n := graphNodes{name: t.Name, Count: t.NumNodes}
		for _, rows := range t.Tensors {
			checked, wrong := newTensor(rows, names.full(rows.Name, t.Name), false, t.NumNodes)
			n.tensors, err = append(n.tensors, checked), errors.Join(err, wrong)
		}
		g.Nodes = append(g.Nodes, n)
	}
	for _, t := range in.EdgeTypes {
		e := graphEdges{
			Source: place[t.Source], Target: place[t.Target], name: [3]string{t.Source, t.Relation, t.Target},
		}
		label := fmt.Sprintf("(%s, %s, %s)", t.Source, t.Relation, t.Target)
		sources, targets := g.Nodes[e.Source].Count, g.Nodes[e.Target].Count
		var wrong error
		e.CSC, wrong = store.BuildRelation(ctx, t.EdgeIndex, names.full("edge_index", label), sources, targets, g.Budget)
		if wrong != nil {
			return errors.Join(err, wrong)
		}
		for _, rows := range t.Tensors {
			checked, wrong := newTensor(rows, names.full(rows.Name, label), true, e.CSC.NumEdges())
			e.tensors, err = append(e.tensors, checked), errors.Join(err, wrong)
		}
		g.Edges = append(g.Edges, e)
	}
	return err
}

// newTensor checks a tensor, which messages call what, against the rows that it must have.
func newTensor(t GraphTensor, what string, byEdge bool, numRows int64) (Tensor, error) {
	width := int64(t.DType.Size())
	for _, n := range t.RowShape {
		width *= n
	}
	if width == 0 {
		return Tensor{}, fmt.Errorf("%w: %s has shape %v, expected rows of at least 1 byte: leave it out",
			store.ErrInvalid, what, append([]int64{numRows}, t.RowShape...))
	}
	if int64(len(t.Rows)) != numRows*width {
		return Tensor{}, fmt.Errorf("%w: tensor %q has %d bytes, expected %d rows of %d bytes",
			store.ErrInvalid, what, len(t.Rows), numRows, width)
	}
	return Tensor{
		Name: t.Name, DType: t.DType, RowShape: t.RowShape, Width: int(width), Stored: t.DType,
		ByEdge: byEdge, NumRows: numRows, Memory: t.Rows,
	}, nil
}

func (g *Graph) Parts() Parts {
	types := &Schema{First: []int64{0}}
	p := Parts{
		Schema: types, FS: ssd.OS, CheckCurrent: func() error { return nil },
		allocated: g.Budget.Used(), addSizes: (*Parts).addMemory,
	}
	add := func(tensors []Tensor, typ int) {
		for _, t := range tensors {
			t.Type = typ
			p.Tensors = append(p.Tensors, t)
		}
	}
	for i, t := range g.Nodes {
		types.addNodes(t.name, t.Count)
		add(t.tensors, i)
	}
	for i, e := range g.Edges {
		c := e.CSC
		types.Relations = append(types.Relations, Relation{
			Source: e.Source, Target: e.Target, NumEdges: c.NumEdges(),
			name: fmt.Sprintf("(%s, %s, %s)", e.name[0], e.name[1], e.name[2]), Relation: e.name[1],
			Lists: graph.Lists{
				Indptr:    c.Indptr,
				Neighbors: graph.InMemory(Unsigned(c.Indices32), c.Indices64, g.Nodes[e.Source].Count),
				EdgeIDs:   graph.InMemory(c.EdgeIDs32, c.EdgeIDs64, c.NumEdges()),
			},
		})
		p.NumEdges += c.NumEdges()
		add(e.tensors, i)
	}
	p.finish()
	return p
}

// Close frees the indices; the tensors stay the user's. Idempotent.
func (g *Graph) Close() {
	for _, e := range g.Edges {
		e.CSC.Close()
	}
	g.Edges = nil
}
