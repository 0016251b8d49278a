package plan

import (
	"context"
	"fmt"
	"math"
	"slices"

	"freshgo/core/ssd"
)

// Choice lists the predicted costs of the ways to transfer the cold rows of a plan, and the one that it takes.
type Choice struct {
	Chosen string `json:"chosen"`
	Forced bool   `json:"forced"`
	Why    string `json:"why"`

	// The least bytes of a plan that knows the whole superbatch: one scan of the files, or fewer pages if the rows that
	// are not cached are on fewer, and one write and one read of each of these rows.
	FloorBytes   int64   `json:"floor_bytes"`
	FloorSeconds float64 `json:"floor_seconds"` // at the device's rates in sequence; 0 where these are not known

	MissedRows int64 `json:"missed_rows"` // accesses of the superbatch to rows that are not cached

	ColdRows int64    `json:"cold_rows"` // of the superbatch: to be read, unless they are at hand earlier
	Options  []Option `json:"options"`   // none where the device is not known

	// What reading is predicted to take from the start of this superbatch to the start of the next, in the chosen way:
	// of the device alone, of the processor, and until it is done, with a processor as busy as it was (see Load).
	Seconds          float64 `json:"predicted_seconds"`
	DeviceSeconds    float64 `json:"predicted_device_seconds"`
	ProcessorSeconds float64 `json:"predicted_processor_seconds"`
	Prologue         float64 `json:"predicted_prologue_seconds"` // part of DeviceSeconds
	Requests         int64   `json:"predicted_requests"`
	BytesRead        int64   `json:"predicted_bytes_read"` // of tables, not of packs
}

// Option is a transfer, with its costs over the whole window: the superbatch, and the first accesses of the batches
// ahead to rows that are not cached.
type Option struct {
	Name         string  `json:"name"`
	Requests     int64   `json:"requests"`
	BytesRead    int64   `json:"bytes_read"`    // of tables and of packs in the file
	BytesWritten int64   `json:"bytes_written"` // of packs in the file
	PackRows     int64   `json:"pack_rows"`
	Seconds      float64 `json:"seconds"`       // of the device
	AheadSeconds float64 `json:"ahead_seconds"` // part of Seconds
	// ProcessorSeconds is its processor time, and Cost the time that the loop loses by both (see Load).
	ProcessorSeconds float64 `json:"processor_seconds"`
	Cost             float64 `json:"cost_seconds"`
	Fits             bool    `json:"fits"` // there is room for all packs that it could use

	prologue, processorAhead float64
	requests, bytesTable     int64 // of the superbatch
}

const (
	// Costs are estimated from a share of the cold rows, within limits: nine methods then cost about 10 ns per cold row.
	// Requests depend on the density of a batch's rows, so the sample consists of whole regions of the file, never of
	// single rows.
	sampleShare          = 16
	sampleMin, sampleMax = 1 << 11, 1 << 14

	// regionPages is the size of a region: large compared with the longest hole. minRegions is the least number of regions
	// in a sample. Both arbitrary.
	regionPages = 256
	minRegions  = 64

	// sampleMost bounds the rows of a sample. A row takes 24 bytes, and 16 for each table. Where regions have more rows,
	// they are halved, down to finePages of the table with the fewest rows on a page, and half of minRegions is enough.
	// Without the bound a graph of 2M nodes, with 512 labels on a page, had samples of 1.3M rows: 150 MB that no budget
	// counted.
	sampleMost = 1 << 17
	finePages  = 64

	// worthwhile is by which factor a method must be cheaper than a simpler one: less is within what two calibrations
	// differ.
	worthwhile = 0.98

	// doubt is the factor within which a request's price is known, beside the price of bytes. A method that moves more
	// bytes must be cheaper than others even where requests cost that much less: bytes are certain.
	doubt = 2

	// mostAlong bounds the rows that a batch reads along for later ones. Each takes about 48 bytes while the batch is
	// read, 12 MB in all, for any window. Where a page has many rows, the first batches would otherwise lead nearly all of
	// them: 7M rows for a batch of 290,000, measured with 32 rows on a page and windows of 78 batches.
	mostAlong = 1 << 18
)

// certain returns the cost of a method with what its bytes take in sequence counted once more for each doubt: of two
// methods, the one with more bytes is then the cheaper one if its requests save as much at a price divided by doubt.
func (o *Option) certain(d ssd.Device) float64 {
	each := d.PageSeconds / ssd.PageBytes
	if d.ReadBytesPerSecond > 0 {
		each = 1 / d.ReadBytesPerSecond
	}
	return o.Cost + (doubt-1)*float64(o.BytesRead+o.BytesWritten)*each
}

// mix spreads consecutive numbers (the finaliser of MurmurHash3).
func mix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

// sample is cold rows of the window in the order of the file, with the batch of each.
type sample struct {
	w      *window
	rows   []coldRow
	batch  []uint32
	spans  [][]span  // by table
	readAt []int32   // where a method reads each: a batch, atHand, scanned
	runs   []run     // by batch; scratch
	led    []float64 // by batch: rows that it reads along; of leaders
	scale  float64   // cold rows that each represents
	part   float64   // requests, and pages, that one of the sample represents
}

const (
	atHand  = -1 // not read: available earlier
	scanned = -2 // by the prologue
)

// choose prices every method and returns the cheapest by its cost and bytes, with the reason.
func (w *window) choose(ctx context.Context) (method, string, error) {
	s, err := w.sample(ctx)
	if err != nil {
		return method{}, "", err
	}
	c := &w.plan.Choice
	for _, m := range w.methods {
		c.Options = append(c.Options, s.price(m))
	}
	best := cheapest(c.Options, func(o *Option) float64 { return o.certain(w.config.Device) })
	if w.forced != nil && !slices.Contains(w.methods, *w.forced) {
		c.Options = append(c.Options, s.price(*w.forced)) // it does what it can: nothing, or a part
	}
	if best == 0 {
		return w.methods[0], "nothing is cheaper", nil
	}
	return w.methods[best], fmt.Sprintf("cheapest: %.3g s instead of %.3g s by %s",
		c.Options[best].Cost, c.Options[0].Cost, c.Options[0].Name), nil
}

// cheapest returns the option of least cost, and among nearly equal ones the first.
func cheapest(options []Option, cost func(o *Option) float64) int {
	best, least := 0, math.Inf(1)
	for i := range options {
		if c := cost(&options[i]); c < least*worthwhile {
			best, least = i, c
		}
	}
	return best
}

// sampled reports whether a region is in a sample of one in stride.
func sampled(region, stride uint32) bool { return stride == 1 || mix(region+1)%stride == 0 } // mix(0) is 0

func inSample(regions int, stride uint32) (n int) {
	for r := range regions {
		if sampled(uint32(r), stride) {
			n++
		}
	}
	return n
}

// sample takes a part of the cold rows: all rows of some regions. It scales requests by the number of regions, however
// many rows a region has, as dense rows share requests.
func (w *window) sample(ctx context.Context) (*sample, error) {
	total := int(w.cold.ahead)
	for _, n := range w.cold.rows {
		total += int(n)
	}
	wanted := min(max(total/sampleShare, sampleMin), sampleMax)
	bits, least := w.regionBits, total/sampleMost
	regions := int(w.config.NumRows>>bits) + 1
	for bits > w.fineBits && regions/(minRegions/2) < least {
		bits--
		regions = int(w.config.NumRows>>bits) + 1
	}
	var rows []coldRow
	part := 1.
	stride := uint32(max(1, min(total/wanted, regions/minRegions), min(least, regions/(minRegions/2))))
	for ; ; stride /= 2 {
		rows, part = rows[:0], float64(regions)/float64(max(1, inSample(regions, stride)))
		within := func(row uint32) bool { return sampled(row>>bits, stride) }
		err := w.cold.all(ctx, within, func(r coldRow) error {
			rows = append(rows, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if stride == 1 || len(rows) >= wanted/2 { // else the rows are concentrated in other regions
			break
		}
	}
	n := len(rows)
	s := &sample{w: w, rows: sortByRow(slices.Grow(rows, n)), batch: make([]uint32, n), readAt: make([]int32, n),
		runs: make([]run, len(w.batches)), led: make([]float64, len(w.batches)), scale: 1, part: part}
	for i, c := range s.rows {
		s.batch[i] = w.batchOf(c.at & accessMask)
	}
	for t := range w.config.Tables {
		spans := make([]span, n)
		for i, c := range s.rows {
			spans[i] = w.config.span(t, c.row)
		}
		s.spans = append(s.spans, spans)
	}
	if n > 0 {
		s.scale = float64(total) / float64(n)
	}
	return s, nil
}

// counts are the requests to the device.
type counts struct {
	current, ahead reads // by batches of the superbatch, and of the batches ahead
	prologue       reads
	aheadScan      reads // reads of the next superbatch's prologue in place of ahead
}

// count counts the requests to a table, after assign.
func (s *sample) count(table int, hole int64, to *counts) {
	slotPages, current := int64(s.w.config.SlotBytes/ssd.PageBytes), s.w.current
	for b := range s.runs {
		s.runs[b] = noRun
	}
	prologue, aheadScan := noRun, noRun
	for i, p := range s.spans[table] {
		if p.count == 0 {
			continue // a row of another table
		}
		switch b := int(s.readAt[i]); {
		case b == scanned:
			prologue.add(p, hole, slotPages, &to.prologue)
		case b == atHand:
		case b < current:
			s.runs[b].add(p, ssd.DefaultHole, slotPages, &to.current)
		default:
			s.runs[b].add(p, ssd.DefaultHole, slotPages, &to.ahead)
			aheadScan.add(p, hole, slotPages, &to.aheadScan)
		}
	}
}

// price predicts the cost of a method.
func (s *sample) price(m method) Option {
	w := s.w
	o := Option{Name: m.String()}
	cuts, early := s.assign(m)
	d := w.config.Device
	slotPages := int64(w.config.SlotBytes / ssd.PageBytes)
	anywhere, inOrder := price{d.RequestSeconds, d.PageSeconds}, scanPrice(d, slotPages)
	processor := price{d.RequestProcessor, d.PageProcessor}
	var n counts
	for table := range s.spans {
		s.count(table, int64(inOrder.hole(slotPages)), &n)
	}
	at := func(n int64) float64 { return float64(n) * s.part }
	seconds := func(p price, r reads) float64 { return p.of(at(r.requests), at(r.pages)) }
	o.prologue = min(seconds(inOrder, n.prologue), seconds(anywhere, n.prologue))
	o.AheadSeconds, o.processorAhead = seconds(anywhere, n.ahead), seconds(processor, n.ahead)
	ahead, aheadPacks := n.ahead, 0.0
	if rows := s.aheadRows(); rows <= float64(w.transfer.room.total()) {
		// The saving there is at most what the next prologue would need, with the packs that it fills.
		if scan := seconds(inOrder, n.aheadScan) + w.packSeconds(rows); scan < o.AheadSeconds {
			o.AheadSeconds, o.processorAhead = scan, seconds(processor, n.aheadScan)+w.packProcessor(rows)
			ahead, aheadPacks = n.aheadScan, w.transfer.room.inFile(rows)*float64(w.config.recordBytes())
		}
	}
	o.ProcessorSeconds = seconds(processor, n.current) + seconds(processor, n.prologue) + o.processorAhead
	o.Seconds = seconds(anywhere, n.current) + o.AheadSeconds + o.prologue
	o.requests = int64(at(n.current.requests + n.prologue.requests))
	o.bytesTable = int64(at(n.current.pages+n.prologue.pages)) * ssd.PageBytes
	o.Requests = o.requests + int64(at(ahead.requests))
	o.Fits = cuts.fits
	w.addPacks(&o, m, cuts, early)
	o.BytesRead += o.bytesTable + int64(at(ahead.pages))*ssd.PageBytes + int64(aheadPacks)
	o.BytesWritten += int64(aheadPacks)
	o.Cost = w.load.cost(o.Seconds, o.ProcessorSeconds, len(w.batches))
	return o
}

// aheadRows returns the number of rows that the method leaves to the batches ahead.
func (s *sample) aheadRows() float64 {
	rows := 0
	for _, b := range s.readAt {
		if int(b) >= s.w.current {
			rows++
		}
	}
	return float64(rows) * s.scale
}

// assign decides where a method reads each row and how far its packs extend, and counts the rows by batch that it reads
// early.
func (s *sample) assign(m method) (cuts, []float64) {
	w := s.w
	switch {
	case m.scan:
		early, limit := w.scanned(m)
		c, end := w.cut(m, early, limit), w.current // the batches whose rows are scanned
		if w.cold.readsAhead(m) {
			end = len(w.batches)
		}
		for i, cold := range s.rows {
			b := s.batch[i]
			switch {
			case m.forward && cold.at&flagLeaving != 0 && b < c.leaving:
				s.readAt[i] = atHand
			case int(b) < w.current && cold.at&flagFilling != 0, b < c.early && int(b) < end:
				s.readAt[i] = scanned
			default:
				s.readAt[i] = int32(b)
			}
		}
		return c, early
	case w.sharesPages(m):
		early := make([]float64, len(w.batches))
		all := cuts{leaving: uint32(len(w.batches)), early: uint32(len(w.batches))}
		clear(s.led)
		s.leaders(m, all, func(i int, leader uint32) { early[s.batch[i]] += s.scale })
		c := w.cut(m, early, w.room.total())
		for i := range s.rows {
			s.readAt[i] = int32(s.batch[i])
			if m.forward && s.rows[i].at&flagLeaving != 0 && s.batch[i] < c.leaving {
				s.readAt[i] = atHand
			}
		}
		clear(s.led)
		s.leaders(m, c, func(i int, leader uint32) { s.readAt[i] = int32(leader) })
		return c, early
	}
	c := w.cut(m, nil, 0)
	for i, cold := range s.rows {
		s.readAt[i] = int32(s.batch[i])
		if m.forward && cold.at&flagLeaving != 0 && s.batch[i] < c.leaving {
			s.readAt[i] = atHand
		}
	}
	return c, nil
}

// place is a page of a table.
type place struct {
	table int
	page  int64
}

// spanIn is the pages of row i in a table.
func (s *sample) spanIn(table, i int) span {
	if s.spans != nil {
		return s.spans[table][i]
	}
	return s.w.config.span(table, s.rows[i].row)
}

// leaders finds, for every page, the first batch of the superbatch that reads it and does not yet read mostAlong rows
// along, and calls along for the rows of the page that later batches need and whose packs can be ready by then.
func (s *sample) leaders(m method, c cuts, along func(i int, leader uint32)) {
	depth, current := uint32(s.w.config.Depth), s.w.current
	skip := func(i int) bool {
		return m.forward && s.rows[i].at&flagLeaving != 0 && s.batch[i] < c.leaving
	}
	page := func(i int) place {
		for _, t := range s.w.pages {
			if span := s.spanIn(t, i); span.count > 0 {
				return place{t, span.first}
			}
		}
		return place{-1, int64(s.rows[i].row)} // shares none
	}
	for lo := 0; lo < len(s.rows); {
		this := page(lo)
		leader, hi := none, lo
		for ; hi < len(s.rows) && page(hi) == this; hi++ {
			if b := s.batch[hi]; int(b) < current && s.led[b] < mostAlong && !skip(hi) {
				leader = min(leader, b)
			}
		}
		for i := lo; leader != none && i < hi; i++ {
			if b := s.batch[i]; b > leader && b-leader > depth && b < c.early && !skip(i) {
				s.led[leader] += s.scale
				along(i, leader)
			}
		}
		lo = hi
	}
}
