package loader

import (
	"context"
	"math"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// sampling is a graph from which batches are drawn as the options say. Loader has one and adds rows, caches and epochs.
// Hotness and measuring have one of their own and nothing else, so it knows of none of these.
type sampling struct {
	options Options
	parts   parts
	budget  *mem.Budget
	split   sizing.Split
	demand  sizing.Demand // what sampling workers are sized for

	graph      graph.Opened
	engine     *ssd.Engine // nil when everything is in memory
	engineName string
	engineWhy  string
	sampler    *sample.Sampler
	workers    chan *sample.Worker // free sampling workers
	cpu        chan struct{}       // tokens: threads that may compute at a time
	loaded     map[int]*mem.Block  // the neighbours of relations, between measuring and opening
	fromDisk   *graph.Counts       // where neighbours on disk were found
	trial      bool                // samples to measure batches, and is closed then
	lists      []*cache.Neighbors  // of topology on disk, of each relation that has any
	drawnBy    []*sample.Weights   // of each relation, nil where it draws uniformly; or none at all
	order      []uint32            // the row on disk of each node, counted over all types; nil: its own number
	seeds      requester           // what batches are drawn for
	seedTimes  []int64             // of the seeds, in the user's order
	seedSums   []float64           // the running sums of their weights; nil: each comes once in an epoch
	release    []func()            // what undo undoes, last first
}

func newSampling(o Options, src Source) sampling {
	m := sampling{options: o, parts: src.parts()}
	if o.Spare && o.Memory > 0 && m.parts.inMemory != nil {
		m.options.Memory += m.parts.inMemory.Used()
	}
	return m
}

// check returns an error if the options are wrong, by themselves or for this source.
func (m *sampling) check() error {
	o := &m.options
	m.parts.disjoint, m.parts.timed, m.parts.links = o.disjoint(), o.TimeAttr != "", o.Links
	m.parts.transposed, m.parts.held = o.Transpose, o.Held != nil
	if err := o.validate(m.parts.numNodes); err != nil {
		return err
	}
	if err := m.parts.checkRows(o.Cache); err != nil {
		return err
	}
	if err := m.checkTypes(); err != nil {
		return err
	}
	if err := m.checkSampler(); err != nil {
		return err
	}
	return o.validateLinks(&m.parts)
}

// NumBatches returns the number of batches of an epoch, over all ranks.
func (m *sampling) NumBatches() int64 {
	n := m.seeds.count()
	if m.options.DropLast {
		return n / m.options.BatchSize
	}
	return (n + m.options.BatchSize - 1) / m.options.BatchSize
}

// boundBatch bounds the batch size by one more than there are seeds, so that sums do not overflow. No batch is full
// with either size.
func (m *sampling) boundBatch() { m.options.BatchSize = min(m.options.BatchSize, m.seeds.count()+1) }

// mostNodes returns the most nodes of a batch.
func (m *sampling) mostNodes() int64 {
	if m.options.disjoint() {
		return math.MaxInt64 // any node may be in several trees
	}
	return m.parts.numNodes + m.options.BatchSize // seeds may repeat
}

// reserveFixed counts what has been loaded before the memory was divided.
func (m *sampling) reserveFixed(g *sizing.Graph) error {
	if err := m.budget.Reserve(mem.Topology, g.Fixed); err != nil {
		return err
	}
	m.onClose(func() { m.budget.Release(mem.Topology, g.Fixed) })
	return nil
}

func (m *sampling) onClose(fn func()) { m.release = append(m.release, fn) }

// undo releases what open acquired, last first.
func (m *sampling) undo() {
	for i := len(m.release) - 1; i >= 0; i-- {
		m.release[i]()
	}
	m.release = nil
	m.dropLoaded()
}

// openEngine starts the read engine of a store, and makes the graph ready for reading.
func (m *sampling) openEngine() error {
	m.engineName = "memory"
	if m.parts.store != nil {
		engine, err := m.newEngine(&m.split, m.budget)
		if err != nil {
			return err
		}
		m.engine, m.engineName, m.engineWhy = engine, engine.Name(), engine.Why()
		m.onClose(func() { engine.Close() })
	}
	m.graph = graph.Opened{
		Store: m.parts.store, Engine: m.engine, Slot: m.split.Slot, Checksums: m.options.Checksums, Budget: m.budget,
	}
	m.onClose(m.graph.Close)
	return nil
}

// newEngine is an engine that reads the store, with the buffers of a split.
func (m *sampling) newEngine(s *sizing.Split, budget *mem.Budget) (*ssd.Engine, error) {
	return ssd.NewEngine(ssd.Options{
		Kind: m.options.IO, Depth: s.Depth, SlotBytes: s.Slot, FS: m.parts.store.FS(), Budget: budget,
	}, m.parts.store.Path())
}

func (m *sampling) engineStats() ssd.Stats {
	if m.engine == nil {
		return ssd.Stats{}
	}
	return m.engine.Stats()
}

// openSampler makes the sampler and its workers.
func (m *sampling) openSampler(ctx context.Context) error {
	if err := m.makeSampler(ctx); err != nil {
		return err
	}
	count, threads := m.share()
	m.cpu = make(chan struct{}, count)
	m.workers = make(chan *sample.Worker, count)
	for range count {
		w, err := m.newWorker(threads)
		if err != nil {
			return err
		}
		m.onClose(w.Close)
		m.workers <- w
	}
	return nil
}

// share returns the number of batches that are computed at a time, and the threads of each: more than one where there
// are fewer batches than threads.
func (m *sampling) share() (batches, threads int) {
	batches = min(max(m.split.Prefetch, 1), m.split.Workers)
	return batches, (m.split.Workers + batches - 1) / batches
}

// makeSampler makes the sampler of what is open.
func (m *sampling) makeSampler(ctx context.Context) (err error) {
	types := m.parts.types
	if m.drawnBy, err = types.openWeights(ctx, m); err != nil {
		return err
	}
	times, err := types.openTimes(ctx, m)
	if err != nil {
		return err
	}
	if m.sampler, err = types.newSampler(&m.options, m.drawnBy, times); err != nil {
		return err
	}
	return m.seeds.open(ctx, m)
}

// newSampler returns the sampler of relations whose topology is open. weights and times have an element for each
// relation, or are nil.
func (s *schema) newSampler(o *Options, weights []*sample.Weights, times []*sample.Temporal) (*sample.Sampler, error) {
	g := sample.Graph{Named: !s.unnamed()}
	scratch := graph.NewScratchPool() // of all relations: a thread fetches along one at a time
	for t := range s.types() {
		g.NumNodes = append(g.NumNodes, s.count(t))
	}
	for i := range s.relations {
		r := &s.relations[i]
		of := sample.Relation{Source: r.source, Target: r.target, Indptr: r.Indptr}
		of.Indices32, of.Indices64 = r.Neighbors.Memory()
		if r.Neighbors.OnDisk() {
			of.Adjacency = inPieces(r.Neighbors.Adjacency(scratch), s.atOnce)
		}
		g.Relations = append(g.Relations, of)
	}
	cfg := sample.Config{
		Fanouts: o.RelationFanouts, Replace: o.Replace, Weights: weights, Labor: o.Labor, Metapaths: o.Metapaths,
		Disjoint: o.disjoint(), Temporal: times, Subgraph: o.Subgraph, Reverse: s.reverse,
	}
	if o.Walks != nil { // along the only relation
		cfg.Metapaths = []sample.Metapath{{Path: []int{0}, Walks: o.Walks}}
	}
	return sample.New(g, cfg)
}

// newWorker makes a worker of this many threads that has memory for the batches that the loader expects.
func (m *sampling) newWorker(threads int) (*sample.Worker, error) {
	w, err := m.sampler.NewWorker(m.budget, m.split.Stamp, threads)
	if err != nil {
		return nil, err
	}
	if err := w.Reserve(m.parts.types.samplerDemand(&m.demand)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// samplerDemand is a demand by node type and relation.
func (s *schema) samplerDemand(d *sizing.Demand) sample.Demand {
	out := sample.Demand{Nodes: s.demanded(d).nodesOfTypes(), Edges: make([]int64, len(s.edges))}
	copy(out.Edges, d.Rooms) // which are none where nothing was measured
	return out
}

// compute runs fn when a thread is free.
func (m *sampling) compute(ctx context.Context, fn func()) error {
	select {
	case <-ctx.Done():
		return errStopped
	case m.cpu <- struct{}{}:
	}
	defer func() { <-m.cpu }()
	fn()
	return nil
}

// draw samples a batch, with a computing thread where the neighbours are in memory.
func (m *sampling) draw(
	ctx context.Context, worker *sample.Worker, key sample.Key, r *request, g *sample.Subgraph,
) (err error) {
	run := func() { err = worker.Draw(ctx, key, r.Request, g) }
	if m.split.Neighbors {
		if stopped := m.compute(ctx, run); stopped != nil {
			return stopped
		}
	} else {
		run() // mostly waits for the disk, which takes no thread
	}
	if !m.parts.weighted {
		g.Weight = nil
	}
	return err
}
