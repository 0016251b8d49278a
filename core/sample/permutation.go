package sample

import "math/bits"

// Permutation is a permutation of the first n numbers that takes no memory, as a function of seed, epoch and n: a
// network of Feistel over the least even number of bits that n-1 needs, walked until the number is below n (Black and
// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). A number takes 40 ns on average, and at most four times as
// many rounds as the network has.
type Permutation struct {
	n    uint64
	half uint // bits of each half
	keys [feistelRounds]uint64
}

// feistelRounds is twice the number behind which such a network cannot be told from a random permutation by a feasible
// number of its pairs (Luby and Rackoff).
const feistelRounds = 8

// NewPermutation returns the permutation of the first n numbers of an epoch.
func NewPermutation(n int64, seed, epoch uint64) *Permutation {
	p := &Permutation{n: uint64(n)}
	p.half = uint(bits.Len64(uint64(max(n-1, 1)))+1) / 2
	key := absorb(absorb(absorb(absorb(0, domainShuffle), seed), epoch), p.n)
	for i := range p.keys {
		p.keys[i] = absorb(key, uint64(i))
	}
	return p
}

// At returns the number at a place.
func (p *Permutation) At(place int64) int64 {
	mask := uint64(1)<<p.half - 1
	for v := uint64(place); ; {
		left, right := v>>p.half, v&mask
		for _, key := range p.keys {
			left, right = right, left^(absorb(key, right)&mask)
		}
		if v = left<<p.half | right; v < p.n {
			return int64(v)
		}
	}
}
