package sample

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"freshgo/core/internal/asm"
)

// Labor draws layer by layer (Balin and Catalyurek, Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs,
// NeurIPS 2023): every source has one random variate for all targets of a hop, and a target takes the in-edges whose
// sources have the smallest variates, up to the fanout. So targets with common neighbours draw the same ones, and a
// batch has fewer nodes.
//
// For a single target the draw stays uniform: the variates of its sources are independent, so every subset of the
// fanout's size is equally likely (the sequential form of their appendix A.3, which keeps the number of edges, with the
// variates of LABOR-0). With weights, arrival times of an exponential race replace the variates, as in weighted draws.
//
// An edge of weight w has Weight w/(p W), where p is the probability that it is drawn and W the sum of the target's
// list: the Horvitz-Thompson estimate, so the weighted sum of the sources' values has the (weighted) mean over the
// whole list as its expectation. Without weights this is 1 / the number of drawn edges. With weights, p is conditioned
// on the first arrival that came too late, tau: 1-exp(-w tau) (Cohen and Kaplan, Summarizing data using bottom-k
// sketches, 2007).
//
// Copies of an edge in a list have the same variate, so they are drawn together, or only the first of them if the
// fanout ends among them. Only in such lists the probabilities above do not hold.
type Labor struct {
	// LayerDependency gives a source the same variate in all hops.
	LayerDependency bool `json:"layer_dependency"`
	// BatchDependency is the number of batches for which a source keeps its variate; with 1 each batch has new ones.
	// Sources change theirs at different batches, so that between consecutive batches a share of 1/BatchDependency
	// changes. Each batch by itself is distributed as without a dependency.
	BatchDependency int64 `json:"batch_dependency"`
}

var layers = Kind{
	Name: "LABOR",
	Can: CanWeights | CanTypes | CanLinks | CanBidirectional | CanInduced | CanTranspose | CanDisk | CanAggregate |
		CanExpected | CanEdgeIDs | CanEdgeWeight,
	WholeLists: true,
	Key:        "labor",
	Options:    func() Named { return &Labor{BatchDependency: 1} },
	along: func(c *Config, relation int, r *Relation) (method, error) {
		weights, err := c.weightsOf(relation, r)
		return &labor{Labor: *c.Sampler.(*Labor), weights: weights}, err
	},
}

// Kind implements Named.
func (l *Labor) Kind() *Kind { return &layers }

func (l *Labor) check() error {
	if l.BatchDependency < 1 || l.BatchDependency > math.MaxInt32 {
		return fmt.Errorf("sample: batch dependency %d, expected 1 to %d: %w", l.BatchDependency, math.MaxInt32, ErrConfig)
	}
	return nil
}

// labor draws by Labor, with weights or nil.
type labor struct {
	Labor
	weights *Weights
}

func (m *labor) most(_ int, deg, k int64) int64 { return edges(deg, k, false) }

func (m *labor) scratch(_ int, widest, k int64) (set, entries int64) {
	if k == All || k >= widest {
		return 0, 0
	}
	return 0, k + 1 // with tau
}

func (m *labor) gives() gives               { return gives{pos: true, ids: true, weight: true} }
func (m *labor) once() bool                 { return false }
func (m *labor) exact() (*Weights, bool)    { return m.weights, m.weights == nil || m.weights.Positive }
func (m *labor) wants() (ids, weights bool) { return true, m.weights != nil }

func (m *labor) bytes(r *relation, d size) int64 {
	return fetchedBytes(r, d, m.weights, true, m.weights != nil)
}

func (m *labor) expand(h *hop) error {
	return h.wholeLists(m).expand()
}

// variates computes the variates of sources in a hop.
//
// The variate of u is absorb(absorb(key, batch), u), where key is absorb(absorb(absorb(0, domainLabor), seed), epoch),
// with the hop absorbed too, or 0 for hops that share their variates. With a dependency of d batches it is
// absorb(absorb(key, u), (batch+phase)/d), phase = absorb(key, u) mod d.
type variates struct {
	key   uint64
	batch uint64
	keep  uint64
}

func (m *labor) variates(k Key, hop int) variates {
	key := absorb(absorb(absorb(0, domainLabor), k.Seed), k.Epoch)
	if m.LayerDependency {
		key = absorb(key, 0)
	} else {
		key = absorb(key, uint64(hop))
	}
	if m.BatchDependency == 1 {
		key = absorb(key, k.Batch)
	}
	return variates{key: key, batch: k.Batch, keep: uint64(m.BatchDependency)}
}

func (v *variates) of(u uint64) uint64 {
	x := absorb(v.key, u)
	if v.keep > 1 {
		x = absorb(x, (v.batch+x%v.keep)/v.keep)
	}
	return x
}

func (m *labor) choose(t *thread, h *hop, lo, hi int, at []span, from *lists) {
	if from.ids32 != nil {
		chooseLabor(m, t, h, lo, hi, at, from, from.ids32)
	} else {
		chooseLabor(m, t, h, lo, hi, at, from, from.ids64)
	}
}

func chooseLabor[I int32 | int64](m *labor, t *thread, h *hop, lo, hi int, at []span, from *lists, sources []I) {
	v := m.variates(h.batch.key, h.number)
	ptr := h.ptr.data[h.first:]
	for i := lo; i < hi; i++ {
		in, a, b := at[i-lo], ptr[i]-h.from, ptr[i+1]-h.from
		if h.counts[i] = b - a; a == b {
			continue
		}
		ids, start := sources[in.start:in.start+in.deg], h.spans.data[i].start
		if m.weights == nil && v.keep <= 1 && b-a < in.deg {
			if left, ok := asm.Smallest(ids, v.key, int(b-a)); ok {
				take(left, ids, start, h.pos[a:b], h.sources[a:b])
				fill(h.weight[a:b], 1/float32(b-a))
				continue
			}
		}
		c := &chosen{start, h.pos[a:b], h.sources[a:b], h.weight[a:b]}
		switch {
		case m.weights == nil:
			laborUniform(t, &v, ids, c)
		case from.narrow != nil:
			h.counts[i] = laborWeighted(t, &v, ids, from.narrow[in.start:in.start+in.deg], c)
		default:
			h.counts[i] = laborWeighted(t, &v, ids, from.wide[in.start:in.start+in.deg], c)
		}
	}
}

// take writes the positions and the sources of the chosen edges, in the order of the list.
func take[I int32 | int64](chosen uint64, ids []I, start int64, pos, sources []int64) {
	sources = sources[:len(pos)]
	for j := range pos {
		i := bits.TrailingZeros64(chosen)
		chosen &= chosen - 1
		pos[j], sources[j] = start+int64(i), int64(ids[i])
	}
}

func fill(list []float32, x float32) {
	for i := range list {
		list[i] = x
	}
}

// chosen receives the edges of a target whose list begins at start. Each slice has the length of the room for edges.
type chosen struct {
	start   int64
	pos     []int64
	sources []int64
	weight  []float32
}

// laborUniform fills c with the edges of the smallest variates, in the order of the list.
func laborUniform[I int32 | int64](t *thread, v *variates, ids []I, c *chosen) {
	k := len(c.pos)
	weight := 1 / float32(k)
	switch {
	case len(ids) == k:
		for i, u := range ids {
			c.pos[i], c.sources[i], c.weight[i] = c.start+int64(i), int64(u), weight
		}
		return
	case len(ids) > shortList:
		laborLong(t, v, ids, c)
		return
	}
	keys := t.found.Keys[:len(ids)]
	if v.keep > 1 {
		for i, u := range ids {
			keys[i] = v.of(uint64(u))
		}
	} else {
		for i, u := range ids {
			keys[i] = absorb(v.key, uint64(u))
		}
	}
	limit, equal := smallest(keys, &t.short.few, k, math.MaxUint64)
	if equal {
		laborRace(t, v, ids, c)
		return
	}
	// No branch depends on a key: an entry that is not taken is overwritten by the next.
	pos, sources, weights := c.pos, c.sources[:k], c.weight[:k]
	for i, n := 0, 0; n < len(pos); i++ {
		pos[n], sources[n], weights[n] = c.start+int64(i), int64(ids[i]), weight
		if keys[i] <= limit {
			n++
		}
	}
}

// laborLong is laborUniform for longer lists. It keeps the variates below a bound that slightly more than k should be
// below, and takes the smallest of them.
func laborLong[I int32 | int64](t *thread, v *variates, ids []I, c *chosen) {
	k := len(c.pos)
	want := float64(k) + 3*math.Sqrt(float64(k)) + 4
	if want > shortList || 2*want > float64(len(ids)) {
		laborRace(t, v, ids, c)
		return
	}
	bound := uint64(want / float64(len(ids)) * 0x1p64)
	keys, offsets, n, seen := &t.found.Keys, &t.found.Offsets, 0, 0
	if v.keep <= 1 {
		n, seen = asm.Below(ids, v.key, bound, &t.found)
	}
	for i, u := range ids[seen:] {
		if x := v.of(uint64(u)); x < bound {
			if n == shortList {
				laborRace(t, v, ids, c)
				return
			}
			keys[n], offsets[n] = x, int64(seen+i)
			n++
		}
	}
	if n < k {
		laborRace(t, v, ids, c)
		return
	}
	limit, equal := smallest(keys[:n], &t.short.few, k, bound)
	if equal {
		laborRace(t, v, ids, c)
		return
	}
	weight, n := 1/float32(k), 0
	for i := 0; n < k; i++ {
		c.pos[n], c.sources[n], c.weight[n] = c.start+offsets[i], int64(ids[offsets[i]]), weight
		if keys[i] <= limit {
			n++
		}
	}
}

// laborRace is laborUniform for any list. It finds the k-th smallest variate first and then passes over the list again,
// as computing a variate costs less than storing it.
func laborRace[I int32 | int64](t *thread, v *variates, ids []I, c *chosen) {
	k := len(c.pos)
	weight := 1 / float32(k)
	r := &t.race
	r.start(k)
	for i, u := range ids {
		if x := v.of(uint64(u)); !r.full() || x < r.heap[0].key {
			r.add(runner{x, int64(i)})
		}
	}
	last, n := r.heap[0], 0
	for i, u := range ids {
		if x := v.of(uint64(u)); x <= last.key && (x < last.key || int64(i) <= last.offset) {
			c.pos[n], c.sources[n], c.weight[n] = c.start+int64(i), int64(u), weight
			if n++; n == k {
				return
			}
		}
	}
}

// smallest returns the k-th smallest of at most shortList keys, and whether the next one equals it. Keys are uniform
// below bound: their upper bits select one of as many buckets, and only the few keys in the bucket of the k-th are
// compared.
func smallest(keys []uint64, few *[shortList]uint64, k int, bound uint64) (limit uint64, equal bool) {
	const buckets = 32
	scale := math.MaxUint64 / (bound/buckets + 1) // key * scale / 2^64 is below buckets
	var sizes [2 * buckets]uint8
	for _, x := range keys {
		b, _ := bits.Mul64(x, scale)
		sizes[b%(2*buckets)]++
	}
	bucket := uint64(0)
	for ; int(sizes[bucket%(2*buckets)]) < k; bucket++ {
		k -= int(sizes[bucket%(2*buckets)])
	}
	m := 0
	for _, x := range keys {
		if b, _ := bits.Mul64(x, scale); b != bucket {
			continue
		}
		i := m
		for ; i > 0 && few[(i-1)&(shortList-1)] > x; i-- {
			few[i&(shortList-1)] = few[(i-1)&(shortList-1)]
		}
		few[i&(shortList-1)] = x
		m++
	}
	return few[k-1], k < m && few[k] == few[k-1]
}

// laborWeighted writes the edges with the earliest arrivals to c, in the order of the list, and returns their number.
func laborWeighted[I int32 | int64, W float32 | float64](t *thread, v *variates, ids []I, list []W, c *chosen) int64 {
	k, total, tau, n := len(c.pos), 0., math.Inf(1), 0
	if len(ids) == k { // the whole list, except for weights of 0
		for i, w := range list {
			total += float64(w)
			if w > 0 {
				c.pos[n] = int64(i)
				n++
			}
		}
	} else {
		r := &t.race
		r.start(k + 1)
		for i, w := range list {
			total += float64(w)
			if !(w > 0) {
				continue
			}
			x := v.of(uint64(ids[i]))
			// -log u is at least 1-u, so most of a long list needs no logarithm.
			if !r.full() || (1-(float64(x>>11)+0.5)*0x1p-53)/float64(w) <= math.Float64frombits(r.heap[0].key) {
				r.add(runner{arrival(exponential(x), float64(w)), int64(i)})
			}
		}
		if len(r.heap) > k {
			tau = math.Float64frombits(r.last().key)
		}
		for n = range r.heap {
			c.pos[n] = r.heap[n].offset
		}
		n = len(r.heap)
		slices.Sort(c.pos[:n])
	}
	for j, offset := range c.pos[:n] {
		w := float64(list[offset])
		c.pos[j], c.sources[j], c.weight[j] = c.start+offset, int64(ids[offset]), float32(w/total/-exponentialMinus1(-w*tau))
	}
	return int64(n)
}
