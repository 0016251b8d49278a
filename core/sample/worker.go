package sample

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// Worker draws batches of one Sampler, one at a time: it is not safe for concurrent use. It owns the id map, the memory that
// a Subgraph shows, and scratch; all are kept from batch to batch and grow to what the largest batch needed.
type Worker struct {
	sampler *Sampler
	budget  *mem.Budget
	ids     idMap

	nodes, ptr, pos buffer[int64]
	row             buffer[uint32]
	spans           buffer[span]  // of the targets of the current hop
	wide            buffer[int64] // global ids of the current hop's sources, where they do not fit in row

	threads []thread      // scratch of each thread
	loaded  []atomic.Bool // of the units of the current hop

	// Of samplers with a method.
	weight buffer[float32]
	counts buffer[int64] // edges that each target of the current hop got
	fetched
	located

	both        bothWays          // of bidirectional batches
	forest      forest            // of disjoint batches
	listOffsets [2]buffer[uint32] // of a list whose times are fetched, and to sort it
	skipped     skips             // of the current hop

	excluded excluded // of the batch

	turns, listNodes buffer[int64] // of targets whose times are fetched
}

// thread is the scratch of a thread: what a method needs while it works at one target or a few.
type thread struct {
	set    positionSet
	race   race
	short  short
	found  asm.Found
	walker walker
	masked masked
}

// Close frees the Worker's memory. Subgraphs that it filled become invalid.
func (w *Worker) Close() {
	w.ids.free()
	for _, b := range []*buffer[int64]{&w.nodes, &w.ptr, &w.pos, &w.wide, &w.counts, &w.turns, &w.listNodes} {
		b.free()
	}
	w.row.free()
	w.spans.free()
	w.weight.free()
	w.fetched.free()
	w.located.free()
	w.both.free()
	w.forest.free()
	for i := range w.listOffsets {
		w.listOffsets[i].free()
	}
	for i := range w.threads {
		t := &w.threads[i]
		t.set.buf.free()
		t.race.buf.free()
		t.walker.free()
		t.masked.free()
	}
}

// batch is the state of one Sample.
type batch struct {
	*Worker
	ctx context.Context
	key Key
	n   int // nodes numbered
	// targets are the global ids of the hop's targets, where these are nodes of another type than those that are numbered, and
	// targetsAt the local id of the first.
	targets   []int64
	targetsAt int

	roomFor int64 // edges, at most

	times     []int64 // of the trees, with Temporal
	firstTree int     // that of the first seed, where other types have seeds before
	exclude   []Link
}

// expanded returns the global ids of the targets first to end of the hop.
func (b *batch) expanded(first, end int) []int64 {
	if b.targets != nil {
		return b.targets[first-b.targetsAt : end-b.targetsAt]
	}
	return b.nodes.data[first:end]
}

// Request is what a batch is drawn for.
type Request struct {
	Seeds []int64
	Times []int64 // with Temporal, of each seed, else nil
	// Exclude is edges that are not drawn, all copies of each, although their targets are seeds: by target, then source.
	Exclude []Link
	// ExcludeOf is, of a graph with types, what Exclude is of each relation, by ids within its types; or nil.
	ExcludeOf [][]Link
}

// Draw draws the batch of key for a request and sets out. It fails with ErrSeed where a seed is not a node, ErrTooLarge,
// mem.ErrBudget, the error of ctx, or that of Adjacency.Fetch; out is then untouched and the Worker remains usable. A graph
// that is not as Graph demands gives a *guard.PanicError.
// It looks at ctx at least every few milliseconds.
func (w *Worker) Draw(ctx context.Context, key Key, r Request, out *Subgraph) error {
	if want := len(r.Seeds); w.sampler.temporal != nil && len(r.Times) != want || w.sampler.temporal == nil && r.Times != nil {
		if w.sampler.temporal == nil {
			want = 0
		}
		return fmt.Errorf("sample: times of %d seeds, want %d: %w", len(r.Times), want, ErrConfig)
	}
	b := batch{Worker: w, ctx: ctx, key: key, times: r.Times, exclude: r.Exclude}
	return guard.Run(func() error { return b.sample(r.Seeds, out) })
}

// Sample is Draw for seeds alone.
func (w *Worker) Sample(ctx context.Context, key Key, seeds []int64, out *Subgraph) error {
	return w.Draw(ctx, key, Request{Seeds: seeds}, out)
}

func (b *batch) sample(seeds []int64, out *Subgraph) error {
	if err := b.checkExclude(); err != nil {
		return err
	}
	if err := b.begin(seeds); err != nil {
		return err
	}
	fanouts := b.sampler.fanouts
	nodesPerHop := append(make([]int64, 0, len(fanouts)+1), int64(b.n))
	edgesPerHop := make([]int64, 0, len(fanouts))
	first := 0 // of the current hop's targets
	for hop, k := range fanouts {
		end := b.n
		n, err := b.hop(hop, first, end, k)
		if err != nil {
			return err
		}
		nodesPerHop = append(nodesPerHop, int64(b.n-end))
		edgesPerHop = append(edgesPerHop, n)
		first = end
		if b.sampler.disjoint {
			if err := b.fell(end, b.n); err != nil {
				return err
			}
		}
	}
	total := b.ptr.data[first]
	sub := Subgraph{
		Nodes:       b.nodes.data[:b.n],
		Ptr:         b.ptr.data[:first+1],
		Row:         b.row.data[:total],
		Room:        b.roomFor,
		NodesPerHop: nodesPerHop,
		EdgesPerHop: edgesPerHop,
	}
	if b.sampler.disjoint {
		sub.Nodes, sub.Tree = b.forest.ids.data[:b.n], b.forest.trees.data[:b.n]
	}
	if b.sampler.HasPositions() {
		sub.Pos = b.pos.data[:total]
	}
	if b.sampler.HasWeights() {
		sub.Weight = b.weight.data[:total]
	}
	if err := b.complete(&sub); err != nil {
		return err
	}
	*out = sub
	return nil
}

func badSeed(v int64, at int, numNodes int64) error {
	return fmt.Errorf("sample: seed %d at index %d, want a node in [0, %d): %w", v, at, numNodes, ErrSeed)
}

// begin checks the seeds and numbers them.
func (b *batch) begin(seeds []int64) error {
	for i, v := range seeds {
		if v < 0 || v >= b.sampler.graph.NumNodes {
			return badSeed(v, i, b.sampler.graph.NumNodes)
		}
	}
	b.ids.begin()
	if err := b.ids.reserve(nil, len(seeds)); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if err := b.nodes.grow(b.budget, mem.Trace, int64(len(seeds)), 0); err != nil {
		return err
	}
	if err := b.ptr.grow(b.budget, mem.Trace, 1, 0); err != nil {
		return err
	}
	b.ptr.data[0] = 0
	copy(b.nodes.data, seeds)
	if b.sampler.disjoint {
		if err := b.plantSeeds(seeds); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(b.nodes.data[:len(seeds)], ahead) {
		if err := b.ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		prefetchIDs(&b.ids, part)
		b.ids.insert(b.nodes.data, b.n, b.n+len(part))
		b.n += len(part)
	}
	if b.sampler.disjoint {
		return b.fell(0, b.n)
	}
	return nil
}

// hop draws the in-edges of the targets first to end and returns their number.
func (b *batch) hop(number, first, end int, k int64) (int64, error) {
	if err := b.count(number, first, end, k); err != nil {
		return 0, err
	}
	from, to := b.ptr.data[first], b.ptr.data[end]
	b.roomFor = max(b.roomFor, to)
	h := hop{batch: b, number: number, first: first, targets: end - first, k: k, key: stream(hopKey(b.key, number)), from: from}
	m := b.sampler.method
	if m != nil {
		if err := h.room(m, from, to); err != nil {
			return 0, err
		}
		if lists := h.exact(m); lists != nil {
			if err := h.numberRoom(from, to); err != nil {
				return 0, err
			}
			return to - from, h.runExact(m.(chooser), lists)
		}
		if err := h.expand(m); err != nil {
			return 0, err
		}
		to = b.ptr.data[end]
	} else if err := b.pos.grow(b.budget, mem.Trace, to, from); err != nil {
		return 0, err
	}
	if err := h.numberRoom(from, to); err != nil {
		return 0, err
	}
	if b.sampler.HasPositions() {
		h.pos = b.pos.data[from:to]
	}
	g, row := &b.sampler.graph, h.row
	if m != nil && m.gives().ids {
		h.setUnits(true)
		return to - from, numberLoaded(&h, h.sources[:to-from], true)
	}
	if g.Indices32 != nil && !b.sampler.disjoint {
		// A global id waits for its local id in the place that this will take.
		return to - from, runResident(&h, g.Indices32, row)
	}
	if err := b.wide.grow(b.budget, mem.Trace, to-from, 0); err != nil {
		return 0, err
	}
	ids := b.wide.data[:to-from]
	switch {
	case g.Adjacency != nil:
		return to - from, runFetched(&h, g.Adjacency, ids)
	case g.Indices32 != nil:
		return to - from, runResident(&h, g.Indices32, ids)
	}
	return to - from, runResident(&h, g.Indices64, ids)
}

// numberRoom makes room for the edges from to to, which are to be numbered.
func (h *hop) numberRoom(from, to int64) error {
	if err := h.batch.row.grow(h.budget, mem.Trace, to, from); err != nil {
		return err
	}
	h.row = h.batch.row.data[from:to]
	most := int64(h.n) + h.sampler.newNodes(to-from)
	return h.nodes.grow(h.budget, mem.Trace, most, int64(h.n))
}

// count finds the spans of the targets first to end and continues ptr over them: by what each of them draws or, with a method,
// by what it may get at most.
func (b *batch) count(number, first, end int, k int64) error {
	if err := b.spans.grow(b.budget, mem.Trace, int64(end-first), 0); err != nil {
		return err
	}
	if err := b.ptr.grow(b.budget, mem.Trace, int64(end)+1, int64(first)+1); err != nil {
		return err
	}
	targets, spans, ptr := b.expanded(first, end), b.spans.data[:end-first], b.ptr.data[first:]
	var taken atomic.Int64
	err := b.share(&taken, (len(targets)+pieceTargets-1)/pieceTargets, func(*thread) error {
		for {
			at := int(taken.Add(1)-1) * pieceTargets
			if at >= len(targets) {
				return nil
			}
			if err := b.ctx.Err(); err != nil {
				return fmt.Errorf("sample: %w", err)
			}
			stop := min(at+pieceTargets, len(targets))
			findSpans(b.sampler.graph.Indptr, targets[at:stop], spans[at:stop])
			if b.sampler.inMemory() {
				b.narrow(first+at, spans[at:stop], k)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := b.skip(number, first, targets, spans, k); err != nil {
		return err
	}
	replace, total, widest := b.sampler.replace, ptr[0], int64(0)
	m := b.sampler.method
	for i, s := range spans {
		var e int64
		if m == nil {
			e = edges(s.deg, k, replace)
		} else {
			e = m.most(number, s.deg, k)
		}
		if e > maxEdges-total {
			return fmt.Errorf("sample: %d edges drawn and %d for node %d, want at most %d: %w", total, e, targets[i], int64(maxEdges), ErrTooLarge)
		}
		total += e
		ptr[i+1] = total
		widest = max(widest, s.deg)
	}
	if m != nil {
		return b.prepare(m, number, k, widest)
	}
	if replace || k <= scanLimit || widest <= k {
		return nil
	}
	for i := range b.threads {
		if err := b.threads[i].set.grow(b.budget, int(k)); err != nil {
			return err
		}
	}
	return nil
}

// findSpans looks up the spans of the targets.
func findSpans(indptr, targets []int64, spans []span) {
	for at, asked := 0, 0; at < len(targets); at += group {
		for ; asked < min(at+ahead, len(targets)); asked += group {
			// One span in eight straddles two lines.
			part := targets[asked:min(asked+group, len(targets))]
			asm.Prefetch(indptr, part)
			asm.Prefetch(indptr[1:], part)
		}
		for i := at; i < min(at+group, len(targets)); i++ {
			v := targets[i]
			spans[i] = span{start: indptr[v], deg: indptr[v+1] - indptr[v]}
		}
	}
}
