package history

import (
	"fmt"
	"math"
	"slices"
)

// check panics unless what holds between two calls holds: slots and tables name each other, the buckets ascend in age,
// and what is counted is there. It looks at every slot and every node.
func (h *History) check() {
	var needs [math.MaxUint8]uint64 // by layer; nothing is allocated, as in what is checked
	entries := int64(0)
	for b := range numBuckets {
		previous, age := int32(-1), int64(math.MinInt64)
		for at := h.heads[b]; at >= 0; at = h.slots[at].next {
			s := &h.slots[at]
			if !(s.prev == previous && s.admitted >= age && int(s.bucket) == b) {
				violated("slot %d out of order in bucket %d: %+v", at, b, *s)
			}
			if !(at < h.top && h.tables[s.layer].get(int64(s.node)) == at) {
				violated("slot %d of %d is not that of its row: %+v", at, h.top, *s)
			}
			needs[s.layer-1] += uint64(s.need)
			previous, age = at, s.admitted
			entries++
		}
		if !(previous == h.tails[b] && (previous >= 0) == h.filled.Has(int64(b))) {
			violated("end of bucket %d", b)
		}
	}
	if !(entries == h.live && slices.Equal(needs[:h.config.Layers], h.price.needs)) {
		violated("%d entries, %d counted; needs %d and %d",
			entries, h.live, slices.Clone(needs[:h.config.Layers]), h.price.needs)
	}
	holes, found := int64(0), int64(0)
	for at := range int32(len(h.slots)) {
		s := &h.slots[at]
		free := at < h.top && s.layer == 0 && s.pins == 0
		if !(free == h.isFree(at)) {
			violated("slot %d of %d is free: %t", at, h.top, free)
		}
		if free {
			holes++
			if !(at >= h.low) {
				violated("free slot %d before slot %d", at, h.low)
			}
		}
	}
	if !(holes == h.holes && h.top <= h.numSlots) {
		violated("%d free slots, %d counted; %d of %d slots", holes, h.holes, h.top, h.numSlots)
	}
	if !(h.top == 0 || !h.isFree(h.top-1)) {
		violated("the region ends with a free slot, %d", h.top-1)
	}
	for l := 1; l <= h.config.Layers; l++ {
		for node := range h.config.NumNodes {
			if at := h.tables[l].get(node); at != absent {
				if !(at >= 0) {
					violated("node %d of layer %d is left marked", node, l)
				}
				found++
			}
		}
	}
	if !(found == entries) {
		violated("%d entries, %d rows that have one", entries, found)
	}
}

func violated(format string, args ...any) { panic("history: " + fmt.Sprintf(format, args...)) }
