package plan

import "math/bits"

// When the steps of a plan are known, residency.words has for each row that is not cached its first access in the
// batches ahead, or an access of the superbatch. A pass over that table finds the former by rising row, and no record
// of the batches is read again. The table lasts until the transfer is planned.

// aheadBits is the logarithm of the rows of the graph for which residency.ahead has one bit: a word of residency.known,
// so that a plan of few accesses does not pass over all of a large graph. A region of the sample has whole parts.
const aheadBits = 6

func aheadParts(numRows int64) int64 { return (numRows + 1<<aheadBits - 1) >> aheadBits }

// eachAhead calls keep for each row from one to before another that is not cached and that a batch ahead needs, by
// rising row, with its first access there and its mark, 0 or 1, in the parts of the table that wants holds for, given
// by their first row. The table forgets the access where keep reports false.
func (r *residency) eachAhead(
	from, to int64, wants func(first uint32) bool, keep func(row, access, mark uint32) bool,
) {
	to = min(to, r.numRows)
	for part := range r.ahead.Within(from>>aheadBits, aheadParts(to)) {
		first := part << aheadBits
		if !wants(uint32(first)) {
			continue
		}
		kept, set := false, r.known[part]
		words := r.words[r.counts[part]:][:bits.OnesCount64(set)]
		var places [1 << aheadBits]uint8
		n := 0
		for i, use := range words {
			places[n] = uint8(i)
			n += int((uint64(r.end) - uint64(use&accessMask)) >> 63) // without a branch, which nothing predicts
		}
		for _, i := range places[:n] {
			row, use := first+int64(bit(set, int(i))), words[i]
			if row < from || row >= to || keep(uint32(row), use&accessMask-1, use>>accessBits) {
				kept = true
			} else {
				words[i] = 0
			}
		}
		if !kept {
			r.ahead.Remove(part)
		}
	}
}

// bit returns the place of the n-th bit that is set.
func bit(set uint64, n int) int {
	if set&(set+1) == 0 { // all below the last
		return n
	}
	for range n {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// everywhere is for all parts of a table.
func everywhere(uint32) bool { return true }

// settle ends the residency of a plan. It returns cached rows that are needed ahead to the queue, the rows that are
// needed last to its front, since the next plan sees farther. (Rows without a use ahead entered the queue at their last
// access.) Then it calls keep as eachAhead does.
func (u nextUses) settle(keep func(row, access, mark uint32) bool) {
	for b := u.buckets.used.max(); b != none; b = u.buckets.used.max() {
		for u.buckets.filled[b] > 0 {
			u.cached.queue.push(u.buckets.pop(b).slot)
		}
		u.buckets.used.clear(b)
	}
	u.cached.eachAhead(0, u.cached.numRows, everywhere, keep)
}
