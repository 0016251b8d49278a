package ssd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"freshgo/core/mem"
)

// Device holds the rates of a disk as an engine drives it, by which ways to transfer are compared. The time of
// a request is its share of the time of many while the queue is full, so that times add up: n requests of p pages each
// take n * (RequestSeconds + p * PageSeconds). Disks are bound by requests up to some length and by bytes beyond; the
// straight line through that bend misses it by a fifth at most on those measured.
type Device struct {
	RequestSeconds float64 `json:"request_seconds"` // per request, whatever its length
	PageSeconds    float64 `json:"page_seconds"`    // per page of it, besides; more than 0
	// in the order of the file, in ranges of the engine's slot size
	ReadBytesPerSecond  float64 `json:"read_bytes_per_second"`
	WriteBytesPerSecond float64 `json:"write_bytes_per_second"`
	// the part of the time of writing in which reading goes on as if nothing was written
	WriteBeside float64 `json:"write_beside"`
	// Processor time, of all threads: of a request, of each of its pages, and of a page that is written, with its
	// checksum.
	RequestProcessor float64 `json:"request_processor_seconds"`
	PageProcessor    float64 `json:"page_processor_seconds"`
	WriteProcessor   float64 `json:"write_processor_seconds"`
	// why writing is taken to be as fast as reading; empty: it was measured
	WriteAssumed string `json:"write_assumed,omitempty"`
	Engine       string `json:"engine"`
	Depth        int    `json:"depth"`
}

// Seconds returns the time of a number of requests that read this many pages in all.
func (d Device) Seconds(requests, pages int64) float64 {
	return float64(requests)*d.RequestSeconds + float64(pages)*d.PageSeconds
}

// WriteSeconds returns the delay of reading by bytes that are written meanwhile.
func (d Device) WriteSeconds(bytes float64) float64 {
	if d.WriteBytesPerSecond <= 0 {
		return 0
	}
	return bytes / d.WriteBytesPerSecond * (1 - d.WriteBeside)
}

// Calibration holds the parameters of Calibrate.
type Calibration struct {
	WriteDir string        // where writing is measured, in a Temp; empty: nowhere
	Budget   *mem.Budget   // required: a chunk of Staging is taken from it meanwhile
	Limit    time.Duration // of all bursts together, and what is in flight at the end of each; 0 is DefaultCalibration
}

const (
	// DefaultCalibration leaves room, within two seconds, for what is in flight when the shares of bursts have passed.
	DefaultCalibration = 1400 * time.Millisecond

	rounds      = 3                // of all kinds of bursts, so that what others do meanwhile is spread over them
	fastestPage = PageBytes / 1e12 // seconds; no disk reads a page in less
)

// requestPages are the lengths of the random requests: a row, a few neighbours, and as many as a default slot holds.
var requestPages = [...]int64{1, 4, 16}

// errNotAsked is why writing is not measured without a directory.
var errNotAsked = errors.New("ssd: no directory to measure writing in")

// Calibrate measures the device that holds the file of h through e, with random and sequential reads of that file (the
// largest that there is gives the best figures; one of a single page works), and with writes in WriteDir. What it finds
// is what a caller of Read finds: the engine's own time is in it. Only reading can fail; where writing does, its rate
// is assumed.
func Calibrate(ctx context.Context, e *Engine, h *Handle, c Calibration) (Device, error) {
	if c.Limit == 0 {
		c.Limit = DefaultCalibration
	}
	// A host that caches answers requests that it has seen before from memory: each calibration asks for other places.
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	reading := &reader{engine: e, handle: h, pages: max(h.Size()/PageBytes, 1), random: random}
	longest := min(int64(e.SlotBytes()/PageBytes), reading.pages)
	var points [len(requestPages)]tally
	for i, pages := range requestPages {
		points[i].pages = min(pages, longest)
	}
	scan := tally{pages: longest}
	writing, refused := newScribe(e, c)
	if refused == nil {
		defer writing.close()
	}
	// Before what counts, a share of each way uses up what a disk has saved while nobody used it.
	share := c.Limit / time.Duration(rounds*(len(points)+3)+2)
	scanning := func(ctx context.Context, n int) (int64, error) { return reading.inOrder(ctx, n, longest) }
	if err := scan.burst(ctx, share, scanning); err != nil {
		return Device{}, err
	}
	scan.forget()
	for range rounds {
		for i := range points {
			t := &points[i]
			if err := t.burst(ctx, share, func(ctx context.Context, n int) (int64, error) {
				return reading.scattered(ctx, n, t.pages)
			}); err != nil {
				return Device{}, err
			}
		}
		if err := scan.burst(ctx, share, scanning); err != nil {
			return Device{}, err
		}
	}
	beside := mixture{reading: reading, writing: writing, tally: tally{next: maxBurst}, pages: longest}
	if refused == nil {
		refused = beside.measure(ctx, share)
	}
	if err := ctx.Err(); err != nil {
		return Device{}, err
	}
	d := Device{Engine: e.Name(), Depth: e.Depth(), ReadBytesPerSecond: scan.bytesPerSecond()}
	d.RequestSeconds, d.PageSeconds = fit(points[:], tally.perRequest)
	d.RequestProcessor, d.PageProcessor = fit(points[:], tally.processorPerRequest)
	// What comes in order is no slower than if it did not.
	d.ReadBytesPerSecond = max(d.ReadBytesPerSecond, float64(longest*PageBytes)/d.Seconds(1, longest))
	if refused == nil {
		d.WriteBytesPerSecond = writing.bytesPerSecond()
		d.WriteProcessor = writing.processorPerRequest() / float64(writing.pages)
		d.WriteBeside = beside.share(d)
	} else {
		d.WriteBytesPerSecond, d.WriteAssumed = d.ReadBytesPerSecond, refused.Error()
		d.WriteProcessor = d.PageProcessor
	}
	return d, nil
}

// fit draws the line request + pages * page through the times of requests, with the smallest relative errors (least
// squares), and neither part negative. Where all requests are of one length, which happens in a file of one page, any
// line through that point will do.
func fit(points []tally, of func(tally) float64) (request, page float64) {
	var s, sn, snn, st, snt float64
	for _, p := range points {
		n, t := float64(p.pages), of(p)
		w := 1 / (t * t)
		s, sn, snn, st, snt = s+w, sn+w*n, snn+w*n*n, st+w*t, snt+w*n*t
	}
	if det := s*snn - sn*sn; det > 1e-9*s*snn {
		request, page = (st*snn-sn*snt)/det, (s*snt-sn*st)/det
	} else {
		request = st / s
	}
	switch {
	case request < 0:
		request, page = 0, snt/snn
	case page < fastestPage:
		request, page = st/s, fastestPage
	}
	return request, page
}
