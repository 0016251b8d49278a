// Package cache keeps hot rows in memory. It holds the hotness metrics and the
// ranking of the general caching scheme of FGNN (section 5: a hotness per node
// and a capacity fill the cache), and apart from them the mechanism that stores
// rows and finds them again.
//
// The loader calls it: once to rank and fill, then once per batch to resolve.
// Ranking costs O(nodes) time and four bytes per node; resolving costs one load
// per row.
package cache

import (
	"math"
)

// Hotness is a score per node: the higher, the earlier its row is cached.
// Scores are finite and not negative.
type Hotness []float32

// CountsAsHotness turns visit or degree counts into scores in place: both are
// four bytes wide, so the result shares its memory with counts.
func CountsAsHotness(counts []uint32) Hotness {
	scores := asFloats(counts)
	for i, c := range counts {
		scores[i] = float32(c)
	}
	return scores
}

// Top returns the k hottest nodes in ascending order of their ids. Nodes of
// equal hotness are taken from the lowest id on, so the answer is a function of
// its arguments alone. It costs two histogram passes and no sort.
func (h Hotness) Top(k int64) []int64 {
	k = min(k, int64(len(h)))
	if k <= 0 {
		return nil
	}
	threshold, ties := h.threshold(k)
	ids := make([]int64, 0, k)
	for id, score := range h {
		switch bits := math.Float32bits(score); {
		case bits > threshold:
			ids = append(ids, int64(id))
		case bits == threshold && ties > 0:
			ties--
			ids = append(ids, int64(id))
		}
	}
	return ids
}

// threshold returns the bit pattern of the k-th largest score and how many
// nodes of exactly that score belong to the top k. Bit patterns of floats that
// are not negative order as the floats do.
func (h Hotness) threshold(k int64) (bits uint32, ties int64) {
	var histogram [1 << 16]int64
	for _, score := range h {
		histogram[math.Float32bits(score)>>16]++
	}
	high, k := selectFromTop(&histogram, k)
	clear(histogram[:])
	for _, score := range h {
		if b := math.Float32bits(score); b>>16 == high {
			histogram[b&0xffff]++
		}
	}
	low, k := selectFromTop(&histogram, k)
	return high<<16 | low, k
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
