package sample

import (
	"context"
	"fmt"
	"sync/atomic"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// edgeSet holds the edges of one relation in a batch, and the scratch memory for drawing them.
type edgeSet struct {
	relation *relation
	place    int // number of the relation
	budget   *mem.Budget

	ptr, pos buffer[int64]
	row      buffer[uint32]
	spans    buffer[span]  // of the targets of the current hop
	wide     buffer[int64] // global ids of the current hop's sources, if they do not fit in row

	scratch []thread      // by thread
	threads []thread      // of the current hop
	loaded  []atomic.Bool // by unit of the current hop

	// For relations with a method.
	weight buffer[float32]
	counts buffer[int64] // edges of each target of the current hop
	fetched
	located

	both        bothWays          // for bidirectional batches
	listOffsets [2]buffer[uint32] // for a list whose times are fetched, and for sorting it
	skipped     skips             // in the current hop
	excluded    excluded          // in the batch
	needed      needed            // for the last hop

	turns, listNodes, listTimes buffer[int64] // for targets whose times are fetched

	perHop []int64
	room   int64      // like Subgraph.Room
	edges  edgeArrays // of the batch, after all draws
}

// edgeArrays holds the edges of one relation, as Subgraph has them.
type edgeArrays struct {
	ptr    []int64
	row    []uint32
	pos    []int64
	weight []float32
}

// thread is the scratch memory of a thread for the targets that a method works on.
type thread struct {
	set    positionSet
	race   race
	short  short
	found  asm.Found
	walker walker
	masked masked

	sorting [2]sorting // for a list in memory, and for sorting it
}

func (e *edgeSet) free() {
	freeAll(e.rooms(edgesRoom{}))
	freeAll([]room{
		{buffer: &e.listPtr}, {buffer: &e.listPos}, {buffer: &e.listIDs}, {buffer: &e.listSpans}, {buffer: &e.listWeights},
		{buffer: &e.listSums}, {buffer: &e.points}, {buffer: &e.located.lists}, {buffer: &e.both.keys},
		{buffer: &e.both.ptr}, {buffer: &e.both.pos}, {buffer: &e.listOffsets[0]}, {buffer: &e.listOffsets[1]},
		{buffer: &e.turns}, {buffer: &e.listNodes}, {buffer: &e.listTimes},
	})
	for i := range e.scratch {
		t := &e.scratch[i]
		t.set.buf.free()
		t.race.buf.free()
		t.walker.free()
		t.masked.free()
		for j := range t.sorting {
			t.sorting[j].free()
		}
	}
}

// begin discards the edges of the previous batch.
func (e *edgeSet) begin(hops int) error {
	if err := e.ptr.grow(e.budget, mem.Trace, 1, 0); err != nil {
		return err
	}
	e.ptr.data[0] = 0
	e.perHop, e.room, e.edges = make([]int64, 0, hops), 0, edgeArrays{}
	return nil
}

// drawNone leaves the targets first to end without edges.
func (e *edgeSet) drawNone(first, end int) error {
	if err := e.ptr.grow(e.budget, mem.Trace, int64(end)+1, int64(first)+1); err != nil {
		return err
	}
	ptr := e.ptr.data[first : end+1]
	for i := range ptr {
		ptr[i] = ptr[0]
	}
	e.perHop = append(e.perHop, 0)
	return nil
}

// drawn returns the edges drawn for the first n targets.
func (e *edgeSet) drawn(targets int) edgeArrays {
	total := e.ptr.data[targets]
	out := edgeArrays{ptr: e.ptr.data[:targets+1], row: e.row.data[:total]}
	if e.relation.hasPositions() {
		out.pos = e.pos.data[:total]
	}
	if e.relation.hasWeights() {
		out.weight = e.weight.data[:total]
	}
	return out
}

// batch holds a batch's input to the draws along one relation.
type batch struct {
	*edgeSet
	ctx            context.Context
	key            Key // absorbed the relation
	source, target *nodeSet
	times          []int64 // of the trees, with Temporal
	exclude        []Link
	last           LastHop // of the request
}

// expanded returns the global ids of the targets first to end of the hop.
func (b *batch) expanded(first, end int) []int64 { return b.target.targets(first, end) }

// hop draws the in-edges of the targets first to end and returns their number. Meanwhile nothing else may use the
// relation and the nodes of its source type.
func (b *batch) hop(number, first, end int, k int64) (int64, error) {
	if err := b.count(number, first, end, k); err != nil {
		return 0, err
	}
	from, to := b.ptr.data[first], b.ptr.data[end]
	b.room = max(b.room, to)
	h := hop{
		batch: b, number: number, first: first, targets: end - first, k: k, key: stream(hopKey(b.key, number)), from: from,
	}
	m := b.relation.method
	if m != nil {
		if err := h.roomFor(m, from, to); err != nil {
			return 0, err
		}
		if lists := h.exact(m); lists != nil {
			if err := h.numberRoom(from, to); err != nil {
				return 0, err
			}
			return to - from, lists.run()
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
	if b.relation.hasPositions() {
		h.pos = b.pos.data[from:to]
	}
	if m != nil && m.gives().ids {
		h.setUnits(true)
		if b.relation.disjoint {
			for u := range h.units {
				packTrees(&h, u, h.sources)
			}
		}
		return to - from, numberLoaded(&h, h.sources[:to-from], true)
	}
	g, row := &b.relation.Relation, h.row
	if (g.Indices32 != nil || g.Packed != nil) && !b.relation.disjoint {
		// row holds global ids until they are numbered.
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

// numberRoom makes room for numbering the edges from to to.
func (h *hop) numberRoom(from, to int64) error {
	s := h.source
	most := int64(s.n) + newNodes(to-from, s.numNodes, s.disjoint)
	err := reserve(h.budget, room{&h.batch.row, to, from}, room{&s.nodes, most, int64(s.n)})
	if err == nil {
		h.row = h.batch.row.data[from:to]
	}
	return err
}

// count finds the spans of the targets first to end and extends ptr over them: by the number of edges that each target
// draws or, with a method, by the most that it may get.
func (b *batch) count(number, first, end int, k int64) error {
	err := reserve(b.budget, room{&b.spans, int64(end - first), 0}, room{&b.ptr, int64(end) + 1, int64(first) + 1})
	if err != nil {
		return err
	}
	targets, spans, ptr := b.expanded(first, end), b.spans.data[:end-first], b.ptr.data[first:]
	var taken atomic.Int64
	err = b.share(&taken, (len(targets)+pieceTargets-1)/pieceTargets, func(*thread) error {
		for {
			at := int(taken.Add(1)-1) * pieceTargets
			if at >= len(targets) {
				return nil
			}
			if err := b.ctx.Err(); err != nil {
				return fmt.Errorf("sample: %w", err)
			}
			stop := min(at+pieceTargets, len(targets))
			findSpans(b.relation.Indptr, targets[at:stop], spans[at:stop])
			if b.relation.narrowed() {
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
	replace, total, widest := b.relation.replace, ptr[0], int64(0)
	m := b.relation.method
	for i, s := range spans {
		var e int64
		if m == nil {
			e = edges(s.deg, k, replace)
		} else {
			e = m.most(number, s.deg, k)
		}
		if e > maxEdges-total {
			return fmt.Errorf("sample: %d edges drawn and %d for node %d, expected at most %d: %w",
				total, e, targets[i], int64(maxEdges), ErrTooLarge)
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
func findSpans(indptr *offsets.Table, targets []int64, spans []span) {
	for at, asked := 0, 0; at < len(targets); at += group {
		for ; asked < min(at+ahead, len(targets)); asked += group {
			indptr.Prefetch(targets[asked:min(asked+group, len(targets))])
		}
		for i := at; i < min(at+group, len(targets)); i++ {
			begin, end := indptr.Range(targets[i])
			spans[i] = span{start: begin, deg: end - begin}
		}
	}
}
