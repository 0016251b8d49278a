package loader

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"freshgo/core/cache"
	"freshgo/core/plan"
	"freshgo/core/scratch"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// openCache makes the cache that the split has room for, and what decides over it.
func (l *Loader) openCache(ctx context.Context, neighbors *idArray) error {
	if len(l.onDisk) == 0 || l.cacheKind == "none" || l.outermost != nil {
		return nil
	}
	widths := l.columns
	switch {
	case l.cacheKind == "belady":
		if err := l.openRowsOf(l.split.CacheRows, widths); err != nil {
			return err
		}
		return l.openPlanner(ctx)
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
	return l.openStatic(ctx, neighbors, widths)
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
func (l *Loader) openStatic(ctx context.Context, neighbors *idArray, widths []int) error {
	if l.split.CacheRows == 0 {
		return nil
	}
	ranked, err := l.rankForCache(ctx, neighbors)
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
			err := t.disk.read(ctx, &m, rows, func(i int32, row []byte) error {
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

// openPlanner makes what a planned loader has beside its cache: the planner, the
// record of what is in the cache, and the pool for packs and traces.
func (l *Loader) openPlanner(ctx context.Context) error {
	o := &l.options
	limits := scratch.Options{MemoryBytes: l.split.Packs, FileBytes: l.split.Scratch}
	pool, err := scratch.Open(l.parts.store.FS(), l.engine, o.Scratch, l.budget, limits)
	if err != nil {
		return err
	}
	l.pool = pool
	l.onClose(func() { _ = pool.Close() }) // it only gives back
	if err := l.openResident(); err != nil {
		return err
	}
	if o.History != nil {
		if err := l.promises.open(l.budget, l.split.CacheRows); err != nil {
			return err
		}
		l.onClose(l.promises.block.Free)
	}
	if l.device, err = l.calibrate(ctx); err != nil {
		return err
	}
	packFile := limits.FileBytes * packFileShare / 4
	if limits.MemoryBytes-limits.PackMemory() < leastBuffers {
		packFile = 0 // no pack in the file would find a buffer
	}
	c := plan.Config{
		NumRows: l.parts.numNodes, Capacity: l.split.CacheRows, CarryOver: o.CarryOver, Transfer: o.Transfer,
		Device: l.device, PackMemory: limits.PackMemory(), PackFile: packFile,
		Depth: max(l.split.Prefetch, 1), SlotBytes: l.split.Slot,
	}
	for _, t := range l.onDisk {
		c.Tables = append(c.Tables, t.onDisk.Layout)
		if !l.parts.types.unnamed() {
			c.First = append(c.First, t.first)
		}
	}
	for _, width := range l.columns {
		c.RowBytes += width
	}
	if l.planner, err = plan.New(l.budget, c); err != nil {
		return err
	}
	l.onClose(l.planner.Close)
	return nil
}

// calibrationTime is how long a device is measured for: as long as some twenty
// readings of a small table would take, at most what gives figures within a tenth.
func calibrationTime(nBytes int64) time.Duration {
	const each = time.Second / (50 << 20) // a slow disk's time for a byte, times twenty
	return max(150*time.Millisecond, min(time.Duration(nBytes)*each, ssd.DefaultCalibration))
}

func (l *Loader) openResident() error {
	err := l.resident.open(l.budget, l.split.CacheRows)
	if err == nil {
		l.onClose(l.resident.block.Free)
	}
	return err
}

// leastBuffers is what the scratch pool needs for buffers before a dozen packs can
// fill in its file at a time.
const leastBuffers = 20 * sizing.MinSlot

// packFileShare is how much of the scratch file plans count on, in quarters: the
// rest is for traces.
const packFileShare = 3

// reorderRows is the capacity that orders are judged with.
func (l *Loader) reorderRows() int64 {
	if l.options.ReorderRows == Auto {
		return l.split.CacheRows
	}
	return l.options.ReorderRows
}

// calibrate finds out what reading costs on the store's device, or remembers it.
func (l *Loader) calibrate(ctx context.Context) (ssd.Device, error) {
	if t := l.options.Transfer; t == "random" || t == "forward" {
		return ssd.Device{}, nil // nothing to compare
	}
	largest := slices.MaxFunc(l.onDisk, func(a, b *table) int { return cmp.Compare(a.bytes(), b.bytes()) })
	handle, fs, path := largest.disk.handle, l.parts.store.FS(), l.options.Calibration
	uuid := l.parts.store.UUID()
	key, err := l.engine.DeviceKey(hex.EncodeToString(uuid[:]), handle)
	if err != nil {
		return ssd.Device{}, err
	}
	if path != "" {
		l.onClose(func() {
			if l.windows.misjudged() {
				ssd.ForgetDevice(fs, path, key) // the next loader measures again
			}
		})
		if d, found := ssd.LoadDevice(fs, path, key); found {
			return d, nil
		}
	}
	dir := l.options.Scratch
	if l.split.Scratch == 0 {
		dir = ""
	}
	before := l.engine.Stats()
	d, err := ssd.Calibrate(ctx, l.engine, handle, ssd.Calibration{
		WriteDir: dir, Budget: l.budget, Limit: calibrationTime(largest.bytes()),
	})
	after := l.engine.Stats()
	l.calibrated = ssd.Stats{Requests: after.Requests - before.Requests, Bytes: after.Bytes - before.Bytes, Retries: after.Retries - before.Retries}
	if err != nil {
		return ssd.Device{}, fmt.Errorf("loader: calibrating the device: %w", err)
	}
	if path != "" {
		ssd.SaveDevice(fs, path, key, d) // where it cannot be kept, it is measured again
	}
	return d, nil
}
