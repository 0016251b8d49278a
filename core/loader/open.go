package loader

import (
	"context"
	"fmt"
	"math"
	"time"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
	"freshgo/core/store"
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
	indptr, err := l.openIndptr(ctx)
	if err != nil {
		return err
	}
	if err := l.openLinks(ctx, indptr); err != nil {
		return err
	}
	l.boundBatch()
	if err := l.divide(ctx, indptr); err != nil {
		return err
	}
	if err := l.openEngine(); err != nil {
		return err
	}
	adjacency, err := l.openTopology(ctx)
	if err != nil {
		return err
	}
	if err := l.openNeighborLists(ctx, indptr, adjacency); err != nil {
		return err
	}
	if err := l.openOrder(ctx); err != nil {
		return err
	}
	if err := l.openTables(ctx); err != nil {
		return err
	}
	l.indptr = indptr
	if err := l.openSampler(ctx, indptr, adjacency); err != nil {
		return err
	}
	l.cacheKind, l.cacheWhy = l.split.Cache, l.split.CacheWhy
	l.seedsRepeat = len(l.onDisk) > 0 && l.options.Seeds != nil && repeats(l.options.Seeds, l.parts.numNodes)
	if err := l.openHistory(ctx, adjacency); err != nil {
		return err
	}
	if err := l.openCache(ctx, adjacency); err != nil {
		return err
	}
	if l.parts.store != nil {
		return l.parts.store.CheckCurrent()
	}
	return nil
}

// divide divides the memory, by measured batches where it is limited.
func (l *Loader) divide(ctx context.Context, indptr []int64) (err error) {
	g := l.graphSizes()
	r := l.request(&g)
	var workers *sample.Sampler // that draw the batches measured
	var demand sizing.Demand
	if l.options.Memory > 0 {
		if demand, workers, err = l.measure(ctx, indptr, &r, &g); err != nil {
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

// openIndptr returns the one array that always stays in memory. It is counted
// apart from the budget until the size of the working set is known, so that a
// budget too small is answered with the one that works.
func (l *Loader) openIndptr(ctx context.Context) ([]int64, error) {
	if !l.parts.types.unnamed() {
		return nil, l.parts.types.openIndptr(ctx, l)
	}
	if l.parts.store == nil {
		return l.parts.types.relations[0].csc.Indptr, nil
	}
	block, err := l.parts.store.LoadIndptr(ctx, mem.NewBudget(0), mem.Topology)
	if err != nil {
		return nil, err
	}
	l.onClose(block.Free)
	return mem.Slice[int64](block), nil
}

// openEngine starts the read engine of a store.
func (l *Loader) openEngine() error {
	l.engineName = "memory"
	if l.parts.store == nil {
		return nil
	}
	engine, err := ssd.NewEngine(ssd.Options{
		Kind: l.options.IO, Depth: l.split.Depth, SlotBytes: l.split.Slot, FS: l.parts.store.FS(), Budget: l.budget,
	}, l.parts.store.Path())
	if err != nil {
		return err
	}
	l.engine, l.engineName, l.engineWhy = engine, engine.Name(), engine.Why()
	l.onClose(func() { engine.Close() })
	return nil
}

func (l *Loader) engineStats() ssd.Stats {
	if l.engine == nil {
		return ssd.Stats{}
	}
	return l.engine.Stats()
}

// openTopology finds neighbours and edge numbers where the split puts them.
func (l *Loader) openTopology(ctx context.Context) (*idArray, error) {
	if !l.parts.types.unnamed() {
		return nil, l.parts.types.openTopology(ctx, l)
	}
	if g := l.parts.types.relations[0].csc; g != nil {
		l.edgeIDs = idArray{narrow: g.EdgeIDs32, wide: g.EdgeIDs64, limit: l.parts.numEdges}
		return &idArray{narrow: unsigned(g.Indices32), wide: g.Indices64, limit: l.parts.numNodes}, nil
	}
	topology := l.parts.store.Topology()
	if !l.split.Neighbors {
		l.dropLoaded()
	}
	neighbors, err := l.openIDs(ctx, topology.Indices, l.split.Neighbors, l.parts.numNodes, l.parts.store.LoadIndices)
	if err != nil {
		return nil, err
	}
	if topology.EdgeIDs != nil {
		ids, err := l.openIDs(ctx, topology.EdgeIDs, l.split.EdgeIDs, l.parts.numEdges, l.parts.store.LoadEdgeIDs)
		if err != nil {
			return nil, err
		}
		l.edgeIDs = *ids
	}
	return neighbors, nil
}

// loadFunc is one of the store's methods that load a whole array of ids.
type loadFunc func(context.Context, *mem.Budget, mem.Purpose) (*mem.Block, error)

func (l *Loader) openIDs(ctx context.Context, a *store.Array, inMemory bool, limit int64, load loadFunc) (*idArray, error) {
	ids := &idArray{limit: limit}
	if !inMemory {
		disk, err := l.openRows(ctx, a)
		ids.disk = disk
		return ids, err
	}
	block, err := l.loadIDs(ctx, load)
	if err != nil {
		return nil, err
	}
	ids.hold(block, a)
	return ids, nil
}

// hold puts an array that is in memory into ids.
func (ids *idArray) hold(block *mem.Block, a *store.Array) {
	if a.Layout.RowBytes == 4 {
		ids.narrow = mem.Slice[uint32](block)
	} else {
		ids.wide = mem.Slice[int64](block)
	}
}

// loadIDs loads a whole array, or takes over the one that was loaded already.
func (l *Loader) loadIDs(ctx context.Context, load loadFunc) (*mem.Block, error) {
	block := l.loaded
	if block == nil {
		block, err := load(ctx, l.budget, mem.NeighborCache)
		if err == nil {
			l.onClose(block.Free)
		}
		return block, err
	}
	l.loaded = nil
	n := int64(len(block.Bytes()))
	if err := l.budget.Reserve(mem.NeighborCache, n); err != nil {
		block.Free()
		return nil, err
	}
	l.onClose(func() {
		block.Free()
		l.budget.Release(mem.NeighborCache, n)
	})
	return block, nil
}

func (l *Loader) dropLoaded() {
	if l.loaded != nil {
		l.loaded.Free()
		l.loaded = nil
	}
}

// openRows opens an array for reading by row until the loader closes.
func (l *Loader) openRows(ctx context.Context, a *store.Array) (*diskRows, error) {
	d, err := openRows(ctx, l.engine, l.parts.store, a, l.split.Slot, l.options.Checksums, l.budget)
	if err == nil {
		l.onClose(d.close)
	}
	return d, err
}

// openSampler makes the sampler and its workers.
func (l *Loader) openSampler(ctx context.Context, indptr []int64, neighbors *idArray) error {
	if err := l.makeSampler(ctx, indptr, neighbors); err != nil {
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
func (l *Loader) makeSampler(ctx context.Context, indptr []int64, neighbors *idArray) (err error) {
	if types := l.parts.types; !types.unnamed() {
		weights, err := types.openWeights(ctx, l)
		if err != nil {
			return err
		}
		times, err := types.openTimes(ctx, l)
		if err != nil {
			return err
		}
		l.drawnBy = weights
		if l.sampler, err = types.newSampler(&l.options, weights, times); err != nil {
			return err
		}
		return l.checkEarliest(ctx)
	}
	weights, err := l.openWeights(ctx, indptr)
	if err != nil {
		return err
	}
	l.drawnBy = []*sample.Weights{weights}
	times, err := l.openTimes(ctx, indptr, neighbors)
	if err != nil {
		return err
	}
	if l.sampler, err = l.parts.types.newHomogeneousSampler(&l.options, indptr, neighbors, weights, times); err != nil {
		return err
	}
	return l.checkEarliest(ctx)
}

// openOrder loads the row of every node, of a store whose rows are not in the
// order of the nodes. It is counted with indptr, see openIndptr.
func (l *Loader) openOrder(ctx context.Context) error {
	if l.parts.store == nil || !l.parts.types.unnamed() {
		return nil
	}
	block, err := l.parts.store.RowOf(ctx, mem.NewBudget(0), mem.Topology)
	if err != nil || block == nil {
		return err
	}
	l.onClose(block.Free)
	l.order = mem.Slice[uint32](block)
	return nil
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
			if table.disk, err = l.openRows(ctx, &t.onDisk.Array); err != nil {
				return err
			}
			if !t.byEdge && l.parts.reaches(&t) {
				l.onDisk = append(l.onDisk, table)
			}
		}
	}
	l.cachedTypes = make([]bool, l.parts.types.types())
	for _, t := range l.onDisk {
		l.cachedTypes[t.typ] = true
	}
	l.columns = l.split.Columns
	return nil
}
