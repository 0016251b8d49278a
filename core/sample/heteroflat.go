package sample

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// A flat batch is a HeteroSubgraph as one Subgraph, over one numbering of the nodes of all types: node v of type t is First[t]+v, where First[t] is the
// number of nodes of the types before. What is cached, planned and kept for later then does not know of types.
//
//   - Nodes are the nodes of the first type, then those of the second, and so on, by global number.
//   - Ptr, Row, Pos and Weight are those of the first relation, then those of the second: Ptr of each begins with 0, Row is the local id within the
//     type of the source, Pos the position within the relation.
//   - Tree, of a disjoint batch, is those of the first type, then those of the second.
//   - NodesPerHop is the counts of the first type, hops+1 of them, then those of the second; EdgesPerHop the same of relations, hops of each.
//
// Everything else follows from these counts. Of one type and one relation it has the layout of a homogeneous batch.

// flat is the memory of flat batches.
type flat struct {
	seeds  [][]int64 // of the request, by type
	times  [][]int64 // of these, where there are times
	trees  buffer[uint32]
	nodes  buffer[int64]
	ptr    buffer[int64]
	row    buffer[uint32]
	pos    buffer[int64]
	weight buffer[float32]
}

func (f *flat) free() {
	f.nodes.free()
	f.ptr.free()
	f.row.free()
	f.pos.free()
	f.weight.free()
	f.trees.free()
}

// First returns the global number of the first node of each type, and how many there are in all.
func (s *HeteroSampler) First() []int64 {
	first := make([]int64, 1, len(s.types)+1)
	for t, of := range s.types {
		first = append(first, first[t]+of.graph.NumNodes)
	}
	return first
}

// HasWeights says whether a batch has weights of edges.
func (s *HeteroSampler) HasWeights() bool { return s.relations[0].HasWeights() }

// HasPositions says whether the edges of a batch have places in the graph.
func (s *HeteroSampler) HasPositions() bool { return s.relations[0].HasPositions() }

// Draw draws the batch of key for a request, whose seeds are global numbers of nodes of any types in any order, and sets out to the flat batch. Seeds
// of a type keep their order. It fails as Worker.Draw does; out is then untouched and the HeteroWorker remains usable.
func (w *HeteroWorker) Draw(ctx context.Context, key Key, r Request, out *Subgraph) error {
	return guard.Run(func() error {
		if r.Times != nil && len(r.Times) != len(r.Seeds) {
			return fmt.Errorf("sample: times of %d seeds, want %d: %w", len(r.Times), len(r.Seeds), ErrConfig)
		}
		if err := w.splitSeeds(r.Seeds, r.Times); err != nil {
			return err
		}
		if err := w.checkExclude(&r); err != nil {
			return err
		}
		defer func() { w.exclude = nil }()
		var sub HeteroSubgraph
		if err := w.SampleTimed(ctx, key, w.flat.seeds, slices.Concat(w.flat.times...), &sub); err != nil {
			return err
		}
		return w.flatten(&sub, out)
	})
}

// splitSeeds gives every type its seeds, and their times where there are any.
func (w *HeteroWorker) splitSeeds(seeds, times []int64) error {
	if w.first == nil {
		w.first, w.flat.seeds, w.flat.times = w.sampler.First(), make([][]int64, len(w.types)), make([][]int64, len(w.types))
	}
	for t := range w.flat.seeds {
		w.flat.seeds[t], w.flat.times[t] = w.flat.seeds[t][:0], w.flat.times[t][:0]
	}
	total := w.first[len(w.types)]
	for i, v := range seeds {
		if v < 0 || v >= total {
			return badSeed(v, i, total)
		}
		t := TypeOf(w.first, v)
		w.flat.seeds[t] = append(w.flat.seeds[t], v-w.first[t])
		if times != nil {
			w.flat.times[t] = append(w.flat.times[t], times[i])
		}
	}
	return nil
}

// TypeOf is the type of a node of this global number, which there must be; first is as of HeteroSampler.First.
func TypeOf(first []int64, v int64) int {
	lo, hi := 0, len(first)-1
	for lo < hi { // the first type that ends behind v
		if mid := (lo + hi) / 2; first[mid+1] <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// flatten puts the lists of types and relations one after the other.
func (w *HeteroWorker) flatten(sub *HeteroSubgraph, out *Subgraph) error {
	var nodes, ptrs, edges int64
	for _, of := range sub.Nodes {
		nodes += int64(len(of))
	}
	for _, r := range sub.Relations {
		ptrs, edges = ptrs+int64(len(r.Ptr)), edges+int64(len(r.Row))
	}
	f := &w.flat
	placed, weighted := edges, edges
	if !w.sampler.HasPositions() {
		placed = 0
	}
	if !w.sampler.HasWeights() {
		weighted = 0
	}
	if err := f.grow(w.budget, nodes, ptrs, edges, placed, weighted); err != nil {
		return err
	}
	if err := w.growTrees(nodes); err != nil {
		return err
	}
	g := Subgraph{
		Nodes: f.nodes.data[:0], Ptr: f.ptr.data[:0], Row: f.row.data[:0],
		NodesPerHop: make([]int64, 0, len(w.types)*(w.sampler.hops+1)), EdgesPerHop: make([]int64, 0, len(w.relations)*w.sampler.hops),
	}
	if w.sampler.HasPositions() {
		g.Pos = f.pos.data[:0]
	}
	if w.sampler.HasWeights() {
		g.Weight = f.weight.data[:0]
	}
	for t, of := range sub.Nodes {
		at := len(g.Nodes)
		g.Nodes = append(g.Nodes, of...)
		for i := range g.Nodes[at:] {
			g.Nodes[at+i] += w.first[t]
		}
		g.NodesPerHop = append(g.NodesPerHop, sub.NodesPerHop[t]...)
	}
	if w.sampler.disjoint {
		g.Tree = f.trees.data[:0]
		for _, of := range sub.Trees {
			g.Tree = append(g.Tree, of...)
		}
	}
	for i, r := range sub.Relations {
		g.Ptr, g.Row, g.Pos, g.Weight = append(g.Ptr, r.Ptr...), append(g.Row, r.Row...), append(g.Pos, r.Pos...), append(g.Weight, r.Weight...)
		g.EdgesPerHop = append(g.EdgesPerHop, r.EdgesPerHop...)
		g.Room += w.relations[i].room
		g.Rooms = append(g.Rooms, w.relations[i].room)
	}
	*out = g
	return nil
}

// growTrees makes room for the trees of nodes, if they have any.
func (w *HeteroWorker) growTrees(nodes int64) error {
	if !w.sampler.disjoint {
		return nil
	}
	return w.flat.trees.grow(w.budget, mem.Trace, nodes, 0)
}

func (f *flat) grow(budget *mem.Budget, nodes, ptrs, edges, placed, weighted int64) error {
	for _, b := range []struct {
		buffer *buffer[int64]
		room   int64
	}{{&f.nodes, nodes}, {&f.ptr, ptrs}, {&f.pos, placed}} {
		if err := b.buffer.grow(budget, mem.Trace, b.room, 0); err != nil {
			return err
		}
	}
	if err := f.row.grow(budget, mem.Trace, edges, 0); err != nil {
		return err
	}
	return f.weight.grow(budget, mem.Trace, weighted, 0)
}

// flatDemand is the number of elements of the buffers of flat batches.
func (s *HeteroSampler) flatDemand(d HeteroDemand) (nodes, ptrs, edges, placed, weighted int64) {
	for _, n := range d.Nodes {
		nodes += n
	}
	for i, r := range s.relations {
		ptrs, edges = ptrs+d.Nodes[r.target]+1, edges+d.Edges[i]
	}
	if s.HasPositions() {
		placed = edges
	}
	if s.HasWeights() {
		weighted = edges
	}
	return nodes, ptrs, edges, placed, weighted
}
