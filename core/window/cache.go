package window

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/prune"
	"freshgo/core/scratch"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// Config names the parts of a loader that a Cache works on. All of them outlive the cache.
type Config struct {
	Sampling *draw.Sampling
	Features *fetch.Features
	Counters *batch.Counters
	History  History
	Schedule func(first int64) (draw.ShareSchedule, int64) // of an epoch from its batch first on
	Fail     func(*guard.PanicError)                       // records a panic of the inspector
}

// History is a history whose pruning may be known ahead.
type History interface {
	Follows() bool // whether the pruning of the epoch that has begun is
	Follow(*mem.Budget) (*prune.Forecaster, error)
}

// Cache is the cache whose changes are planned ahead, window by window (Ginex, section 3). An inspector samples
// and plans; the batches execute the plan, in their order.
type Cache struct {
	draw        *draw.Sampling
	features    *fetch.Features
	counters    *batch.Counters
	history     History
	schedule    func(first int64) (draw.ShareSchedule, int64)
	fail        func(*guard.PanicError)
	planner     *plan.Planner
	pool        *scratch.Pool          // of packs and traces
	recordStore *recordStore           // traces, and what plans are made of where storage is this
	storage     plan.Storage           // of plans: memory, or the record store
	positions   bool                   // traces have the positions of edges: batches have their numbers, or are pruned
	short       atomic.Pointer[string] // why windows have fewer batches than memory was divided for; nil: they do not
	packFile    int64                  // bytes of packs in the scratch file, of all that plans may use
	lengths     []int64                // of the first superbatches; the others are as long as they come
	device      *ssd.Learned           // what reading costs
	calibrated  ssd.Stats              // what finding that out read
	windows     windows
	timeline    timeline
	idleGate    idleGate
	forecasts   forecasts
	populate    sync.Once      // gives the slots their memory
	trained     *trained       // tables whose rows training changes
	presence    *plan.Presence // what batches that are pruned find in the cache; nil: none are

	mu        sync.Mutex // guards inspector
	inspector *inspector // of the stream of the last epoch
}

// leastBuffers is the memory of buffers that the scratch pool needs to fill a dozen packs in its file at a time.
const leastBuffers = 20 * sizing.MinSlot

// Open makes the slots, the record of what is in them, the planner, and the pool for packs and traces.
func Open(ctx context.Context, of Config) (*Cache, error) {
	m, features := of.Sampling, of.Features
	o, split := &m.Options, &m.Split
	features.Movers = split.Workers // batches take turns at the cache
	if err := features.OpenSlots(m, split.CacheRows); err != nil {
		return nil, err
	}
	limits := scratch.Options{MemoryBytes: split.Packs, FileBytes: split.Scratch, BufferBytes: split.Buffers}
	pool, err := scratch.Open(m.Parts.FS, m.Engine, o.Scratch, m.Budget, limits)
	if err != nil {
		return nil, err
	}
	m.OnClose(func() { _ = pool.Close() }) // it only gives back
	if err := features.OpenResident(m); err != nil {
		return nil, err
	}
	c := &Cache{
		draw: m, features: features, counters: of.Counters, history: of.History, schedule: of.Schedule, fail: of.Fail,
		pool: pool, recordStore: &recordStore{budget: m.Budget, pool: pool, limit: split.TracesHeld, most: split.Traces / 2},
		positions: o.History != nil || draw.AnyNumbered(m.Parts.Schema),
	}
	c.timeline.opened = time.Now()
	if c.trained, err = openTrained(m, features); err != nil {
		return nil, err
	}
	c.storage, c.lengths = plan.Memory(m.Budget), firstLengths(split, m.NumBatches())
	if split.Stored {
		c.storage = c.recordStore
	}
	if o.History != nil {
		if c.presence, err = plan.NewPresence(m.Budget, split.CacheRows); err != nil {
			return nil, err
		}
		m.OnClose(c.presence.Close)
	}
	device, err := c.calibrate(ctx)
	if err != nil {
		return nil, err
	}
	c.device = ssd.Learn(device, m.Engine.SlotBytes(), m.Engine.Stats().Full)
	config := c.planConfig(device, limits)
	c.packFile = config.PackFile
	if c.planner, err = plan.New(m.Budget, config); err != nil {
		return nil, err
	}
	m.OnClose(c.planner.Close)
	return c, nil
}

// Begin goes on with the stream of batches at a batch of an epoch, where the stream continues there, or begins another.
func (c *Cache) Begin(epoch, position int64, t draw.ShareSchedule) *Epoch {
	at := place{epoch, position}
	in := c.inspectorAt(at, t)
	n, _ := in.number(at)
	return &Epoch{inspector: in, first: n - position, count: t.Count}
}

// Prune begins an epoch whose batches are pruned.
func (c *Cache) Prune() { c.presence.Begin(c.features.Resident.All) }

// inspectorAt returns the inspector whose next batch is at a place: the one that works already, when the place
// continues its stream, or a new one.
func (c *Cache) inspectorAt(at place, t draw.ShareSchedule) *inspector {
	if in := c.inspector; in != nil && in.continues(at, t) {
		return in
	}
	c.Stop()
	in := c.inspect(at, t)
	c.mu.Lock()
	c.inspector = in
	c.mu.Unlock()
	return in
}

// Abandon ends what runs ahead of the epochs, without waiting for it.
func (c *Cache) Abandon() {
	c.mu.Lock()
	in := c.inspector
	c.mu.Unlock()
	if in != nil {
		in.abandon()
	}
}

// Stop ends what runs ahead of the epochs, and frees it. Nobody executes any more.
func (c *Cache) Stop() {
	c.mu.Lock()
	in := c.inspector
	c.inspector = nil
	c.mu.Unlock()
	if in != nil {
		in.stop()
	}
}

// Settle writes the current rows of tables that training changes into their files. No epoch runs.
func (c *Cache) Settle() error {
	c.Stop()
	err := c.trained.err()
	if err == nil {
		err = c.trained.returnSlots()
	}
	return cmp.Or(err, c.trained.settle(false))
}

// Stats are the figures of a Cache so far.
type Stats struct {
	PredictionError float64       // the median of |measured/predicted - 1|
	Scratch         scratch.Stats // of the scratch file
	Calibration     ssd.Stats     // up to a gigabyte, once for a store: it says nothing about the graph
}

// Stats returns the figures. Any goroutine may call it.
func (c *Cache) Stats() Stats {
	of := c.pool.Stats()
	if short := c.short.Load(); short != nil && of.Short == "" {
		of.Short = *short
	}
	return Stats{c.windows.medianError(), of, c.calibrated}
}

// Report returns what the windows planned last cost, by prediction and by measurement. Any goroutine may call it.
func (c *Cache) Report() Report {
	return Report{
		Device: c.device.Device(), Windows: c.windows.all(), History: c.forecasts.all(), Timeline: c.timeline.all(),
	}
}

// planConfig returns the configuration of the planner: rows of the tables on disk, read from this device.
func (c *Cache) planConfig(device ssd.Device, limits scratch.Options) plan.Config {
	packFile := c.draw.Split.PackFile()
	if limits.MemoryBytes-limits.PackMemory() < leastBuffers {
		packFile = 0 // no pack in the file would find a buffer
	}
	of := plan.Config{
		NumRows: c.draw.Split.PlanRows, Capacity: c.draw.Split.CacheRows,
		CarryOver: c.draw.Options.CarryOver, Transfer: c.draw.Options.Transfer,
		Device: device, PackMemory: limits.PackMemory(), PackFile: packFile,
		Early: !c.prunesTrained(), Forwarding: len(c.features.Trained) > 0,
		Depth: c.depth(), SlotBytes: c.draw.Split.Slot, Storage: c.storage,
	}
	for _, t := range c.features.OnDisk {
		of.Tables = append(of.Tables, t.OnDisk.Layout)
		if c.draw.Parts.Schema.NumTypes() > 1 {
			of.First = append(of.First, t.First)
		}
	}
	for _, width := range c.features.Columns {
		of.RowBytes += width
	}
	return of
}

// prunesTrained reports whether batches are pruned whose rows training changes: see trained.
func (c *Cache) prunesTrained() bool { return len(c.features.Trained) > 0 && c.presence != nil }

// depth returns plan.Config.Depth: a batch in flight has begun to read its packs, unless it does so in its turn.
func (c *Cache) depth() int {
	if c.trained.inTurn {
		return 0
	}
	return max(c.draw.Split.Prefetch, 1)
}
