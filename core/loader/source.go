package loader

import (
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/store"
)

// Source is the graph of a loader: the store on disk of OpenStore, or a Graph in memory.
type Source interface {
	parts() parts
}

// parts is a source taken apart. What is on disk has a nil memory.
type parts struct {
	numNodes, numEdges int64
	store              *store.Store   // nil for a Graph
	tensors            []tensor       // node tensors, then edge tensors
	transposed         bool           // batches bring their edges grouped by source too
	held               bool           // batches say where each row is, see PlaceName
	weighted           bool           // edges have a weight from the sampler
	disjoint           bool           // nodes have a tree, see TreeName
	timed              bool           // and seeds a time
	links              *links.Options // nil: batches are drawn for seeds
	types              *schema        // of a homogeneous graph: one unnamed node type, one unnamed relation
	inMemory           *mem.Budget    // what a Graph has allocated; nil for a store
}

// tensor is a named table of rows, one per node or one per edge.
type tensor struct {
	name     string
	dtype    manifest.DType // as batches have it, as is rowShape
	rowShape []int64
	width    int             // bytes of a row, as it is stored and cached
	narrow   *store.Narrowed // the coding of rows of fewer bytes; nil: batches have the rows as they are
	byEdge   bool            // a row per edge, in the user's order of edges
	numRows  int64
	memory   []byte        // dense rows, when the user holds them in memory
	onDisk   *store.Tensor // else where they are

	typ   int    // place of its node type, or of its relation
	first int64  // global number of the first node of its type
	label string // what batches call it
}

// choose leaves out tensors that were computed (package propagate), but for the one of this name: where a node type has
// it, batches bring it instead of the tensor that it was made from.
func (p *parts) choose(aggregate string) error {
	computed := func(t *tensor) *store.Aggregate {
		if t.onDisk == nil || t.byEdge {
			return nil
		}
		return t.onDisk.Aggregate
	}
	replaced := map[int]string{} // by node type
	for i := range p.tensors {
		t := &p.tensors[i]
		a := computed(t)
		switch {
		case a == nil || t.name != aggregate:
			continue
		case a.Stale != "":
			return fmt.Errorf("%w: the aggregate %s was made from %s than the store holds: propagate again", ErrOption,
				p.types.describe(t), a.Stale)
		}
		replaced[t.typ] = a.Tensor
	}
	if aggregate != "" && len(replaced) == 0 {
		return fmt.Errorf("%w: no tensor %q that propagate has computed", ErrOption, aggregate)
	}
	p.tensors = slices.DeleteFunc(p.tensors, func(t tensor) bool {
		if computed(&t) != nil {
			return t.name != aggregate
		}
		name, within := replaced[t.typ]
		return within && !t.byEdge && t.name == name
	})
	return nil
}

// checkRows refuses rows on disk that 32 bits do not number, or that a plan cannot tell apart. Those of types are
// numbered one after the other.
func (p *parts) checkRows(cacheKind string) error {
	read := slices.ContainsFunc(p.tensors, func(t tensor) bool { return t.onDisk != nil && !t.byEdge })
	if read && p.numNodes > cache.MaxRows {
		return fmt.Errorf("%w: the graph has %d nodes, rows are read from a store of at most %d",
			ErrOption, p.numNodes, int64(cache.MaxRows))
	}
	if why := p.unplannable(); read && cacheKind == "belady" {
		return why
	}
	return nil
}

// unplannable says why batches of this graph cannot be planned: a plan marks an empty slot with a number of its own.
func (p *parts) unplannable() error {
	const most = cache.MaxRows - 1
	if p.numNodes <= most {
		return nil
	}
	return fmt.Errorf("%w: cache \"belady\" plans up to %d nodes, the graph has %d", ErrOption, int64(most), p.numNodes)
}

// column is a tensor of one number for each row as package graph reads it.
func (t *tensor) column() graph.Column {
	return graph.Column{DType: t.stored(), NumRows: t.numRows, Memory: t.memory, Disk: t.onDisk}
}

// stored is the type in which rows are stored.
func (t *tensor) stored() manifest.DType {
	if t.onDisk != nil {
		return t.onDisk.DType
	}
	return t.dtype
}

// asStored makes batches bring rows as they are stored.
func (t *tensor) asStored() {
	if t.narrow != nil {
		t.dtype, t.rowShape, t.narrow = t.onDisk.DType, t.onDisk.RowShape, nil
	}
}

// delivered is the size of a row of batches.
func (t *tensor) delivered() int64 {
	if t.narrow != nil {
		return int64(t.narrow.ValueBytes())
	}
	return int64(t.width)
}

func (t *tensor) bytes() int64 { return t.numRows * int64(t.width) }

// storeSource is a store on disk.
type storeSource struct{ store *store.Store }

// OpenStore makes a store a source. The loader borrows it: the caller closes the
// store after the loader.
func OpenStore(s *store.Store) Source { return storeSource{s} }

func (s storeSource) parts() parts {
	types := &schema{first: []int64{0}}
	p := parts{store: s.store, types: types}
	places := map[string]int{}
	add := func(tensors []store.Tensor, byEdge bool, typ int) {
		for i := range tensors {
			t := &tensors[i]
			dtype, shape := t.Values()
			p.tensors = append(p.tensors, tensor{
				name: t.Name, dtype: dtype, rowShape: shape, width: t.Layout.RowBytes, narrow: t.Narrow,
				byEdge: byEdge, numRows: t.Rows, onDisk: t, typ: typ,
			})
		}
	}
	for i, t := range s.store.NodeTypes() {
		places[t.Name] = i
		types.addNodes(t.Name, t.Count)
		add(t.Tensors, false, i)
	}
	for i, e := range s.store.EdgeTypes() {
		types.relations = append(types.relations, relation{
			source: places[e.Source], target: places[e.Target], numEdges: e.NumEdges,
			name: e.String(), relation: e.Relation, onDisk: &e,
		})
		p.numEdges += e.NumEdges
		add(e.Tensors, true, i)
	}
	types.finish(&p)
	return p
}
