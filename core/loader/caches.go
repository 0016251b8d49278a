package loader

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/ssd"
)

// openCache makes the cache that the split has room for, and what decides over it.
func (l *Loader) openCache(ctx context.Context) error {
	if len(l.onDisk) == 0 || l.cacheKind == "none" || l.hot != nil {
		return nil
	}
	widths := l.columns
	switch {
	case l.cacheKind == "belady":
		if err := l.openRowsOf(l.split.CacheRows, widths); err != nil {
			return err
		}
		return l.openPlanning(ctx)
	case slices.Contains(cache.OnlineNames(), l.cacheKind):
		policy, err := cache.New(l.cacheKind, l.budget, l.parts.numNodes, l.split.CacheRows)
		if err != nil {
			return err
		}
		l.policy, l.online = policy, true
		l.onClose(func() { l.policy.Close() })
		if err := l.openResident(); err != nil {
			return err
		}
		return l.openRowsOf(l.split.CacheRows, widths)
	}
	return l.openStatic(ctx, widths)
}

// openRowsOf makes the slots of the cache.
func (l *Loader) openRowsOf(capacity int64, widths []int) error {
	rows, err := cache.NewRows(l.budget, capacity, widths)
	if err != nil {
		return err
	}
	l.onClose(rows.Close)
	l.cached = rows
	return nil
}

// openStatic ranks the nodes and reads the rows of the hottest. The reads count
// as I/O in the statistics.
func (l *Loader) openStatic(ctx context.Context, widths []int) error {
	if l.split.CacheRows == 0 {
		return nil
	}
	ranked, err := l.rankForCache(ctx)
	if err != nil {
		return err
	}
	policy := ranked.Static(l.split.CacheRows)
	l.onClose(policy.Close)
	if err := l.openRowsOf(policy.Len(), widths); err != nil {
		return err
	}
	var m ssd.Merger
	wanted := make([]int64, 0, fillChunk)
	var first int64 // the slot of the first of wanted
	read := func() error {
		for _, t := range l.onDisk {
			places, rows := l.rowsOf(t, wanted)
			err := t.disk.Read(ctx, &m, rows, func(i int32, row []byte) error {
				at := int64(i)
				if places != nil {
					at = places[i]
				}
				copy(l.cached.Row(t.cached, first+at), row)
				return nil
			})
			if err != nil {
				return fmt.Errorf("loader: filling the cache from %q: %w", t.name, err)
			}
		}
		first += int64(len(wanted))
		wanted = wanted[:0]
		return nil
	}
	for _, row := range policy.Rows() {
		if wanted = append(wanted, int64(row)); len(wanted) == fillChunk {
			if err := read(); err != nil {
				return err
			}
		}
	}
	if err := read(); err != nil {
		return err
	}
	l.policy = policy
	l.resident.held.Store(policy.Len())
	l.counters.filled.Add(policy.Len())
	return nil
}

// fillChunk is how many rows are asked for at once while the cache is filled:
// enough to keep the engine busy, few enough that the read plan stays small.
const fillChunk = 1 << 16

func (l *Loader) openResident() error {
	err := l.resident.open(l.budget, l.split.CacheRows)
	if err == nil {
		l.onClose(l.resident.block.Free)
	}
	return err
}
