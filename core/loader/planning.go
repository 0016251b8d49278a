package loader

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"freshgo/core/plan"
	"freshgo/core/scratch"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// planning holds the planner of a loader and its scratch file, beside the cache, while the loader is open.
type planning struct {
	planner     *plan.Planner
	pool        *scratch.Pool // of packs and traces
	recordStore *recordStore  // traces, and what plans are made of where storage is this
	storage     plan.Storage  // of plans: memory, or the record store
	device      *ssd.Learned  // what reading costs
	calibrated  ssd.Stats     // what finding that out read
	windows     windows
	timeline    timeline
	idleGate    idleGate
	foreknown   foreknown
	presence    *plan.Presence // what batches that are pruned find in the cache; nil: none are
}

// leastBuffers is the memory of buffers that the scratch pool needs to fill a dozen packs in its file at a time.
const leastBuffers = 20 * sizing.MinSlot

// openPlanning makes the planner, the record of what is in the cache, and the pool for packs and traces.
func (l *Loader) openPlanning(ctx context.Context) error {
	o := &l.options
	limits := scratch.Options{MemoryBytes: l.split.Packs, FileBytes: l.split.Scratch, BufferBytes: l.split.Buffers}
	pool, err := scratch.Open(l.parts.store.FS(), l.engine, o.Scratch, l.budget, limits)
	if err != nil {
		return err
	}
	l.onClose(func() { _ = pool.Close() }) // it only gives back
	if err := l.openResident(); err != nil {
		return err
	}
	planned := &planning{pool: pool, recordStore: &recordStore{budget: l.budget, pool: pool, limit: l.split.TracesHeld}}
	planned.timeline.opened = time.Now()
	if planned.storage = plan.Memory(l.budget); l.split.Stored {
		planned.storage = planned.recordStore
	}
	if o.History != nil {
		if planned.presence, err = plan.NewPresence(l.budget, l.split.CacheRows); err != nil {
			return err
		}
		l.onClose(planned.presence.Close)
	}
	device, err := l.calibrate(ctx, planned)
	if err != nil {
		return err
	}
	planned.device = ssd.Learn(device, l.engine.SlotBytes(), l.engine.Stats().Full)
	if planned.planner, err = plan.New(l.budget, l.planConfig(device, limits, planned.storage)); err != nil {
		return err
	}
	l.onClose(planned.planner.Close)
	l.planned = planned
	return nil
}

// planConfig returns the configuration of the planner: rows of the tables on disk, read from this device.
func (l *Loader) planConfig(device ssd.Device, limits scratch.Options, storage plan.Storage) plan.Config {
	packFile := sizing.PackFile(limits.FileBytes)
	if limits.MemoryBytes-limits.PackMemory() < leastBuffers {
		packFile = 0 // no pack in the file would find a buffer
	}
	c := plan.Config{
		NumRows: l.parts.numNodes, Capacity: l.split.CacheRows,
		CarryOver: l.options.CarryOver, Transfer: l.options.Transfer,
		Device: device, PackMemory: limits.PackMemory(), PackFile: packFile,
		Early: true, Depth: max(l.split.Prefetch, 1), SlotBytes: l.split.Slot, Storage: storage,
	}
	for _, t := range l.onDisk {
		c.Tables = append(c.Tables, t.onDisk.Layout)
		if l.parts.types.types() > 1 {
			c.First = append(c.First, t.first)
		}
	}
	for _, width := range l.columns {
		c.RowBytes += width
	}
	return c
}

// reorderRows is the capacity of the cache that orders of batches are judged with.
func (l *Loader) reorderRows() int64 {
	if l.options.ReorderRows == Auto {
		return l.split.CacheRows
	}
	return l.options.ReorderRows
}

// misjudged is the factor by which reading is slower or faster than it was calibrated when the calibration is not kept:
// it was taken while others used the disk, or had not for long. Busy processors alone make it two. Arbitrary beyond.
const misjudged = 4

// calibrate finds out what reading costs on the store's device, or remembers it.
func (l *Loader) calibrate(ctx context.Context, planned *planning) (device ssd.Device, err error) {
	if t := l.options.Transfer; t == "random" || t == "forward" {
		return device, nil // there is nothing to compare
	}
	largest := slices.MaxFunc(l.onDisk, func(a, b *table) int { return cmp.Compare(a.bytes(), b.bytes()) })
	handle, fs, path := largest.disk.Handle(), l.parts.store.FS(), l.options.Calibration
	uuid := l.parts.store.UUID()
	key, err := l.engine.DeviceKey(hex.EncodeToString(uuid[:]), handle)
	if err != nil {
		return device, err
	}
	if path != "" {
		l.onClose(func() {
			if planned.device != nil && planned.device.Wrong(misjudged) {
				ssd.ForgetDevice(fs, path, key) // the next loader measures again
			}
		})
		var found bool
		if device, found = ssd.LoadDevice(fs, path, key); found {
			return device, nil
		}
	}
	dir := l.options.Scratch
	if l.split.Scratch == 0 {
		dir = ""
	}
	before := l.engine.Stats()
	device, err = ssd.Calibrate(ctx, l.engine, handle, ssd.Calibration{
		WriteDir: dir, Budget: l.budget, Limit: calibrationTime(largest.bytes()),
	})
	after := l.engine.Stats()
	planned.calibrated = ssd.Stats{
		Requests: after.Requests - before.Requests, Bytes: after.Bytes - before.Bytes,
		Retries: after.Retries - before.Retries,
	}
	if err != nil {
		return device, fmt.Errorf("loader: calibrating the device: %w", err)
	}
	if path != "" {
		ssd.SaveDevice(fs, path, key, device) // where it cannot be kept, it is measured again
	}
	return device, nil
}

// calibrationTime returns the time to measure a device: as long as some twenty readings of a small table, at most the
// time that gives rates within a tenth.
func calibrationTime(nBytes int64) time.Duration {
	const each = time.Second / (50 << 20) // a slow disk's time for a byte, times twenty
	return max(150*time.Millisecond, min(time.Duration(nBytes)*each, ssd.DefaultCalibration))
}

// beginPresence tells an epoch whose batches are pruned what is in the cache.
func (l *Loader) beginPresence() {
	if l.planned != nil && l.planned.presence != nil {
		l.planned.presence.Begin(l.resident.all)
	}
}
