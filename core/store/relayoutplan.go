package store

import "runtime"

// relayoutPlan are the sizes that keep every step within the budget.
type relayoutPlan struct {
	workers int             // of the pass over the adjacency
	chunk   int             // of copies
	tensors [][]permutePlan // of each node type
}

// makePlan chooses sizes for this memory, unlimited where it is not positive.
func (r *relayouter) makePlan(memory int64) error {
	var ok bool
	if r.plan, ok = r.fit(memory); ok {
		return nil
	}
	need := smallestMemory(func(memory int64) bool {
		_, ok := r.fit(memory)
		return ok
	})
	return needsMemory("this relayout", need, memory)
}

// fit makes a plan for this memory, or returns false.
func (r *relayouter) fit(memory int64) (p relayoutPlan, ok bool) {
	n := r.numNodes()
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
	// A row for each node while tensors move; before that, for a type that has an order in the source, another and a
	// bit for each of its nodes, and what loading takes.
	rest := memory
	if memory > 0 {
		if rest -= n * 4; rest <= 0 {
			return p, false
		}
	}
	for i := range r.src.nodeTypes {
		t := &r.src.nodeTypes[i]
		if o := t.Order; o != nil && !fits(n*4+t.Count*4+o.LoadBytes()+orderCheckBytes(t.Count)) {
			return p, false
		}
		plans := make([]permutePlan, len(t.Tensors))
		for j := range plans {
			if plans[j], ok = planPermute(&t.Tensors[j].Array, rest); !ok {
				return p, false
			}
		}
		p.tensors = append(p.tensors, plans)
	}
	return p, true
}

// orderBytes returns the memory in which the order is made and written.
func (r *relayouter) orderBytes(workers int) int64 {
	n := r.numNodes()
	write := 2*n*4 + arrayWriterBytes(frugal.chunk)
	if r.opts.Order == Hot {
		return write
	}
	return max(write, 3*n*4, n*4+r.src.communityBytes(workers))
}

// copyBytes returns the memory of copying any of them.
func (r *relayouter) copyBytes(chunk int) int64 {
	most := int64(0)
	for _, a := range r.carried(r.src.manifest) {
		most = max(most, pagesOf(a.Array).rowStreamBytes(int64(chunk))+arrayWriterBytes(chunk))
	}
	return most
}

// movedBytes returns the bytes that will be read and written.
func (r *relayouter) movedBytes() int64 {
	moved := r.numNodes() * 4
	if r.opts.Order != Hot {
		for i := range r.src.edgeTypes {
			t := &r.src.edgeTypes[i].Topology
			moved += t.NumNodes*8 + t.NumEdges*int64(t.Indices.Layout.RowBytes)
		}
	}
	for _, a := range r.carried(r.src.manifest) {
		moved += 2 * a.Bytes
	}
	for i := range r.src.nodeTypes {
		t := &r.src.nodeTypes[i]
		for j, p := range r.plan.tensors[i] {
			moved += p.moved(&t.Tensors[j].Array)
		}
	}
	return moved
}
