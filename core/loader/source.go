package loader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/store"
)

// Source is what a loader reads: OpenStore's store on disk, a Graph or a TypedGraph in memory.
type Source interface {
	parts() parts
}

// parts is a source taken apart. What is on disk has a nil memory.
type parts struct {
	numNodes, numEdges int64
	store              *store.Store // nil for a Graph
	graph              *Graph       // nil for a store
	tensors            []tensor     // node tensors, then edge tensors
	transposed         bool         // batches bring their edges grouped by source too
	held               bool         // batches say where each row is, see PlaceName
	weighted           bool         // edges have a weight from the sampler
	disjoint           bool         // nodes have a tree, see TreeName
	timed              bool         // and seeds a time
	links              *LinkOptions // nil: batches are drawn for seeds
	types              *schema      // nil: a homogeneous graph
	inMemory           *mem.Budget  // of a TypedGraph
}

// tensor is a named table of rows, one per node or one per edge.
type tensor struct {
	name     string
	dtype    manifest.DType
	rowShape []int64
	width    int  // bytes of a row
	byEdge   bool // a row per edge, in the user's order of edges
	numRows  int64
	memory   []byte        // dense rows, when the user holds them in memory
	onDisk   *store.Tensor // else where they are

	// With types:
	typ   int    // place of the type of nodes or of edges
	first int64  // global number of its first node
	label string // what batches call it; empty: its name
}

// nodeTypes is how many types of nodes there are.
func (p *parts) nodeTypes() int {
	if p.types == nil {
		return 1
	}
	return p.types.types()
}

// checkRows refuses rows on disk that 32 bits do not number. Those of types are numbered one after the other.
func (p *parts) checkRows() error {
	read := slices.ContainsFunc(p.tensors, func(t tensor) bool { return t.onDisk != nil && !t.byEdge })
	if read && p.numNodes > cache.MaxRows {
		return fmt.Errorf("%w: the graph has %d nodes, rows are read from a store of at most %d", ErrOption, p.numNodes, int64(cache.MaxRows))
	}
	return nil
}

func (t *tensor) batchName() string { return cmp.Or(t.label, t.name) }

func (t *tensor) bytes() int64 { return t.numRows * int64(t.width) }

// storeSource is a store on disk.
type storeSource struct{ store *store.Store }

// OpenStore makes a store a source. The loader borrows it: the caller closes the
// store after the loader.
func OpenStore(s *store.Store) Source {
	if s.Typed() {
		return typedStore{s}
	}
	return storeSource{s}
}

func (s storeSource) parts() parts {
	topology := s.store.Topology()
	p := parts{numNodes: topology.NumNodes, numEdges: topology.NumEdges, store: s.store}
	add := func(tensors []store.Tensor, byEdge bool) {
		for i := range tensors {
			t := &tensors[i]
			p.tensors = append(p.tensors, tensor{
				name: t.Name, dtype: t.DType, rowShape: t.RowShape, width: t.Layout.RowBytes,
				byEdge: byEdge, numRows: t.Rows, onDisk: t,
			})
		}
	}
	add(s.store.Tensors(), false)
	add(s.store.EdgeTensors(), true)
	return p
}

// GraphInput is a graph in the user's memory.
type GraphInput struct {
	NumNodes    int64
	EdgeIndex   store.Source // integers [2, edges]; row 0 the source, row 1 the target
	NodeTensors []GraphTensor
	EdgeTensors []GraphTensor
}

// GraphTensor is dense rows in memory of the user's, who keeps them alive and
// unmoved until the Graph is closed.
type GraphTensor struct {
	Name     string
	DType    manifest.DType
	RowShape []int64
	Rows     []byte
}

// Graph is a graph in memory: in-edges indexed by target, built once and kept
// outside the Go heap, and the user's tensors in place. It serves any number of
// loaders and is closed after them.
type Graph struct {
	csc    *store.CSC
	inputs []tensor
	budget *mem.Budget
	nodes  int64
	edges  int64
}

// NewGraph indexes the edges of a graph in memory. Ids out of range and row
// counts that disagree are errors; a cancelled ctx leaves nothing behind.
func NewGraph(ctx context.Context, in GraphInput) (*Graph, error) {
	g := &Graph{budget: mem.NewBudget(0), nodes: in.NumNodes}
	csc, err := store.BuildCSC(ctx, in.EdgeIndex, in.NumNodes, g.budget)
	if err != nil {
		return nil, err
	}
	g.csc, g.edges = csc, csc.NumEdges()
	for _, t := range in.NodeTensors {
		err = errors.Join(err, g.add(t, false, g.nodes))
	}
	for _, t := range in.EdgeTensors {
		err = errors.Join(err, g.add(t, true, g.edges))
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Graph) add(t GraphTensor, byEdge bool, numRows int64) error {
	checked, err := newTensor(t, t.Name, byEdge, numRows)
	if err == nil {
		g.inputs = append(g.inputs, checked)
	}
	return err
}

// newTensor checks a tensor, which messages call what, against the rows that it must have.
func newTensor(t GraphTensor, what string, byEdge bool, numRows int64) (tensor, error) {
	width := int64(t.DType.Size())
	for _, n := range t.RowShape {
		width *= n
	}
	if int64(len(t.Rows)) != numRows*width {
		return tensor{}, fmt.Errorf("%w: tensor %q has %d bytes, expected %d rows of %d bytes", store.ErrInvalid, what, len(t.Rows), numRows, width)
	}
	return tensor{
		name: t.Name, dtype: t.DType, rowShape: t.RowShape, width: int(width),
		byEdge: byEdge, numRows: numRows, memory: t.Rows,
	}, nil
}

// NumEdges is the number of edges.
func (g *Graph) NumEdges() int64 { return g.edges }

func (g *Graph) parts() parts {
	return parts{numNodes: g.nodes, numEdges: g.edges, graph: g, tensors: g.inputs}
}

// Close frees the index; the tensors stay the user's. Idempotent.
func (g *Graph) Close() {
	if g.csc != nil {
		g.csc.Close()
		g.csc = nil
	}
}
