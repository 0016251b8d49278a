package loader

import (
	"cmp"
	"fmt"
	"time"

	"freshgo/core/manifest"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// preparer makes one batch after the other. Its scratch is its own.
type preparer struct {
	epoch  *epoch
	loader *Loader
	merger ssd.Merger
	lookup lookup
	graph  sample.Subgraph
	seeds  []int64
	inputs []int64
}

// compute runs fn when a thread is free.
func (p *preparer) compute(fn func()) error {
	select {
	case <-p.epoch.ctx.Done():
		return errStopped
	case p.loader.cpu <- struct{}{}:
	}
	defer func() { <-p.loader.cpu }()
	fn()
	return nil
}

// prepare takes the next ticket and makes that batch. Past the end of the epoch
// it returns the ticket alone.
func (p *preparer) prepare() (int64, *Batch, error) {
	e, l := p.epoch, p.loader
	var worker *sample.Worker
	select {
	case <-e.ctx.Done():
		return 0, nil, errStopped
	case worker = <-l.workers:
	}
	i := e.ticket.Add(1) - 1
	if i >= e.count {
		l.workers <- worker
		return i, nil, nil
	}
	b := &Batch{Index: i}
	whole := false
	defer func() { // also when a broken invariant panics
		if !whole {
			b.Release()
		}
	}()
	err := p.sample(b, worker)
	l.workers <- worker // its output has been copied out
	if err == nil && !e.trace {
		err = p.fill(b)
	}
	if err != nil {
		return i, nil, fmt.Errorf("loader: batch %d: %w", i, err)
	}
	whole = true
	return i, b, nil
}

// sample makes a batch as far as the sampler takes it. The worker's output is
// copied out before it returns.
func (p *preparer) sample(b *Batch, worker *sample.Worker) error {
	e, l := p.epoch, p.loader
	p.seeds, p.inputs = e.batchSeeds(b.Index, p.seeds, p.inputs)
	b.NumSeeds = int64(len(p.seeds))
	key := e.key
	key.Batch = uint64(b.Index)
	var err, stopped error
	draw := func() {
		start := time.Now()
		err = worker.Sample(e.ctx, key, p.seeds, &p.graph)
		since(&l.counters.sampling, start)
	}
	if l.split.neighbors {
		stopped = p.compute(draw)
	} else {
		draw() // mostly waits for the disk, which takes no thread
	}
	if stopped != nil || err != nil {
		return cmp.Or(stopped, err)
	}
	nodes, edges := int64(len(p.graph.Nodes)), int64(len(p.graph.Row))
	l.counters.edges.Add(edges)
	bytes := l.parts.batchBytes(nodes, edges, int64(len(p.graph.Ptr))-1, b.NumSeeds)
	if e.trace {
		bytes = nodes*8 + b.NumSeeds*8
	}
	if err := e.gate.acquire(b.Index, bytes); err != nil {
		return err
	}
	b.bytes = bytes
	stopped = p.compute(func() { err = p.copyOut(b) })
	return cmp.Or(stopped, err)
}

// copyOut widens the sampler's compact output into the batch's tensors.
func (p *preparer) copyOut(b *Batch) error {
	g := &p.graph
	edges := int64(len(g.Row))
	nID, err := p.add(b, "n_id", int64(len(g.Nodes)))
	if err != nil {
		return err
	}
	copy(nID, g.Nodes)
	inputs, err := p.add(b, "input_id", b.NumSeeds)
	if err != nil {
		return err
	}
	copy(inputs, p.inputs)
	if p.epoch.trace {
		return nil
	}
	edgeIndex, err := p.add(b, "edge_index", 2, edges)
	if err != nil {
		return err
	}
	for i, r := range g.Row {
		edgeIndex[i] = int64(r)
	}
	targets := edgeIndex[edges:]
	for t := range len(g.Ptr) - 1 {
		for i := g.Ptr[t]; i < g.Ptr[t+1]; i++ {
			targets[i] = int64(t)
		}
	}
	ptr, err := p.add(b, "ptr", int64(len(g.Ptr)))
	if err != nil {
		return err
	}
	for i, v := range g.Ptr {
		ptr[i] = int64(v)
	}
	for _, hop := range []struct {
		name   string
		counts []int64
	}{{"num_sampled_nodes", g.NodesPerHop}, {"num_sampled_edges", g.EdgesPerHop}} {
		counts, err := p.add(b, hop.name, int64(len(hop.counts)))
		if err != nil {
			return err
		}
		copy(counts, hop.counts)
	}
	// The positions become the user's edge numbers in fill: that may read from
	// disk, which must not hold a thread or the sampling worker.
	eID, err := p.add(b, "e_id", edges)
	if err != nil {
		return err
	}
	copy(eID, g.Pos)
	return p.transpose(b)
}

// add appends an int64 tensor to the batch and returns its elements.
func (p *preparer) add(b *Batch, name string, shape ...int64) ([]int64, error) {
	data, err := p.addTensor(b, name, manifest.DType_INT64, shape)
	if err != nil {
		return nil, err
	}
	return int64s(data), nil
}

// addTensor appends a tensor to the batch and returns its memory.
func (p *preparer) addTensor(b *Batch, name string, dtype manifest.DType, shape []int64) ([]byte, error) {
	n := int64(dtype.Size())
	for _, d := range shape {
		n *= d
	}
	buffer, err := p.loader.alloc.Acquire(n)
	if err != nil {
		return nil, err
	}
	b.Arrays = append(b.Arrays, Array{Name: name, DType: dtype, Shape: shape, Buffer: buffer})
	return buffer.Bytes(), nil
}

// fill turns edge positions into edge numbers and gathers all rows.
func (p *preparer) fill(b *Batch) error {
	l := p.loader
	nID, eID := int64s(b.Array("n_id").Buffer.Bytes()), int64s(b.Array("e_id").Buffer.Bytes())
	l.counters.rows.Add(int64(len(nID)))
	if err := p.numberEdges(eID); err != nil {
		return err
	}
	if err := p.compute(func() { p.lookup.resolve(l, nID) }); err != nil {
		return err
	}
	for i := range l.tables {
		t := &l.tables[i]
		ids := nID
		if t.byEdge {
			ids = eID
		}
		shape := append([]int64{int64(len(ids))}, t.rowShape...)
		dst, err := p.addTensor(b, t.name, t.dtype, shape)
		if err != nil {
			return err
		}
		if err := p.gather(t, ids, dst); err != nil {
			return fmt.Errorf("reading %q: %w", t.name, err)
		}
	}
	return nil
}

// numberEdges replaces positions in the index array by the user's edge numbers.
func (p *preparer) numberEdges(eID []int64) error {
	l := p.loader
	if l.edgeIDs.disk != nil {
		start := time.Now()
		defer since(&l.counters.reading, start)
		return l.edgeIDs.gather(p.epoch.ctx, &p.merger, eID, eID)
	}
	return p.compute(func() {
		// In memory nothing can fail.
		_ = l.edgeIDs.gather(p.epoch.ctx, nil, eID, eID)
	})
}
