package sample

import "math/bits"

// golden is 2^64 divided by the golden ratio, the increment of splitmix64.
const golden = 0x9e3779b97f4a7c15

// Streams of different purpose never share a key.
const (
	domainSample   = 1
	domainShuffle  = 2
	domainLabor    = 3
	domainNegative = 6
	domainInputs   = 7
	domainRelation = 16
)

// mix is the finalizer of splitmix64: a bijection in which every input bit changes every output bit with probability
// 1/2.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// absorb extends a key by one word; for a fixed key it is a bijection of the word.
func absorb(key, word uint64) uint64 { return mix((key ^ word) + golden) }

// stream is the state of a splitmix64 generator: number i, from 0, is mix(state + (i+1)*golden).
//
// The stream of a target is keyed by domain, seed, epoch, batch, hop and node, in this order:
//
//	state = absorb(...absorb(absorb(0, domain), seed)..., node)
//
// so that it depends on neither threads nor the order of work. Number i of it decides draw i of the target (see draw),
// a number that below rejects being skipped. All of this is part of the package's contract: the golden tests hold it.
type stream uint64

// hopKey is the state of the streams of a hop before the node is absorbed.
func hopKey(k Key, hop int) uint64 {
	h := absorb(absorb(0, domainSample), k.Seed)
	return absorb(absorb(absorb(h, k.Epoch), k.Batch), uint64(hop))
}

func (s stream) next() (uint64, stream) {
	s += golden
	return mix(uint64(s)), s
}

// below returns a uniform number in [0, n), n > 0, by Lemire's method: the high word of x*n, where x is rejected if the
// low word is below 2^64 mod n, as it is for fewer than n in 2^64.
func (s stream) below(n uint64) (uint64, stream) {
	x, s := s.next()
	hi, lo := bits.Mul64(x, n)
	if lo < n {
		return s.redraw(hi, lo, n)
	}
	return hi, s
}

// redraw completes below where the low word may have to be rejected. It is apart so that below is inlined.
//
//go:noinline
func (s stream) redraw(hi, lo, n uint64) (uint64, stream) {
	for reject := -n % n; lo < reject; {
		var x uint64
		x, s = s.next()
		hi, lo = bits.Mul64(x, n)
	}
	return hi, s
}
