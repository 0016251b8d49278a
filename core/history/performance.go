package history

import "math"

// Performance admits the entries that save the most reads of feature rows per iteration (section 4.2; the paper
// measures such a policy and does not say how it chooses), so that embeddings of all layers compare:
//
//	rate(entry) = Saves * Reuse * hits/expected of its layer
//
// Saves counts the reads that the entry would save in a batch like the one that computed it, without the reads that
// other rows save as well. Reuse counts the uses of a row where nothing is pruned; with a history a row of layer 1 is
// used less often, because entries of layer 2 replace it. hits/expected corrects this, and a Reuse that is wrong by a
// factor: it is the quotient of the layer's hits and the hits expected by the Reuse of its live entries, averaged over
// some 32 iterations.
//
// While there is room every candidate enters, as with Gradient; then a slot goes to a candidate whose rate is higher
// than the lowest rate of a live entry. All entries live equally long, so rates per iteration compete for slots.
// Gradients have chosen the candidates and evict as before.
//
// Rates are compared by bucket, the upper ten bits of their float32, four to an octave: the lowest entry is then the
// head of a list, an update is linear, and the loss is at most the difference of rates within a quarter.
//
// Rejected: an entry's rate times the iterations it has left. At the margin, where the rate equals the price of a slot,
// age does not matter: any entry that takes the slot earns the same.

// bucketOf maps a rate that is not negative to its bucket.
func bucketOf(rate float32) uint16 { return uint16(math.Float32bits(rate) >> 21) }

const (
	needUnit = 1 << 30 // unit of slot.need: sums are exact in any order
	memory   = 31. / 32
)

// prices keep what corrects the rates.
type prices struct {
	needs    []uint64  // by layer: the sum of need over its entries, in units
	hits     []float64 // by layer, averaged: hits in an iteration
	expected []float64 // and those expected
}

func (p *prices) init(c *Config) {
	p.needs, p.hits, p.expected = make([]uint64, c.Layers), make([]float64, c.Layers), make([]float64, c.Layers)
}

func (p *prices) add(s *slot)    { p.needs[s.layer-1] += uint64(s.need) }
func (p *prices) forget(s *slot) { p.needs[s.layer-1] -= uint64(s.need) }

// observe updates the averages by the reads of a batch.
func (p *prices) observe(layers []Observed) {
	for l := range layers {
		p.hits[l] = p.hits[l]*memory + float64(len(layers[l].HitNodes))
		p.expected[l] = p.expected[l]*memory + float64(p.needs[l])/needUnit
	}
}

// correction is hits/expected of a layer, and 1 before there is anything to compare.
func (p *prices) correction(layer int) float64 {
	return (p.hits[layer-1] + 1) / (p.expected[layer-1] + 1)
}

// weigh makes a candidate of a computed row.
func (j *judge) weigh(layer int, row int32, o *Observed) candidate {
	c := candidate{row: row, layer: uint8(layer)}
	if j.entries.config.Policy != Performance {
		return c
	}
	reuse := float64(j.entries.config.Reuse(layer, o.Nodes[row]))
	rate := float64(o.Saves[row]) * reuse * j.entries.price.correction(layer)
	if rate > 0 && reuse > 0 { // NaN fails
		c.bucket = bucketOf(float32(min(rate, math.MaxFloat32)))
		c.need = uint32(min(reuse, 3) * needUnit) // a row is needed once in a batch; 3 is what fits
	}
	return c
}

// ranked returns the candidates, by Performance the highest bucket first.
func (j *judge) ranked() []candidate {
	if j.entries.config.Policy != Performance {
		return j.candidates
	}
	var start [numBuckets + 1]int32
	for x := range j.candidates {
		start[numBuckets-1-j.candidates[x].bucket+1]++
	}
	for b := range numBuckets {
		start[b+1] += start[b]
	}
	if cap(j.sorted) < len(j.candidates) {
		j.sorted = make([]candidate, len(j.candidates), cap(j.candidates))
	}
	j.sorted = j.sorted[:len(j.candidates)]
	for _, c := range j.candidates {
		b := numBuckets - 1 - c.bucket
		j.sorted[start[b]] = c
		start[b]++
	}
	return j.sorted
}

// placeByWorth finds a slot that costs nothing or is worth less than the candidate, or says why there is none.
func (j *judge) placeByWorth(c *candidate, s *sweep) int32 {
	if at := j.entries.takeFree(); at >= 0 {
		return at
	}
	if at := j.entries.grow(); at >= 0 {
		return at
	}
	switch {
	case !s.find():
		return s.why()
	case uint16(s.bucket) < c.bucket:
		return j.entries.overwrite(s)
	}
	return notDear
}
