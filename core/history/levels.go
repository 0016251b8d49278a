package history

import (
	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// The levels of a pruned batch.
//
// Of L hops and L layers, layer l turns rows of level l-1 into rows of level l; level 0 is the features, level L the
// outputs of the seeds. T_l lists the rows of level l that layer l+1 reads, first its targets (each reads itself: root
// weight, self-loop), then its other sources. A row of T_l, 1 <= l < L, is either a hit, whose value is in the history,
// or computed by layer l. So the targets of a layer come first among its sources, as PyG's bipartite layers require.

// Level is T_l.
type Level struct {
	Nodes []int32 // nodes of Graph: the targets of layer l+1 as its outputs are ordered, then the others ascending
	// The rest is nil for level 0. Computed and Hits together are all positions in Nodes; both ascend.
	Computed []int32 // positions of the outputs of layer l, in their order
	Hits     []int32 // positions of the rows that the history has
	Slots    []int32 // what Lookup said of each hit
}

// Layer holds the edges of one layer: the edges of output i, row i of the level above its inputs, are Ptr[i] to
// Ptr[i+1].
type Layer struct {
	NumSrc, NumDst int64
	Ptr            []int64
	Source         []int32 // positions in the level below
	Edge           []int32 // edges of Graph
}

// Pruned is a pruned batch. Its zero value is ready for Decide; its memory is kept from batch to batch, counted
// under mem.Trace in the Pruner's budget, and its slices are valid until the next Decide or Free.
type Pruned struct {
	// Graph is the batch: of hops 0 to L-1 the seeds and the nodes needed at any level in their old order, then the
	// last hop in the order in which its remaining edges name it, which does not depend on edges that are gone. It has
	// the edges of the rows that any layer computes.
	Graph  sample.Subgraph
	Degree []int32 // by node of Graph: in-edges drawn, those pruned included; 0 in the last hop
	Kept   []int32 // by node of Graph: its local id in the batch before
	Loaded []int32 // nodes of Graph whose features are read, ascending: the seeds and the nodes of level 0
	Levels []Level // of level l at l, 0 <= l < L
	Layers []Layer // of layer l at l-1, 1 <= l <= L

	// The sizes of the batch before.
	PlainNodes, PlainEdges int64

	arena arena
}

// Free frees the memory. The Pruned may be used again.
func (o *Pruned) Free() {
	o.arena.free()
	*o = Pruned{}
}

// hops is the size of a batch.
type hops struct{ nodes, edges []int64 } // per hop: L+1 and L numbers

func (h hops) layers() int { return len(h.edges) }

// nodesTo and edgesTo are the sizes of the graph of hops 0 to last.
func (h hops) nodesTo(last int) int64 { return sum(h.nodes[:last+1]) }
func (h hops) edgesTo(last int) int64 { return sum(h.edges[:last+1]) }

func sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// prunedBytes returns the memory that lay takes for a batch of this size: a node of hop j is in the levels 0 to L-j at
// most, and its edges in the layers 1 to L-j.
func (h hops) prunedBytes() int64 {
	layers := h.layers()
	nodes, edges := h.nodesTo(layers), h.edgesTo(layers-1)
	total := pieceBytes(nodes, 8) + pieceBytes(h.nodesTo(layers-1)+1, 8) + pieceBytes(edges, 8) + pieceBytes(edges,
		4) + 3*pieceBytes(nodes, 4)
	for l := range layers {
		rows, drawn := h.nodesTo(layers-l), h.edgesTo(layers-l-1)
		total += pieceBytes(rows, 4) + pieceBytes(h.nodesTo(layers-l-1)+1, 8) + 2*pieceBytes(drawn, 4)
		if l > 0 {
			total += 2 * pieceBytes(rows, 4)
		}
	}
	return total
}

// lay gives o the memory of a batch of at most this size: every slice is as long as it can become.
func (o *Pruned) lay(budget *mem.Budget, h hops) error {
	layers := h.layers()
	if err := o.arena.begin(budget, h.prunedBytes()); err != nil {
		return err
	}
	a := &o.arena
	nodes, edges := h.nodesTo(layers), h.edgesTo(layers-1)
	o.Graph = sample.Subgraph{
		Nodes: take[int64](a, nodes), Ptr: take[int64](a, h.nodesTo(layers-1)+1),
		Pos: take[int64](a, edges), Row: take[uint32](a, edges),
		NodesPerHop: reuse.Zeros(o.Graph.NodesPerHop, layers+1), EdgesPerHop: reuse.Zeros(o.Graph.EdgesPerHop, layers),
	}
	o.Degree, o.Kept, o.Loaded = take[int32](a, nodes), take[int32](a, nodes), take[int32](a, nodes)
	o.Levels, o.Layers = reuse.Zeros(o.Levels, layers), reuse.Zeros(o.Layers, layers)
	for l := range layers {
		rows, drawn := h.nodesTo(layers-l), h.edgesTo(layers-l-1)
		level, layer := &o.Levels[l], &o.Layers[l]
		level.Nodes = take[int32](a, rows)
		layer.Ptr = take[int64](a, h.nodesTo(layers-l-1)+1)
		layer.Source, layer.Edge = take[int32](a, drawn), take[int32](a, drawn)
		if l > 0 {
			level.Hits, level.Slots = take[int32](a, rows), take[int32](a, rows) // Computed takes the rest of Hits
		}
	}
	o.PlainNodes, o.PlainEdges = nodes, edges
	return nil
}

// PrunedBytes returns the memory of a Pruner and a Pruned for batches up to these sizes in each hop.
func PrunedBytes(nodesPerHop, edgesPerHop []int64) int64 {
	h := hops{nodes: nodesPerHop, edges: edgesPerHop}
	return h.prunedBytes() + h.scratchBytes()
}
