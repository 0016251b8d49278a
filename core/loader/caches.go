package loader

import (
	"context"
	"slices"

	"freshgo/core/cache"
)

// openCache makes the cache that the split has room for, and what decides over it.
func (l *Loader) openCache(ctx context.Context) error {
	if len(l.onDisk) == 0 || l.cacheKind == "none" {
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
	rows.Populate()
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
	wanted, first := make([]int64, 0, fillChunk), 0 // the slot of the first of wanted
	read := func() error {
		err := l.readAtOpening(ctx, wanted, func(table, at int, row []byte) {
			copy(l.cached.Row(l.onDisk[table].cached, int64(first+at)), row)
		})
		first, wanted = first+len(wanted), wanted[:0]
		return err
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

// fillChunk is the number of rows that are requested at once while the cache is
// filled: enough to keep the engine busy, few enough that the read plan stays small.
const fillChunk = 1 << 16

func (l *Loader) openResident() error {
	err := l.resident.open(l.budget, l.split.CacheRows)
	if err == nil {
		l.onClose(l.resident.block.Free)
	}
	return err
}
