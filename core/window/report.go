package window

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// Report compares the plans of the last windows with their execution.
type Report struct {
	Device  ssd.Device // what reading costs on it
	Windows []Outcome
	History []EpochForecast
	// Timeline is, by activity, the last spans: the number of the batch since planning began, of a window its first,
	// and when it began and ended, in seconds since the loader was opened.
	Timeline map[string][]Span
}

// Outcome compares the plan of a superbatch with its execution.
type Outcome struct {
	First   int64 `json:"first"` // number of its first batch since planning began
	Batches int   `json:"batches"`
	plan.Choice
	Early bool `json:"early"` // its prologue could run while the window before was executed
	// The time from the first read to the last, including reads and writes meanwhile for the plan of the next window, but
	// not by its prologue. The work of an early prologue is counted here, its time is not in WallSeconds.
	MeasuredSeconds float64 `json:"measured_seconds"` // the engine was busy with rows
	WallSeconds     float64 `json:"wall_seconds"`
	WaitedSeconds   float64 `json:"waited_seconds"` // of WallSeconds: by the consumer, for batches
	MeasuredRead    int64   `json:"measured_bytes_read"`
	MeasuredWritten int64   `json:"measured_bytes_written"`

	moved  moved
	device ssd.Device // as it was known when the window was planned
}

// deviceSeconds returns the predicted time of the device, by its rates as known now.
func (w *Outcome) deviceSeconds(now ssd.Device) float64 {
	then := w.moved.seconds(w.device)
	if then <= 0 {
		return w.DeviceSeconds
	}
	return w.DeviceSeconds * w.moved.seconds(now) / then
}

// windows keeps the reports of the last windows. mu guards all of it.
type windows struct {
	mu      sync.Mutex
	last    []Outcome
	early   moved     // by prologues that ran early
	running *moved    // counts when the window that runs early now continued; nil: none does
	ratios  []float64 // measured by predicted seconds, of the last windows
}

// Bounds of the kept reports. Arbitrary.
const (
	keptWindows = 64
	keptRatios  = 1024
)

// moved counts the work that plans predict: the rows read from their tables and from the scratch file, and the time.
// The engine may also have read neighbour lists, edge tensors, and plans in the scratch file.
type moved struct {
	engine  time.Duration // time with requests in flight, of any kind
	all     requested
	rows    requested // of all
	written int64     // bytes to the scratch file
}

// requested counts requests to the engine, and the bytes that they returned.
type requested struct{ requests, bytes int64 }

func (r requested) plus(o requested) requested {
	return requested{r.requests + o.requests, r.bytes + o.bytes}
}

func (r requested) minus(o requested) requested {
	return requested{r.requests - o.requests, r.bytes - o.bytes}
}

// seconds returns the time of a device for the requests.
func (r requested) seconds(d ssd.Device) float64 { return d.Seconds(r.requests, r.bytes/ssd.PageBytes) }

func (c *Cache) moved() moved {
	reads, kept := c.draw.EngineStats(), c.pool.Stats()
	rows := requested{kept.PackRequests, kept.PacksRead}
	for _, t := range c.features.OnDisk {
		n, received := t.Disk.Handle().Moved()
		rows = rows.plus(requested{n, received})
	}
	return moved{reads.Busy, requested{reads.Requests, reads.Bytes}, rows, kept.Written}
}

// learn updates the rates of the device. It costs little compared with a batch.
func (c *Cache) learn() {
	c.device.Observe(c.draw.Engine.Stats().Full, c.pool.Stats().Written)
}

// busy returns the time that the engine was busy with rows: their part of the device's time.
func (m moved) busy(d ssd.Device) time.Duration {
	all, rows := m.all.seconds(d), m.rows.seconds(d)
	if all <= rows {
		return m.engine
	}
	return time.Duration(float64(m.engine) * rows / all)
}

func (m moved) plus(o moved) moved {
	return moved{m.engine + o.engine, m.all.plus(o.all), m.rows.plus(o.rows), m.written + o.written}
}

func (m moved) minus(o moved) moved {
	return moved{m.engine - o.engine, m.all.minus(o.all), m.rows.minus(o.rows), m.written - o.written}
}

// seconds returns the time of a device for the rows, and for the bytes written meanwhile.
func (m moved) seconds(d ssd.Device) float64 {
	return m.rows.seconds(d) + d.WriteSeconds(float64(m.written))
}

// movedInTime is moved without the prologues that ran early, which belong to later windows.
func (c *Cache) movedInTime() moved {
	w := &c.windows
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running != nil {
		return w.running.minus(w.early)
	}
	return c.moved().minus(w.early)
}

// beginEarly records that a prologue runs early from now on.
func (w *windows) beginEarly(now moved) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = &now
}

// endEarly records that it has ended, and its work.
func (w *windows) endEarly(took moved) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running, w.early = nil, w.early.plus(took)
}

func (w *windows) add(s *superbatch, wall time.Duration, after moved) {
	waited := s.inspector.cache.counters.Waiting.Total() - s.waited
	took := after.minus(s.before)
	if s.early != nil {
		took = took.plus(s.early.moved)
	}
	busy := took.busy(s.device)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.last) == keptWindows {
		w.last = slices.Delete(w.last, 0, 1)
	}
	report := Outcome{
		First: s.first, Batches: len(s.batches), Choice: s.plan.Choice,
		MeasuredSeconds: busy.Seconds(), WallSeconds: wall.Seconds(),
		MeasuredRead: took.rows.bytes, MeasuredWritten: took.written, Early: s.early != nil,
		WaitedSeconds: waited.Seconds(), moved: took, device: s.device,
	}
	w.last = append(w.last, report)
	if report.Seconds > 0 {
		w.ratios = withLast(w.ratios, busy.Seconds()/report.Seconds)
	}
}

// withLast returns the last values with another one.
func withLast(values []float64, another float64) []float64 {
	if len(values) == keptRatios {
		values = slices.Delete(values, 0, 1)
	}
	return append(values, another)
}

const (
	// loadWindows is the number of windows by which the loop is measured: few, since it changes. Arbitrary.
	loadWindows = 5
	// paceUnproven is the weight, in seconds of the processor, of the assumption that reading is delayed by a fixed share
	// of the processor's time, against the measured windows. Arbitrary.
	paceUnproven = 0.25
	// muchShorter is by which factor. Arbitrary.
	muchShorter = 16
)

// load measures the loop by the last windows that are not much shorter than the coming window of the given number of
// batches: the median of its time per batch, and the delay of reading over all of them, with the current rates of the
// device. The first window is a single batch, read while nothing is warm, and not representative of windows a hundred
// times as long.
func (w *windows) load(batches int, now ssd.Device) plan.Load {
	w.mu.Lock()
	defer w.mu.Unlock()
	share := 1 / float64(runtime.NumCPU())
	late, processor := share*paceUnproven, paceUnproven
	var loop []float64
	for _, of := range w.last[max(0, len(w.last)-loadWindows):] {
		if of.Batches*muchShorter < batches {
			continue
		}
		loop = append(loop, max(0, of.WallSeconds-of.WaitedSeconds)/float64(of.Batches))
		if of.ProcessorSeconds > 0 {
			late += max(0, of.MeasuredSeconds-of.deviceSeconds(now))
			processor += of.ProcessorSeconds
		}
	}
	return plan.Load{LoopSeconds: median(loop), Pace: late / processor, Share: share}
}

// medianError returns the median of |measured/predicted - 1|, 0 where nothing has been
// measured.
func (w *windows) medianError() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	errors := make([]float64, len(w.ratios))
	for i, r := range w.ratios {
		errors[i] = math.Abs(r - 1)
	}
	return median(errors)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func (w *windows) all() []Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.last)
}
