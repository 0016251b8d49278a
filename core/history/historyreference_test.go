package history

import (
	"cmp"
	"math"
	"slices"
)

// historyReference makes the decisions of a History with maps, sorts and scans, and shares nothing of its structure.
type historyReference struct {
	c       Config
	row     int64
	entries map[refKey]*refEntry
	pinned  map[int64][]int32
	asked   map[int64][]refAnswer
	top     int32
	clock   int64 // admissions so far
	stats   Stats

	hits, expected []float64
}

type refKey struct {
	layer int
	node  int64
}

// refAnswer is the result of a lookup: the age of an entry, or 0 for none.
type refAnswer struct {
	layer int
	age   int64
}

type refEntry struct {
	refKey
	slot            int32
	admitted, order int64
	bucket          int
	need            uint64
}

func newHistoryReference(c Config) *historyReference {
	r := &historyReference{
		c: c, entries: map[refKey]*refEntry{}, pinned: map[int64][]int32{}, asked: map[int64][]refAnswer{},
		hits: make([]float64, c.Layers), expected: make([]float64, c.Layers),
	}
	r.stats.Policy, r.stats.Lag, r.stats.Layers, r.stats.Ages = c.Policy, c.Lag, make([]LayerStats, c.Layers), []int64{}
	if c.Policy == All {
		r.c.Stale, r.c.GradFraction = Forever, 1
	}
	return r
}

func (r *historyReference) find(i int64, layer int, node int64) (*refEntry, int32) {
	e := r.entries[refKey{layer, node}]
	if e == nil || i-e.admitted < 1 || i-e.admitted > r.c.Stale {
		return nil, Miss
	}
	return e, e.slot
}

func (r *historyReference) lookup(i int64, layer int, node int64) int32 {
	e, slot := r.find(i, layer, node)
	answer := refAnswer{layer: layer}
	if e != nil {
		answer.age = i - e.admitted
	}
	r.asked[i] = append(r.asked[i], answer)
	return slot
}

// use counts what was found for an iteration whose batch is used.
func (r *historyReference) use(i int64) {
	for _, a := range r.asked[i] {
		if a.age == 0 {
			r.stats.Layers[a.layer-1].Misses++
			continue
		}
		r.stats.Layers[a.layer-1].Hits++
		k := int(math.Floor(math.Log2(float64(a.age))))
		for len(r.stats.Ages) <= k {
			r.stats.Ages = append(r.stats.Ages, 0)
		}
		r.stats.Ages[k]++
	}
	delete(r.asked, i)
}

func (r *historyReference) pins(slot int32) (n int) {
	for _, list := range r.pinned {
		for _, s := range list {
			if s == slot {
				n++
			}
		}
	}
	return n
}

func (r *historyReference) occupied(slot int32) bool {
	for _, e := range r.entries {
		if e.slot == slot {
			return true
		}
	}
	return r.pins(slot) > 0
}

func (r *historyReference) unpin(i int64) {
	if _, found := r.pinned[i]; found {
		delete(r.pinned, i)
		r.settle()
	}
}

// settle is the end of the region: behind the last slot that is in use.
func (r *historyReference) settle() {
	r.top = 0
	for _, e := range r.entries {
		r.top = max(r.top, e.slot+1)
	}
	for _, list := range r.pinned {
		for _, s := range list {
			r.top = max(r.top, s+1)
		}
	}
}

func (r *historyReference) numSlots() int32 {
	if r.row == 0 {
		return 0
	}
	return int32(min(r.c.Bytes/r.row, r.c.NumNodes*int64(r.c.Layers)))
}

type refCandidate struct {
	layer, row, bucket int
	need               uint64
}

func (r *historyReference) update(i int64, layers []Observed) []Admitted {
	for key, e := range r.entries {
		if i+1-e.admitted > r.c.Stale && r.c.Stale != Forever {
			delete(r.entries, key)
			r.stats.Expired++
		}
	}
	out := make([]Admitted, r.c.Layers)
	if layers != nil && i >= r.c.Start && r.c.Stale > 0 && r.c.GradFraction > 0 {
		r.learn(layers)
		var candidates []refCandidate
		for l := r.c.Layers; l >= 1; l-- {
			candidates = append(candidates, r.judge(l, &layers[l-1])...)
		}
		if r.c.Policy == Performance {
			slices.SortStableFunc(candidates, func(a, b refCandidate) int { return cmp.Compare(b.bucket, a.bucket) })
		}
		r.admit(i, candidates, layers, out)
	}
	r.settle()
	return out
}

func (r *historyReference) learn(layers []Observed) {
	for l := range layers {
		sum := uint64(0)
		for _, e := range r.entries {
			if e.layer == l+1 {
				sum += e.need
			}
		}
		r.hits[l] = r.hits[l]*31/32 + float64(len(layers[l].HitNodes))
		r.expected[l] = r.expected[l]*31/32 + float64(sum)/(1<<30)
	}
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

func (r *historyReference) judge(layer int, o *Observed) (candidates []refCandidate) {
	type judged struct {
		row  int
		norm float32 // +inf for all that are not finite
		bad  bool
		had  bool
	}
	if len(o.Norms) == 0 && len(o.HitNorms) == 0 {
		return nil
	}
	var rows []judged
	seen := map[int64]bool{}
	for x, node := range o.Nodes {
		if seen[node] {
			continue
		}
		seen[node] = true
		j := judged{row: x, norm: o.Norms[x], bad: !finite(o.Norms[x]), had: r.entries[refKey{layer, node}] != nil}
		if j.bad {
			j.norm = float32(math.Inf(1))
			r.stats.RefusedNotFinite++
		}
		rows = append(rows, j)
	}
	k := min(int(r.c.GradFraction*float64(len(rows))+0.5), len(rows))
	byNorm := slices.Clone(rows)
	slices.SortStableFunc(byNorm, func(a, b judged) int { return cmp.Compare(a.norm, b.norm) })
	enters := map[int]bool{}
	for _, j := range byNorm[:k] {
		enters[j.row] = !j.bad
	}
	threshold := float32(math.Inf(-1))
	if k == len(rows) {
		threshold = float32(math.Inf(1))
	} else if k > 0 {
		threshold = byNorm[k-1].norm
	}
	for _, j := range rows {
		if r.c.Policy != All {
			delete(r.entries, refKey{layer, o.Nodes[j.row]})
			if j.had && enters[j.row] {
				r.stats.Replaced++
			} else if j.had {
				r.stats.Evicted++
			}
		}
		if enters[j.row] {
			candidates = append(candidates, r.weigh(layer, j.row, o))
		}
	}
	if r.c.Policy != All {
		for x, node := range o.HitNodes {
			if !finite(o.HitNorms[x]) {
				r.stats.RefusedNotFinite++
			} else if o.HitNorms[x] <= threshold {
				continue
			}
			if key := (refKey{layer, node}); r.entries[key] != nil {
				delete(r.entries, key)
				r.stats.Evicted++
			}
		}
	}
	return candidates
}

// level is the bucket of a rate.
func level(rate float64) int {
	return int(math.Float32bits(float32(min(rate, math.MaxFloat32))) / (1 << 21))
}

func (r *historyReference) weigh(layer, row int, o *Observed) refCandidate {
	c := refCandidate{layer: layer, row: row}
	if r.c.Policy == Performance {
		reuse := float64(r.c.Reuse(layer, o.Nodes[row]))
		rate := float64(o.Saves[row]) * reuse * ((r.hits[layer-1] + 1) / (r.expected[layer-1] + 1))
		if rate > 0 {
			c.bucket, c.need = level(rate), uint64(min(reuse, 3)*(1<<30))
		}
	}
	return c
}

func (r *historyReference) admit(i int64, candidates []refCandidate, layers []Observed, out []Admitted) {
	for x, c := range candidates {
		key := refKey{c.layer, layers[c.layer-1].Nodes[c.row]}
		slot := int32(-1)
		if e := r.entries[key]; e != nil { // only "all" has left it there
			if r.pins(e.slot) > 0 {
				r.stats.RefusedPinned++
				continue
			}
			slot = e.slot
			r.stats.Replaced++
			delete(r.entries, key)
		} else {
			var why *int64
			if slot, why = r.place(i, c); why != nil {
				if r.c.Policy == All {
					*why++
					continue
				}
				*why += int64(len(candidates) - x)
				return
			}
		}
		if slot >= r.top {
			r.top = slot + 1
		}
		r.clock++
		r.entries[key] = &refEntry{refKey: key, slot: slot, admitted: i, order: r.clock, bucket: c.bucket, need: c.need}
		r.stats.Layers[c.layer-1].Admitted++
		out[c.layer-1].Rows = append(out[c.layer-1].Rows, int32(c.row))
		out[c.layer-1].Slots = append(out[c.layer-1].Slots, slot)
	}
}

func (r *historyReference) place(i int64, c refCandidate) (slot int32, why *int64) {
	lowest := int32(0)
	for r.occupied(lowest) {
		lowest++
	}
	if lowest < r.top || r.top < r.numSlots() {
		return lowest, nil
	}
	var victim *refEntry
	pinned := false
	if r.c.Policy != All {
		for _, e := range r.entries {
			switch {
			case e.admitted == i:
			case r.pins(e.slot) > 0:
				pinned = true
			case victim == nil || e.bucket < victim.bucket || e.bucket == victim.bucket && e.order < victim.order:
				victim = e
			}
		}
	}
	switch {
	case victim == nil && pinned:
		return -1, &r.stats.RefusedPinned
	case victim == nil:
		return -1, &r.stats.RefusedFull
	case r.c.Policy == Performance && victim.bucket >= c.bucket:
		return -1, &r.stats.RefusedWorth
	}
	delete(r.entries, victim.refKey)
	r.stats.Overwritten++
	return victim.slot, nil
}

// figures are the Stats to expect.
func (r *historyReference) figures() Stats {
	s := r.stats
	s.Layers = slices.Clone(s.Layers)
	for _, e := range r.entries {
		s.Layers[e.layer-1].Live++
	}
	s.RowBytes, s.Slots, s.EmbeddingBytes = r.row, int64(r.numSlots()), int64(r.top)*r.row
	s.Pinned = int64(len(r.pinned))
	return s
}
