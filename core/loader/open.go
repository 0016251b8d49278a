package loader

import (
	"context"
	"fmt"
	"sync"
	"time"

	"freshgo/core/mem"
	"freshgo/core/sizing"
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
	l := &Loader{sampling: newSampling(o, src), alloc: alloc}
	if err := l.parts.choose(o.Aggregate); err != nil {
		return nil, err
	}
	if o.FeatureDType == "stored" {
		for i := range l.parts.tensors {
			l.parts.tensors[i].asStored()
		}
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	l.answers.closes, l.answers.cancel = context.WithCancel(context.Background())
	start := time.Now()
	if err := l.open(ctx); err != nil {
		l.undo()
		return nil, err
	}
	since(&l.counters.opening, start)
	return l, nil
}

func (l *Loader) open(ctx context.Context) error {
	l.budget = mem.NewBudget(l.options.Memory)
	types := l.parts.types
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return types.openIndptr(ctx, &l.sampling) },
		l.openSeeds,
		l.divide,
		func(context.Context) error { return l.openEngine() },
		func(ctx context.Context) error { return types.openTopology(ctx, &l.sampling) },
		l.openNeighborLists,
		l.openOrder,
		l.openTables,
		l.openSampler,
		l.openHistory,
		func(context.Context) error { l.shareRows(); return nil },
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

// shareRows sets the number of threads that copy the rows of a batch to the threads of the batch.
func (l *Loader) shareRows() {
	_, l.threads = l.share()
	l.movers = l.threads
}

// divide divides the memory, by measured batches where it is limited.
func (l *Loader) divide(ctx context.Context) (err error) {
	l.boundBatch()
	g := l.graphSizes()
	r := l.request(&g)
	var of measured
	switch {
	case l.options.Memory == 0:
	case l.options.Spare && l.roomy(&r, &g):
		r.Memory = 0
	default:
		if of, err = l.measure(ctx, &r, &g); err != nil {
			return err
		}
	}
	l.demand = of.demand.Expected(l.mostNodes())
	costs := l.costs(&l.demand, of.sampler, &g)
	costs.Estimated = of.estimated
	split, err := sizing.Divide(r, g, costs)
	if err != nil {
		return err
	}
	l.split = *split
	l.offers = sync.OnceValue(func() []sizing.Offer { return sizing.Offers(r, g, costs) })
	if err := l.boundScratch(&g); err != nil {
		return err
	}
	return l.reserveFixed(&g)
}

// boundScratch compares the scratch file with the free space: one whose size was chosen gets no more than there is, one
// whose size was given must have room for what it may hold.
func (l *Loader) boundScratch(g *sizing.Graph) error {
	if l.split.Scratch == 0 {
		return nil
	}
	free, err := l.parts.store.FS().Space(l.options.Scratch)
	if err != nil {
		return nil // opening the file will say it
	}
	if l.options.ScratchBytes == Auto {
		l.split.Scratch = min(l.split.Scratch, free)
	} else if need := min(l.split.Scratch, sizing.MostScratch(g)); need > free {
		return fmt.Errorf("loader: scratch_size: %w", &store.SpaceError{Dir: l.options.Scratch, Need: need, Free: free})
	}
	return nil
}

// openTables loads the tensors that are held whole and opens the others.
func (l *Loader) openTables(ctx context.Context) error {
	l.tables = make([]table, len(l.parts.tensors))
	for i, t := range l.parts.tensors {
		l.tables[i] = table{tensor: t, index: i, cached: l.split.ColumnOf[i], unused: !l.parts.reaches(&t)}
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
			if !t.byEdge && !table.unused {
				l.onDisk = append(l.onDisk, table)
			}
		}
	}
	cached := make([]bool, l.parts.types.types())
	for _, t := range l.onDisk {
		cached[t.typ] = true
	}
	l.cachedTypes = l.newCachedTypes(cached)
	l.cachedTypes.order = l.order
	l.columns = l.split.Columns
	return nil
}
