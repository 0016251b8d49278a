package sample

import (
	"math/bits"

	"freshgo/core/mem"
)

// scanLimit is the largest fanout whose drawn positions are found by a scan; larger fanouts use a positionSet. A scan
// follows only a hit in a 64-bit filter; with 32 draws that is every fourth draw, which costs as much as probing a set.
const scanLimit = 32

// span holds the in-edges of a target: positions start to start+deg.
type span struct{ start, deg int64 }

// edges returns the number of edges that a fanout of k draws from deg.
func edges(deg, k int64, replace bool) int64 {
	if k == All || !replace && deg < k {
		return deg
	}
	if deg == 0 {
		return 0
	}
	return k
}

// draw fills out, whose length is edges(in.deg, k, replace), with positions of in: independent draws with replacement;
// all positions in order if the fanout has room for them; else a subset by Floyd's method. Draw i of k takes a number t
// in [0, j], j = deg-k+i, and adds t to the subset, or j if t is in it already: all subsets are equally likely.
func draw(s stream, in span, all, replace bool, set *positionSet, out []int64) {
	k := int64(len(out))
	switch {
	case replace && !all:
		var t uint64
		for i := range out {
			t, s = s.below(uint64(in.deg))
			out[i] = in.start + int64(t)
		}
	case in.deg <= k:
		for i := range out {
			out[i] = in.start + int64(i)
		}
	case in.deg <= 64:
		drawMask(s, in, out)
	case k <= scanLimit:
		drawScan(s, in, out)
	default:
		drawSet(s, in, set, out)
	}
}

// drawMask is Floyd's method for at most 64 edges: the subset is a mask, and no branch depends on a draw.
func drawMask(s stream, in span, out []int64) {
	seen := uint64(0)
	j := uint64(in.deg) - uint64(len(out))
	for i := range out {
		s += golden
		t, lo := bits.Mul64(mix(uint64(s)), j+1)
		if lo <= j {
			t, s = s.redraw(t, lo, j+1)
		}
		if seen>>(t&63)&1 != 0 {
			t = j
		}
		seen |= 1 << (t & 63)
		out[i] = in.start + int64(t)
		j++
	}
}

// drawScan is Floyd's method for small fanouts.
func drawScan(s stream, in span, out []int64) {
	filter := uint64(0) // bit t mod 64 of every member t
	j := uint64(in.deg) - uint64(len(out))
	for i := range out {
		s += golden
		t, lo := bits.Mul64(mix(uint64(s)), j+1)
		if lo <= j {
			t, s = s.redraw(t, lo, j+1)
		}
		p := in.start + int64(t)
		if filter>>(t&63)&1 != 0 && contains(out[:i], p) {
			t = j
			p = in.start + int64(j)
		}
		filter |= 1 << (t & 63)
		out[i] = p
		j++
	}
}

func contains(drawn []int64, p int64) bool {
	for _, d := range drawn {
		if d == p {
			return true
		}
	}
	return false
}

// drawSet is Floyd's method for any fanout, in expected time proportional to it.
func drawSet(s stream, in span, set *positionSet, out []int64) {
	set.reset(len(out))
	j := uint64(in.deg) - uint64(len(out))
	var t uint64
	for i := range out {
		t, s = s.below(j + 1)
		if !set.add(t) {
			t = j
			set.add(t)
		}
		out[i] = in.start + int64(t)
		j++
	}
}

// positionSet is a set of offsets in a target's in-edges, by open addressing, at most half full. Each thread has its
// own.
type positionSet struct {
	small [2 * scanLimit]uint64 // for up to scanLimit members
	buf   buffer[uint64]        // for more
	slots []uint64              // offset + 1; 0: empty
	shift uint                  // a hash is the upper 64-shift bits of a product
}

func setSlots(n int) int { return 1 << bits.Len(uint(2*n-1)) }

// grow makes room for n members.
func (p *positionSet) grow(budget *mem.Budget, n int) error {
	if n <= scanLimit {
		return nil
	}
	return p.buf.grow(budget, mem.Trace, int64(setSlots(n)), 0)
}

// reset empties the set for up to n members, for which grow has made room.
func (p *positionSet) reset(n int) {
	if n <= scanLimit {
		p.slots = p.small[:setSlots(n)]
	} else {
		p.slots = p.buf.data[:setSlots(n)]
	}
	p.shift = uint(64 - bits.TrailingZeros(uint(len(p.slots))))
	clear(p.slots)
}

// has reports whether t is a member.
func (p *positionSet) has(t uint64) bool {
	mask := uint64(len(p.slots) - 1)
	for i := (t * golden) >> p.shift; p.slots[i] != 0; i = (i + 1) & mask {
		if p.slots[i] == t+1 {
			return true
		}
	}
	return false
}

// add adds t and reports whether it was no member before.
func (p *positionSet) add(t uint64) bool {
	mask := uint64(len(p.slots) - 1)
	for i := (t * golden) >> p.shift; ; i = (i + 1) & mask {
		switch p.slots[i] {
		case 0:
			p.slots[i] = t + 1
			return true
		case t + 1:
			return false
		}
	}
}

// golden is 2^64 divided by the golden ratio, the increment of splitmix64.
const golden = 0x9e3779b97f4a7c15

// Domains keep streams of different purposes apart.
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
// so it depends neither on threads nor on the order of the work. Its number i decides draw i of the target (see draw);
// numbers that below rejects are skipped. All of this is part of the package's contract, which golden tests hold.
type stream uint64

// hopKey returns the state of the streams of a hop before a node is absorbed.
func hopKey(k Key, hop int) uint64 { return absorb(k.Stream(), uint64(hop)) }

// Stream returns the state of the streams of a batch before a hop is absorbed.
func (k Key) Stream() uint64 {
	return absorb(absorb(absorb(absorb(0, domainSample), k.Seed), k.Epoch), k.Batch)
}

// HopKeys returns what a consumer that draws a batch absorbs nodes into, by relation and hop: the state of the streams
// of targets or, with Labor, the key of the variates of sources.
func (s *Sampler) HopKeys(k Key) []uint64 {
	var keys []uint64
	for i := range s.relations {
		of := s.keyOf(k, i)
		for hop := range s.hops {
			key := hopKey(of, hop)
			if m, ok := s.relations[i].method.(*labor); ok {
				v := m.variates(of, hop)
				key = v.key
			}
			keys = append(keys, key)
		}
	}
	return keys
}

// keyOf returns the key of a relation of a batch.
func (s *Sampler) keyOf(k Key, relation int) Key {
	if s.named {
		return relationKey(k, relation)
	}
	return k
}

func (s stream) next() (uint64, stream) {
	s += golden
	return mix(uint64(s)), s
}

// below returns a uniform number in [0, n), n > 0, by Lemire's method: the high word of x*n. It rejects x if the low
// word is below 2^64 mod n, which happens for fewer than n values in 2^64.
func (s stream) below(n uint64) (uint64, stream) {
	x, s := s.next()
	hi, lo := bits.Mul64(x, n)
	if lo < n {
		return s.redraw(hi, lo, n)
	}
	return hi, s
}

// redraw completes below if the low word may have to be rejected. It is a separate function so that below is inlined.
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
