package draw

import (
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/embed"
	"freshgo/core/graph"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// Source is the graph of a loader: the store on disk of OpenStore, or a Graph in memory.
type Source interface {
	Parts() Parts
}

// Parts is a source taken apart. What is on disk has a nil memory.
type Parts struct {
	NumNodes, NumEdges int64
	Store              *store.Store   // nil for a Graph
	Tensors            []Tensor       // node tensors, then edge tensors
	Transposed         bool           // batches bring their edges grouped by source too
	Held               bool           // batches say where each row is, see PlaceName
	Packed             bool           // batches are packed
	Weighted           bool           // edges have a weight from the sampler
	Trains             bool           // training changes the rows of some tensors
	Disjoint           bool           // nodes have a tree, see TreeName
	Timed              bool           // and seeds a time
	Links              *links.Options // nil: batches are drawn for seeds
	Schema             *Schema        // of a homogeneous graph: one unnamed node type, one unnamed relation

	// What is as the graph lies:
	FS           ssd.FS                        // of the store and its other files
	CheckCurrent func() error                  // whether the store is as it was opened
	stored       []store.NodeType              // how a store has the nodes of each type
	allocated    int64                         // bytes of a Graph
	addSizes     func(p *Parts, g *graphSizes) // adds the sizes of its arrays
}

// Tensor is a named table of rows, one per node or one per edge.
type Tensor struct {
	Name     string
	DType    manifest.DType // as batches have it, as is rowShape
	RowShape []int64
	Width    int             // bytes of a row, as it is stored and cached
	Narrow   *store.Narrowed // the coding of rows of fewer bytes; nil: batches have the rows as they are
	ByEdge   bool            // a row per edge, in the user's order of edges
	NumRows  int64
	Stored   manifest.DType // the type in which rows are stored
	Memory   []byte         // dense rows, when the user holds them in memory
	OnDisk   *store.Tensor  // else where they are
	ByID     bool           // batches bring no rows: the consumer reads them in memory, see Options.RowsByID
	Trained  *embed.Table   // the table that has the rows, where training changes them; nil: they are constant

	aggregate *store.Aggregate // how package propagate has computed it; nil: it has not
	positions *store.Weights   // the weights of edges by position; nil: only by number
	span      int              // bytes of the pages of a row on disk
	times     *graph.TimeSpan  // the range of times of nodes; nil: it is not known

	Type  int    // place of its node type, or of its relation
	First int64  // global number of the first node of its type
	Label string // name in batches
}

// Choose leaves out tensors that were computed (package propagate), but for the one of this name: where a node type has
// it, batches bring it instead of the tensor that it was made from.
func (p *Parts) Choose(aggregate string) error {
	replaced := map[int]string{} // by node type
	for i := range p.Tensors {
		t := &p.Tensors[i]
		a := t.aggregate
		switch {
		case a == nil || t.Name != aggregate:
			continue
		case a.Stale != "":
			return fmt.Errorf("%w: the aggregate %s was computed from %s than the store has: call propagate again",
				ErrOption, p.Schema.Describe(t), a.Stale)
		}
		replaced[t.Type] = a.Tensor
	}
	if aggregate != "" && len(replaced) == 0 {
		return fmt.Errorf("%w: aggregate is %q, expected a tensor that propagate has computed", ErrOption, aggregate)
	}
	p.Tensors = slices.DeleteFunc(p.Tensors, func(t Tensor) bool {
		if t.aggregate != nil {
			return t.Name != aggregate
		}
		name, within := replaced[t.Type]
		return within && !t.ByEdge && t.Name == name
	})
	return nil
}

// checkRows returns an error for rows on disk whose numbers exceed 32 bits, or the rows of a plan. Rows of types are
// numbered consecutively.
func (p *Parts) checkRows(kind cache.Kind) error {
	read := slices.ContainsFunc(p.Tensors, func(t Tensor) bool { return t.OnDisk != nil && !t.ByEdge })
	if read && p.NumNodes > cache.MaxRows {
		return fmt.Errorf("%w: the graph has %d nodes, expected at most %d where rows are read from a store",
			ErrOption, p.NumNodes, int64(cache.MaxRows))
	}
	if why := p.unplannable(); read && kind == cache.Planned {
		return why
	}
	return nil
}

// unplannable returns an error if batches of this graph cannot be planned: a plan marks empty slots with a number.
func (p *Parts) unplannable() error {
	const most = cache.MaxRows - 1
	if p.NumNodes <= most {
		return nil
	}
	return fmt.Errorf("%w: the graph has %d nodes, expected at most %d with cache \"belady\"",
		ErrOption, p.NumNodes, int64(most))
}

// ordered reports whether rows of some node type lie in an order of their own.
func (p *Parts) ordered() bool {
	return slices.ContainsFunc(p.stored, func(t store.NodeType) bool { return t.Order != nil })
}

// RowCost returns the cost of loading a node's rows: zero where its type has none, but other types have some.
func (p *Parts) RowCost() func(node int64) float32 {
	costs := make([]float32, p.Schema.NumTypes())
	for i := range p.Tensors {
		if !p.Tensors[i].ByEdge {
			costs[p.Tensors[i].Type] = 1
		}
	}
	if len(costs) == 1 {
		return func(int64) float32 { return 1 }
	}
	return func(node int64) float32 { return costs[sample.TypeOf(p.Schema.First, node)] }
}

// column returns a tensor of one number for each row as package graph reads it.
func (t *Tensor) column() graph.Column {
	return graph.Column{DType: t.Stored, NumRows: t.NumRows, Memory: t.Memory, Disk: t.OnDisk}
}

// AsStored makes batches bring rows as they are stored.
func (t *Tensor) AsStored() {
	if t.Narrow != nil {
		t.DType, t.RowShape, t.Narrow = t.OnDisk.DType, t.OnDisk.RowShape, nil
	}
}

// Delivered returns the size of a row of batches.
func (t *Tensor) Delivered() int64 {
	if t.Narrow != nil {
		return int64(t.Narrow.ValueBytes())
	}
	return int64(t.Width)
}

func (t *Tensor) Bytes() int64 { return t.NumRows * int64(t.Width) }

// storeSource is a store on disk.
type storeSource struct{ store *store.Store }

// OpenStore makes a store a source. The loader borrows it: the caller closes the
// store after the loader.
func OpenStore(s *store.Store) Source { return storeSource{s} }

func (s storeSource) Parts() Parts {
	types := &Schema{First: []int64{0}}
	p := Parts{
		Schema: types, Store: s.store, FS: s.store.FS(), CheckCurrent: s.store.CheckCurrent, stored: s.store.NodeTypes(),
		addSizes: (*Parts).addStored,
	}
	places := map[string]int{}
	add := func(tensors []store.Tensor, byEdge bool, typ int, weights *store.Weights) {
		for i := range tensors {
			t := &tensors[i]
			dtype, shape := t.Values()
			p.Tensors = append(p.Tensors, Tensor{
				Name: t.Name, DType: dtype, RowShape: shape, Width: t.Layout.RowBytes, Narrow: t.Narrow,
				ByEdge: byEdge, NumRows: t.Rows, Stored: t.DType, OnDisk: t, Type: typ,
				aggregate: t.Aggregate, span: int(t.Layout.SpanBytes()),
			})
			if weights != nil && weights.Of == t.Name {
				p.Tensors[len(p.Tensors)-1].positions = weights
			}
		}
	}
	for i, t := range p.stored {
		places[t.Name] = i
		types.addNodes(t.Name, t.Count)
		add(t.Tensors, false, i, nil)
	}
	for i, e := range s.store.EdgeTypes() {
		types.Relations = append(types.Relations, Relation{
			Source: places[e.Source], Target: places[e.Target], NumEdges: e.NumEdges,
			name: e.String(), Relation: e.Relation, OnDisk: &e,
		})
		p.NumEdges += e.NumEdges
		add(e.Tensors, true, i, e.Weights)
	}
	p.finish()
	return p
}
