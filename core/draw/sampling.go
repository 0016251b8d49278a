package draw

import (
	"context"
	"errors"
	"math"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// ErrStopped ends the work of an epoch that nobody waits for any more.
var ErrStopped = errors.New("loader: epoch stopped")

// Sampling is a graph from which batches are drawn as the options say. Loader has one and adds rows, caches and epochs.
// Hotness and measuring have one of their own and nothing else, so it knows of none of these.
type Sampling struct {
	Options Options
	Parts   Parts
	Budget  *mem.Budget
	Split   sizing.Split
	Demand  sizing.Demand // what sampling workers are sized for

	Graph      graph.Opened
	Engine     *ssd.Engine // nil when everything is in memory
	EngineName string
	EngineWhy  string
	Kind       *sample.Kind // of the sampler
	Sampler    *sample.Sampler
	Workers    chan *sample.Worker   // free sampling workers
	threads    threads               // that compute
	loaded     map[int]*graph.Loaded // the neighbours of relations, between measuring and opening: see Measure
	fromDisk   *graph.Counts         // where neighbours on disk were found
	trial      bool                  // samples to measure batches, and is closed then
	Lists      []*cache.Neighbors    // of topology on disk, of each relation that has any
	DrawnBy    []*sample.Weights     // of each relation, nil where it draws uniformly; or none at all
	Order      []uint32              // the row on disk of each node, counted over all types; nil: its own number
	Seeds      Requester             // what batches are drawn for
	Locked     int64                 // bytes of the user's tensors that are locked for a device and count in Memory
	seedTimes  []int64               // of the seeds, in the user's order
	seedSums   []float64             // the running sums of their weights; nil: each comes once in an epoch
	release    []func()              // what undo undoes, last first

	// Set when the engine and the sampler are opened, by where the graph is:
	EngineStats func() ssd.Stats
	drawing     func(ctx context.Context, fn func()) error // runs what draws edges
}

func New(o Options, src Source) Sampling {
	m := Sampling{Options: o, Parts: src.Parts()}
	if o.Spare && o.Memory > 0 {
		m.Options.Memory += m.Parts.allocated
	}
	return m
}

// Check returns an error if the options are wrong, by themselves or for this source.
func (m *Sampling) Check() error {
	o := &m.Options
	m.Parts.Disjoint, m.Parts.Timed, m.Parts.Links = o.Trees(), o.TimeAttr != "", o.Links
	m.Parts.Transposed, m.Parts.Held, m.Parts.Packed = o.Transpose, o.Held != nil, o.Packed
	if err := chooseKind(m); err != nil {
		return err
	}
	if err := o.validate(m.Parts.NumNodes); err != nil {
		return err
	}
	if err := m.Parts.checkRows(cache.KindOf(o.Cache)); err != nil {
		return err
	}
	if err := checkTypes(m); err != nil {
		return err
	}
	if err := checkSampler(m); err != nil {
		return err
	}
	if err := validatePad(m); err != nil {
		return err
	}
	if err := validateSeedsOnly(m); err != nil {
		return err
	}
	return o.validateLinks(&m.Parts)
}

// NumBatches returns the number of batches of an epoch, over all ranks.
func (m *Sampling) NumBatches() int64 {
	n := m.Seeds.Count()
	if m.Options.DropLast {
		return n / m.Options.BatchSize
	}
	return (n + m.Options.BatchSize - 1) / m.Options.BatchSize
}

// BoundBatch bounds the batch size by one more than there are seeds, so that sums do not overflow. No batch is full
// with either size.
func (m *Sampling) BoundBatch() { m.Options.BatchSize = min(m.Options.BatchSize, m.Seeds.Count()+1) }

// MaxNodes returns the most nodes of a batch.
func (m *Sampling) MaxNodes() int64 {
	if m.Options.Trees() {
		return math.MaxInt64 // any node may be in several trees
	}
	return m.Parts.NumNodes + m.Options.BatchSize // seeds may repeat
}

// ReserveFixed counts what has been loaded before the memory was divided.
func (m *Sampling) ReserveFixed(g *sizing.Graph) error {
	for _, of := range []struct {
		purpose mem.Purpose
		bytes   int64
	}{{mem.Topology, g.Fixed - m.Locked}, {mem.FeatureCache, m.Locked}} {
		if err := m.Budget.Reserve(of.purpose, of.bytes); err != nil {
			return err
		}
		m.OnClose(func() { m.Budget.Release(of.purpose, of.bytes) })
	}
	return nil
}

func (m *Sampling) OnClose(fn func()) { m.release = append(m.release, fn) }

// Close releases what open acquired, last first.
func (m *Sampling) Close() {
	for i := len(m.release) - 1; i >= 0; i-- {
		m.release[i]()
	}
	m.release = nil
	NewTopology(m).dropLoaded()
}

// OpenEngine starts the read engine of a store, and makes the graph ready for reading.
func (m *Sampling) OpenEngine() error {
	m.EngineName, m.EngineStats = "memory", func() ssd.Stats { return ssd.Stats{} }
	if m.Parts.Store != nil {
		engine, err := m.newEngine(&m.Split, m.Budget)
		if err != nil {
			return err
		}
		m.Engine, m.EngineName, m.EngineWhy, m.EngineStats = engine, engine.Name(), engine.Why(), engine.Stats
		m.OnClose(func() { engine.Close() })
	}
	m.Graph = graph.Opened{
		Store: m.Parts.Store, Engine: m.Engine, Slot: m.Split.Slot, Checksums: m.Options.Checksums, Budget: m.Budget,
	}
	m.OnClose(m.Graph.Close)
	return nil
}

// newEngine returns an engine that reads the store, with the buffers of a split.
func (m *Sampling) newEngine(s *sizing.Split, budget *mem.Budget) (*ssd.Engine, error) {
	return ssd.NewEngine(ssd.Options{
		Kind: m.Options.IO, Depth: s.Depth, SlotBytes: s.Slot, FS: m.Parts.FS, Budget: budget,
	}, m.Parts.Store.Path())
}

// OpenSampler makes the sampler and its workers.
func (m *Sampling) OpenSampler(ctx context.Context) error {
	if err := m.makeSampler(ctx); err != nil {
		return err
	}
	count, threads := m.Concurrency()
	m.threads = newThreads(m.Split.Workers)
	m.drawing = func(ctx context.Context, fn func()) error { return m.threads.run(ctx, threads, fn) }
	if !m.Split.Neighbors { // it mostly waits for the disk, which takes no thread
		m.drawing = func(_ context.Context, fn func()) error { fn(); return nil }
	}
	m.Workers = make(chan *sample.Worker, count)
	for range count {
		w, err := m.newWorker(threads)
		if err != nil {
			return err
		}
		m.OnClose(w.Close)
		m.Workers <- w
	}
	return nil
}

// Concurrency returns the number of batches that are drawn at a time, and the threads of each: more than one where
// there are fewer batches than threads.
func (m *Sampling) Concurrency() (batches, threads int) {
	batches = min(max(m.Split.Prefetch, 1), m.Split.Workers)
	return batches, (m.Split.Workers + batches - 1) / batches
}

// makeSampler makes the sampler of what is open.
func (m *Sampling) makeSampler(ctx context.Context) (err error) {
	types := m.Parts.Schema
	if m.DrawnBy, err = openWeights(ctx, m); err != nil {
		return err
	}
	times, err := openTimes(ctx, m)
	if err != nil {
		return err
	}
	if m.Sampler, err = types.newSampler(&m.Options, m.DrawnBy, times); err != nil {
		return err
	}
	return m.Seeds.open(ctx, m)
}

// newSampler returns the sampler of relations whose topology is open. weights and times have an element for each
// relation, or are nil.
func (s *Schema) newSampler(o *Options, weights []*sample.Weights, times []*sample.Temporal) (*sample.Sampler, error) {
	g := sample.Graph{Named: !s.Homogeneous()}
	scratch := graph.NewScratchPool() // of all relations: a thread fetches along one at a time
	for t := range s.NumTypes() {
		g.NumNodes = append(g.NumNodes, s.NumNodes(t))
	}
	for i := range s.Relations {
		r := &s.Relations[i]
		of := sample.Relation{Source: r.Source, Target: r.Target, Indptr: r.Indptr}
		r.Neighbors.SetIndices(&of)
		if r.Neighbors.OnDisk() {
			of.Adjacency = inPieces(r.Neighbors.Adjacency(scratch), s.atOnce)
		}
		g.Relations = append(g.Relations, of)
	}
	cfg := sample.Config{
		Fanouts: o.RelationFanouts, Replace: o.Replace, Weights: weights, Sampler: o.Sampler, Metapaths: o.Metapaths,
		Disjoint: o.Trees(), Temporal: times, Subgraph: o.Subgraph, Reverse: s.reverse,
	}
	if o.Walks != nil { // along the only relation
		cfg.Metapaths = []sample.Metapath{{Path: []int{0}, Walks: o.Walks}}
	}
	return sample.New(g, cfg)
}

// newWorker makes a worker of this many threads that has memory for the batches that the loader expects.
func (m *Sampling) newWorker(threads int) (*sample.Worker, error) {
	w, err := m.Sampler.NewWorker(m.Budget, m.Split.Stamp, threads)
	if err != nil {
		return nil, err
	}
	if err := w.Reserve(m.Parts.Schema.SamplerDemand(&m.Demand)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// SamplerDemand returns a demand by node type and relation.
func (s *Schema) SamplerDemand(d *sizing.Demand) sample.Demand {
	out := sample.Demand{Nodes: s.Demanded(d).NodesOfTypes(), Edges: make([]int64, len(s.Edges))}
	copy(out.Edges, d.Rooms) // which are none where nothing was measured
	return out
}

// Compute runs fn when a thread is free.
func (m *Sampling) Compute(ctx context.Context, fn func()) error { return m.threads.run(ctx, 1, fn) }

// Draw samples a batch, with a computing thread where the neighbours are in memory.
func (m *Sampling) Draw(
	ctx context.Context, worker *sample.Worker, key sample.Key, r *Request, g *sample.Subgraph,
) (err error) {
	if stopped := m.drawing(ctx, func() { err = worker.Draw(ctx, key, r.Request, g) }); stopped != nil {
		return stopped
	}
	if !m.Parts.Weighted {
		g.Weight = nil
	}
	return err
}

// Lease waits for a sampling worker.
func (m *Sampling) Lease(ctx context.Context) (*sample.Worker, error) {
	select {
	case <-ctx.Done():
		return nil, ErrStopped
	case worker := <-m.Workers:
		return worker, nil
	}
}

// GiveBack ends a lease; nil is none.
func (m *Sampling) GiveBack(worker *sample.Worker) {
	if worker != nil {
		m.Workers <- worker
	}
}
