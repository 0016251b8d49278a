package plan

import (
	"freshgo/core/cache"
	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// buckets holds the slots whose rows are needed within the horizon, by the batch that needs them. A bucket is a stack:
// the last to enter is the first to be evicted, so that earlier cached rows stay on ties.
type buckets struct {
	stacks   []stack
	entrants []uint32 // by batch: a position of the current batch whose row wants to enter, or none
	used     maxset   // batches with either
}

// lanes is the number of lists of a stack, which is a power of two: as many links are prefetched together. With one
// list each link is known when the one before it has arrived. Arbitrary.
const lanes = 8

// stack is slots in lists that take turns: the slot that entered n-th is in list n modulo lanes.
type stack struct {
	n    uint32
	tops [lanes]uint32 // the last slots; those behind them are linked by link.next
}

// pop removes the last slot.
func (k *stack) pop(links []link) uint32 {
	if k.n%lanes == 0 {
		asm.Prefetch(links, k.tops[:])
	}
	k.n--
	top := &k.tops[k.n%lanes]
	s := *top
	*top = links[s].next
	return s
}

func newBuckets(batches int) *buckets {
	k := &buckets{stacks: make([]stack, batches), entrants: make([]uint32, batches), used: newMaxset(batches)}
	for i := range k.entrants {
		k.entrants[i] = none
	}
	return k
}

func (k *buckets) push(links []link, slot, use, batch uint32) {
	l, of := &links[slot], &k.stacks[batch]
	top := &of.tops[of.n%lanes]
	l.next, l.use = *top, use
	*top = slot
	of.n++
	k.used.set(batch)
}

// belady is MIN at batch granularity over the steps of a superbatch.
type belady struct {
	*residency
	*index
	*buckets
	missed int64 // misses so far
	leave  *leavers
	fills  func(pos uint32) bool // whether the prologue could read a row of the current batch into its slot

	// For the current batch, in memory for the widest.
	rows   Batch
	next   []uint32     // of each row the next access, with packedBit, or none
	misses []uint32     // positions that are not cached, rising
	queued []uint32     // by position: the next entrant of the same bucket; rejected
	freed  []uint32     // slots evicted
	moves  []cache.Move // into the cache
}

// rejected marks, in belady.queued, an entrant that is needed later than all that is cached.
const rejected = none - 1

// missLeft, in place of cache.Miss while a step is planned, is a row that left the cache and can be set aside for the
// batch.
const missLeft = cache.Miss - 1

// leavers collects rows that leave the cache, or are not admitted, with a known next use.
type leavers struct {
	rows   []uint32 // of the residency
	end    uint32   // the first access of the batches ahead
	wanted bool
	depth  uint32
	events []leaver     // for the current batch; with room for all rows of the widest
	counts []int64      // by batch that needs them
	ahead  positionSets // of the rows that batches ahead need
	*horizon
	budget *mem.Budget
}

// leaver is such a row: the access that needs it, and where it is now (as Forward.From).
type leaver struct {
	access uint32
	from   int32
}

// departures lists rows that leave at a batch and are needed again, up to a block. Their entries in other tables are
// prefetched together.
type departures struct {
	n       int
	rows    [block]uint32
	uses    [block]uint32 // the accesses that need them, with packedBit
	batches [block]uint32 // of these accesses
	from    [block]int32  // where they are now, as Forward.From
}

// add adds a row and reports whether the block is full.
func (d *departures) add(row, use, batch uint32, from int32) bool {
	d.rows[d.n], d.uses[d.n], d.batches[d.n], d.from[d.n] = row, use, batch, from
	d.n++
	return d.n == block
}

// note collects rows that leave at batch now and can be set aside: packs of earlier plans do not hold them, and the
// packs that they go to are complete in time. It empties the block. The table then marks these rows, and has, of rows
// that only batches ahead need, the first such access, as of rows that no batch of the superbatch needs (see
// eachAhead).
func (l *leavers) note(now uint32, d *departures) {
	asm.Prefetch(l.rows, d.rows[:d.n])
	for i, use := range d.uses[:d.n] {
		access, then, word := use&accessMask, d.batches[i], uint32(0)
		packed := use&packedBit != 0
		if access >= l.end && !packed {
			word = access + 1
		}
		if l.wanted && !packed && then-now > l.depth {
			l.events = append(l.events, leaver{access, d.from[i]})
			l.counts[then]++
			word |= leftBit
			if access >= l.end {
				l.ahead.add(l.budget, int(then)-l.current, l.batches[then].Len(), int32(access-l.offsets[then]))
			}
		}
		l.rows[d.rows[i]] = word
	}
	d.n = 0
}

// step plans batch b of the superbatch. A move into a slot that nothing needs before it (see Prologue.Fill) has the
// complement of its slot.
func (p *belady) step(b uint32, rows Batch, next []uint32, slots []int32) []cache.Move {
	p.rows, p.next = rows, next
	p.stacks[b].n = 0 // all of them are rows of this batch
	p.used.clear(b)
	wanting := p.gather(slots)
	free := p.freeSlots
	p.freed, p.leave.events = p.freed[:0], p.leave.events[:0]
	p.evict(b, wanting-free)
	return p.admit(wanting, free)
}

// gather resolves the rows of a batch, gives hits their next use, and collects misses. It returns the number of misses
// with a next use.
func (p *belady) gather(slots []int32) (wanting int64) {
	n := len(p.rows)
	p.misses = p.misses[:0]
	asm.Prefetch(p.residency.rows, p.rows[:min(block, n)])
	for lo := 0; lo < n+block; lo += block {
		if lo < n {
			hi := min(lo+block, n)
			asm.Prefetch(p.residency.rows, p.rows[hi:min(hi+block, n)])
			for i, row := range p.rows[lo:hi] {
				switch word := p.residency.rows[row]; {
				case word&cachedBit != 0:
					slots[lo+i] = int32(word &^ cachedBit)
					continue
				case word == leftBit:
					slots[lo+i] = missLeft
				default:
					slots[lo+i] = cache.Miss
				}
				p.residency.rows[row] = 0
			}
			// A miss has slot -1 or -2, to Prefetch 2^32-1 and with 12 bytes a link 48 GiB behind the array. That is
			// harmless: a prefetch reads nothing and never faults (TestPrefetchIsHarmless in asm goes as far). The
			// price is a walk of the page tables for a miss; the other way is a branch for every row.
			asm.Prefetch(p.links, slots[lo:hi])
		}
		if lo == 0 {
			continue
		}
		for i := lo - block; i < min(lo, n); i++ {
			slot, use := slots[i], p.next[i]
			switch {
			case slot < 0:
				p.misses = append(p.misses, uint32(i))
				if use != none {
					wanting++
				}
				continue
			case use == none:
				p.queue.push(uint32(slot))
			default:
				p.push(p.links, uint32(slot), use, p.batchOf(use&accessMask))
			}
			p.touched.Add(int64(slot))
		}
	}
	p.missed += int64(len(p.misses))
	return wanting
}

// evict finds slots for the misses of the batch that have a next use, as far as they are worth it: slots without a
// known use first, then the rows with the farthest next use, including the misses themselves.
func (p *belady) evict(b uint32, excess int64) {
	var slots, rows [block]uint32
	for excess > 0 {
		n := p.queue.popSome(slots[:min(block, excess)])
		if n == 0 {
			break
		}
		for i, s := range slots[:n] {
			rows[i] = p.links[s].row
		}
		asm.Prefetch(p.residency.rows, rows[:n])
		for _, row := range rows[:n] {
			p.residency.rows[row] = 0
		}
		p.freed = append(p.freed, slots[:n]...)
		excess -= int64(n)
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
	var gone departures
	for ; excess > 0; excess-- {
		then := p.used.max()
		var full bool
		if i := p.entrants[then]; i != none {
			p.entrants[then] = p.queued[i]
			p.queued[i] = rejected
			full = gone.add(p.rows[i], p.next[i], then, ^int32(i))
		} else {
			s := p.stacks[then].pop(p.links)
			full = gone.add(p.links[s].row, p.links[s].use, then, int32(s))
			p.freed = append(p.freed, s)
		}
		if full {
			p.leave.note(b, &gone)
		}
		if p.stacks[then].n == 0 && p.entrants[then] == none {
			p.used.clear(then)
		}
	}
	p.leave.note(b, &gone)
}

// admit lets in those misses that were not rejected, and others as far as slots were free to begin with.
func (p *belady) admit(wanting, free int64) []cache.Move {
	others := min(max(free-wanting, 0), int64(len(p.misses))-wanting)
	contested := wanting > free
	moves := p.moves[:0]
	freed := 0
	for _, i := range p.misses {
		use := p.next[i]
		then := none
		if use != none {
			then = p.batchOf(use & accessMask)
			if contested {
				p.entrants[then] = none
				if p.queued[i] == rejected {
					p.queued[i] = none
					continue
				}
			}
		} else if others == 0 {
			continue
		} else {
			others--
		}
		var s uint32
		if freed < len(p.freed) {
			s = p.freed[freed]
			freed++
		} else {
			s = p.takeSlot()
		}
		p.put(s, p.rows[i])
		if use == none {
			p.queue.push(s)
		} else {
			p.push(p.links, s, use, then)
		}
		to := int32(s)
		if !p.touched.Has(int64(s)) && p.fills(i) {
			to = ^to
		}
		p.touched.Add(int64(s))
		moves = append(moves, cache.Move{Pos: int32(i), Slot: to})
	}
	return moves
}
