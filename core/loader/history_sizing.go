package loader

import (
	"slices"

	"freshgo/core/cache"
	"freshgo/core/history"
	"freshgo/core/ssd"
)

// historyShare is the part of the features' bytes, as a divisor, that the buffer
// takes when the loader chooses: the cache ratio at which the papers compare.
const historyShare = 10

// sizeHistory decides how large the buffer is, and what the history takes of the
// memory.
func (z *sizer) sizeHistory() {
	o := z.options.History
	if o == nil {
		return
	}
	if z.buffer = o.Memory; z.buffer == Auto {
		var features int64
		for i := range z.parts.tensors {
			if t := &z.parts.tensors[i]; !t.byEdge && t.width > smallRow {
				features += t.bytes()
			}
		}
		z.buffer = max(features/historyShare, leastHistory)
	}
	c := z.options.historyConfig(&z.parts, z.buffer, 1)
	z.history = history.MetadataBytes(c)
	if !o.Outside {
		z.history += z.buffer
	}
	if z.weighs() {
		z.history += int64(c.Layers) * 4 * z.parts.numNodes // expect's vectors
	}
	if z.placesFeatures() {
		z.history += cache.PolicyBytes("static", z.parts.numNodes, 1) + z.parts.numNodes // addresses; present, at most
		if !z.parts.types.unnamed() {
			z.history += (z.parts.numNodes + 1) * endBytes // at most
		}
	}
}

// leastHistory is the smallest buffer that the loader chooses. Arbitrary: a few
// thousand embeddings.
const leastHistory = 1 << 20

// weighs says whether the policy weighs what embeddings save.
func (z *sizer) weighs() bool {
	return z.options.History != nil && z.options.History.Policy == history.Performance
}

// scoringBytes is what expect takes for a while beside its vectors.
func (z *sizer) scoringBytes() int64 {
	total := cache.ExpectedBytes(z.parts.numNodes) - 4*z.parts.numNodes
	if z.parts.store != nil {
		total += min(2*scanPiece, z.neighbors+ssd.PageBytes) // see diskRows.scan
	}
	return total
}

// placesFeatures says whether the history's buffer holds features too: those that
// a ranking puts first. Caches that move rows have memory of their own.
func (z *sizer) placesFeatures() bool {
	o := z.options.History
	return o != nil && o.Features && !o.Outside && slices.Contains(rankings, z.options.Cache) && z.parts.store != nil
}

// rankings are the caches that are filled once, by hotness.
var rankings = append([]string{"vector"}, metrics...)

// levelBytes is what the level tables of a batch take when nothing is pruned, which
// is the most: a node of hop j is in the levels 0 to L-j, its edges in the layers 1
// to L-j.
func (d demand) levelBytes(transposed bool) int64 {
	hops := len(d.edgesPerHop)
	total := 16 * d.nodes
	for l := range hops {
		for hop := range hops - l {
			total += 8 * (3*d.nodesPerHop[hop] + 3*d.edgesPerHop[hop])
			if transposed {
				total += transposedBytes(d.nodesPerHop[hop]+d.nodesPerHop[hop+1], d.edgesPerHop[hop])
			}
		}
	}
	return total
}

// pruningBytes is what a preparer takes to prune.
func (z *sizer) pruningBytes(d demand) int64 {
	if !z.parts.types.unnamed() {
		return z.parts.types.pruningBytes(d)
	}
	return history.PrunedBytesByHop(d.nodesPerHop, d.edgesPerHop) + drawnBytes(d)
}

// drawnBytes is a batch as it was drawn, kept until it is pruned.
func drawnBytes(d demand) int64 { return d.nodes*(8+8+4+4) + d.edges*(8+4) }
