package prune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// world is a random graph and the batches of a few epochs, which are drawn of it.
type world struct {
	shape  history.Shape
	hops   int
	epochs [][]*sample.Subgraph
	seeds  [][]int64 // of each epoch, how many its batches have
}

func newWorld(t testing.TB, rng *rand.Rand, types, relations, hops, epochs, batches int) *world {
	w := &world{hops: hops, shape: history.Shape{First: []int64{0}}}
	g := sample.Graph{Named: true}
	var cfg sample.Config
	for typ := range types {
		g.NumNodes = append(g.NumNodes, 20+rng.Int64N(40))
		w.shape.First = append(w.shape.First, w.shape.First[typ]+g.NumNodes[typ])
	}
	for range relations {
		r := sample.Relation{Source: rng.IntN(types), Target: rng.IntN(types)}
		indptr := []int64{0}
		for range g.NumNodes[r.Target] {
			for range rng.IntN(6) {
				r.Indices32 = append(r.Indices32, int32(rng.Int64N(1+rng.Int64N(g.NumNodes[r.Source]))))
			}
			indptr = append(indptr, int64(len(r.Indices32)))
		}
		r.Indptr = offsets.Of(indptr)
		g.Relations = append(g.Relations, r)
		w.shape.Relations = append(w.shape.Relations, history.Relation{Source: r.Source, Target: r.Target})
		cfg.Fanouts = append(cfg.Fanouts, slices.Repeat([]int64{3}, hops))
	}
	sampler, err := sample.New(g, cfg)
	require.NoError(t, err)
	worker, err := sampler.NewWorker(mem.NewBudget(0), true, 1)
	require.NoError(t, err)
	defer worker.Close()
	for epoch := range epochs {
		var drawn []*sample.Subgraph
		var seeds []int64
		for batch := range batches {
			key := sample.Key{Seed: rng.Uint64(), Epoch: uint64(epoch), Batch: uint64(batch)}
			var of []int64
			for _, v := range rng.Perm(int(w.shape.First[types]))[:1+rng.IntN(6)] {
				of = append(of, int64(v))
			}
			var view sample.Subgraph
			require.NoError(t, worker.Sample(context.Background(), key, of, &view))
			drawn, seeds = append(drawn, cloned(&view)), append(seeds, int64(len(of)))
		}
		w.epochs, w.seeds = append(w.epochs, drawn), append(w.seeds, seeds)
	}
	return w
}

func cloned(g *sample.Subgraph) *sample.Subgraph {
	return &sample.Subgraph{
		Nodes: slices.Clone(g.Nodes), Ptr: slices.Clone(g.Ptr), Row: slices.Clone(g.Row), Pos: slices.Clone(g.Pos),
		NodesPerHop: slices.Clone(g.NodesPerHop), EdgesPerHop: slices.Clone(g.EdgesPerHop),
	}
}

// rowBytes is the width of kept rows.
const rowBytes = 8

// config returns a history of the graph with room for the given number of rows.
func (w *world) config(policy string, slots int64) Config {
	return Config{Shape: w.shape, History: history.Config{
		NumNodes: w.shape.First[w.shape.Types()], Layers: w.hops - 1, Bytes: rowBytes * slots, RowBytes: rowBytes,
		Stale: 4, GradFraction: 1, Policy: policy,
		Reuse: func(_ int, node int64) float32 { return 1 / float32(1+node%5) },
	}}
}

// roomy returns the most rows that there can be.
func (w *world) roomy() int64 { return w.shape.First[w.shape.Types()] * int64(w.hops-1) }

// entry is an embedding: of a node at a layer, as an iteration has computed it.
type entry struct {
	layer      int
	node, from int64
}

type layerNode struct {
	layer int
	node  int64
}

// outcome is the result of a batch.
type outcome struct {
	left   *remains // nil: it is not pruned
	probes []Probe
	relied map[int32]entry // what the slots held that it was told of
}

// trainer prunes batches and trains on them, one after the other, and records the kept rows: it copies each admitted
// row, as an entry, into the buffer.
type trainer struct {
	testing.TB
	w      *world
	c      Config
	budget *mem.Budget
	h      *Pruner
	buffer map[int32]entry
	kept   map[layerNode]int32 // slots
	begun  int64               // iteration of the epoch's batch 0
	ahead  map[int64]*outcome  // by iteration
	levels map[int64][]level   // of batches that are not updated
	hits   int
	normed bool // whether hits have norms
}

// newTrainer returns one whose memory has gone back when the test ends.
func newTrainer(t testing.TB, w *world, c Config) *trainer {
	budget := mem.NewBudget(0)
	h, err := New(budget, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		h.Close()
		require.Zero(t, budget.Used())
	})
	return &trainer{
		TB: t, w: w, c: c, budget: budget, h: h, buffer: map[int32]entry{}, kept: map[layerNode]int32{},
		ahead: map[int64]*outcome{}, levels: map[int64][]level{},
	}
}

// finds reports whether iteration i, of a batch with these seeds, must find the row of a node.
func (r *trainer) finds(i int64, seeds map[int64]bool, layer int, node int64) bool {
	if r.c.History.Policy == history.All && seeds[node] {
		return false
	}
	_, found := r.entryFor(i, layerNode{layer, node})
	return found
}

// entryFor is the slot of an entry that is not too old for iteration i.
func (r *trainer) entryFor(i int64, of layerNode) (slot int32, found bool) {
	slot, found = r.kept[of]
	old := i-r.buffer[slot].from > r.c.History.Stale && r.c.History.Policy != history.All
	return slot, found && !old
}

func (r *trainer) probing(i int64) bool {
	every := r.c.ProbeEvery
	return every > 0 && (i-r.c.History.Start+1)%every == 0
}

func (r *trainer) seedsOf(g *sample.Subgraph) map[int64]bool {
	f, seeds := flatten(&r.w.shape, g), map[int64]bool{}
	for v, hop := range f.hop {
		if hop == 0 {
			seeds[g.Nodes[v]] = true
		}
	}
	return seeds
}

// cost returns the cost of a node's features.
func cost(node int64) float32 { return float32(node % 3) }

// take prunes the batch of an epoch whose turn it is, without a look at the result.
func (r *trainer) take(c *Cut, epoch int, index int64, inTurn func()) *outcome {
	ctx, g := context.Background(), r.w.epochs[epoch][index]
	require.NoError(r, c.Prune(ctx, index, g, r.w.seeds[epoch][index], inTurn))
	made, err := r.build(c, g)
	require.NoError(r, err)
	return made
}

func (r *trainer) build(c *Cut, g *sample.Subgraph) (*outcome, error) {
	if !c.On() {
		return &outcome{}, nil
	}
	_, places := c.Build(g)
	o := &outcome{left: made(c, &r.w.shape, places).plain(), relied: map[int32]entry{}}
	for l, of := range o.left.Levels {
		for k, node := range of.Hits {
			o.relied[c.Batch.Tables[l+1].Slots[k]] = entry{layer: l + 1, node: node}
		}
	}
	for l, of := range c.Probes() {
		o.probes = append(o.probes, Probe{
			slices.Clone(of.Rows), slices.Clone(of.Nodes), slices.Clone(of.Slots), slices.Clone(of.Ages),
		})
		for k, slot := range of.Slots {
			o.relied[int32(slot)] = entry{layer: l + 1, node: of.Nodes[k]}
		}
	}
	return o, c.Estimate(cost)
}

// prune prunes the batch of an epoch and holds that what is left is what the rule leaves.
func (r *trainer) prune(epoch int, index int64) *outcome {
	r.Helper()
	c, g, i := r.h.Lend(), r.w.epochs[epoch][index], r.begun+index
	defer r.h.TakeBack(c)
	o := r.take(c, epoch, index, func() {})
	require.Equal(r, i, c.Iteration())
	r.ahead[i] = o
	require.Equal(r, i >= r.c.History.Start, o.left != nil)
	if o.left == nil {
		return o
	}
	r.levels[i] = o.left.Levels
	seeds, probing := r.seedsOf(g), r.probing(i)
	finds := func(layer int, node int64) bool { return !probing && r.finds(i, seeds, layer, node) }
	require.Equal(r, leave(&r.w.shape, g, finds).plain(), o.left, "iteration %d", i)
	require.Equal(r, probing, len(o.probes) > 0)
	for l, of := range o.probes {
		require.Equal(r, r.probe(i, l+1, o.left.Levels[l].Computed), of)
	}
	for slot, of := range o.relied { // the slot has a row of the node, of any iteration
		held := r.buffer[slot]
		require.Equal(r, entry{of.layer, of.node, held.from}, held)
		o.relied[slot] = held
		r.hits++
	}
	return o
}

// probe returns the comparison of the computed rows of a layer, which are all of its rows.
func (r *trainer) probe(i int64, layer int, nodes []int64) (p Probe) {
	for k, node := range nodes {
		if slot, found := r.entryFor(i, layerNode{layer, node}); found {
			p.Rows, p.Nodes = append(p.Rows, int64(k)), append(p.Nodes, node)
			p.Slots, p.Ages = append(p.Slots, int64(slot)), append(p.Ages, i-r.buffer[slot].from)
		}
	}
	return p
}

// normsOf returns the norms of a batch, by its iteration.
func (r *trainer) normsOf(i int64, levels []level) (all []Norms) {
	rng := rand.New(rand.NewPCG(uint64(i), 77))
	draw := func(n int) (norms []float32) {
		for range n {
			norms = append(norms, rng.Float32())
		}
		return norms
	}
	for _, of := range levels {
		n := Norms{Computed: draw(len(of.Computed))}
		if r.normed {
			n.Hits = draw(len(of.Hits))
		}
		all = append(all, n)
	}
	return all
}

// update trains on the batch that was handed over last and keeps what it is told to keep.
func (r *trainer) update(i int64) {
	r.Helper()
	for slot, of := range r.ahead[i].relied {
		require.Equal(r, of, r.buffer[slot], "slot %d, on which iteration %d relies, is written over", slot, i)
	}
	levels, norms := r.levels[i], r.normsOf(i, r.levels[i])
	refused := r.refused()
	admitted, err := r.h.Update(context.Background(), i, rowBytes, norms)
	require.NoError(r, err)
	all := r.c.History.Policy == history.Gradient && r.refused() == refused
	for l, of := range levels {
		r.judge(l+1, of, norms[l])
	}
	for l, of := range admitted {
		if all {
			require.Equal(r, smallest(norms[l].Computed, r.c.History.GradFraction), sorted(of.Rows))
		}
		for k, at := range of.Rows {
			if held, found := r.buffer[of.Slots[k]]; found && r.kept[layerNode{held.layer, held.node}] == of.Slots[k] {
				delete(r.kept, layerNode{held.layer, held.node})
			}
			r.buffer[of.Slots[k]] = entry{l + 1, levels[l].Computed[at], i}
			r.kept[layerNode{l + 1, levels[l].Computed[at]}] = of.Slots[k]
		}
	}
	r.forget(i)
}

// refused returns the number of rows that had no room.
func (r *trainer) refused() int64 {
	s, err := r.h.Stats()
	require.NoError(r, err)
	return s.RefusedPinned + s.RefusedFull
}

func (r *trainer) forget(i int64) {
	delete(r.ahead, i)
	delete(r.levels, i)
}

// judge ends the entries of computed rows, and those of hits whose gradients are too large.
func (r *trainer) judge(layer int, of level, norms Norms) {
	if r.c.History.Policy == history.All {
		return
	}
	for _, node := range of.Computed {
		delete(r.kept, layerNode{layer, node})
	}
	enter := smallest(norms.Computed, r.c.History.GradFraction)
	if len(enter) == len(of.Computed) {
		return
	}
	threshold := float32(-1)
	for _, at := range enter {
		threshold = max(threshold, norms.Computed[at])
	}
	for k, norm := range norms.Hits {
		if norm > threshold {
			delete(r.kept, layerNode{layer, of.Hits[k]})
		}
	}
}

// smallest are the rows of a share that have the smallest norms.
func smallest(norms []float32, share float64) []int32 {
	rows := make([]int32, len(norms))
	for k := range rows {
		rows[k] = int32(k)
	}
	slices.SortStableFunc(rows, func(a, b int32) int {
		if norms[a] < norms[b] {
			return -1
		}
		return 1
	})
	return sorted(rows[:int(share*float64(len(rows))+0.5)])
}

func sorted(rows []int32) []int32 {
	rows = append([]int32{}, rows...)
	slices.Sort(rows)
	return rows
}

// begin starts an epoch at one of its batches.
func (r *trainer) begin(from, count int64) {
	given := r.given()
	r.begun = given - from
	r.h.Begin(from, count, false)
}

func (r *trainer) given() int64 {
	s, err := r.h.Stats()
	require.NoError(r, err)
	return s.Iterations
}

// epoch trains on an epoch in the order that the package promises, and returns what became of its batches. Of those
// that skipped names there is no update.
func (r *trainer) epoch(epoch int, skipped func(i int64) bool) (all []*outcome) {
	r.Helper()
	count := int64(len(r.w.epochs[epoch]))
	r.begin(0, count)
	before, err := r.h.Stats()
	require.NoError(r, err)
	for k := range count {
		for next := int64(len(all)); next <= min(k+r.c.History.Lag, count-1); next++ {
			all = append(all, r.prune(epoch, next))
		}
		r.count(epoch, k, before.Layers)
		r.step(r.begun+k, skipped)
	}
	s, err := r.h.Stats()
	require.NoError(r, err)
	for l, of := range s.Layers {
		require.Equal(r, before.Layers[l].Hits, of.Hits, "layer %d", l+1)
		require.Equal(r, before.Layers[l].Misses, of.Misses, "layer %d", l+1)
	}
	return all
}

// count adds the hits and misses of a batch, of the rows that are looked up.
func (r *trainer) count(epoch int, index int64, to []history.LayerStats) {
	i := r.begun + index
	if r.ahead[i].left == nil || r.probing(i) {
		return
	}
	seeds := r.seedsOf(r.w.epochs[epoch][index])
	for l, of := range r.levels[i] {
		to[l].Hits += int64(len(of.Hits))
		for _, node := range of.Computed {
			if r.c.History.Policy != history.All || !seeds[node] {
				to[l].Misses++
			}
		}
	}
}

// step takes the batch of an iteration and trains on it.
func (r *trainer) step(i int64, skipped func(i int64) bool) {
	r.Helper()
	require.NoError(r, r.h.Skip(context.Background()))
	r.h.HandOver()
	if r.ahead[i].left != nil && !skipped(i) {
		r.update(i)
		return
	}
	require.NoError(r, r.h.Skip(context.Background()))
	r.forget(i)
}

func never(int64) bool { return false }

// named is the name of a case.
func (c *Config) named(types int) string {
	h := &c.History
	return fmt.Sprintf("%s, %d types, lag %d, %d bytes, p_grad %v", h.Policy, types, h.Lag, h.Bytes, h.GradFraction)
}
