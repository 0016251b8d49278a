package history

import (
	"fmt"
	"math"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Pruning of a sampled batch, from the output layer inwards (FreshGNN, 4.1 and 4.3).
//
// Here a node is its local id in the plain batch, until Build gives it its id in Pruned.Graph. Inner nodes are the
// nodes of hops 0 to L-1; the nodes of hop L, the leaves, have no in-edges and are in level 0 alone. A compact id is
// the place of a node among all inner nodes and, behind them, the leaves that remain, in order of first appearance.

// Lookup sets slots to where the history has the rows of nodes, by their global ids, at a hidden layer, or to Miss.
type Lookup func(layer int, nodes []int64, slots []int32)

// Each returns a Lookup that calls slot for one node after another.
func Each(slot func(layer int, node int64) int32) Lookup {
	return func(layer int, nodes []int64, slots []int32) {
		for i, node := range nodes {
			slots[i] = slot(layer, node)
		}
	}
}

// lookupChunk is the number of nodes that are looked up at a time: their numbers stay in a first-level cache.
const lookupChunk = 256

// Miss means that a row is not in the history.
const Miss = -1

// Pruner holds the scratch of pruning one batch at a time; it is not safe for concurrent use. Its memory is kept from
// batch to batch and counted under mem.Trace.
type Pruner struct {
	budget *mem.Budget
	arena  arena

	rows []CSR2 // of layer l at l-1: the edges that it aggregates
	// by node: 1 + its compact id, with found where the layer at work reads it; 0: a leaf that has none yet
	rank   []uint32
	leaves []int32            // that remain, in order of first appearance
	needed []byte             // by inner node: 0, or inLevel0 or aboveLevel0
	id     []int32            // by inner node: its number in Pruned.Graph
	places []place            // by inner node, of the level at work; behind them, of the first leaf
	ids    [lookupChunk]int64 // global, of the nodes that are looked up
}

// place is the place of a node of a level: its row in the level and its id in Pruned.Graph.
type place struct{ row, id int32 }

const (
	found = 1 << 31 // above all compact ids

	// inLevel0 and aboveLevel0 are the lowest level of a node.
	inLevel0, aboveLevel0 = 1, 2
)

// NewPruner returns a Pruner that takes its memory, and the memory of its results, from budget.
func NewPruner(budget *mem.Budget) *Pruner { return &Pruner{budget: budget} }

// Close frees the Pruner's memory. What it filled stays valid.
func (p *Pruner) Close() { p.arena.free() }

// scratchBytes returns the memory that lay takes for a batch of this size.
func (h hops) scratchBytes() int64 {
	layers := h.layers()
	inner, leaves := h.nodesTo(layers-1), h.nodes[layers]
	total := pieceBytes(inner+leaves, 4) + pieceBytes(leaves, 4) + pieceBytes(inner, 1) + pieceBytes(inner,
		4) + pieceBytes(inner+1, 8)
	for l := 1; l <= layers; l++ {
		total += pieceBytes(h.nodesTo(layers-l), 8)
	}
	return total
}

// lay makes the scratch of a batch, in which everything is pruned.
func (p *Pruner) lay(g *sample.Subgraph, h hops) error {
	if err := p.arena.begin(p.budget, h.scratchBytes()); err != nil {
		return err
	}
	a, layers := &p.arena, h.layers()
	inner, leaves := h.nodesTo(layers-1), h.nodes[layers]
	p.rank, p.leaves = take[uint32](a, inner+leaves), take[int32](a, leaves)
	p.needed, p.id, p.places = take[byte](a, inner), take[int32](a, inner), take[place](a, inner+1)
	p.rows = reuse.Zeros(p.rows, layers)
	for l := 1; l <= layers; l++ {
		p.rows[l-1] = newCSR2(g, take[int64](a, h.nodesTo(layers-l)))
	}
	for v := range inner {
		p.rank[v] = uint32(v) + 1
	}
	clear(p.rank[inner:])
	clear(p.needed)
	return nil
}

// Decide chooses the part of batch g that is needed where lookup's rows are not computed, and sets the hidden levels of
// out, with nodes of g instead of nodes of Graph; Build does the rest, and most of the work. The first numSeeds nodes
// of g are its seeds. The in-edges of rows that are not computed are not looked at, whatever they are, but for their
// number. Decide calls lookup once for each row of T_(L-1), then of T_(L-2), ..., T_1, in their order.
//
// It fails with sample.ErrTooLarge where the edges of g do not fit int32, and with mem.ErrBudget; out is then empty.
//
// Cost of both: each edge that remains is read once and written twice, with a random access to 4 bytes by node and one
// to 8 bytes by inner node; its row's edges lie apart from those of others once rows are pruned. Up to 5 bytes are
// written for each node of g, and 8 for each target that a layer could have. See BenchmarkPrune.
func (p *Pruner) Decide(g *sample.Subgraph, numSeeds int64, lookup Lookup, out *Pruned) error {
	h := hops{nodes: g.NodesPerHop, edges: g.EdgesPerHop}
	layers := h.layers()
	if layers == 0 || len(h.nodes) != layers+1 || h.nodes[0] != numSeeds || h.nodesTo(layers-1) != int64(len(g.Ptr))-1 {
		panic(fmt.Sprintf("history: pruning %d seeds in hops of %d nodes and %d edges, %d targets", numSeeds, h.nodes,
			h.edges, len(g.Ptr)-1))
	}
	if edges := h.edgesTo(layers - 1); edges > math.MaxInt32 {
		out.Free()
		return fmt.Errorf("history: pruning a batch of %d edges, expected at most %d: %w", edges, math.MaxInt32,
			sample.ErrTooLarge)
	}
	if err := p.lay(g, h); err != nil {
		out.Free()
		return fmt.Errorf("history: scratch for pruning: %w", err)
	}
	if err := out.lay(p.budget, h); err != nil {
		out.Free()
		return fmt.Errorf("history: a pruned batch: %w", err)
	}
	seeds := out.Levels[layers-1].Nodes[:numSeeds] // the targets of layer L, at the start of the level below it
	for v := range seeds {
		seeds[v] = int32(v)
		p.needed[v] = aboveLevel0
	}
	out.Layers[layers-1].NumDst = numSeeds
	for l := layers; l > 1; l-- {
		p.expand(l, &out.Levels[l-1], &out.Layers[l-1])
		out.Layers[l-2].NumDst = p.split(g, l-1, lookup, &out.Levels[l-1], out.Levels[l-2].Nodes)
	}
	return nil
}

// Build completes out, after Decide with the same batch and the same out.
func (p *Pruner) Build(g *sample.Subgraph, out *Pruned) {
	p.expand(1, &out.Levels[0], &out.Layers[0])
	p.renumber(g, out)
	for l := range out.Layers {
		p.number(&out.Levels[l], &out.Layers[l], &out.Graph)
	}
}

// expand makes the level below layer l, whose targets are known, and the edges of that layer, whose sources it leaves
// as compact ids.
//
// Leaves, in T_0, come last and in the order in which the edges name them. This is their order in Pruned.Graph as well:
// only nodes of hop L-1 have leaves as sources, and these nodes are the last targets of layer 1, ascending, and targets
// of no other layer.
func (p *Pruner) expand(l int, level *Level, layer *Layer) {
	csr, targets := &p.rows[l-1], layer.NumDst
	// edges, those of them with compact ids, and leaves among their sources
	n, done, leaves := int64(0), int64(0), 0
	source := mem.View[uint32](mem.Bytes(layer.Source)) // unsigned as the sampler's
	for i, t := range level.Nodes[:targets] {
		layer.Ptr[i] = n
		csr.Keep(int(t))
		n += int64(copy(source[n:], csr.Row(int(t))))
		if n-done >= edgeChunk {
			leaves = p.compact(source[done:n], leaves)
			done = n
		}
	}
	leaves = p.compact(source[done:n], leaves)
	layer.Ptr[targets] = n
	layer.Ptr, layer.Source, layer.Edge = layer.Ptr[:targets+1], layer.Source[:n], layer.Edge[:n]
	if l == 1 {
		p.leaves = p.leaves[:leaves]
	}
	p.gather(l, level, int(targets), leaves)
	layer.NumSrc = int64(len(level.Nodes))
}

const (
	// edgeGroup and edgesAhead are how prefetch runs ahead of the work on edges, as in core/sample.
	edgeGroup  = 16
	edgesAhead = 128
	// edgeChunk is the number of edges that are copied before they are looked at: they stay in a first-level cache.
	edgeChunk = 2048
)

// compact turns nodes into compact ids and marks them as found. leaves counts the leaves found so far; it returns the
// new count.
func (p *Pruner) compact(nodes []uint32, leaves int) int {
	rank, known, inner := p.rank, p.leaves, uint32(len(p.id))
	asm.Prefetch(rank, nodes[:min(edgesAhead, len(nodes))])
	for at := 0; at < len(nodes); at += edgeGroup {
		asm.Prefetch(rank, nodes[min(at+edgesAhead, len(nodes)):min(at+edgesAhead+edgeGroup, len(nodes))])
		part := nodes[at:min(at+edgeGroup, len(nodes))]
		for i, v := range part {
			r := rank[v]
			if r == 0 {
				known[leaves] = int32(v)
				leaves++
				r = inner + uint32(leaves)
			}
			rank[v] = r | found
			part[i] = r&^found - 1
		}
	}
	return leaves
}

// gather puts what was found for layer l behind its targets: inner nodes ascending, then the leaves.
func (p *Pruner) gather(l int, level *Level, targets, leaves int) {
	lowest := byte(aboveLevel0)
	if l == 1 {
		lowest = inLevel0
	}
	for _, t := range level.Nodes[:targets] {
		p.rank[t] &^= found
		p.needed[t] = lowest
	}
	n := targets
	// only the level below layer 1 has leaves, and all others are of the first hops
	inner := min(len(level.Nodes), len(p.id))
	for v, r := range p.rank[:inner] {
		if r&found != 0 {
			p.rank[v] = r &^ found
			p.needed[v] = lowest
			level.Nodes[n] = int32(v)
			n++
		}
	}
	level.Nodes = level.Nodes[:n+copy(level.Nodes[n:], p.leaves[:leaves])]
}

// split asks lookup for the rows of a hidden level and writes those that layer l has to compute to below, the start of
// the level below it. It returns their number.
func (p *Pruner) split(g *sample.Subgraph, l int, lookup Lookup, level *Level, below []int32) int64 {
	slots := level.Slots[:len(level.Nodes)]
	hits := 0
	for from := 0; from < len(slots); from += lookupChunk {
		part := slots[from:min(from+lookupChunk, len(slots))]
		for i, v := range level.Nodes[from:][:len(part)] {
			p.ids[i] = g.Nodes[v]
		}
		lookup(l, p.ids[:len(part)], part)
		for _, slot := range part {
			if slot != Miss {
				hits++
			}
		}
	}
	room := level.Hits
	level.Hits, level.Computed = room[:0:hits], room[hits:hits:len(level.Nodes)]
	for i, slot := range slots {
		if slot != Miss {
			slots[len(level.Hits)] = slot
			level.Hits = append(level.Hits, int32(i))
			continue
		}
		below[len(level.Computed)] = level.Nodes[i]
		level.Computed = append(level.Computed, int32(i))
	}
	level.Slots = slots[:hits]
	return int64(len(level.Computed))
}
