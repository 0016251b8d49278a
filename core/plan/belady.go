package plan

import (
	"freshgo/core/cache"
	"freshgo/core/internal/asm"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// belady is MIN at batch granularity over the steps of a superbatch. It looks up no row: a bucket has the slots of its
// batch's hits, and all that it decides about a later access is noted by the access (time-forward processing).
type belady struct {
	cached *residency
	*index
	*buckets
	missed    int64 // misses so far
	untouched int   // slots at the head of the queue that no step has touched
	leave     *leavers
	fills     func(pos uint32) bool // whether the prologue could read a row of the current batch into its slot

	// For the current batch, in memory for the widest.
	rows   Batch
	next   []uint32     // of each row the next access, with packedBit, or none
	misses []uint32     // positions that are not cached, rising
	queued []uint32     // by position: the next entrant of the same bucket; rejected
	freed  []uint32     // slots evicted, with touchedBit
	moves  []cache.Move // into the cache
}

// rejected marks, in belady.queued, an entrant that is needed later than all that is cached.
const rejected = none - 1

// missLeft, in place of cache.Miss while a step is planned, is a row that left the cache and can be set aside for the
// batch.
const missLeft = cache.Miss - 1

// leavers collects rows that leave the cache, or are not admitted, with a known next use.
type leavers struct {
	wanted bool
	depth  uint32
	events []leaver     // for the current batch; with room for all rows of the widest
	counts []int64      // by batch that needs them
	left   bitset.Set   // accesses of the superbatch to rows that can be set aside before; nil: not wanted
	ahead  positionSets // of such rows that batches ahead need
	*horizon
	budget *mem.Budget
}

// leaver is such a row: the access that needs it, and where it is now (as Forward.From).
type leaver struct {
	access uint32
	from   int32
}

// sets reports whether note sets a row aside: packs of earlier plans do not hold it, and the pack that it goes to is
// complete in time.
func (l *leavers) sets(now, then, use uint32) bool {
	return l.wanted && use&packedBit == 0 && then-now > l.depth
}

// ask prefetches the bit that note sets.
func (l *leavers) ask(now, then, use uint32) {
	access := use & accessMask
	switch {
	case !l.sets(now, then, use):
	case int(access) < l.currentEnd():
		asm.Prefetch(l.left, []uint32{access >> 6})
	case l.ahead[int(then)-l.current] != nil:
		set := mem.Slice[uint64](l.ahead[int(then)-l.current])
		asm.Prefetch(set, []uint32{(access - l.offsets[then]) >> 6})
	}
}

// note records that a row leaves at batch now which batch then needs next, for use. What only a batch ahead needs is
// returned, as a word for the table of the residency; else 0.
func (l *leavers) note(now, then, use uint32, from int32) (word uint32) {
	if use&packedBit != 0 {
		return 0
	}
	access := use & accessMask
	ahead := int(access) >= l.currentEnd()
	if ahead {
		word = access + 1
	}
	if l.sets(now, then, use) {
		l.events = append(l.events, leaver{access, from})
		l.counts[then]++
		if ahead {
			word |= leftBit
			l.ahead.add(l.budget, int(then)-l.current, l.batches[then].Len(), int32(access-l.offsets[then]))
		} else {
			l.left.Add(int64(access))
		}
	}
	return word
}

// leaving lists rows that leave in a step, up to a block. What is looked up of them, and noted, is prefetched together:
// each lies in memory that no processor cache holds.
type leaving struct {
	n         int
	then, use [block]uint32 // the batch that needs each next, and its access there, which add has of slots alone
	from      [block]int32
}

// add adds the row of a slot, or of a miss at the complement of from.
func (l *leaving) add(p *belady, b, then, use uint32, from int32) {
	l.then[l.n], l.use[l.n], l.from[l.n] = then, use, from
	if l.n++; l.n == block {
		l.note(p, b)
	}
}

// note notes the rows, and empties the block. The table of the residency then has the first access of batches ahead to
// rows that only these need, as to rows that no batch of the superbatch needs (see eachAhead).
func (l *leaving) note(p *belady, b uint32) {
	var slots, positions, rows, words, buffer [block]uint32
	for k, from := range l.from[:l.n] {
		if from < 0 {
			positions[k] = uint32(^from)
		} else {
			slots[k] = uint32(from)
		}
	}
	asm.Prefetch(p.cached.held, slots[:l.n])
	asm.Prefetch(p.next, positions[:l.n])
	asm.Prefetch(p.rows, positions[:l.n])
	for k, from := range l.from[:l.n] {
		if from < 0 {
			rows[k], l.use[k] = p.rows[^from], p.next[^from]
		} else {
			rows[k] = p.cached.held[from] - 1
		}
		p.leave.ask(b, l.then[k], l.use[k])
	}
	n := 0
	for k, from := range l.from[:l.n] {
		if word := p.leave.note(b, l.then[k], l.use[k], from); word != 0 {
			rows[n], words[n] = rows[k], word
			n++
		}
	}
	at := p.cached.places(rows[:n], buffer[:])
	asm.Prefetch(p.cached.words, at)
	for k, place := range at {
		p.cached.words[place] = words[k]
	}
	l.n = 0
}

// step plans batch b of the superbatch. A move into a slot that nothing needs before it (see Prologue.Fill) has the
// complement of its slot.
func (p *belady) step(b uint32, rows Batch, next []uint32, slots []int32) []cache.Move {
	p.rows, p.next = rows, next
	wanting := p.gather(b, slots)
	free := p.cached.freeSlots
	p.freed, p.leave.events = p.freed[:0], p.leave.events[:0]
	p.evict(b, wanting-free)
	return p.admit(wanting, free)
}

// gather finds the slots of the rows of a batch, gives hits their next use, and collects misses. It returns the number
// of misses with a next use.
func (p *belady) gather(b uint32, slots []int32) (wanting int64) {
	base := p.offsets[b]
	for i := range slots {
		slots[i] = cache.Miss
	}
	p.empty(b, func(entries []entry) {
		for _, e := range entries {
			slots[e.use&accessMask-base] = int32(e.slot)
		}
	})
	p.misses = p.misses[:0]
	for i, slot := range slots {
		use := p.next[i]
		if slot >= 0 {
			p.use(uint32(slot), use)
			continue
		}
		if p.leave.left != nil && p.leave.left.Has(int64(base)+int64(i)) {
			slots[i] = missLeft
		}
		p.misses = append(p.misses, uint32(i))
		if use != none {
			wanting++
		}
	}
	p.missed += int64(len(p.misses))
	return wanting
}

// use files a slot that the current batch touches by the next use of its row.
func (p *belady) use(slot, use uint32) {
	if use == none {
		p.cached.queue.push(slot)
	} else {
		p.push(entry{slot, use | touchedBit}, p.batchOf(use&accessMask))
	}
}

// evict finds slots for the misses of the batch that have a next use, as far as they are worth it: slots without a
// known use first, then the rows with the farthest next use, including the misses themselves.
func (p *belady) evict(b uint32, excess int64) {
	for excess > 0 && p.cached.queue.n > 0 {
		some := p.cached.queue.popSome(int(excess))
		for _, slot := range some {
			if p.untouched--; p.untouched < 0 {
				slot |= touchedBit
			}
			p.freed = append(p.freed, slot)
		}
		excess -= int64(len(some))
	}
	if excess <= 0 {
		return
	}
	for _, i := range p.misses {
		if use := p.next[i]; use != none {
			then := p.batchOf(use & accessMask)
			p.queued[i] = p.entrants[then]
			p.entrants[then] = i
			p.used.set(then)
		}
	}
	var out leaving
	for ; excess > 0; excess-- {
		then := p.used.max()
		if i := p.entrants[then]; i != none {
			p.entrants[then] = p.queued[i]
			p.queued[i] = rejected
			out.add(p, b, then, none, ^int32(i))
		} else {
			e := p.pop(then)
			p.freed = append(p.freed, e.slot|e.use&touchedBit)
			out.add(p, b, then, e.use, int32(e.slot))
		}
		if p.filled[then] == 0 && p.entrants[then] == none {
			p.used.clear(then)
		}
	}
	out.note(p, b)
}

// admit lets in those misses that were not rejected, and others as far as slots were free to begin with.
func (p *belady) admit(wanting, free int64) []cache.Move {
	others := min(max(free-wanting, 0), int64(len(p.misses))-wanting)
	contested := wanting > free
	entering := p.misses[:0]
	for _, i := range p.misses {
		if use := p.next[i]; use == none {
			if others == 0 {
				continue
			}
			others--
		} else if contested {
			p.entrants[p.batchOf(use&accessMask)] = none
			if p.queued[i] == rejected {
				p.queued[i] = none
				continue
			}
		}
		entering = append(entering, i)
	}
	moves := p.moves[:0]
	var slots [block]uint32
	for lo := 0; lo < len(entering); lo += block {
		some := entering[lo:min(lo+block, len(entering))]
		for k := range some {
			if at := lo + k; at < len(p.freed) {
				slots[k] = p.freed[at]
			} else {
				slots[k] = p.cached.takeSlot()
			}
			slots[k] &^= touchedBit
		}
		asm.Prefetch(p.cached.held, slots[:len(some)])
		for k, i := range some {
			s := slots[k]
			p.cached.held[s] = p.rows[i] + 1
			p.use(s, p.next[i])
			to := int32(s)
			if at := lo + k; (at >= len(p.freed) || p.freed[at]&touchedBit == 0) && p.fills(i) {
				to = ^to
			}
			moves = append(moves, cache.Move{Pos: int32(i), Slot: to})
		}
	}
	return moves
}
