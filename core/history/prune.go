package history

import (
	"fmt"
	"math"
	"math/bits"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Pruning of a sampled batch, from the output layer inwards (FreshGNN, 4.1 and 4.3).
//
// In this file a node is its local id in the plain batch until renumber gives it the one it has in Pruned.Graph. Inner
// nodes are those of hops 0 to L-1; the nodes of hop L, the leaves, have no in-edges and are in level 0 alone.

// Lookup returns the slot in which the history has the row of a node, by its global id, at a hidden layer, or Miss.
type Lookup func(layer int, node int64) (slot int32)

// Miss says that a row is not in the history.
const Miss = -1

// Pruner holds the scratch of pruning one batch at a time; it is not safe for concurrent use. Its memory is kept from batch
// to batch and counted under mem.Trace.
type Pruner struct {
	budget *mem.Budget
	arena  arena

	rows     []CSR2   // of layer l at l-1: the edges that it aggregates
	position []int32  // by inner node: its row in the level at work
	id       []int32  // by inner node: its number in Pruned.Graph
	marked   []uint64 // bits by inner node: in the level at work
	needed   []uint64 // bits by inner node: in any level, or a seed
	leafRank []int32  // by leaf: 1 + its place in leaves, or 0
	leaves   []int32  // that remain, in order of first appearance
}

// NewPruner returns a Pruner that takes its memory, and that of what it fills, from budget.
func NewPruner(budget *mem.Budget) *Pruner { return &Pruner{budget: budget} }

// Close frees the Pruner's memory. What it filled stays valid.
func (p *Pruner) Close() { p.arena.free() }

func words(nodes int64) int64 { return (nodes + 63) / 64 }

// scratchBytes is what lay takes for a batch of this size.
func (h hops) scratchBytes() int64 {
	layers := h.layers()
	inner, leaves := h.nodesTo(layers-1), h.nodes[layers]
	total := 2*pieceBytes(inner, 4) + 2*pieceBytes(words(inner), 8) + 2*pieceBytes(leaves, 4)
	for l := 1; l <= layers; l++ {
		total += pieceBytes(h.nodesTo(layers-l), 8)
	}
	return total
}

// roundings is how much more scratchBytes and prunedBytes can be for a batch whose nodes are spread over the hops than for
// one that is all seeds: each piece is rounded up by less than pieceAlign.
func roundings(layers int) int64 { return int64(7*layers+11) * pieceAlign }

// lay makes the scratch of a batch, in which everything is pruned.
func (p *Pruner) lay(g *sample.Subgraph, h hops) error {
	if err := p.arena.begin(p.budget, h.scratchBytes()); err != nil {
		return err
	}
	a, layers := &p.arena, h.layers()
	inner, leaves := h.nodesTo(layers-1), h.nodes[layers]
	p.rows = zeros(p.rows, layers)
	for l := 1; l <= layers; l++ {
		p.rows[l-1] = newCSR2(g, take[int64](a, h.nodesTo(layers-l)))
	}
	p.position, p.id = take[int32](a, inner), take[int32](a, inner)
	p.marked, p.needed = take[uint64](a, words(inner)), take[uint64](a, words(inner))
	p.leafRank, p.leaves = take[int32](a, leaves), take[int32](a, leaves)[:0]
	clear(p.needed)
	clear(p.leafRank)
	return nil
}

// Prune sets out to the part of batch g that is needed where lookup's rows are not computed. Lookup is called once for each
// row of T_(L-1), then of T_(L-2), ..., T_1, in their order. The first numSeeds nodes of g are its seeds. The in-edges of
// rows that are not computed are not looked at, whatever they are, but for their number.
//
// It fails with sample.ErrTooLarge where the edges of g do not fit int32, and with mem.ErrBudget; out is then empty.
//
// Cost: two passes over the edges that remain, one of them with a random access each to 4 bytes by node, one call of lookup
// for each row of a hidden level, and 20 bytes written for each inner node.
func (p *Pruner) Prune(g *sample.Subgraph, numSeeds int64, lookup Lookup, out *Pruned) error {
	h := hops{nodes: g.NodesPerHop, edges: g.EdgesPerHop}
	layers := h.layers()
	if layers == 0 || len(h.nodes) != layers+1 || h.nodes[0] != numSeeds || h.nodesTo(layers-1) != int64(len(g.Ptr))-1 {
		panic(fmt.Sprintf("history: pruning %d seeds in hops of %d nodes and %d edges, %d targets", numSeeds, h.nodes, h.edges, len(g.Ptr)-1))
	}
	if edges := h.edgesTo(layers - 1); edges > math.MaxInt32 {
		out.Free()
		return fmt.Errorf("history: pruning a batch of %d edges, want at most %d: %w", edges, math.MaxInt32, sample.ErrTooLarge)
	}
	if err := p.lay(g, h); err != nil {
		out.Free()
		return fmt.Errorf("history: scratch for pruning: %w", err)
	}
	if err := out.lay(p.budget, h); err != nil {
		out.Free()
		return fmt.Errorf("history: a pruned batch: %w", err)
	}
	targets := out.Levels[layers-1].Nodes[:numSeeds] // of layer l, at the start of the level below it
	for t := range targets {
		targets[t] = int32(t)
	}
	setAll(p.needed, targets)
	for l := layers; l > 1; l-- {
		level, layer := &out.Levels[l-1], &out.Layers[l-1]
		p.expand(l, len(targets), level, layer)
		targets = split(g, l-1, lookup, level, out.Levels[l-2].Nodes)
	}
	p.expandLeaves(len(targets), &out.Levels[0], &out.Layers[0])
	p.renumber(g, h, out)
	for l := 1; l <= layers; l++ {
		p.number(&out.Levels[l-1], &out.Layers[l-1], out)
	}
	return nil
}

// expand makes the level below layer l, of which the targets are there, and the edges of that layer.
func (p *Pruner) expand(l, targets int, level *Level, layer *Layer) {
	csr, marked := &p.rows[l-1], p.marked
	clear(marked)
	n := int64(0)
	for i, t := range level.Nodes[:targets] {
		layer.Ptr[i] = n
		csr.Keep(int(t))
		row := csr.Row(int(t))
		source := layer.Source[n:][:len(row)]
		for k, s := range row {
			marked[s/64] |= 1 << (s % 64)
			source[k] = int32(s)
		}
		n += int64(len(row))
	}
	layer.Ptr[targets] = n
	layer.Ptr, layer.Source, layer.Edge = layer.Ptr[:targets+1], layer.Source[:n], layer.Edge[:n]
	p.place(level, targets)
	for i, s := range layer.Source {
		layer.Source[i] = p.position[s]
	}
	layer.NumSrc, layer.NumDst = int64(len(level.Nodes)), int64(targets)
}

// place puts the inner nodes that are marked behind the targets, which it marks as well.
func (p *Pruner) place(level *Level, targets int) {
	marked := p.marked
	for i, t := range level.Nodes[:targets] {
		marked[t/64] &^= 1 << (t % 64)
		p.position[t] = int32(i)
	}
	n := targets
	for w, word := range marked {
		p.needed[w] |= word
		for ; word != 0; word &= word - 1 {
			s := int32(w*64 + bits.TrailingZeros64(word))
			level.Nodes[n] = s
			p.position[s] = int32(n)
			n++
		}
	}
	setAll(marked, level.Nodes[:targets])
	level.Nodes = level.Nodes[:n]
}

func setAll(set []uint64, nodes []int32) {
	for _, v := range nodes {
		set[v/64] |= 1 << (v % 64)
	}
}

// split asks lookup for the rows of a hidden level and writes those that layer l has to compute to below, the start of the
// level below it.
func split(g *sample.Subgraph, l int, lookup Lookup, level *Level, below []int32) []int32 {
	slots := level.Slots[:len(level.Nodes)]
	hits := 0
	for i, v := range level.Nodes {
		slots[i] = lookup(l, g.Nodes[v])
		if slots[i] != Miss {
			hits++
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
	return below[:len(level.Computed)]
}

// expandLeaves is expand for layer 1, whose sources may be leaves: in T_0 these come last, in the order in which the edges
// name them. That is their order in Pruned.Graph as well: the nodes of hop L-1, the only ones that have leaves as sources,
// are targets of layer 1 only, and the last of them, ascending.
func (p *Pruner) expandLeaves(targets int, level *Level, layer *Layer) {
	csr, marked, inner := &p.rows[0], p.marked, uint32(len(p.position))
	clear(marked)
	n := int64(0)
	for i, t := range level.Nodes[:targets] {
		layer.Ptr[i] = n
		csr.Keep(int(t))
		row := csr.Row(int(t))
		source := layer.Source[n:][:len(row)]
		for k, s := range row {
			if s < inner {
				marked[s/64] |= 1 << (s % 64)
				source[k] = int32(s)
				continue
			}
			rank := p.leafRank[s-inner]
			if rank == 0 {
				p.leaves = append(p.leaves, int32(s))
				rank = int32(len(p.leaves))
				p.leafRank[s-inner] = rank
			}
			source[k] = int32(inner) + rank - 1
		}
		n += int64(len(row))
	}
	layer.Ptr[targets] = n
	layer.Ptr, layer.Source, layer.Edge = layer.Ptr[:targets+1], layer.Source[:n], layer.Edge[:n]
	room := level.Nodes
	p.place(level, targets)
	first := len(level.Nodes) // of the leaves
	shift := int32(first) - int32(inner)
	for i, s := range layer.Source {
		if s < int32(inner) {
			layer.Source[i] = p.position[s]
		} else {
			layer.Source[i] = s + shift
		}
	}
	level.Nodes = room[:first+copy(room[first:], p.leaves)]
	layer.NumSrc, layer.NumDst = int64(len(level.Nodes)), int64(targets)
}

// renumber makes the nodes of Pruned.Graph, their degrees and the places of their edges, and lists those to be loaded.
func (p *Pruner) renumber(g *sample.Subgraph, h hops, out *Pruned) {
	sub, layers := &out.Graph, h.layers()
	loaded := out.Loaded[:0]
	n, hop, end := 0, 0, h.nodes[0] // nodes so far, the hop at work and the first node behind it
	sub.Ptr[0] = 0
	for w, word := range p.needed {
		for ; word != 0; word &= word - 1 {
			v := w*64 + bits.TrailingZeros64(word)
			for int64(v) >= end {
				hop++
				end += h.nodes[hop]
			}
			p.id[v] = int32(n)
			sub.Nodes[n], out.Kept[n] = g.Nodes[v], int32(v)
			out.Degree[n] = int32(g.Ptr[v+1] - g.Ptr[v])
			kept := int64(0)
			for l := 1; l <= layers-hop; l++ {
				kept = max(kept, p.rows[l-1].Len(v))
			}
			at := sub.Ptr[n]
			copy(sub.Pos[at:at+kept], g.Pos[g.Ptr[v]:])
			sub.Ptr[n+1] = at + kept
			sub.NodesPerHop[hop]++
			sub.EdgesPerHop[hop] += kept
			if hop == 0 || p.marked[w]>>(v%64)&1 != 0 {
				loaded = append(loaded, int32(n))
			}
			n++
		}
	}
	sub.Ptr = sub.Ptr[:n+1]
	edges := sub.Ptr[n]
	sub.Row, sub.Pos = sub.Row[:edges], sub.Pos[:edges]
	sub.NodesPerHop[layers] = int64(len(p.leaves))
	for _, v := range p.leaves {
		sub.Nodes[n], out.Kept[n], out.Degree[n] = g.Nodes[v], v, 0
		loaded = append(loaded, int32(n))
		n++
	}
	sub.Nodes, out.Degree, out.Kept, out.Loaded = sub.Nodes[:n], out.Degree[:n], out.Kept[:n], loaded
}

// number writes the nodes of a level and the edges of the layer above it in the numbers of Pruned.Graph, and the edges'
// sources to its rows. A row that several layers compute is written by each, alike.
func (p *Pruner) number(level *Level, layer *Layer, out *Pruned) {
	inner, first := int32(len(p.position)), len(out.Graph.Ptr)-1 // of the leaves
	leaves := len(level.Nodes)
	for i, v := range level.Nodes {
		if v >= inner {
			leaves = i
			break
		}
		level.Nodes[i] = p.id[v]
	}
	for i := leaves; i < len(level.Nodes); i++ {
		level.Nodes[i] = int32(first + i - leaves)
	}
	for i := range layer.NumDst {
		at := out.Graph.Ptr[level.Nodes[i]]
		for e := layer.Ptr[i]; e < layer.Ptr[i+1]; e++ {
			layer.Edge[e] = int32(at)
			out.Graph.Row[at] = uint32(level.Nodes[layer.Source[e]])
			at++
		}
	}
}
