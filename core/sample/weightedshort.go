package sample

import "math"

// short is the scratch for lists of at most shortList edges.
type short struct {
	keys    [shortList + 4]uint64
	few     [shortList]uint64
	left    [shortList]float64
	offsets [shortList]int64
}

// drawShort draws from a list of at most shortList weights, more than there is room for in out. Sums are kept as the bits of
// numbers that are not negative, which compare as these do: counting those up to a point then needs no branch, which would be
// mispredicted once for each edge.
func drawShort[W float32 | float64](room *short, s stream, list []W, replace bool, out []int64) int {
	left := room.left[:len(list)]
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
	total := room.sum(left)
	fours := (len(list) + 3) / 4
	drawn := uint64(0)
	var x uint64
	for n := 0; n < len(out); {
		x, s = s.next()
		above := math.Float64bits(float64(x>>11)*0x1p-53*total) + 1
		below := uint64(0) // sums that are
		for j := range fours {
			q := (*[4]uint64)(room.keys[4*j:])
			below += (q[0]-above)>>63 + (q[1]-above)>>63 + (q[2]-above)>>63 + (q[3]-above)>>63
		}
		i := int(below)
		if i >= len(list) { // rounding has taken the point to the sum of all
			for i = len(list) - 1; !(left[i] > 0); i-- {
			}
		}
		if !replace {
			if drawn>>(i&63)&1 != 0 {
				total = room.sum(left)
				continue
			}
			drawn |= 1 << (i & 63)
			left[i] = 0
		}
		out[n] = int64(i)
		n++
	}
	return len(out)
}

// sum makes the sums of what is left and returns the last. A sum of four is complete with infinities.
func (r *short) sum(left []float64) float64 {
	total := 0.
	for i, w := range left {
		total += w
		r.keys[i&(shortList-1)] = math.Float64bits(total)
	}
	for i := len(left); i%4 != 0; i++ {
		r.keys[i] = math.Float64bits(math.Inf(1))
	}
	return total
}
