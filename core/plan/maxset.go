package plan

import (
	"math/bits"

	"freshgo/core/internal/bitset"
)

// maxset is a set of small numbers with fast access to the largest: bits over the nonzero words, level upon level. Each
// call takes as many steps as the range has digits in base 64.
type maxset struct{ levels []bitset.Set }

func newMaxset(n int) maxset {
	var s maxset
	for members := int64(max(n, 1)); ; members = bitset.Words(members) {
		s.levels = append(s.levels, bitset.New(members))
		if members <= 64 {
			return s
		}
	}
}

func (s *maxset) set(i uint32) {
	for _, level := range s.levels {
		level.Add(int64(i))
		i >>= 6
	}
}

func (s *maxset) clear(i uint32) {
	for _, level := range s.levels {
		level.Remove(int64(i))
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
