package plan

import (
	"slices"

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
	then   []uint32     // of each of these the batch that needs it next, or none
	freed  []uint32     // slots evicted, with touchedBit
	moves  []cache.Move // into the cache

	// misses that are needed and do not enter, by the batch that needs them; in the memory of moves
	rejected []uint32
}

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
	then, use [block]uint32 // the batch that needs each next, and its access there
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
	var slots, rows, words, buffer [block]uint32
	n := 0
	for k, from := range l.from[:l.n] {
		if from >= 0 {
			slots[n] = uint32(from)
			n++
		}
		p.leave.ask(b, l.then[k], l.use[k])
	}
	asm.Prefetch(p.cached.held, slots[:n])
	n = 0
	for k, from := range l.from[:l.n] {
		word := p.leave.note(b, l.then[k], l.use[k], from)
		if word == 0 {
			continue
		}
		if words[n] = word; from < 0 {
			rows[n] = p.rows[^from]
		} else {
			rows[n] = p.cached.held[from] - 1
		}
		n++
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
	p.rejected = mem.View[uint32](mem.Bytes(p.moves[:cap(p.moves)]))[:0]
	contested := p.evict(b, wanting-free)
	return p.admit(b, max(free-wanting, 0), int64(len(p.misses))-wanting, contested)
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
	p.misses, p.then = p.misses[:0], p.then[:0]
	for i, slot := range slots {
		use := p.next[i]
		then := none
		if use != none {
			then = p.batchOf(use & accessMask)
		}
		if slot >= 0 {
			p.use(uint32(slot), use, then)
			continue
		}
		if p.leave.left != nil && p.leave.left.Has(int64(base)+int64(i)) {
			slots[i] = missLeft
		}
		if then != none {
			wanting++
		}
		p.misses, p.then = append(p.misses, uint32(i)), append(p.then, then)
	}
	p.missed += int64(len(p.misses))
	return wanting
}

// use files a slot that the current batch touches by the next use of its row, in batch then.
func (p *belady) use(slot, use, then uint32) {
	if use == none {
		p.cached.queue.push(slot)
	} else {
		p.push(entry{slot, use | touchedBit}, then)
	}
}

// evict finds slots for the misses of the batch that have a next use, as far as they are worth it: slots without a
// known use first, then the rows with the farthest next use, including the misses themselves. It reports whether misses
// are entrants: then these are, by the batch that needs them, the number that enters.
func (p *belady) evict(b uint32, excess int64) (contested bool) {
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
		return false
	}
	for _, then := range p.then {
		if then != none {
			if p.entrants[then] == 0 {
				p.used.set(then)
			}
			p.entrants[then]++
		}
	}
	var out leaving
	for excess > 0 {
		then := p.used.max()
		rejected := min(p.entrants[then], uint32(excess))
		p.entrants[then] -= rejected
		p.place[then] = uint32(len(p.rejected))
		p.rejected = p.rejected[:len(p.rejected)+int(rejected)]
		for excess -= int64(rejected); excess > 0 && p.filled[then] > 0; excess-- {
			e := p.pop(then)
			p.freed = append(p.freed, e.slot|e.use&touchedBit)
			out.add(p, b, then, e.use, int32(e.slot))
		}
		if p.filled[then] == 0 && p.entrants[then] == 0 {
			p.used.clear(then)
		}
	}
	out.note(p, b)
	return true
}

// reject notes the misses that do not enter, those of one batch that needs them after the other.
func (p *belady) reject(b uint32) {
	var out leaving
	for rejected := range slices.Chunk(p.rejected, block) {
		asm.Prefetch(p.next, rejected)
		asm.Prefetch(p.rows, rejected)
		for _, i := range rejected {
			use := p.next[i]
			out.add(p, b, p.batchOf(use&accessMask), use, ^int32(i))
		}
	}
	out.note(p, b)
}

// admit lets in those misses that are worth it, the first of a batch that needs them, and as many of the others, which
// no batch needs, as there is room for.
func (p *belady) admit(b uint32, room, others int64, contested bool) []cache.Move {
	others = min(room, others)
	entering, thens := p.misses[:0], p.then[:0]
	for k, i := range p.misses {
		then := p.then[k]
		switch {
		case then == none:
			if others == 0 {
				continue
			}
			others--
		case !contested:
		case p.entrants[then] == 0:
			p.rejected[p.place[then]] = i
			p.place[then]++
			continue
		default:
			p.entrants[then]--
		}
		entering, thens = append(entering, i), append(thens, then)
	}
	p.reject(b)
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
			p.use(s, p.next[i], thens[lo+k])
			to := int32(s)
			if at := lo + k; (at >= len(p.freed) || p.freed[at]&touchedBit == 0) && p.fills(i) {
				to = ^to
			}
			moves = append(moves, cache.Move{Pos: int32(i), Slot: to})
		}
	}
	return moves
}
