package sample

import (
	"math"
	"math/bits"
)

// short holds the scratch memory for lists of at most shortList edges.
type short struct {
	few     [shortList]uint64
	left    [shortList]float64
	units   [shortList]uint64
	offsets [shortList]int64
}

const (
	// unitsOfMost is the exponent of the largest weight of a list in units: the sum of 64 weights stays below 2^63.
	unitsOfMost = 56
	// unitsEnough is the number of remaining units below which units are measured anew. Each of 64 weights is short of
	// less than a unit, so shares of the remaining sum are exact to 2^-46.
	unitsEnough = 1 << 52
)

// drawShort draws from a list of at most shortList weights, more than the room in out.
//
// Weights become whole numbers of units (see measure), so that the remaining sum is exact after any number of draws.
// Draw n takes number n of the stream as a point below the remaining units and counts the running sums up to it; a
// drawn edge has no units and cannot be hit. No branch depends on a point, which would be mispredicted once per edge.
func drawShort[W float32 | float64](room *short, s stream, list []W, replace bool, out []int64) int {
	left, units := room.left[:len(list)], room.units[:len(list)]
	have := 0
	for i, w := range list {
		left[i] = float64(w)
		if w > 0 {
			have++
		}
	}
	switch {
	case have == 0:
		return 0
	case !replace && have <= len(out):
		positive(list, room.offsets[:])
		return copy(out, room.offsets[:have])
	}
	total := measure(left, units)
	var x uint64
	for n := range out {
		x, s = s.next()
		point, _ := bits.Mul64(x, total)
		i := under(units, point)
		out[n] = int64(i)
		if replace {
			continue
		}
		total -= units[i]
		left[i], units[i] = 0, 0
		if total < unitsEnough && n+1 < len(out) {
			total = measure(left, units)
		}
	}
	return len(out)
}

// under returns the number of running sums of units up to a point. It is a separate function so that its loop stays in
// registers.
//
//go:noinline
func under(units []uint64, point uint64) int {
	sum, below := ^point, uint64(0) // a sum minus the point minus one is negative
	for _, u := range units {
		sum += u
		below += sum >> 63
	}
	return int(below)
}

// measure converts weights, at least one of them above 0, to units and returns their sum. A unit is the power of two by
// which the largest weight is 2^56 to 2^57: weights of 24 bits are whole numbers of units down to 2^-33 of the largest.
func measure(left []float64, units []uint64) (total uint64) {
	most := uint64(0)
	for _, w := range left {
		most = max(most, math.Float64bits(w)&math.MaxInt64) // bits sort like weights; 0 may have a sign
	}
	exponent := most >> 52
	if exponent < unitsOfMost { // its unit would be below the smallest float64
		for i := range left {
			left[i] *= 0x1p200
		}
		return measure(left, units)
	}
	perWeight := math.Float64frombits((2*1023 + unitsOfMost - exponent) << 52)
	units = units[:len(left)]
	for i, w := range left {
		u := uint64(int64(w * perWeight))
		units[i] = u
		total += u
	}
	return total
}
