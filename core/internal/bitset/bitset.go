// Package bitset is sets of small numbers: a bit for each, in words that may be anybody's memory. A set is not safe for
// concurrent use. Each call but Next and Within costs one word; none allocates but New.
package bitset

import (
	"iter"
	"math/bits"
)

// Set is a set of the numbers below 64 for each of its words. A number beyond is a panic.
type Set []uint64

// Words returns the number of words of a set of the numbers below n.
func Words(n int64) int64 { return (n + 63) / 64 }

// Bytes returns the memory of a set of the numbers below n.
func Bytes(n int64) int64 { return 8 * Words(n) }

// New returns an empty set of the numbers below n.
func New(n int64) Set { return make(Set, Words(n)) }

// Has reports whether i is a member.
func (s Set) Has(i int64) bool { return s[i>>6]>>(i&63)&1 != 0 }

// Bit returns 1 where i is a member, else 0.
func (s Set) Bit(i int64) uint64 { return s[i>>6] >> (i & 63) & 1 }

// Add makes i a member.
func (s Set) Add(i int64) { s[i>>6] |= 1 << (i & 63) }

// Put makes i a member and says whether it was none.
func (s Set) Put(i int64) bool {
	word, bit := &s[i>>6], uint64(1)<<(i&63)
	added := *word&bit == 0
	*word |= bit
	return added
}

// Remove makes i no member.
func (s Set) Remove(i int64) { s[i>>6] &^= 1 << (i & 63) }

// Next returns the lowest member from i on, or -1.
func (s Set) Next(i int64) int64 {
	for w := i >> 6; w < int64(len(s)); w++ {
		if word := s[w] >> (i & 63); word != 0 {
			return i + int64(bits.TrailingZeros64(word))
		}
		i = (w + 1) << 6
	}
	return -1
}

// Within yields the members from lo to before hi, rising. It reads the words of that range only.
func (s Set) Within(lo, hi int64) iter.Seq[int64] {
	return func(yield func(i int64) bool) {
		for i := lo; i < hi; {
			word := s[i>>6] >> (i & 63)
			if word == 0 {
				i = (i | 63) + 1
				continue
			}
			if i += int64(bits.TrailingZeros64(word)); i >= hi || !yield(i) {
				return
			}
			i++
		}
	}
}
