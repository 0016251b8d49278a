package plan

import (
	"math"

	"freshgo/core/ssd"
)

// reads is what the device is asked for.
type reads struct{ requests, pages int64 }

func (r *reads) add(o reads) { r.requests, r.pages = r.requests+o.requests, r.pages+o.pages }

// price is what a request and a page of it cost, in seconds.
type price struct{ request, page float64 }

func (p price) of(requests, pages float64) float64 { return requests*p.request + pages*p.page }

// scanPrice is the price in the order of the file: that of a single page as anywhere, that of a whole slot as measured in sequence, in between as
// the straight line between the two; or the price anywhere where that is lower for a slot.
func scanPrice(d ssd.Device, slotPages int64) price {
	anywhere := price{d.RequestSeconds, d.PageSeconds}
	slot := float64(slotPages) * ssd.PageBytes / d.ReadBytesPerSecond
	if slotPages < 2 || d.ReadBytesPerSecond <= 0 || slot >= anywhere.of(1, float64(slotPages)) {
		return anywhere
	}
	page := max(0, (slot-anywhere.of(1, 1))/float64(slotPages-1))
	return price{min(slot, anywhere.of(1, 1)) - page, page}
}

// hole is how many unwanted pages are cheaper to read through than another request is.
func (p price) hole(slotPages int64) int {
	if p.page <= 0 {
		return int(slotPages)
	}
	return int(min(max(p.request/p.page, ssd.DefaultHole), float64(slotPages)))
}

// merger counts the requests that rows become, as ssd.Merger makes them, for many lists at a time whose rows come in rising order.
type merger struct {
	layout    ssd.Layout
	hole      int64
	slotPages int64
	runs      []run // by list
}

// run is the request that is being put together.
type run struct{ begin, end int64 }

func newMerger(l ssd.Layout, lists, hole, slotBytes int) *merger {
	m := &merger{layout: l, hole: int64(hole), slotPages: int64(slotBytes / ssd.PageBytes), runs: make([]run, lists)}
	for i := range m.runs {
		m.runs[i] = run{-1, math.MinInt64 / 2}
	}
	return m
}

// add returns what a list's next row adds to its requests.
func (m *merger) add(list int, row uint32) reads {
	offset := m.layout.Offset(int64(row))
	first, last := offset/ssd.PageBytes, (offset+int64(m.layout.RowBytes)-1)/ssd.PageBytes
	r := &m.runs[list]
	if first <= r.end+m.hole && last < r.begin+m.slotPages {
		grown := max(0, last+1-r.end)
		r.end += grown
		return reads{0, grown}
	}
	*r = run{first, last + 1}
	return reads{1, last + 1 - first}
}
