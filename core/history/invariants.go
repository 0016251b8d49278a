package history

import (
	"fmt"
	"math"
	"slices"
)

// check panics unless the invariants between two calls hold: slots and tables refer to each other, the buckets ascend
// in age, and counts are right. It reads every slot and every node.
func (e *entries) check() {
	var needs [math.MaxUint8]uint64 // by layer; on the stack, as the checked code allocates nothing
	entries := int64(0)
	for b := range numBuckets {
		previous, age := int32(-1), int64(math.MinInt64)
		for at := e.heads[b]; at >= 0; at = e.slots[at].next {
			s := &e.slots[at]
			if !(s.prev == previous && s.admitted >= age && int(s.bucket) == b) {
				violated("slot %d out of order in bucket %d: %+v", at, b, *s)
			}
			if !(at < e.top && e.tables[s.layer].get(int64(s.node)) == at) {
				violated("slot %d of %d is not that of its row: %+v", at, e.top, *s)
			}
			needs[s.layer-1] += uint64(s.need)
			previous, age = at, s.admitted
			entries++
		}
		if !(previous == e.tails[b] && (previous >= 0) == e.filled.Has(int64(b))) {
			violated("end of bucket %d", b)
		}
	}
	if !(entries == e.live && slices.Equal(needs[:e.config.Layers], e.price.needs)) {
		violated("%d entries, %d counted; needs %d and %d",
			entries, e.live, slices.Clone(needs[:e.config.Layers]), e.price.needs)
	}
	holes, found := int64(0), int64(0)
	for at := range int32(len(e.slots)) {
		s := &e.slots[at]
		free := at < e.top && s.layer == 0 && s.pins == 0
		if !(free == e.isFree(at)) {
			violated("slot %d of %d is free: %t", at, e.top, free)
		}
		if free {
			holes++
			if !(at >= e.low) {
				violated("free slot %d before slot %d", at, e.low)
			}
		}
	}
	if !(holes == e.holes && e.top <= e.numSlots) {
		violated("%d free slots, %d counted; %d of %d slots", holes, e.holes, e.top, e.numSlots)
	}
	if !(e.top == 0 || !e.isFree(e.top-1)) {
		violated("the region ends with a free slot, %d", e.top-1)
	}
	for l := 1; l <= e.config.Layers; l++ {
		for node := range e.config.NumNodes {
			if at := e.tables[l].get(node); at != absent {
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
