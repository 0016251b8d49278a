package plan

import (
	"iter"
	"math/bits"

	"freshgo/core/cache"
	"freshgo/core/mem"
)

// Records of batches have a bit for each row in place of fields that many rows share. They are in the order of the
// batch.

// set32 is a set of small numbers, in words for which records are aligned.
type set32 []uint32

func bitWords(n int) int { return (n + 31) / 32 }

func (s set32) has(i int) bool { return s[i/32]>>(i%32)&1 != 0 }

func (s set32) add(i int) { s[i/32] |= 1 << (i % 32) }

// put adds a number beyond the words as well.
func (s *set32) put(i int) {
	for len(*s) <= i/32 {
		*s = append(*s, 0)
	}
	s.add(i)
}

// all yields the members, rising.
func (s set32) all() iter.Seq[int] {
	return func(yield func(i int) bool) {
		for w, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(w*32 + bits.TrailingZeros32(word)) {
					return
				}
			}
		}
	}
}

// cut returns the sets of numbers below n at the start of a record, and the rest of it.
func cut(record []uint32, n int, sets ...*set32) (rest []uint32) {
	for _, set := range sets {
		*set, record = record[:bitWords(n)], record[bitWords(n):]
	}
	return record
}

// packStep returns a step as two pieces of a record: which rows are cached and which enter the cache, and the slots of
// the former and of the latter. It uses the memory of words and values.
func packStep(slots []int32, moves []cache.Move, words, values []uint32) ([]uint32, []uint32) {
	var cached, enters set32
	words = words[:2*bitWords(len(slots))]
	clear(words)
	cut(words, len(slots), &cached, &enters)
	values = values[:0]
	for i, slot := range slots {
		if slot >= 0 {
			cached.add(i)
			values = append(values, uint32(slot))
		}
	}
	for _, m := range moves {
		enters.add(int(m.Pos))
		values = append(values, uint32(m.Slot))
	}
	return words, values
}

// unpackStep adds the slots and the moves of a batch of n rows, which packStep has packed, to a step.
func unpackStep(record []uint32, n int, own *cache.Step) {
	var cached, enters set32
	values := cut(record, n, &cached, &enters)
	for range n {
		own.Slots = append(own.Slots, cache.Miss)
	}
	for i := range cached.all() {
		own.Slots[i], values = int32(values[0]), values[1:]
	}
	for i := range enters.all() {
		own.In = append(own.In, cache.Move{Pos: int32(i), Slot: int32(values[0])})
		values = values[1:]
	}
}

// packCold returns the cold rows of a batch of n rows, whose accesses begin at base, as two pieces of a record: sets of
// the cold rows and of the rows with each flag, and the rows. It uses the memory of words, and of all for the rows.
func packCold(all []coldRow, base uint32, n int, words []uint32) ([]uint32, []uint32) {
	var cold, leaving, filling set32
	words = words[:3*bitWords(n)]
	clear(words)
	cut(words, n, &cold, &leaving, &filling)
	rows := mem.View[uint32](mem.Bytes(all))
	for i, r := range all {
		pos := int(r.at&accessMask - base)
		cold.add(pos)
		leaving[pos/32] |= r.at & flagLeaving >> flagShift << (pos % 32)
		filling[pos/32] |= r.at & flagFilling >> (flagShift + 1) << (pos % 32)
		rows[i] = r.row // read before: it lies before the rows that are not
	}
	return words, rows[:len(all)]
}

// unpackCold returns the cold rows that packCold has packed, in the memory of all, and the rest of the record.
func unpackCold(record []uint32, base uint32, n int, all []coldRow) ([]coldRow, []uint32) {
	if len(record) == 0 {
		return nil, nil
	}
	var cold, leaving, filling set32
	record = cut(record, n, &cold, &leaving, &filling)
	all = all[:0]
	for pos := range cold.all() {
		at := base + uint32(pos)
		at |= leaving[pos/32]>>(pos%32)&1<<flagShift | filling[pos/32]>>(pos%32)&1<<(flagShift+1)
		all = append(all, coldRow{record[0], at})
		record = record[1:]
	}
	return all, record
}
