package cache

import (
	"iter"
	"math"
)

// Hotness is a score for each row: the higher, the earlier it is cached (the
// general caching scheme of FGNN, section 6.1). Scores are finite and not
// negative.
type Hotness []float32

// Top yields the k hottest rows, rising. Rows of equal hotness are taken from
// the lowest on, so the answer is a function of its arguments alone. It costs
// two histogram passes, no sort and no memory that grows.
func (h Hotness) Top(k int64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		top := h.ranking(k)
		for row, score := range h {
			if top.takes(score) && !yield(uint32(row)) {
				return
			}
		}
	}
}

// BreakTies orders rows of equal score by other scores: it adds less than gap, the
// smallest difference of two scores (1/K for PreSC#K, see Counter), which has many
// ties. Broken by Expected, PreSC#1 hits up to 6 % more of the accesses where an
// epoch needs most rows once or never, and nowhere less (bench/policies).
func (h Hotness) BreakTies(by Hotness, gap float32) {
	var largest float32
	for _, score := range by {
		largest = max(largest, score)
	}
	if largest == 0 {
		return
	}
	for row := range h {
		h[row] += by[row] / largest * (gap / 2)
	}
}

// Renumber moves the score of every node to its row, in place; rowOf is a
// permutation.
func (h Hotness) Renumber(rowOf []uint32) {
	// The sign of a score says that it has arrived: scores have none.
	const arrived = 1 << 31
	for node := range h {
		score := rank(h[node])
		if math.Float32bits(h[node])&arrived != 0 {
			h[node] = math.Float32frombits(score)
			continue
		}
		for row := rowOf[node]; ; row = rowOf[row] {
			next := rank(h[row])
			h[row] = math.Float32frombits(score | arrived)
			if score = next; int(row) == node {
				break
			}
		}
		h[node] = math.Float32frombits(rank(h[node]))
	}
}

// ranking takes scores in the order of their rows and reports which are in the top: scores above the threshold and the
// first ones equal to it.
type ranking struct {
	threshold uint32
	ties      int64
}

func (r *ranking) takes(score float32) bool {
	bits := rank(score)
	if bits == r.threshold && r.ties > 0 {
		r.ties--
		return true
	}
	return bits > r.threshold
}

// rank orders scores as the floats are: the bit patterns of floats that are not
// negative do, once -0 has lost its sign.
func rank(score float32) uint32 { return math.Float32bits(score) &^ (1 << 31) }

// ranking finds the k-th largest score and the number of rows of exactly that score in the top k.
func (h Hotness) ranking(k int64) ranking {
	if k = min(k, int64(len(h))); k <= 0 {
		return ranking{threshold: math.MaxUint32}
	}
	var histogram [1 << 16]int64
	for _, score := range h {
		histogram[rank(score)>>16]++
	}
	high, k := selectFromTop(&histogram, k)
	clear(histogram[:])
	for _, score := range h {
		if b := rank(score); b>>16 == high {
			histogram[b&0xffff]++
		}
	}
	low, k := selectFromTop(&histogram, k)
	return ranking{threshold: high<<16 | low, ties: k}
}

// selectFromTop returns the bucket that holds the k-th item counted from the
// highest bucket down, and k's rank within that bucket.
func selectFromTop(histogram *[1 << 16]int64, k int64) (bucket uint32, rank int64) {
	for b := len(histogram) - 1; b > 0; b-- {
		if k <= histogram[b] {
			return uint32(b), k
		}
		k -= histogram[b]
	}
	return 0, k
}
