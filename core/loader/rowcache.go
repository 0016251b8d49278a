package loader

import (
	"context"
	"freshgo/core/batch"
	"slices"

	"freshgo/core/cache"
)

// rowCache knows where the rows of tables on disk are, and moves rows as batches pass. A loader has one, which
// openCache chooses; nothing asks afterwards which it is.
type rowCache interface {
	// begin returns the drawer of the batches of an epoch.
	begin(e *epoch) (drawer, error)
	// fill brings the rows of a drawn batch into its tensors, and lets the batch change the cache.
	fill(p *preparer, b *batch.Batch, tensors [][]byte) error
	// readOnly returns the cache of batches on demand, which wait for no other batch and change nothing.
	readOnly() rowCache
	// abandon ends what runs ahead of the epochs, without waiting for it; stop waits and frees it.
	abandon()
	stop()
	// addStats and addPlan add the figures of this kind of cache. Any goroutine may call them.
	addStats(*Stats)
	addPlan(*Plan)
}

// openCache makes the cache that the split has room for.
func (l *Loader) openCache(ctx context.Context) (err error) {
	switch kind := l.draw.Split.Cache; {
	case len(l.rows.onDisk) == 0:
		l.cache = allInMemory{}
	case kind == "none":
		l.cache = uncached{}
	case kind == "belady":
		l.cache, err = openPlanned(ctx, l)
	case slices.Contains(cache.OnlineNames(), kind):
		l.cache, err = openOnline(l)
	default:
		l.cache, err = openFixed(ctx, l)
	}
	return err
}

// passive is the part of a rowCache that runs nothing ahead of the batches.
type passive struct{}

func (passive) begin(e *epoch) (drawer, error) { return drawNow(e) }

func (passive) abandon()        {}
func (passive) stop()           {}
func (passive) addStats(*Stats) {}
func (passive) addPlan(*Plan)   {}

// allInMemory is the cache of a loader that reads no rows from disk.
type allInMemory struct{ passive }

func (c allInMemory) readOnly() rowCache { return c }

func (allInMemory) fill(p *preparer, _ *batch.Batch, tensors [][]byte) error {
	p.loader.counters.Hits.Add(p.drawn.CountRows())
	return p.readTables(tensors, nil)
}

// uncached is the cache of a loader that reads every row for the batch that needs it.
type uncached struct{ passive }

func (c uncached) readOnly() rowCache { return c }

func (uncached) fill(p *preparer, _ *batch.Batch, tensors [][]byte) error {
	if err := p.readMissing(nil, tensors); err != nil {
		return err
	}
	return p.timed(func() { p.copyCached(tensors) })
}

// fixedCache holds the rows of the nodes that a metric ranks first, from opening on (FGNN, section 6).
type fixedCache struct {
	passive
	policy *cache.Static
}

func (c *fixedCache) readOnly() rowCache { return c }

func (c *fixedCache) fill(p *preparer, _ *batch.Batch, tensors [][]byte) error {
	c.policy.Step(p.drawn.BatchRows.Rows, &p.step.Step)
	if err := p.readMissing(p.step.Slots, tensors); err != nil {
		return err
	}
	return p.timed(func() { p.copyCached(tensors) })
}

// openFixed ranks the nodes and reads the rows of the hottest. The reads count as I/O in the statistics.
func openFixed(ctx context.Context, l *Loader) (rowCache, error) {
	if l.draw.Split.CacheRows == 0 {
		return uncached{}, nil
	}
	ranked, err := rankForCache(ctx, l)
	if err != nil {
		return nil, err
	}
	policy := ranked.Static(l.draw.Split.CacheRows)
	l.draw.OnClose(policy.Close)
	if err := l.rows.openSlots(&l.draw, policy.Len()); err != nil {
		return nil, err
	}
	wanted, first := make([]int64, 0, fillChunk), 0 // the slot of the first of wanted
	read := func() error {
		err := l.rows.readAtOpening(ctx, wanted, func(table, at int, row []byte) {
			copy(l.rows.cached.Row(l.rows.onDisk[table].cached, int64(first+at)), row)
		})
		first, wanted = first+len(wanted), wanted[:0]
		return err
	}
	for _, row := range policy.Rows() {
		if wanted = append(wanted, int64(row)); len(wanted) == fillChunk {
			if err := read(); err != nil {
				return nil, err
			}
		}
	}
	if err := read(); err != nil {
		return nil, err
	}
	l.rows.resident.held.Store(policy.Len())
	l.counters.Filled.Add(policy.Len())
	return &fixedCache{policy: policy}, nil
}

// fillChunk is the number of rows that are requested at once while the cache is filled: enough to keep the engine busy,
// few enough that the read plan stays small.
const fillChunk = 1 << 16
