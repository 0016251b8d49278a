package store

import (
	"fmt"
	"runtime"
	"sort"

	"freshgo/core/mem"
)

// relayoutPlan are the sizes that keep every step within the budget.
type relayoutPlan struct {
	workers int // of the pass over the adjacency
	chunk   int // of copies
	tensors []permutePlan
}

// makePlan chooses sizes for this memory, unlimited where it is not positive.
func (r *relayouter) makePlan(memory int64) error {
	var ok bool
	if r.plan, ok = r.fit(memory); ok {
		return nil
	}
	high := int64(1 << 20)
	for {
		if _, ok := r.fit(high); ok {
			break
		}
		high *= 2
	}
	const unit = 64 << 10 // precise enough for a message
	steps := sort.Search(int(high/unit), func(i int) bool {
		_, ok := r.fit(int64(i) * unit)
		return ok && i > 0
	})
	smallest := int64(steps) * unit
	return fmt.Errorf("store: this relayout needs a memory budget of at least %d bytes: %w", smallest,
		&mem.BudgetError{Purpose: mem.Convert, Need: smallest, Free: memory, Limit: memory})
}

// fit makes a plan for this memory, or returns false.
func (r *relayouter) fit(memory int64) (p relayoutPlan, ok bool) {
	n := r.src.edge().NumNodes
	fits := func(bytes int64) bool { return memory <= 0 || bytes <= memory }
	p.workers = min(runtime.NumCPU(), maxThreads)
	for p.workers > 1 && !fits(r.orderBytes(p.workers)) {
		p.workers--
	}
	if !fits(r.orderBytes(p.workers)) {
		return p, false
	}
	for _, p.chunk = range tensorChunks {
		if ok = fits(r.copyBytes(p.chunk)); ok {
			break
		}
	}
	if !ok {
		return p, false
	}
	// A row for each node while tensors move; before that, where the source has an order, another and a bit, and what loading takes.
	rest := memory
	if memory > 0 {
		if o := r.src.node().Order; o != nil && !fits(2*n*4+o.LoadBytes()+orderCheckBytes(n)) {
			return p, false
		}
		if rest -= n * 4; rest <= 0 {
			return p, false
		}
	}
	for i := range r.src.node().Tensors {
		plan, ok := planPermute(&r.src.node().Tensors[i].Array, rest)
		if !ok {
			return p, false
		}
		p.tensors = append(p.tensors, plan)
	}
	return p, true
}

// orderBytes is the memory in which the order is made and written.
func (r *relayouter) orderBytes(workers int) int64 {
	n := r.src.edge().NumNodes
	write := 2*n*4 + arrayWriterBytes(frugal.chunk)
	if r.opts.Order == Hot {
		return write
	}
	return max(write, 3*n*4, n*4+r.src.communityBytes(workers))
}

// copyBytes is the memory of copying any of them.
func (r *relayouter) copyBytes(chunk int) int64 {
	most := int64(0)
	for _, a := range r.carried(r.src.manifest) {
		most = max(most, pagesOf(a.Array).rowStreamBytes(int64(chunk))+arrayWriterBytes(chunk))
	}
	return most
}

// movedBytes is how many bytes will be read and written.
func (r *relayouter) movedBytes() int64 {
	t := &r.src.edge().Topology
	moved := t.NumNodes * 4
	if r.opts.Order != Hot {
		moved += t.NumNodes*8 + t.NumEdges*int64(t.Indices.Layout.RowBytes)
	}
	for _, a := range r.carried(r.src.manifest) {
		moved += 2 * a.Bytes
	}
	for i, p := range r.plan.tensors {
		moved += p.moved(&r.src.node().Tensors[i].Array)
	}
	return moved
}
