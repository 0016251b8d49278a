package loader

import (
	"context"
	"fmt"
	"math"
	"time"

	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// Open makes a loader: it loads indptr, samples a few batches to learn their
// size, divides the memory, loads or opens the rest and fills the cache. It may
// take long and stops promptly when ctx ends.
//
// Errors: ErrOption, sample.ErrSeed and sample.ErrFanout for arguments;
// *mem.BudgetError that names the smallest memory that works; what the store and
// the read engine report.
func Open(ctx context.Context, src Source, o Options, alloc mem.Allocator) (*Loader, error) {
	l := &Loader{options: o, parts: src.parts(), alloc: alloc}
	l.parts.transposed, l.parts.held = o.Transpose, o.Held != nil
	if err := l.parts.choose(o.Aggregate); err != nil {
		return nil, err
	}
	if o.AsStored {
		for i := range l.parts.tensors {
			l.parts.tensors[i].asStored()
		}
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := l.open(ctx); err != nil {
		l.undo()
		return nil, err
	}
	since(&l.counters.opening, start)
	return l, nil
}

// check says what is wrong with the options, by themselves and for this source.
func (l *Loader) check() error {
	o := &l.options
	l.parts.disjoint, l.parts.timed, l.parts.links = o.disjoint(), o.TimeAttr != "", o.Links
	if err := o.validate(l.parts.numNodes); err != nil {
		return err
	}
	if err := l.parts.checkRows(o.Cache); err != nil {
		return err
	}
	if err := l.checkTypes(); err != nil {
		return err
	}
	if err := l.checkSampler(); err != nil {
		return err
	}
	return o.validateLinks(&l.parts)
}

func (l *Loader) open(ctx context.Context) error {
	l.budget = mem.NewBudget(l.options.Memory)
	types := l.parts.types
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return types.openIndptr(ctx, l) },
		l.openLinks,
		l.divide,
		func(context.Context) error { return l.openEngine() },
		func(ctx context.Context) error { return types.openTopology(ctx, l) },
		l.openNeighborLists,
		l.openOrder,
		l.openTables,
		l.openSampler,
		l.openHistory,
		l.openCache,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if l.parts.store != nil {
		return l.parts.store.CheckCurrent()
	}
	return nil
}

// divide divides the memory, by measured batches where it is limited.
func (l *Loader) divide(ctx context.Context) (err error) {
	l.boundBatch()
	g := l.graphSizes()
	r := l.request(&g)
	var workers *sample.Sampler // that draw the batches measured
	var demand sizing.Demand
	if l.options.Memory > 0 {
		if demand, workers, err = l.measure(ctx, &r, &g); err != nil {
			return err
		}
	}
	l.demand = demand.Expected(l.mostNodes())
	split, err := sizing.Divide(r, g, l.costs(&l.demand, workers, &g))
	if err != nil {
		return fmt.Errorf("loader: %w", err)
	}
	l.split = *split
	return l.reserveFixed(&g)
}

// mostNodes is how many nodes a batch may have.
func (l *Loader) mostNodes() int64 {
	if l.options.disjoint() {
		return math.MaxInt64 // any node may be in several trees
	}
	return l.parts.numNodes + l.options.BatchSize // seeds may repeat
}

// reserveFixed counts what has been loaded before the memory was divided.
func (l *Loader) reserveFixed(g *sizing.Graph) error {
	if err := l.budget.Reserve(mem.Topology, g.Fixed); err != nil {
		return err
	}
	l.onClose(func() { l.budget.Release(mem.Topology, g.Fixed) })
	return nil
}

func (l *Loader) onClose(fn func()) { l.release = append(l.release, fn) }

// openEngine starts the read engine of a store, and makes the graph ready for reading.
func (l *Loader) openEngine() error {
	l.engineName = "memory"
	if l.parts.store != nil {
		engine, err := l.newEngine(&l.split, l.budget)
		if err != nil {
			return err
		}
		l.engine, l.engineName, l.engineWhy = engine, engine.Name(), engine.Why()
		l.onClose(func() { engine.Close() })
	}
	l.graph = graph.Opened{
		Store: l.parts.store, Engine: l.engine, Slot: l.split.Slot, Checksums: l.options.Checksums, Budget: l.budget,
	}
	l.onClose(l.graph.Close)
	return nil
}

// newEngine is an engine that reads the store, with the buffers of a split.
func (l *Loader) newEngine(s *sizing.Split, budget *mem.Budget) (*ssd.Engine, error) {
	return ssd.NewEngine(ssd.Options{
		Kind: l.options.IO, Depth: s.Depth, SlotBytes: s.Slot, FS: l.parts.store.FS(), Budget: budget,
	}, l.parts.store.Path())
}

func (l *Loader) engineStats() ssd.Stats {
	if l.engine == nil {
		return ssd.Stats{}
	}
	return l.engine.Stats()
}

// openSampler makes the sampler and its workers.
func (l *Loader) openSampler(ctx context.Context) error {
	if err := l.makeSampler(ctx); err != nil {
		return err
	}
	count, threads := l.split.Workers, 1
	if inFlight := max(l.split.Prefetch, 1); inFlight < count {
		// Fewer batches than threads: the threads share a batch.
		count, threads = inFlight, (count+inFlight-1)/inFlight
	}
	l.cpu = make(chan struct{}, count)
	l.workers = make(chan *sample.Worker, count)
	for range count {
		w, err := l.newWorker(threads)
		if err != nil {
			return err
		}
		l.onClose(w.Close)
		l.workers <- w
	}
	return nil
}

// makeSampler makes the sampler of what is open.
func (l *Loader) makeSampler(ctx context.Context) (err error) {
	types := l.parts.types
	if l.drawnBy, err = types.openWeights(ctx, l); err != nil {
		return err
	}
	times, err := types.openTimes(ctx, l)
	if err != nil {
		return err
	}
	if l.sampler, err = types.newSampler(&l.options, l.drawnBy, times); err != nil {
		return err
	}
	return l.checkEarliest(ctx)
}

// openTables loads the tensors that are held whole and opens the others.
func (l *Loader) openTables(ctx context.Context) error {
	l.tables = make([]table, len(l.parts.tensors))
	for i, t := range l.parts.tensors {
		l.tables[i] = table{tensor: t, index: i, cached: l.split.ColumnOf[i]}
		table := &l.tables[i]
		switch {
		case t.onDisk == nil:
		case l.split.Resident[i]:
			block, err := l.parts.store.LoadTensor(ctx, &t.onDisk.Array, l.budget, mem.FeatureCache)
			if err != nil {
				return err
			}
			l.onClose(block.Free)
			table.memory = block.Bytes()
		default:
			var err error
			if table.disk, err = l.graph.Rows(ctx, &t.onDisk.Array); err != nil {
				return err
			}
			if !t.byEdge && l.parts.reaches(&t) {
				l.onDisk = append(l.onDisk, table)
			}
		}
	}
	l.cacheKind, l.cacheWhy = l.split.Cache, l.split.CacheWhy
	l.cachedTypes = make([]bool, l.parts.types.types())
	for _, t := range l.onDisk {
		l.cachedTypes[t.typ] = true
	}
	l.seedsRepeat = len(l.onDisk) > 0 && l.options.Seeds != nil && repeats(l.options.Seeds, l.parts.numNodes)
	l.columns = l.split.Columns
	return nil
}
