package history

import "math"

// Performance admits by what an entry saves (section 4.2; the paper measures such a policy and does not say how it
// chooses). Everything is in reads of feature rows per iteration, so that embeddings of all layers and features
// compare:
//
//	rate(entry)      = Saves * Reuse * hits/expected of its layer
//	rate(features)   = FeatureWorth(rank at the junction) * RowBytes/its bytes * computed/expected of layer 1 * doubt
//
// Saves is what the entry would save in a batch like the one that computed it: reads that neither cached features nor
// other rows make needless. Reuse counts needs where nothing is pruned; with a history a row of layer 1 is needed less
// often, because entries of layer 2 make it needless. hits/expected is the quotient of the hits that the layer really
// had and those that the Reuse of its live entries lets expect, averaged over some 32 iterations: it corrects this, and
// a Reuse that is wrong by a factor. In the same way a feature is read less often where fewer rows of layer 1 are
// computed.
//
// doubt is 2.5: what an entry saves is less sure than what a feature saves. Saves is what one batch has shown, and
// those are chosen of which it shows the most. In simulated runs whose batches need a tenth of the graph, doubts of
// 1.5, 2, 2.5 and 3 save 59.9, 59.7, 59.3 and 59.0 % of the reads on average; where they need nearly all of it, 31.8,
// 32.4, 32.4 and 32.3 %, and with 1.5 up to 3.3 points fewer than features alone, with 2 up to 0.1, from 2.5 on never
// (TestPolicies). With 100 seeds of the 13,752 nodes of amazon-computers it is 0.7, 0.5, 0.1 and 0 points fewer; with
// 1000 seeds of ogbn-arxiv 2.5 saves 18.6 to 24.4 % of the reads in a tenth of the features' bytes, with rows of two
// features and of one, where features alone save 17.2 %.
//
// A slot goes to the candidates with the highest rates: to a free slot unless the features that would come back are
// worth more; into one slot more or over the live entry of the lowest rate, whichever costs less, and only if the
// candidate's rate is higher than that. All entries live as long, so a rate per iteration is what competes for a slot.
// While there is room that costs nothing every candidate enters, as with Gradient. Gradients have chosen the candidates
// and evict as ever.
//
// Rates are compared by bucket, the upper ten bits of their float32, four to an octave: that makes the lowest entry a
// list's head and an update linear, and what is lost is at most the difference between rates that differ by less than a
// quarter.
//
// Rejected: an entry's rate times the iterations it has left. At the margin, where the rate equals the price of a slot,
// age does not matter: whoever takes the slot earns the same.

// bucketOf maps a rate that is not negative to its bucket.
func bucketOf(rate float32) uint16 { return uint16(math.Float32bits(rate) >> 21) }

const (
	needUnit = 1 << 30 // of slot.need: sums of it are exact, whatever their order
	memory   = 31. / 32
	doubt    = 2.5
)

// prices keep what corrects the rates.
type prices struct {
	config   *Config
	plain    float64   // rows of layer 1 that an iteration needs if nothing is pruned
	needs    []uint64  // by layer: the sum of need over its entries, in units
	hits     []float64 // by layer, averaged: hits in an iteration
	expected []float64 // and those expected
	computed float64   // averaged: rows of layer 1 computed in an iteration
	weight   float64   // of the averages, less than 32
}

func (p *prices) init(c *Config) {
	p.config = c
	p.needs, p.hits, p.expected = make([]uint64, c.Layers), make([]float64, c.Layers), make([]float64, c.Layers)
	if c.Policy == Performance && c.places() {
		for node := range c.NumNodes {
			p.plain += float64(c.Reuse(1, node))
		}
	}
}

func (p *prices) add(s *slot)    { p.needs[s.layer-1] += uint64(s.need) }
func (p *prices) forget(s *slot) { p.needs[s.layer-1] -= uint64(s.need) }

// observe averages what a batch has needed.
func (p *prices) observe(layers []Observed) {
	for l := range layers {
		p.hits[l] = p.hits[l]*memory + float64(len(layers[l].HitNodes))
		p.expected[l] = p.expected[l]*memory + float64(p.needs[l])/needUnit
	}
	p.computed = p.computed*memory + float64(len(layers[0].Nodes))
	p.weight = p.weight*memory + 1
}

// correction is hits/expected of a layer, and 1 before there is anything to compare.
func (p *prices) correction(layer int) float64 {
	return (p.hits[layer-1] + 1) / (p.expected[layer-1] + 1)
}

// feature is the rate of the bytes of an embedding row that the feature of a rank has.
func (p *prices) feature(rank, rowBytes int64) float32 {
	c := p.config
	remaining := 1.0
	if p.plain > 0 && p.weight > 0 {
		remaining = min(1, p.computed/p.weight/p.plain)
	}
	worth := float64(
		c.FeatureWorth(rank),
	) * float64(
		rowBytes,
	) / float64(
		c.featureEnd(rank+1)-c.featureEnd(rank),
	) * remaining * doubt
	return float32(min(max(worth, 0), math.MaxFloat32)) // NaN stays and is above all
}

// weigh makes a candidate of a computed row.
func (h *History) weigh(layer int, row int32, o *Observed) candidate {
	c := candidate{row: row, layer: uint8(layer)}
	if h.config.Policy != Performance {
		return c
	}
	reuse := float64(h.config.Reuse(layer, o.Nodes[row]))
	rate := float64(o.Saves[row]) * reuse * h.price.correction(layer)
	if rate > 0 && reuse > 0 { // NaN fails
		c.bucket = bucketOf(float32(min(rate, math.MaxFloat32)))
		c.need = uint32(min(reuse, 3) * needUnit) // a row is needed once in a batch; 3 is what fits
	}
	return c
}

// ranked returns the candidates, by Performance the highest bucket first.
func (h *History) ranked() []candidate {
	j := &h.judge
	if h.config.Policy != Performance {
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

// placeByWorth finds a slot that is worth less than the candidate, or says why there is none.
func (h *History) placeByWorth(c *candidate, s *sweep) int32 {
	if h.holes > 0 {
		if room := h.featureRoom(h.top); h.config.places() && room < h.config.NumFeatures &&
			c.bucket < bucketOf(h.price.feature(room, h.rowBytes)) {
			return notDear
		}
		return h.takeFree()
	}
	grows, found := h.top < h.numSlots, s.find()
	price, displaces := uint16(0), false
	if grows && h.config.places() && h.featureRoom(h.top+1) < h.config.NumFeatures {
		if room := h.featureRoom(h.top); room > 0 {
			price, displaces = bucketOf(h.price.feature(room-1, h.rowBytes)), true
		}
	}
	switch {
	case grows && (!displaces || (!found || price <= uint16(s.bucket)) && price < c.bucket):
		return h.grow()
	case found && uint16(s.bucket) < c.bucket:
		return h.overwrite(s)
	case grows || found:
		return notDear
	}
	return s.why()
}
