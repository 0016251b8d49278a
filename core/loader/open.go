package loader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/mem"
	"freshgo/core/sizing"
	"freshgo/core/store"
)

// Open makes a loader: it samples a few batches to learn their size, divides the memory, loads or opens the rest and
// fills the cache. It may take long and stops promptly when ctx ends.
//
// It returns ErrOption, sample.ErrSeed and sample.ErrFanout for arguments, *mem.BudgetError with the smallest memory
// that works, and errors of the store and the read engine.
func Open(ctx context.Context, src draw.Source, o draw.Options, alloc mem.Allocator) (*Loader, error) {
	l := &Loader{draw: draw.New(o, src), alloc: alloc}
	if err := draw.AddTrained(&l.draw); err != nil {
		return nil, err
	}
	if err := l.draw.Parts.Choose(o.Aggregate); err != nil {
		return nil, err
	}
	if o.FeatureDType == "stored" {
		for i := range l.draw.Parts.Tensors {
			l.draw.Parts.Tensors[i].AsStored()
		}
	}
	if err := l.draw.Check(); err != nil {
		return nil, err
	}
	l.onDemand.loader = l
	l.onDemand.closes, l.onDemand.cancel = context.WithCancel(context.Background())
	start := time.Now()
	if err := l.open(ctx); err != nil {
		l.draw.Close()
		return nil, err
	}
	l.counters.Opening.Since(start)
	return l, nil
}

func (l *Loader) open(ctx context.Context) error {
	l.draw.Budget = mem.NewBudget(l.draw.Options.Memory)
	topology := draw.NewTopology(&l.draw)
	for _, step := range []struct {
		stage string // for Options.Progress; the one before if empty
		run   func(context.Context) error
	}{
		{"reading offsets", func(context.Context) error { return draw.UseTrained(&l.draw) }},
		{"", topology.OpenIndptrFirst},
		{"", l.draw.OpenSeeds},
		{"reading times", func(ctx context.Context) error { return draw.FindTimeSpans(ctx, &l.draw) }},
		{"measuring batches", func(ctx context.Context) error { return divideBesideLocked(ctx, l) }},
		{"reading neighbour lists", func(context.Context) error { return l.draw.OpenEngine() }},
		{"", topology.OpenIndptr},
		{"", topology.OpenLists},
		{"", draw.NewLists(&l.draw).Open},
		{"", topology.OpenOrder},
		{"reading tensors", func(ctx context.Context) error { return l.rows.Open(ctx, &l.draw, l.alloc) }},
		{"", func(context.Context) error { return draw.CheckLocked(&l.draw) }},
		{"", l.draw.OpenSampler},
		{"", func(ctx context.Context) error { return draw.LearnEnvelope(ctx, &l.draw) }},
		{"", func(ctx context.Context) error { return l.history.open(ctx, &l.draw, l.alloc) }},
		{"opening the cache", func(ctx context.Context) error { return openCache(ctx, l) }},
	} {
		if step.stage != "" {
			l.draw.Options.Progress.Report(step.stage, 0, 0)
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	l.draw.Options.Progress.Report("", 0, 0)
	return l.draw.Parts.CheckCurrent()
}

// divideBesideLocked divides the memory beside the tensors that are locked for a device, or without them where it is
// too small for both. The memory that its error names works also where the system locks nothing.
func divideBesideLocked(ctx context.Context, l *Loader) error {
	given := fetch.NewGiven(&l.draw, l.alloc)
	l.draw.OnClose(func() { given.Unlock() })
	for {
		g, err := divide(ctx, l)
		var small *mem.BudgetError
		switch {
		case err == nil && given.Lock():
			if err := draw.CheckSeedsOnly(&l.draw, g); err != nil {
				return err
			}
			return l.draw.ReserveFixed(g)
		case err == nil: // batches have more rows than the division knows of
			continue
		case !errors.As(err, &small) || l.draw.Options.SeedsOnly || !given.Unlock():
			return err
		}
	}
}

// divide divides the memory, by measured batches where it is limited.
func divide(ctx context.Context, l *Loader) (_ *sizing.Graph, err error) {
	l.draw.BoundBatch()
	g, history := draw.SizesOf(&l.draw), l.draw.Options.History
	yields := g.OnDisk && history.Yields(&l.draw.Options)
	if yields {
		l.draw.Options.History = nil
	}
	r := draw.RequestOf(&l.draw, &g)
	free := spaceForScratch(&l.draw)
	if r.Scratch == sizing.Auto && free >= 0 {
		if r.Free = free; free == 0 {
			r.Scratch = 0
		}
	}
	if l.draw.Options.Spare && !yields {
		if split := roomy(&l.draw, &r, &g); split != nil {
			l.draw.Split, l.offers = *split, func() []sizing.Offer { return nil }
			return &g, nil
		}
	}
	var of draw.Measured
	if l.draw.Options.Memory > 0 {
		if of, err = draw.Measure(ctx, &l.draw, &r, &g); err != nil {
			return nil, err
		}
	}
	l.draw.Demand = of.Demand.Expected(l.draw.MaxNodes())
	costs := costsOf(&l.draw, &l.draw.Demand, of.Sampler, &g)
	costs.Observed, costs.Estimated = of.Observed, of.Estimated
	split, err := sizing.Divide(r, g, costs)
	if err != nil {
		return nil, err
	}
	if yields && split.HoldsRows(&g) { // the history has what features leave
		beside := r
		l.draw.Options.History = history
		beside.History = draw.HistorySizes(&l.draw, &g)
		more := costsOf(&l.draw, &l.draw.Demand, of.Sampler, &g)
		more.Observed, more.Estimated = of.Observed, of.Estimated
		if both, err := sizing.Divide(beside, g, more); err == nil && both.HoldsRows(&g) {
			split, r, costs = both, beside, more
		} else {
			l.draw.Options.History = nil
		}
	}
	l.draw.Split = *split
	if need := min(split.Scratch, sizing.MostScratch(&g, split)); r.Scratch > 0 && free >= 0 && need > free {
		short := &store.SpaceError{Dir: l.draw.Options.Scratch, Need: need, Free: free}
		return nil, fmt.Errorf("loader: scratch_size: %w", short)
	}
	l.offers = sync.OnceValue(func() []sizing.Offer { return sizing.Offers(r, g, costs) })
	return &g, nil
}

// spaceForScratch returns the bytes that are free where a scratch file would be, or -1 where nothing says them: opening
// the file will say why.
func spaceForScratch(m *draw.Sampling) int64 {
	if m.Options.Scratch == "" {
		return -1
	}
	free, err := m.Parts.FS.Space(m.Options.Scratch)
	if err != nil {
		return -1
	}
	return free
}
