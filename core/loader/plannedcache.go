package loader

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/plan"
	"freshgo/core/scratch"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// plannedCache is the cache whose changes are planned ahead, window by window (Ginex, section 3). An inspector samples
// and plans; the batches execute the plan, in their order.
type plannedCache struct {
	loader      *Loader
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

	mu        sync.Mutex // guards inspector
	inspector *inspector // of the stream of the last epoch
}

// leastBuffers is the memory of buffers that the scratch pool needs to fill a dozen packs in its file at a time.
const leastBuffers = 20 * sizing.MinSlot

// openPlanned makes the slots, the record of what is in them, the planner, and the pool for packs and traces.
func openPlanned(ctx context.Context, l *Loader) (rowCache, error) {
	l.rows.Movers = l.draw.Split.Workers // batches take turns at the cache
	if err := l.rows.OpenSlots(&l.draw, l.draw.Split.CacheRows); err != nil {
		return nil, err
	}
	o := &l.draw.Options
	limits := scratch.Options{MemoryBytes: l.draw.Split.Packs, FileBytes: l.draw.Split.Scratch,
		BufferBytes: l.draw.Split.Buffers}
	pool, err := scratch.Open(l.draw.Parts.Store.FS(), l.draw.Engine, o.Scratch, l.draw.Budget, limits)
	if err != nil {
		return nil, err
	}
	l.draw.OnClose(func() { _ = pool.Close() }) // it only gives back
	if err := l.rows.OpenResident(&l.draw); err != nil {
		return nil, err
	}
	c := &plannedCache{
		loader: l, pool: pool, recordStore: &recordStore{budget: l.draw.Budget, pool: pool, limit: l.draw.Split.TracesHeld},
	}
	c.timeline.opened = time.Now()
	if c.storage = plan.Memory(l.draw.Budget); l.draw.Split.Stored {
		c.storage = c.recordStore
	}
	if o.History != nil {
		if c.presence, err = plan.NewPresence(l.draw.Budget, l.draw.Split.CacheRows); err != nil {
			return nil, err
		}
		l.draw.OnClose(c.presence.Close)
	}
	device, err := c.calibrate(ctx)
	if err != nil {
		return nil, err
	}
	c.device = ssd.Learn(device, l.draw.Engine.SlotBytes(), l.draw.Engine.Stats().Full)
	if c.planner, err = plan.New(l.draw.Budget, c.planConfig(device, limits)); err != nil {
		return nil, err
	}
	l.draw.OnClose(c.planner.Close)
	return c, nil
}

// source makes a preparer's batch of a window the source of its rows.
func (c *plannedCache) source(w *windowBatch) fetch.Source {
	w.cache = c
	return w
}

func (c *plannedCache) readOnly() fetch.Source { return fetch.Uncached{} }

// begin goes on with the stream of batches where the epoch continues it, or begins another.
func (c *plannedCache) begin(e *epoch) (drawer, error) {
	if e.first == e.count {
		return drawNow(e) // no batch is left
	}
	at := place{e.index, e.first}
	in := c.inspectorAt(at, e.shareSchedule)
	n, _ := in.number(at)
	if c.presence != nil {
		c.presence.Begin(c.loader.rows.Resident.All)
	}
	return newWindowDrawer(e, c, in, n-e.first), nil
}

// inspectorAt returns the inspector whose next batch is at a place: the one that works already, when the place
// continues its stream, or a new one.
func (c *plannedCache) inspectorAt(at place, t draw.ShareSchedule) *inspector {
	if in := c.inspector; in != nil && in.continues(at, t) {
		return in
	}
	c.stop()
	in := c.inspect(at, t)
	c.mu.Lock()
	c.inspector = in
	c.mu.Unlock()
	return in
}

func (c *plannedCache) abandon() {
	c.mu.Lock()
	in := c.inspector
	c.mu.Unlock()
	if in != nil {
		in.abandon()
	}
}

func (c *plannedCache) stop() {
	c.mu.Lock()
	in := c.inspector
	c.inspector = nil
	c.mu.Unlock()
	if in != nil {
		in.stop()
	}
}

func (c *plannedCache) addStats(s *Stats) {
	s.Superbatch, s.PredictionError = c.loader.draw.Split.Superbatch, c.windows.medianError()
	kept := c.pool.Stats()
	s.ScratchWritten, s.ScratchRead, s.ScratchWhy = kept.Written, kept.Read, kept.Why
	own := c.calibrated // up to a gigabyte, once for a store: it says nothing about the graph
	s.BytesRead, s.Requests, s.Retries = s.BytesRead-own.Bytes, s.Requests-own.Requests, s.Retries-own.Retries
}

func (c *plannedCache) addPlan(p *Plan) {
	l, s := c.loader, &c.loader.draw.Split
	p.Superbatch, p.Reorder, p.ReorderRows, p.ScratchLimit = s.Superbatch, s.Reorder, c.reorderRows(), s.Scratch
	p.MoreMemory = l.offers()
	p.Windows, p.MedianError = c.windows.all(), c.windows.medianError()
	p.History, p.Timeline = c.foreknown.all(), c.timeline.all()
	device := c.device.Device()
	p.Device = &device
}

// planConfig returns the configuration of the planner: rows of the tables on disk, read from this device.
func (c *plannedCache) planConfig(device ssd.Device, limits scratch.Options) plan.Config {
	l := c.loader
	packFile := sizing.PackFile(limits.FileBytes)
	if limits.MemoryBytes-limits.PackMemory() < leastBuffers {
		packFile = 0 // no pack in the file would find a buffer
	}
	of := plan.Config{
		NumRows: l.draw.Parts.NumNodes, Capacity: l.draw.Split.CacheRows,
		CarryOver: l.draw.Options.CarryOver, Transfer: l.draw.Options.Transfer,
		Device: device, PackMemory: limits.PackMemory(), PackFile: packFile,
		Early: true, Depth: max(l.draw.Split.Prefetch, 1), SlotBytes: l.draw.Split.Slot, Storage: c.storage,
	}
	for _, t := range l.rows.OnDisk {
		of.Tables = append(of.Tables, t.OnDisk.Layout)
		if l.draw.Parts.Schema.NumTypes() > 1 {
			of.First = append(of.First, t.First)
		}
	}
	for _, width := range l.rows.Columns {
		of.RowBytes += width
	}
	return of
}

// reorderRows is the capacity of the cache that orders of batches are judged with.
func (c *plannedCache) reorderRows() int64 {
	l := c.loader
	if l.draw.Options.ReorderRows == draw.Auto {
		return l.draw.Split.CacheRows
	}
	return l.draw.Options.ReorderRows
}

// misjudged is the factor by which reading is slower or faster than it was calibrated when the calibration is not kept:
// it was taken while others used the disk, or had not for long. Busy processors alone make it two. Arbitrary beyond.
const misjudged = 4

// calibrate finds out what reading costs on the store's device, or remembers it.
func (c *plannedCache) calibrate(ctx context.Context) (device ssd.Device, err error) {
	l := c.loader
	if t := l.draw.Options.Transfer; t == "random" || t == "forward" {
		return device, nil // there is nothing to compare
	}
	largest := slices.MaxFunc(l.rows.OnDisk, func(a, b *fetch.Table) int { return cmp.Compare(a.Bytes(), b.Bytes()) })
	handle, fs, path := largest.Disk.Handle(), l.draw.Parts.Store.FS(), l.draw.Options.Calibration
	uuid := l.draw.Parts.Store.UUID()
	key, err := l.draw.Engine.DeviceKey(hex.EncodeToString(uuid[:]), handle)
	if err != nil {
		return device, err
	}
	if path != "" {
		l.draw.OnClose(func() {
			if c.device != nil && c.device.Wrong(misjudged) {
				ssd.ForgetDevice(fs, path, key) // the next loader measures again
			}
		})
		var found bool
		if device, found = ssd.LoadDevice(fs, path, key); found {
			return device, nil
		}
	}
	dir := l.draw.Options.Scratch
	if l.draw.Split.Scratch == 0 {
		dir = ""
	}
	before := l.draw.Engine.Stats()
	device, err = ssd.Calibrate(ctx, l.draw.Engine, handle, ssd.Calibration{
		WriteDir: dir, Budget: l.draw.Budget, Limit: calibrationTime(largest.Bytes()),
	})
	after := l.draw.Engine.Stats()
	c.calibrated = ssd.Stats{
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
