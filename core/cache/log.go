package cache

import "freshgo/core/internal/asm"

// log lists entries from the oldest to the newest with holes between them. It has two entries for each slot: when they
// are used up, the valid ones are compacted, at most once in as many additions as there are slots.
type log struct {
	*table
	start uint32 // no entry before it is valid
	hand  uint32 // where the next search begins
	end   uint32
}

const logBytes = orderEntries * orderBytes

func newLog(t *table) log {
	t.arrange(orderEntries)
	return log{table: t}
}

func (l *log) add(slot int32) {
	if int(l.end) == len(l.order) {
		l.closeRanks()
	}
	l.place(slot, l.end)
	l.end++
}

func (l *log) closeRanks() {
	to, hand := uint32(0), uint32(0)
	asm.Prefetch(l.nodes, l.order[l.start:min(l.start+ahead, l.end)])
	for from := l.start; from < l.end; from++ {
		if (from-l.start)%ahead == 0 {
			asm.Prefetch(l.nodes, l.order[min(from+ahead, l.end):min(from+2*ahead, l.end)])
		}
		if from == l.hand {
			hand = to
		}
		if slot := l.order[from]; l.valid(slot, from) {
			l.place(slot, to)
			to++
		}
	}
	l.start, l.hand, l.end = 0, hand, to
}
