package loader

import (
	"context"

	"freshgo/core/history"
	"freshgo/core/sample"
)

// pruning is what a preparer keeps to prune its batches.
type pruning struct {
	on     bool // whether the batch at hand is pruned
	cut    *history.Batch
	wanted []int32 // by node of the batch as it was drawn: where its rows go, or -1
	probes []probe // by hidden layer
	saves  [][]float32
	seeds  map[int64]bool
	counts []int64
}

// pruned says whether the batch at hand is pruned.
func (p *preparer) pruned() bool { return p.pruning != nil && p.on }

// probe is the computed rows of a layer that the cache holds as well, of a batch
// that was left whole to compare them.
type probe struct{ rows, nodes, slots, ages []int64 }

// keep copies what a worker has drawn, so that the worker may draw the next batch
// while this one waits to be pruned.
func keep(to, from *sample.Subgraph) {
	to.Nodes, to.Ptr = append(to.Nodes[:0], from.Nodes...), append(to.Ptr[:0], from.Ptr...)
	to.Row, to.Pos = append(to.Row[:0], from.Row...), append(to.Pos[:0], from.Pos...)
	to.Weight, to.Tree = append(to.Weight[:0], from.Weight...), append(to.Tree[:0], from.Tree...)
	to.NodesPerHop, to.EdgesPerHop = from.NodesPerHop, from.EdgesPerHop
}

// prune waits for the batch's turn and takes out of it what the history makes
// needless, before any row is read.
func (p *preparer) prune(b *Batch) error {
	h := p.loader.past
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.first + b.Index
	if !h.plain && i >= h.start {
		h.mu.Unlock()
		p.cut.Merge(&p.graph)
		h.mu.Lock()
	}
	if h.awaitTurn(p.epoch.ctx, b.Index) != nil {
		return errStopped
	}
	if p.on = !h.plain && i >= h.start; p.on {
		if err := p.decide(h, i, int64(len(p.request.inputs))); err != nil {
			return err
		}
	}
	if p.super != nil { // what the cache will hold depends on it, batch by batch
		p.build()
		p.adapt()
	}
	h.next++
	h.changed.Broadcast()
	if p.super == nil {
		h.mu.Unlock()
		defer h.mu.Lock()
		p.build()
	}
	return nil
}

// awaitTurn waits until a batch is the one to be pruned.
func (h *past) awaitTurn(ctx context.Context, index int64) error {
	return h.wait(ctx, func() bool { return h.next == index && (h.plain || h.updated >= h.first+index-h.lag) })
}

// probes says whether the batch of an iteration is left whole, to compare.
func (h *past) probes(i int64) bool { return h.probe > 0 && (i-h.start)%h.probe == h.probe-1 }

// reads says whether the batch of an iteration may use the history.
func (h *past) reads(i int64) bool { return !h.plain && i >= h.start && !h.probes(i) }

// finds is where the batch of iteration i finds a row: in a restored run, what it had found before.
func (h *past) finds(i int64, layer int, node int64) int32 {
	if saved, restored := h.saved[i]; restored {
		return saved.layers[layer-1].find(node)
	}
	return h.state.Find(i, layer, node)
}

// since is when a row was admitted that a batch which is left whole finds.
func (h *past) since(i int64, layer int, node int64) int64 {
	if saved, restored := h.saved[i]; restored {
		return saved.layers[layer-1].since(node)
	}
	return h.state.Admission(layer, node)
}

// decide finds the rows of the batch of iteration i that the history has, pins them
// and notes what the update has to judge.
func (p *preparer) decide(h *past, i, numSeeds int64) error {
	own, g := p.pruning, p.cut.Merged()
	probing := h.probes(i)
	lookups := history.NewLookups(h.loader.options.hops() - 1)
	saved, restored := h.saved[i]
	if restored {
		h.state.Unpin(i)
	}
	lookup := func(layer int, node int64) int32 { return h.state.Lookup(i, layer, node, lookups) }
	switch {
	case probing:
		lookup = func(int, int64) int32 { return history.Miss }
	case restored:
		lookups = saved.lookups
		lookup = func(layer int, node int64) int32 { return h.finds(i, layer, node) }
	case h.loader.options.History.Policy == history.All:
		own.takeSeeds(g.Nodes[:numSeeds])
		lookup = func(layer int, node int64) int32 {
			if own.seeds[node] {
				return history.Miss // a batch renews its own nodes, or nothing ever would
			}
			return h.state.Lookup(i, layer, node, lookups)
		}
	}
	if err := own.cut.Decide(numSeeds, lookup); err != nil {
		return err
	}
	own.probes = own.probes[:0]
	d := h.newDecision()
	d.lookups = lookups
	for l := range d.layers {
		level, o := &own.cut.Tables[l+1].Level, &d.layers[l]
		o.Nodes, o.HitNodes = o.Nodes[:0], o.HitNodes[:0]
		for _, at := range level.Computed {
			o.Nodes = append(o.Nodes, g.Nodes[level.Nodes[at]])
		}
		for _, at := range level.Hits {
			o.HitNodes = append(o.HitNodes, g.Nodes[level.Nodes[at]])
		}
		d.slots[l] = append(d.slots[l][:0], level.Slots...)
		if probing {
			own.probes = append(own.probes, h.probeLayer(i, l+1, level, o.Nodes))
			d.slots[l] = narrow(d.slots[l], own.probes[l].slots)
		}
		h.state.Pin(i, d.slots[l])
	}
	delete(h.saved, i)
	d.probes = append(d.probes[:0], own.probes...)
	h.waiting[i] = d
	return nil
}

// takeSeeds makes the set of a batch's seeds.
func (p *pruning) takeSeeds(seeds []int64) {
	if p.seeds == nil {
		p.seeds = make(map[int64]bool, len(seeds))
	}
	clear(p.seeds)
	for _, v := range seeds {
		p.seeds[v] = true
	}
}

// build makes the batch of what was decided, and the list of the rows it needs.
func (p *preparer) build() {
	l := p.loader
	if p.on {
		p.cut.Build()
		p.batch = p.cut.Graph()
		p.wanted = grown(p.wanted, len(p.graph.Nodes))
		p.cut.Places(p.wanted)
	}
	if len(l.onDisk) == 0 {
		return
	}
	p.roster.fillGraph(l, &p.graph)
	if p.on {
		p.roster.cut(p.wanted, p.super != nil)
	}
}

func narrow(dst []int32, src []int64) []int32 {
	dst = dst[:0]
	for _, v := range src {
		dst = append(dst, int32(v))
	}
	return dst
}

// probeLayer finds what the cache has of the rows that a layer computes.
func (h *past) probeLayer(i int64, layer int, level *history.Level, nodes []int64) (found probe) {
	for k, node := range nodes {
		if slot := h.finds(i, layer, node); slot != history.Miss {
			found.rows = append(found.rows, int64(level.Computed[k]))
			found.nodes = append(found.nodes, node)
			found.slots = append(found.slots, int64(slot))
			found.ages = append(found.ages, i-h.since(i, layer, node))
		}
	}
	return found
}

// estimate computes what each new embedding would have saved, for the update.
func (p *preparer) estimate(b *Batch) error {
	h, own := p.loader.past, p.pruning
	if len(h.reuse) == 0 {
		return nil
	}
	h.mu.Lock()
	d := h.waiting[h.first+b.Index]
	h.mu.Unlock()
	if d == nil {
		return errStopped
	}
	own.saves = grown(own.saves, len(d.layers))
	for l := range d.layers {
		d.layers[l].Saves = grown(d.layers[l].Saves, len(d.layers[l].Nodes))
		own.saves[l] = d.layers[l].Saves
	}
	// Loading a row costs nothing where it lies in the buffer with the embeddings.
	l, cost := p.loader, p.loader.rowCost()
	if f := l.outermost; f != nil {
		f.mu.RLock()
		defer f.mu.RUnlock()
		read := cost
		cost = func(node int64) float32 {
			if f.has(l.rowOf(node)) {
				return 0
			}
			return read(node)
		}
	}
	return own.cut.Saves(cost, own.saves)
}

// rowCost is what loading a node's rows costs: nothing where its type has none, but other types have some.
func (l *Loader) rowCost() func(node int64) float32 {
	shape := l.parts.types.shape()
	costs := make([]float32, shape.Types())
	for i := range l.tables {
		if !l.tables[i].byEdge {
			costs[l.tables[i].typ] = 1
		}
	}
	if len(costs) == 1 {
		return func(int64) float32 { return 1 }
	}
	return func(node int64) float32 { return costs[sample.TypeOf(shape.First, node)] }
}

// gatherLoaded copies the rows that are loaded out of a table in memory.
func (p *preparer) gatherLoaded(dst []byte, t *table, rows []int64) {
	loaded, base := p.cut.LoadedOf(t.typ)
	for len(loaded) > 0 {
		n := 1
		for n < len(loaded) && loaded[n] == loaded[0]+int32(n) {
			n++
		}
		at := int(loaded[0] - base)
		p.loader.gatherRows(dst[at*t.width:(at+n)*t.width], t.memory, t.width, rows[at:at+n])
		loaded = loaded[n:]
	}
}

// clearUnloaded zeroes the rows of a node tensor that are not loaded.
func (p *preparer) clearUnloaded(dst []byte, t *table) {
	next := 0
	loaded, base := p.cut.LoadedOf(t.typ)
	for _, at := range loaded {
		clear(dst[next*t.width : int(at-base)*t.width])
		next = int(at-base) + 1
	}
	clear(dst[next*t.width:])
}
