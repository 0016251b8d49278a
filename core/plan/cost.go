package plan

import (
	"math"

	"freshgo/core/ssd"
)

// reads are the requests to the device.
type reads struct{ requests, pages int64 }

// price is the cost of a request and of each of its pages, in seconds.
type price struct{ request, page float64 }

func (p price) of(requests, pages float64) float64 { return requests*p.request + pages*p.page }

// scanPrice returns the price in file order: of a single page as for random reads, of a whole slot as measured in
// sequence, and linear in between; or the price of random reads if that is lower for a slot.
func scanPrice(d ssd.Device, slotPages int64) price {
	anywhere := price{d.RequestSeconds, d.PageSeconds}
	slot := float64(slotPages) * ssd.PageBytes / d.ReadBytesPerSecond
	if slotPages < 2 || d.ReadBytesPerSecond <= 0 || slot >= anywhere.of(1, float64(slotPages)) {
		return anywhere
	}
	page := max(0, (slot-anywhere.of(1, 1))/float64(slotPages-1))
	return price{min(slot, anywhere.of(1, 1)) - page, page}
}

// hole returns the number of unwanted pages that are cheaper to read through than another request.
func (p price) hole(slotPages int64) int {
	if p.page <= 0 {
		return int(slotPages)
	}
	return int(min(max(p.request/p.page, ssd.DefaultHole), float64(slotPages)))
}

// span is the pages that a row touches.
type span struct {
	first int64
	count int32
}

// span is the pages of a row in a table, none where the table does not have it.
func (c *Config) span(table int, row uint32) span {
	l := c.Tables[table]
	if c.First == nil {
		return spanOf(l, row)
	}
	at := int64(row) - c.First[table]
	if at < 0 || at >= l.NumRows {
		return span{}
	}
	return spanOf(l, uint32(at))
}

func spanOf(l ssd.Layout, row uint32) span {
	offset := l.Offset(int64(row))
	first := offset / ssd.PageBytes
	return span{first, int32((offset+int64(l.RowBytes)-1)/ssd.PageBytes - first + 1)}
}

// run is a list of rows that become requests as in ssd.Merger: the counts so far, and the current request.
type run struct{ begin, end int64 }

// noRun is far before the first page.
var noRun = run{math.MinInt64 / 2, math.MinInt64 / 2}

// add puts the next row of the list in, which must not come before the one before it. Its pages join the request that
// is being put together where they lie at most hole pages behind it and it stays within a slot.
func (r *run) add(p span, hole, slotPages int64, to *reads) {
	after := p.first + int64(p.count)
	if p.first <= r.end+hole && after <= r.begin+slotPages {
		if after > r.end {
			to.pages += after - r.end
			r.end = after
		}
		return
	}
	*r = run{p.first, after}
	to.requests++
	to.pages += int64(p.count)
}

// packSeconds returns the time to write and read back rows that are put into packs.
func (t *transfer) packSeconds(rows float64) (seconds float64) {
	bytes := t.room.inFile(rows) * float64(t.config.recordBytes())
	if speed := t.config.Device.ReadBytesPerSecond; speed > 0 {
		seconds = bytes / speed
	}
	return seconds + t.config.Device.WriteSeconds(bytes)
}

// packProcessor returns the processor time of rows that are put into packs.
func (t *transfer) packProcessor(rows float64) float64 {
	inFile := t.room.inFile(rows)
	return t.packedProcessor(rows, inFile, inFile)
}

// packedProcessor returns the processor time to put rows into packs, to write some to the file and to read some back.
func (t *transfer) packedProcessor(rows, written, read float64) float64 {
	d, record := t.config.Device, float64(t.config.recordBytes())
	if d.PageProcessor == 0 {
		return 0 // the processor's costs are unknown
	}
	pages := record / ssd.PageBytes
	slotPages := float64(max(t.config.SlotBytes/ssd.PageBytes, 1))
	return rows*packRowProcessor + written*pages*d.WriteProcessor +
		read*pages*(d.PageProcessor+d.RequestProcessor/slotPages)
}

// addPacks adds what packs in the file cost. The nearest are in memory.
func (w *window) addPacks(o *Option, m method, c cuts, early []float64) {
	record := float64(w.config.recordBytes())
	inFile, inFileAhead, before, rows := 0.0, 0.0, 0.0, 0.0
	for b := range w.batches {
		n := 0.0
		if m.forward && uint32(b) < c.leaving {
			n = float64(w.cold.leaving[b])
		}
		if early != nil && uint32(b) < c.early {
			n += early[b]
		}
		beyond := max(0, rows+n-float64(w.room.memory)) - before
		before += beyond
		rows += n
		inFile += beyond
		if b >= w.current {
			inFileAhead += beyond
		}
	}
	o.PackRows = int64(rows)
	o.BytesWritten = int64(inFile * record)
	o.BytesRead += int64(inFile*record) + w.backlog
	o.ProcessorSeconds += w.packedProcessor(rows, inFile, inFile+float64(w.backlog)/record)
	o.processorAhead += w.packedProcessor(0, 0, inFileAhead)
	d := w.config.Device
	o.Seconds += d.WriteSeconds(inFile * record)
	if d.ReadBytesPerSecond > 0 {
		o.AheadSeconds += inFileAhead * record / d.ReadBytesPerSecond
		o.Seconds += (inFile*record + float64(w.backlog)) / d.ReadBytesPerSecond
	}
}

// floor sets the least that a plan could move which knows the superbatch alone.
func (w *window) floor(c *Choice) {
	c.MissedRows = w.missed
	scan, rows, d := int64(0), w.missed*int64(w.config.RowBytes), w.config.Device
	for _, t := range w.config.Tables {
		scan += min(t.FileBytes(), w.missed*t.SpanBytes())
	}
	c.FloorBytes = scan + 2*rows
	if d.ReadBytesPerSecond > 0 && d.WriteBytesPerSecond > 0 {
		c.FloorSeconds = float64(scan+rows)/d.ReadBytesPerSecond + float64(rows)/d.WriteBytesPerSecond
	}
}
