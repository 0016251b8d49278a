package plan

import (
	"errors"

	"freshgo/core/cache"
	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// buckets are the slots whose rows are needed within the horizon, by the batch that needs them. A bucket is a stack:
// the last to come is the first to be evicted, so that what was cached before stays on ties.
type buckets struct {
	heads    []uint32 // by batch: a slot, or none
	entrants []uint32 // by batch: a position of the batch at hand whose row wants to enter, or none
	used     maxset   // batches with either
}

func newBuckets(batches int) *buckets {
	k := &buckets{heads: make([]uint32, batches), entrants: make([]uint32, batches), used: newMaxset(batches)}
	for i := range k.heads {
		k.heads[i], k.entrants[i] = none, none
	}
	return k
}

func (k *buckets) push(links []link, slot, use, batch uint32) {
	l := &links[slot]
	l.next, l.use = k.heads[batch], use
	k.heads[batch] = slot
	k.used.set(batch)
}

// belady is MIN at batch granularity over the steps of a superbatch.
type belady struct {
	*residency
	*horizon
	*buckets
	missed int64    // misses so far
	misses []uint32 // positions of the batch at hand that are not cached, rising
	queued []uint32 // by position: the next entrant of the same bucket; rejected
	freed  []uint32 // slots evicted for the batch at hand
	plan   *arena
	leave  *leavers
	fills  func(access uint32) bool // whether the prologue could read an access's row into its slot
}

// rejected marks, in belady.queued, an entrant that is needed later than all that is cached.
const rejected = none - 1

// leavers collects what leaves the cache, or is not admitted, with a known next use.
type leavers struct {
	cold   func(access uint32) // told of accesses whose rows are not cached any more when they come
	wanted bool
	depth  uint32
	events list[leaver]
	ends   []int // by batch of the superbatch: the end of its events
}

// abandon gives the memory back that others need more, if there is any.
func (l *leavers) abandon() bool {
	held := l.events.block != nil
	l.wanted = false
	l.events.release()
	clear(l.ends)
	return held
}

// leaver is such a row: the access that needs it, and where it is now (as Forward.From).
type leaver struct {
	access uint32
	from   int32
}

// note collects a row that leaves at batch now and is needed by an access of batch then. Without memory for it, it is
// read once more.
func (l *leavers) note(now, then, access uint32, from int32) {
	l.cold(access)
	if l.wanted && then-now > l.depth && l.events.reserve() == nil {
		l.events.items = append(l.events.items, leaver{access, from})
	}
}

// step plans batch b of the superbatch. A move into a slot that nothing needs before it (see Prologue.Fill) has the
// complement of its slot.
func (p *belady) step(b uint32, slots []int32) ([]cache.Move, error) {
	p.heads[b] = none // all of them are rows of this batch
	p.used.clear(b)
	wanting := p.gather(b, slots)
	free := p.freeSlots
	p.freed = p.freed[:0]
	p.evict(b, wanting-free)
	return p.admit(b, wanting, free)
}

// gather resolves the rows of a batch, gives hits their next use, and collects misses. It returns how many of them have
// a next use.
func (p *belady) gather(b uint32, slots []int32) (wanting int64) {
	base := p.offsets[b]
	ids, next := p.ids[base:p.offsets[b+1]], p.next[base:p.offsets[b+1]]
	n := len(ids)
	p.misses = p.misses[:0]
	asm.Prefetch(p.known, ids[:min(block, n)])
	for lo := 0; lo < n+block; lo += block {
		if lo < n {
			hi := min(lo+block, n)
			asm.Prefetch(p.known, ids[hi:min(hi+block, n)])
			for i, id := range ids[lo:hi] {
				slots[lo+i] = p.known[id].slot
			}
			// A miss has slot -1, to Prefetch 2^32-1 and with 12 bytes a link 48 GiB behind the array. That is harmless: a
			// prefetch reads nothing and never faults (TestPrefetchIsHarmless in asm goes as far). The price is a walk of the
			// page tables for a miss; the other way is a branch for every row.
			asm.Prefetch(p.links, slots[lo:hi])
		}
		if lo == 0 {
			continue
		}
		for i := lo - block; i < min(lo, n); i++ {
			slot, use := slots[i], next[i]
			switch {
			case slot < 0:
				p.misses = append(p.misses, uint32(i))
				if use != none {
					wanting++
				}
				continue
			case use == none:
				p.known[ids[i]].use = none
				p.enqueue(uint32(slot))
			default:
				p.push(p.links, uint32(slot), use, p.batchOf(use))
			}
			p.touched.set(uint32(slot))
		}
	}
	p.missed += int64(len(p.misses))
	return wanting
}

// evict finds slots for the misses of the batch that have a next use, as far as they are worth it: slots without a
// known use first, then whatever is needed farthest in the future, among it the entrants themselves.
func (p *belady) evict(b uint32, excess int64) {
	for ; excess > 0; excess-- {
		s := p.dequeue()
		if s == none {
			break
		}
		p.drop(s)
	}
	if excess <= 0 {
		return
	}
	base := p.offsets[b]
	for _, i := range p.misses {
		if use := p.next[base+i]; use != none {
			then := p.batchOf(use)
			p.queued[i] = p.entrants[then]
			p.entrants[then] = i
			p.used.set(then)
		}
	}
	for ; excess > 0; excess-- {
		then := p.used.max()
		if i := p.entrants[then]; i != none {
			p.entrants[then] = p.queued[i]
			p.queued[i] = rejected
			p.leave.note(b, then, p.next[base+i], ^int32(i))
		} else {
			s := p.heads[then]
			p.heads[then] = p.links[s].next
			p.leave.note(b, then, p.links[s].use, int32(s))
			p.drop(s)
		}
		if p.heads[then] == none && p.entrants[then] == none {
			p.used.clear(then)
		}
	}
}

// drop evicts a slot. A row that is not needed within the horizon is then not known any more.
func (p *belady) drop(s uint32) {
	n := p.links[s].known
	p.freed = append(p.freed, s)
	if k := &p.known[n]; k.use == none {
		p.forget(n)
	} else {
		k.slot = cache.Miss
	}
}

// admit lets in those misses that were not rejected, and others as far as slots were free to begin with.
func (p *belady) admit(b uint32, wanting, free int64) ([]cache.Move, error) {
	base := p.offsets[b]
	others := min(max(free-wanting, 0), int64(len(p.misses))-wanting)
	contested := wanting > free
	entering := min(wanting, free+int64(len(p.freed))) + others
	moves, err := alloc[cache.Move](p.plan, int(entering))
	if errors.Is(err, mem.ErrBudget) && p.leave.abandon() {
		moves, err = alloc[cache.Move](p.plan, int(entering))
	}
	if err != nil {
		return nil, err
	}
	moves = moves[:0]
	freed := 0
	for _, i := range p.misses {
		use := p.next[base+i]
		then := none
		if use != none {
			then = p.batchOf(use)
			if contested {
				p.entrants[then] = none
				if p.queued[i] == rejected {
					p.queued[i] = none
					continue
				}
			}
		} else if others == 0 {
			p.forget(p.ids[base+i])
			continue
		} else {
			others--
			p.known[p.ids[base+i]].use = none
		}
		var s uint32
		if freed < len(p.freed) {
			s = p.freed[freed]
			freed++
		} else {
			s = p.takeSlot()
		}
		id := p.ids[base+i]
		p.known[id].slot = int32(s)
		p.links[s].known = id
		if use == none {
			p.enqueue(s)
		} else {
			p.push(p.links, s, use, then)
		}
		to := int32(s)
		if !p.touched.has(s) && p.fills(base+i) {
			to = ^to
		}
		p.touched.set(s)
		moves = append(moves, cache.Move{Pos: int32(i), Slot: to})
	}
	return moves, nil
}
