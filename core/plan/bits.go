package plan

import (
	"math/bits"
	"unsafe"
)

// size is the number of bytes of a T.
func size[T any]() int64 {
	var zero T
	return int64(unsafe.Sizeof(zero))
}

// bitset is a set of small numbers.
type bitset []uint64

func bitsetWords(n int) int { return (n + 63) / 64 }

func (s bitset) set(i uint32)      { s[i>>6] |= 1 << (i & 63) }
func (s bitset) clear(i uint32)    { s[i>>6] &^= 1 << (i & 63) }
func (s bitset) has(i uint32) bool { return s[i>>6]>>(i&63)&1 != 0 }

// bit is 1 for a member, else 0.
func (s bitset) bit(i uint32) uint32 { return uint32(s[i>>6] >> (i & 63) & 1) }

// maxset is a set of small numbers that knows its largest one: bits over the words that are not zero, level upon level.
// Each call costs as many steps as the range has digits in base 64.
type maxset struct{ levels []bitset }

func newMaxset(n int) maxset {
	var s maxset
	for words := bitsetWords(max(n, 1)); ; words = bitsetWords(words) {
		s.levels = append(s.levels, make(bitset, words))
		if words == 1 {
			return s
		}
	}
}

func (s *maxset) set(i uint32) {
	for _, level := range s.levels {
		level.set(i)
		i >>= 6
	}
}

func (s *maxset) clear(i uint32) {
	for _, level := range s.levels {
		level.clear(i)
		i >>= 6
		if level[i] != 0 {
			return
		}
	}
}

// max returns the largest member, or none.
func (s *maxset) max() uint32 {
	at := uint32(0)
	for l := len(s.levels) - 1; l >= 0; l-- {
		word := s.levels[l][at]
		if word == 0 {
			return none
		}
		at = at<<6 + uint32(bits.Len64(word)) - 1
	}
	return at
}
