package sample

import (
	"math"

	"freshgo/core/internal/asm"
)

// weighted draws edges in proportion to their weights. Without replacement it draws successively among the remaining
// edges, so that the first edge of a target is i with probability w_i/W, the second j with w_j/(W-w_i), and so on. An
// edge of weight 0 is never drawn; a fanout of at least the number of edges of positive weight takes all of them, in
// order.
//
// Lists of at most shortList edges, nearly all lists, and longer ones are drawn from in different ways:
//
//	short  draws a point below the sum of the remaining weights; the offset is the number of running sums up to the
//	       point. Weights are whole numbers here, so the remaining sum is exact (see drawShort)
//	long   draws a point below the total, searches it among the sums of blocks of the list (Weights.Sums) and then in a
//	       block, and redraws points that hit a drawn edge. It reads log(degree) sums and one block per edge, so a hub of
//	       10^6 edges costs as much as a list of a hundred
//	race   gives each remaining edge the arrival time of an exponential race, and takes the first ones (A-ES of
//	       Efraimidis and Spirakis): one logarithm per edge. It serves long lists that are at most raceDegree times as
//	       long as the fanout, where most points would hit drawn edges, and the rest of a list in which more than tries
//	       points did, as if one weight is nearly the whole sum
//
// Each continues the process at the point where another stopped, so the probabilities stay exact.
//
// Rejected: an alias table, which takes 12 bytes per edge instead of half a byte and is wrong after the first draw; the
// race for all lists, which reads a hub's 10^6 weights for ten of them; redrawing in short lists from new sums after
// each hit, which mispredicts a branch once or more per target.
type weighted struct {
	weights *Weights
	replace bool
}

const (
	// shortList is the longest list whose running sums are counted instead of searched; its edges have bits in a mask.
	shortList = 64
	// raceDegree is the ratio at which half of the points hit a drawn edge, with equal weights. Arbitrary.
	raceDegree = 2
	// triesEach and triesMore bound the wasted points of a long list: in lists that are raceDegree times as long as the
	// fanout, equal weights waste less than one per edge. Arbitrary beyond that.
	triesEach, triesMore = 2, 16
)

var byWeight = Kind{
	Name:       "weight_attr",
	Can:        uniform.Can | CanWeights,
	WholeLists: true,
	For:        CanWeights,
	along: func(c *Config, relation int, r *Relation) (method, error) {
		weights, err := c.weightsOf(relation, r)
		if err != nil || weights == nil {
			return nil, err
		}
		return &weighted{weights: weights, replace: c.Replace}, nil
	},
}

func (m *weighted) most(_ int, deg, k int64) int64 { return edges(deg, k, m.replace) }

func (m *weighted) scratch(_ int, widest, k int64) (set, entries int64) {
	if k == All || m.replace {
		return 0, 0
	}
	n := min(k, widest)
	return n, n
}

func (m *weighted) gives() gives               { return gives{pos: true} }
func (m *weighted) once() bool                 { return m.weights.Source == nil }
func (m *weighted) exact() (*Weights, bool)    { return m.weights, m.weights.Positive }
func (m *weighted) wants() (ids, weights bool) { return false, true }

func (m *weighted) bytes(r *relation, d size) int64 {
	n := fetchedBytes(r, d, m.weights, false, true)
	if _, blocks := m.weights.Source.(BlockSource); blocks {
		n += locatedBytes()
	}
	return n
}

func (m *weighted) expand(h *hop) error {
	if source, ok := m.weights.Source.(BlockSource); ok && h.k > 0 {
		b := blockDraws{hop: h, method: m, lists: h.wholeLists(m), source: source}
		return b.expand()
	}
	return h.wholeLists(m).expand()
}

func (m *weighted) choose(t *thread, h *hop, lo, hi int, at []span, from *lists) {
	if from.narrow != nil {
		chooseWeighted(m, t, h, lo, hi, at, from.narrow, from.sums)
	} else {
		chooseWeighted(m, t, h, lo, hi, at, from.wide, from.sums)
	}
}

func chooseWeighted[W float32 | float64](
	m *weighted, t *thread, h *hop, lo, hi int, at []span, weights []W, sums []float64,
) {
	ptr := h.ptr.data[h.first:]
	skipped := h.skipped.from(lo)
	for i := lo; i < hi; i++ {
		in, out := at[i-lo], h.pos[ptr[i]-h.from:ptr[i+1]-h.from]
		list := weights[in.start : in.start+in.deg]
		start, n := h.spans.data[i].start, 0
		switch {
		case h.skipped.has(skipped, i):
			left, blocks := mask(&t.masked, list, h.skipped.of(skipped), start)
			n = drawWeighted(m, t, h, i, left, blocks, out)
			skipped++
		case !m.replace && len(out) > 0 && len(out) < len(list) &&
			asm.Sequence(list, uint64(h.stream(h.first+i)), start, out):
			h.counts[i] = int64(len(out))
			continue
		case len(list) > shortList:
			n = drawWeighted(m, t, h, i, list, sums[in.start/sumBlock:][:in.deg/sumBlock], out)
		default:
			n = drawWeighted(m, t, h, i, list, nil, out)
		}
		for j := range out[:n] {
			out[j] += start
		}
		h.counts[i] = int64(n)
	}
}

// drawWeighted writes the offsets that target i of the hop draws from a list to out and returns their number.
func drawWeighted[W float32 | float64](
	m *weighted, t *thread, h *hop, i int, list []W, sums []float64, out []int64,
) int {
	if len(list) == 0 {
		return 0
	}
	if h.k == All || !m.replace && len(list) <= len(out) {
		return positive(list, out)
	}
	s := h.stream(h.first + i)
	if len(list) <= shortList {
		return drawShort(&t.short, s, list, m.replace, out)
	}
	return drawLong(t, s, list, sums, m.replace, out)
}

// positive writes the offsets of the weights above 0 to out, which has the length of the list, and returns their
// number.
func positive[W float32 | float64](list []W, out []int64) int {
	out = out[:len(list)]
	n := 0
	for i, w := range list {
		out[n] = int64(i)
		if w > 0 {
			n++
		}
	}
	return n
}

// drawLong draws from a longer list; sums has the sums of its blocks.
func drawLong[W float32 | float64](t *thread, s stream, list []W, sums []float64, replace bool, out []int64) int {
	k := len(out)
	if !replace && len(list) <= raceDegree*k {
		return raceOn(t, s, list, 0, out)
	}
	total := sums[len(sums)-1]
	for _, w := range list[len(sums)*sumBlock:] {
		total += float64(w)
	}
	if total == 0 {
		return 0
	}
	if !replace {
		t.set.reset(k)
	}
	wasted, most := 0, triesEach*k+triesMore
	var x uint64
	for n := 0; n < k; {
		x, s = s.next()
		i := find(list, sums, float64(x>>11)*0x1p-53*total)
		if replace || t.set.add(uint64(i)) {
			out[n] = int64(i)
			n++
		} else if wasted++; wasted > most {
			return raceOn(t, s, list, n, out)
		}
	}
	return k
}

// find returns the offset of the first weight whose running sum exceeds u, never a weight of 0. If rounding has moved u
// to the total, it returns the last weight above 0. The list has such a weight.
func find[W float32 | float64](list []W, sums []float64, u float64) int {
	lo := 0
	for n := len(sums); n > 0; {
		half := (n + 1) / 2
		lo += half & -atMost(sums[lo+half-1], u)
		n -= half
	}
	sum := 0.
	if lo > 0 {
		sum = sums[lo-1]
	}
	at, below := lo*sumBlock, 0
	block := list[at:min(at+sumBlock, len(list))]
	for _, w := range block {
		sum += float64(w)
		below += atMost(sum, u)
	}
	if below < len(block) {
		return at + below
	}
	i := len(list) - 1
	for !(list[i] > 0) {
		i--
	}
	return i
}

// atMost returns 1 if x <= u, else 0, without a branch: which it is depends on a point, so half would be mispredicted.
func atMost(x, u float64) int { return int(^math.Float64bits(u-x) >> 63) }

// raceOn fills out, whose first n offsets are drawn and in t.set, with other offsets of positive weight as long as
// there are any, and returns the number of offsets.
func raceOn[W float32 | float64](t *thread, s stream, list []W, n int, out []int64) int {
	r := &t.race
	r.start(len(out) - n)
	var x uint64
	for i, w := range list {
		if !(w > 0) || n > 0 && t.set.has(uint64(i)) {
			continue
		}
		x, s = s.next()
		r.add(runner{arrival(exponential(x), float64(w)), int64(i)})
	}
	have := n + len(r.heap)
	for i := have - 1; i >= n; i-- {
		out[i] = r.last().offset // in order of arrival
	}
	return have
}
