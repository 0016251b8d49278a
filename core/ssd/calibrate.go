package ssd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"freshgo/core/mem"
)

// Device holds the rates of a disk as an engine drives it, by which transfers are compared. The time of a request is
// its share of the time of many requests while the queue is full, so times add up: n requests of p pages each take n *
// (RequestSeconds + p * PageSeconds). Disks are bound by requests up to some length and by bytes beyond; on the disks
// measured, this line was off by at most a fifth.
type Device struct {
	RequestSeconds float64 `json:"request_seconds"` // per request, whatever its length
	PageSeconds    float64 `json:"page_seconds"`    // per page of it, besides; more than 0
	// in file order, in ranges of the engine's slot size
	ReadBytesPerSecond  float64 `json:"read_bytes_per_second"`
	WriteBytesPerSecond float64 `json:"write_bytes_per_second"`
	// the part of the time of writes that does not delay reads
	WriteBeside float64 `json:"write_beside"`
	// Processor time over all threads: of a request, of each of its pages, and of a written page, with its checksum.
	RequestProcessor float64 `json:"request_processor_seconds"`
	PageProcessor    float64 `json:"page_processor_seconds"`
	WriteProcessor   float64 `json:"write_processor_seconds"`
	// why writes are assumed to be as fast as reads; empty: they were measured
	WriteAssumed string `json:"write_assumed,omitempty"`
	Engine       string `json:"engine"`
	Depth        int    `json:"depth"`
}

// Seconds returns the time of requests that read the given total number of pages.
func (d Device) Seconds(requests, pages int64) float64 {
	return float64(requests)*d.RequestSeconds + float64(pages)*d.PageSeconds
}

// WriteSeconds returns the delay of reads by bytes written meanwhile.
func (d Device) WriteSeconds(bytes float64) float64 {
	if d.WriteBytesPerSecond <= 0 {
		return 0
	}
	return bytes / d.WriteBytesPerSecond * (1 - d.WriteBeside)
}

// Calibration holds the parameters of Calibrate.
type Calibration struct {
	WriteDir string        // directory of the Temp that is written; empty: writes are not measured
	Budget   *mem.Budget   // required: provides a temporary chunk of Staging
	Limit    time.Duration // of all bursts, without requests in flight at the end of each; 0: DefaultCalibration
}

const (
	// DefaultCalibration takes a second with the requests in flight at the end of bursts. Of a volume with limits half of
	// it finds other rates of writes each time (docs/decisions/reading.md).
	DefaultCalibration = 700 * time.Millisecond

	rounds      = 3                // of all kinds of bursts, which spreads the load of others over them
	fastestPage = PageBytes / 1e12 // seconds; faster than any disk
)

// requestPages are the lengths of random requests: a row, a few neighbours, and a default slot.
var requestPages = [...]int64{1, 4, 16}

// errNotAsked says that there is no directory for measuring writes.
var errNotAsked = errors.New("ssd: no directory to measure writing in")

// Calibrate measures the device of h's file through e, by random and sequential reads of that file, and by writes in
// WriteDir. Larger files give better figures; a file of a single page works. The rates include the engine's own time,
// as callers of Read see it. Only reads can fail; if writes fail, their rate is assumed.
func Calibrate(ctx context.Context, e *Engine, h *Handle, c Calibration) (Device, error) {
	if c.Limit == 0 {
		c.Limit = DefaultCalibration
	}
	// A caching host answers repeated requests from memory, so each calibration reads other positions.
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
	// First, uncounted shares use up the burst credits of a disk that was idle.
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
	// Reads in order are at least as fast as random ones.
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

// fit fits the line request + pages * page to the times of requests with the smallest relative errors (least squares)
// and nonnegative parts. If all requests have one length, as in a file of one page, any line through that point will
// do.
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
