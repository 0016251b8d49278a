package plan

import (
	"freshgo/core/cache"
	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// belady is MIN at batch granularity over the steps of a superbatch.
type belady struct {
	cached *residency
	*index
	*buckets
	missed    int64 // misses so far
	untouched int   // rows at the head of the queue that no step has touched
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
	cached *residency
	end    uint32 // the first access of the batches ahead
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
	n         int
	rows      [block]uint32
	uses      [block]uint32 // the accesses that need them, with packedBit and touchedBit
	batches   [block]uint32 // of these accesses
	positions [block]uint32 // in the current batch, of rows that are not cached
}

// add adds a row and reports whether the block is full.
func (d *departures) add(e entry, batch, position uint32) bool {
	d.rows[d.n], d.uses[d.n], d.batches[d.n], d.positions[d.n] = e.row, e.use, batch, position
	d.n++
	return d.n == block
}

// note collects rows that leave at batch now and can be set aside: packs of earlier plans do not hold them, and the
// packs that they go to are complete in time. It empties the block, and appends to freed the slots of those that were
// cached. The table then marks these rows, and has, of rows that only batches ahead need, the first such access, as of
// rows that no batch of the superbatch needs (see eachAhead).
func (l *leavers) note(now uint32, d *departures, freed []uint32) []uint32 {
	var at places
	for i, place := range l.cached.find(d.rows[:d.n], 0, &at) {
		use, was := d.uses[i], l.cached.words[place]
		access, then, word := use&accessMask, d.batches[i], uint32(0)
		from := ^int32(d.positions[i])
		if was&cachedBit != 0 {
			from = int32(was &^ cachedBit)
			freed = append(freed, was&^cachedBit|use&touchedBit)
		}
		packed := use&packedBit != 0
		if access >= l.end && !packed {
			word = access + 1
		}
		if l.wanted && !packed && then-now > l.depth {
			l.events = append(l.events, leaver{access, from})
			l.counts[then]++
			word |= leftBit
			if access >= l.end {
				l.ahead.add(l.budget, int(then)-l.current, l.batches[then].Len(), int32(access-l.offsets[then]))
			}
		}
		l.cached.words[place] = word
	}
	d.n = 0
	return freed
}

// step plans batch b of the superbatch. A move into a slot that nothing needs before it (see Prologue.Fill) has the
// complement of its slot.
func (p *belady) step(b uint32, rows Batch, next []uint32, slots []int32) []cache.Move {
	p.rows, p.next = rows, next
	p.drop(b) // all of them are rows of this batch
	wanting := p.gather(slots)
	free := p.cached.freeSlots
	p.freed, p.leave.events = p.freed[:0], p.leave.events[:0]
	p.evict(b, wanting-free)
	return p.admit(wanting, free)
}

// gather resolves the rows of a batch, gives hits their next use, and collects misses. It returns the number of misses
// with a next use.
func (p *belady) gather(slots []int32) (wanting int64) {
	p.misses = p.misses[:0]
	var at places
	coming := p.cached.find(p.rows, 0, &at)
	for lo := 0; lo < len(p.rows); lo += block {
		here := coming
		coming = p.cached.find(p.rows[lo+len(here):], lo/block+1, &at)
		for k, place := range here {
			i := lo + k
			row, use, word := p.rows[i], p.next[i], p.cached.words[place]
			if word&cachedBit != 0 {
				slots[i] = int32(word &^ cachedBit)
				if use == none {
					p.cached.queue.push(row)
				} else {
					p.push(entry{row, use | touchedBit}, p.batchOf(use&accessMask))
				}
				continue
			}
			if slots[i] = cache.Miss; word == leftBit {
				slots[i] = missLeft
			}
			if word != 0 {
				p.cached.words[place] = 0
			}
			p.misses = append(p.misses, uint32(i))
			if use != none {
				wanting++
			}
		}
	}
	p.missed += int64(len(p.misses))
	return wanting
}

// evict finds slots for the misses of the batch that have a next use, as far as they are worth it: slots without a
// known use first, then the rows with the farthest next use, including the misses themselves.
func (p *belady) evict(b uint32, excess int64) {
	var at places
	for excess > 0 && p.cached.queue.n > 0 {
		some := p.cached.queue.popSome(int(min(block, excess)))
		for _, place := range p.cached.find(some, 0, &at) {
			word := &p.cached.words[place]
			slot := *word &^ cachedBit
			if p.untouched--; p.untouched < 0 {
				slot |= touchedBit
			}
			p.freed = append(p.freed, slot)
			*word = 0
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
	var gone departures
	for ; excess > 0; excess-- {
		then := p.used.max()
		var full bool
		if i := p.entrants[then]; i != none {
			p.entrants[then] = p.queued[i]
			p.queued[i] = rejected
			full = gone.add(entry{p.rows[i], p.next[i]}, then, i)
		} else {
			full = gone.add(p.pop(then), then, none)
		}
		if full {
			p.freed = p.leave.note(b, &gone, p.freed)
		}
		if p.first[then].n == 0 && p.entrants[then] == none {
			p.used.clear(then)
		}
	}
	p.freed = p.leave.note(b, &gone, p.freed)
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
	var at places
	var rows, slots [block]uint32
	for lo := 0; lo < len(entering); lo += block {
		some := entering[lo:min(lo+block, len(entering))]
		for k, i := range some {
			rows[k] = p.rows[i]
			if at := lo + k; at < len(p.freed) {
				slots[k] = p.freed[at] &^ touchedBit
			} else {
				slots[k] = p.cached.takeSlot()
			}
		}
		found := p.cached.find(rows[:len(some)], 0, &at)
		asm.Prefetch(p.cached.held, slots[:len(some)])
		for k, i := range some {
			s, use := slots[k], p.next[i]
			p.cached.words[found[k]], p.cached.held[s] = cachedBit|s, rows[k]+1
			if use == none {
				p.cached.queue.push(rows[k])
			} else {
				p.push(entry{rows[k], use | touchedBit}, p.batchOf(use&accessMask))
			}
			to := int32(s)
			if at := lo + k; (at >= len(p.freed) || p.freed[at]&touchedBit == 0) && p.fills(i) {
				to = ^to
			}
			moves = append(moves, cache.Move{Pos: int32(i), Slot: to})
		}
	}
	return moves
}
