package draw

import (
	"context"
	"errors"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// measuredBatches is the number of batches that are sampled to learn their size.
const measuredBatches = 8

// leastTrial is the memory that batches may take while they are measured, even where the budget is smaller: batches of
// a few nodes are then measured as they are, so that an error names the smallest memory that works. Arbitrary.
const leastTrial = 16 << 20

// trialFetches is the part of its limit, as a divisor, that fetching takes of a trial. No budget counts it, and twice
// as much may be garbage.
const trialFetches = 16

// Measured holds the demand of sampled batches, what they drew, and their sampler.
type Measured struct {
	Demand   sizing.Demand
	Observed sizing.Observed
	Sampler  *sample.Sampler // that workers are to be sized for; nil where nothing was measured
	// Estimated means that batches did not fit into the memory: the demand is extrapolated from parts of them.
	Estimated bool
}

// Measure samples batches spread over the first epoch and finds the most that one of them needed. It stays within the
// memory: a batch that finds no room beside neighbours or times in memory is sampled from disk, and where it still has
// no room its demand is estimated. It frees all that it allocates, except for the neighbours: where they fit into most
// of the memory they are loaded first, for a batch costs thousands of reads. Sampling.loaded has them then, for
// Topology.OpenLists, or for Lists.Open to choose from. It loads the offsets, beside the neighbours where there is
// memory for both.
func Measure(ctx context.Context, m *Sampling, r *sizing.Request, g *sizing.Graph) (of Measured, err error) {
	split := sizing.Measuring(r, g)
	limit := max(r.Memory-g.Fixed, leastTrial)
	if split.Neighbors && g.Loading+indptrLoading(m) > limit/4 { // Measuring leaves a quarter beside neighbours
		if err := NewTopology(m).OpenIndptr(ctx); err != nil {
			return of, err
		}
	}
	for _, held := range []*bool{&split.Neighbors, &split.Weights} {
		if *held {
			if of, err = tryMeasure(ctx, m, split, limit, false); !errors.Is(err, mem.ErrBudget) {
				return of, err
			}
		}
		*held = false
	}
	return tryMeasure(ctx, m, split, limit, true)
}

// tryMeasure measures batches within a limit. With estimate it estimates what does not fit.
func tryMeasure(
	ctx context.Context, m *Sampling, split sizing.Split, limit int64, estimate bool,
) (of Measured, err error) {
	trial := &Sampling{
		Options: m.Options, Parts: m.Parts, Budget: mem.NewBudget(limit), Seeds: m.Seeds, seedSums: m.seedSums,
	}
	trial.Options.Checksums = false
	trial.trial = true
	trial.Split = split
	defer trial.Close()
	trial.Parts.Schema = m.Parts.Schema.again() // what the trial opens is its own
	trial.Parts.Schema.atOnce = max(sample.FetchedEdges, limit/trialFetches/fetchedEdge)
	a := gauge{m: trial, of: &of, share: 1, observer: newObserver(trial)}
	if estimate {
		if err := NewTopology(m).OpenIndptr(ctx); err != nil {
			return of, err
		}
		most := MaxDemand(m)
		a.most = &most
	}
	err = openTrial(ctx, m, trial)
	if err == nil {
		err = a.measureBatches(ctx)
	}
	if estimate && errors.Is(err, mem.ErrBudget) { // not even what a batch is drawn from fits
		of.Demand, of.Estimated, err = *a.most, true, nil
	}
	if err != nil {
		return of, err
	}
	if of.Sampler, err = SamplerOnDisk(trial); err != nil {
		return of, err
	}
	m.loaded, trial.loaded = trial.loaded, nil
	addRare(m, &of.Demand)
	m.Options.Complete(&of.Demand)
	return of, nil
}

// openTrial opens what the batches of a trial of m are drawn from. Offsets are read beside neighbour lists: the one
// keeps the disk busy while the other computes.
func openTrial(ctx context.Context, m, trial *Sampling) error {
	if err := trial.OpenEngine(); err != nil {
		return err
	}
	opens := []func(context.Context) error{NewTopology(trial).OpenLists, NewTopology(m).OpenIndptr}
	if err := guard.Each(ctx, len(opens), func(ctx context.Context, i int) error { return opens[i](ctx) }); err != nil {
		return err
	}
	for i := range m.Parts.Schema.Relations {
		trial.Parts.Schema.Relations[i].Indptr = m.Parts.Schema.Relations[i].Indptr
	}
	return trial.OpenSampler(ctx)
}

// indptrLoading returns the memory of loading offsets beside the offsets themselves.
func indptrLoading(m *Sampling) (most int64) {
	for _, r := range m.Parts.Schema.stored() {
		if r.Indptr == nil {
			most = max(most, r.OnDisk.Indptr.LoadBytes())
		}
	}
	return most
}

// gauge samples batches for a trial.
type gauge struct {
	m      *Sampling
	of     *Measured
	worker *sample.Worker
	most   *sizing.Demand // what any batch may need; nil: what does not fit is an error
	share  int            // the part of a batch's seeds that is sampled, as a divisor
	own    BatchRows
	missed CachedTypes

	batches  []measuredBatch // that share their reads
	observer *observer       // of the batches of the epoch
}

// fewBatches is the number of batches of an epoch up to which each measured batch is of an epoch of its own: a row
// that one batch of an epoch draws for one of its seeds is in no other batch of the epoch. Arbitrary: with more of them
// the measured batches have few of the seeds.
const fewBatches = 32 * measuredBatches

// measureBatches adds what batches spread over an epoch need.
func (a *gauge) measureBatches(ctx context.Context) error {
	m := a.m
	a.worker = <-m.Workers
	defer func() { a.worker.Close() }()
	a.missed = m.NewCachedTypes(make([]bool, m.Parts.Schema.NumTypes()))
	shares := mayShare(m, 1)
	last, err := a.eachBatch(ctx, func(b *measuredBatch) error {
		if shares {
			a.batches = append(a.batches, *b)
			b.request = Request{} // the next one has memory of its own
			return nil
		}
		return a.measure(ctx, b)
	})
	if err != nil {
		return err
	}
	defer forgetShared(a.batches)
	if shares {
		readShared(ctx, m, 1, a.batches, a.draw)
	}
	for i := range a.batches {
		if err := a.measure(ctx, &a.batches[i]); err != nil {
			return err
		}
	}
	a.of.Observed = a.observer.observed()
	return a.measureRuns(ctx, last)
}

// eachBatch visits the batches to measure, and returns the key of batch 0 of the last epoch.
func (a *gauge) eachBatch(ctx context.Context, visit func(b *measuredBatch) error) (last sample.Key, err error) {
	m := a.m
	order, err := m.NewSeedOrder(ctx, m.EpochKey(0))
	if err != nil {
		return last, err
	}
	defer func() { order.Free() }()
	count := m.NumBatches()
	step := max(1, count/measuredBatches)
	var b measuredBatch
	for i, epoch := int64(0), int64(0); i < count; i += step {
		if i+step >= count && m.Options.TimeAttr != "" {
			i = count - 1 // in the order of times the last one is the largest
		}
		if epoch > 0 && m.Options.reorders() && count <= fewBatches {
			order.Free()
			next, err := m.NewSeedOrder(ctx, m.EpochKey(epoch))
			if err != nil {
				return last, err
			}
			order = next
		}
		epoch++
		if err := order.Batch(ctx, i, &b.request); err != nil {
			return last, err
		}
		b.key = order.BatchKey(i)
		if err := visit(&b); err != nil {
			return last, err
		}
	}
	return order.BatchKey(0), nil
}

// sharing is the factor between the parts of a batch that are sampled where a larger part does not fit. Arbitrary.
const sharing = 4

// measure adds what a batch needs. Where the budget has no room for it, that is what a part of its seeds needs,
// multiplied; and so with every batch from then on, since they are alike. A part reaches more nodes for each of its
// seeds than the whole, so that the estimate is a bound but for chance.
func (a *gauge) measure(ctx context.Context, b *measuredBatch) error {
	r := b.request.Request
	defer b.forget()
	for {
		if a.share > 1 {
			b.forget() // it is of the whole batch
		}
		part := partOf(r, a.share)
		var graph sample.Subgraph
		err := a.worker.Draw(b.with(ctx, true), b.key, part, &graph)
		if err == nil {
			d := demandOf(&graph, a.rows(&graph))
			a.observer.add(&graph)
			if a.share > 1 {
				d = multiplied(a.m, d, float64(len(r.Seeds))/float64(len(part.Seeds)), a.most)
			}
			a.of.Demand.Add(d)
			return nil
		}
		if errors.Is(err, mem.ErrBudget) && (forgetShared(a.batches) || a.observer.forget()) {
			continue
		}
		if a.most == nil || !errors.Is(err, mem.ErrBudget) {
			return err
		}
		a.of.Estimated = true
		if len(part.Seeds) <= 1 {
			a.of.Demand.Add(*a.most)
			return nil
		}
		a.share *= sharing
		a.worker.Close() // its memory for a larger batch would be missing
		if a.worker, err = a.m.newWorker(1); err != nil {
			return err
		}
	}
}

// rows returns the number of rows of a batch.
func (a *gauge) rows(g *sample.Subgraph) int64 {
	if a.m.Options.Held == nil {
		return int64(len(g.Nodes))
	}
	a.own.FillGraph(&a.missed, g)
	return a.own.Missed.most(&a.m.Options)
}

// partOf returns a request for one in share of the seeds.
func partOf(r sample.Request, share int) sample.Request {
	if share == 1 {
		return r
	}
	part := r
	part.Seeds, part.Times = nil, nil
	for i := 0; i < len(r.Seeds); i += share {
		part.Seeds = append(part.Seeds, r.Seeds[i])
		if r.Times != nil {
			part.Times = append(part.Times, r.Times[i])
		}
	}
	return part
}

// demandOf returns the demand of a batch with the given number of rows.
func demandOf(g *sample.Subgraph, rows int64) sizing.Demand {
	d := sizing.Demand{
		Nodes: int64(len(g.Nodes)), Rows: rows, Edges: g.Room,
		NodesPerHop: g.NodesPerHop, EdgesPerHop: g.EdgesPerHop, Rooms: g.Rooms,
	}
	for _, n := range g.EdgesPerHop {
		d.HopEdges = max(d.HopEdges, n)
	}
	return d
}

// SamplerOnDisk returns the sampler that workers are sized for: as if all that a store holds stayed there, which takes
// the most. Of a graph in memory it is the sampler itself, where that could be opened.
func SamplerOnDisk(m *Sampling) (*sample.Sampler, error) {
	if m.Parts.Store == nil && m.Sampler != nil {
		return m.Sampler, nil
	}
	other := m.Parts.Schema.again()
	for i := range other.Relations {
		other.Relations[i].Neighbors = graph.Stays()
	}
	var weights []*sample.Weights
	for _, t := range weightTensors(m) {
		var w *sample.Weights
		if t != nil {
			of := weightColumn(m, t)
			w = of.Stay()
		}
		weights = append(weights, w)
	}
	return other.newSampler(&m.Options, weights, timesOnDisk(m))
}

// again returns the schema for another loader of the same options, which shares the offsets.
func (s *Schema) again() *Schema {
	other := *s
	other.Relations = slices.Clone(s.Relations)
	return &other
}

// measureRuns measures the input nodes of each type by themselves, as many of them as a batch has: a
// type with few input nodes is in none of the batches that were measured, and may need more than any
// other. With shuffling these are a type's share of a batch, else a whole batch.
func (a *gauge) measureRuns(ctx context.Context, key sample.Key) error {
	m := a.m
	if len(m.Parts.Schema.Runs) < 2 { // every batch has nodes of the only type, or of links of both their types
		return nil
	}
	total := m.Seeds.Count()
	for _, r := range m.Parts.Schema.Runs {
		most := m.Options.BatchSize
		if m.Options.Shuffle && m.seedSums == nil {
			most = int64(float64(r.To-r.From)/float64(total)*float64(min(most, total))) + 1
		}
		var seeds, times []int64
		for at := r.From; at < r.To && int64(len(seeds)) < most; at++ {
			v := at
			if m.Options.Seeds != nil {
				v = m.Options.Seeds[at]
			}
			seeds = append(seeds, v)
			if m.Options.TimeAttr != "" {
				times = append(times, m.seedTimes[at])
			}
		}
		of := measuredBatch{key: key, request: Request{Request: sample.Request{Seeds: seeds, Times: times}}}
		if err := a.measure(ctx, &of); err != nil {
			return err
		}
	}
	return nil
}

// addRare makes room for an edge of each relation, and a node of each type, that none of the
// measured batches had and another may have: buffers that none of them used are not there at all,
// and the least that a buffer takes is more than what the margin leaves.
func addRare(m *Sampling, d *sizing.Demand) {
	s := m.Parts.Schema
	if len(d.Rooms) == 0 {
		return // no batch was measured
	}
	for i, of := range s.Edges {
		if d.Rooms[i] > 0 || !s.reached[of.Source] || !s.reached[of.Target] ||
			!s.Walked && s.Relations[i].NumEdges == 0 {
			continue
		}
		d.Rooms[i]++
		d.Edges++
		d.HopEdges = max(d.HopEdges, 1)
		if s.Hops > 0 { // without hops a batch may still have the edges between its seeds
			last := i*s.Hops + s.Hops - 1
			d.EdgesPerHop[last] = max(d.EdgesPerHop[last], 1)
		}
		for _, t := range []int{of.Source, of.Target} {
			if hops := d.NodesPerHop[t*(s.Hops+1) : (t+1)*(s.Hops+1)]; slices.Max(hops) == 0 {
				hops[s.Hops]++
				d.Nodes++
				d.Rows++
			}
		}
	}
}
