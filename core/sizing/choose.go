package sizing

import (
	"fmt"
	"math"
	"slices"

	"freshgo/core/ssd"
)

// How Divide chooses among divisions. Each way to work, with batches planned or not, with lists read together or not,
// and with each way to hold neighbour lists and rows, is a candidate whose epochs move fewer bytes the more memory it
// has. A larger memory has all candidates of a smaller one, so that the best candidate never gets worse. Candidates are
// in order of preference: of those that move hardly more bytes than the best, Divide takes the first that costs hardly
// more than the cheapest.

// hardlyMore is the factor by which an epoch may move more bytes, and cost more, than with the best candidate, window
// or way to move rows. Arbitrary: more batches in flight hide more waiting, but bytes that are not moved are certain.
const hardlyMore = 1.1

// holding selects the neighbour lists in memory.
type holding int

const (
	asDivided     holding = iota // see holdTopology
	holdWhole                    // all of them, if there is room
	holdNeighbors                // all neighbours, where there is room, and no edge numbers
	holdSome                     // single lists
	holdNone
)

// candidate holds the choices from which the parts of a division follow.
type candidate struct {
	Working
	holding
	planned    bool
	unweighted bool  // weights or times of edges are not held
	apart      bool  // planned batches do not read lists together
	less       int64 // bytes by which tensors are held as with less room: the rest is for rows
}

// candidates lists what fits into the memory, the most willingly taken first.
func (z *division) candidates(s *Split) (all []candidate) {
	kinds := []bool{false}
	if s.Cache == "belady" {
		if kinds = []bool{true}; z.ask.Cache == "auto" {
			kinds = []bool{true, false}
		}
	}
	holdings := []holding{asDivided}
	if z.graph.OnDisk && z.ask.NeighborCache == Auto && z.graph.topology() > 0 {
		holdings = []holding{asDivided, holdWhole, holdNeighbors, holdSome, holdNone}
	}
	weights := []bool{false}
	if z.graph.Weights > 0 {
		weights = []bool{false, true}
	}
	for _, planned := range kinds {
		for _, w := range z.ways(z.ask.room(s, planned)) {
			for _, h := range holdings {
				for _, unweighted := range weights {
					all = append(all, candidate{Working: w, holding: h, planned: planned, unweighted: unweighted})
				}
			}
		}
	}
	return all
}

// room is the memory for the working set and caches that are not sized by name.
func (r *Request) room(s *Split, planned bool) int64 {
	room := r.Memory - r.explicit()
	if planned {
		room -= s.reserved
	}
	return room
}

// ways lists the ways to work that fit into room: from the most generous one that leaves half of it to the caches, or
// else from the most generous one of all, to the smallest. Each is followed by its variants with frugal id maps, and
// with half the reads in flight, which a slightly smaller memory would have.
func (z *division) ways(room int64) (ways []Working) {
	ladder := z.ladder()
	from := slices.IndexFunc(ladder, func(w Working) bool { return z.cost(w) <= room/2 })
	for _, w := range ladder[max(0, from):] {
		frugal, slower := w, w
		frugal.Stamp, slower.Depth = false, max(minDepth, w.Depth/2)
		for _, w := range []Working{w, frugal, slower} {
			if z.cost(w) <= room && !slices.Contains(ways, w) {
				ways = append(ways, w)
			}
		}
	}
	return ways
}

// best is the division that Divide takes.
func (z *division) best(s *Split) *Split {
	var splits []*Split
	add := func(c candidate) *Split {
		split := z.with(*s, c)
		if z.worthwhile(split) {
			splits = append(splits, split)
		}
		return split
	}
	for _, c := range z.candidates(s) {
		for _, c.apart = range []bool{false, true} {
			split := add(c)
			together := split.Together > 0
			for fewer := c; split.slack >= 0 && split.predicted.bytes > 0; {
				fewer.less += split.slack + 1
				split = add(fewer)
			}
			if !together {
				break
			}
		}
	}
	all := make([]moved, len(splits))
	fewest := math.Inf(1)
	for i, split := range splits {
		all[i] = split.predicted
		fewest = min(fewest, split.predicted.bytes-split.beyond)
	}
	if s.Cache == "belady" && splits[0].CacheWhy == notBetter { // the planned ones would come first
		for _, split := range splits {
			split.CacheWhy = fmt.Sprintf("there is no room to plan %d batches at a time", z.ask.worthBatches())
		}
	}
	return splits[slices.IndexFunc(all, nearBest(all, fewest))]
}

// nearBest reports of each what moves hardly more than the fewest bytes, and costs hardly more than the cheapest that
// does.
func nearBest(all []moved, fewest float64) func(of moved) bool {
	best := moved{fewest, math.Inf(1)}
	for _, of := range all {
		if of.bytes <= hardlyMore*fewest {
			best.cost = min(best.cost, of.cost)
		}
	}
	return func(of moved) bool { return of.bytes <= hardlyMore*best.bytes && of.cost <= hardlyMore*best.cost }
}

// predict predicts the bytes that an epoch moves.
func (z *division) predict(s *Split) moved {
	if !z.graph.OnDisk {
		return moved{}
	}
	batches := float64(max(1, z.ask.EpochBatches))
	var edges float64
	for i := range z.graph.Tensors {
		if t := &z.graph.Tensors[i]; t.ByEdge && t.Used && !s.Resident[i] {
			edges += batches * readBytes(expected(z.costs.Edges), t, 1)
		}
	}
	m := z.movement(s)
	apart := z.listBytes(s, batches) + edges
	if s.Cache != "belady" {
		apart += m.onDemand(1 - m.rows.fixed(float64(s.CacheRows)))
		return moved{apart, byPage*apart + m.scanned(s.CacheRows)}
	}
	rows := m.planned(s.window(z), s.CacheRows)
	each := 1.0 // of the cost of rows, by byte
	if rows.cost > rows.bytes {
		each = byPage
	}
	return moved{apart + rows.bytes, byPage*apart + rows.cost + each*m.taken(s.CacheRows)}
}

// listBytes predicts the bytes of neighbour lists, and of their weights, that an epoch reads. Planned batches share
// their reads as far as they have room.
func (z *division) listBytes(s *Split, batches float64) (total float64) {
	hops := z.costs.Expanded
	if hops == nil {
		hops = []int64{z.costs.Nodes}
	}
	if z.graph.Weights > 0 && !s.Weights {
		for _, lists := range hops {
			total += pagesRead(expected(lists), float64(z.graph.Weights)/ssd.PageBytes) * ssd.PageBytes * batches
		}
	}
	if s.Neighbors && s.EdgeIDs || z.graph.topology() == 0 {
		return total
	}
	// The lists in memory are those of the most frequent nodes, and of average length.
	held := float64(s.NeighborLists) / float64(z.graph.topology())
	size, missed := z.graph.topology(), 1-z.all.fixed(z.all.total()*held)
	if s.Neighbors {
		size = z.graph.EdgeIDs
	}
	together := min(batches, max(1, float64(s.Together)/2/max(1, 16*missed*expected(z.costs.Edges))))
	arrays := 1.0
	if !s.Neighbors && z.graph.EdgeIDs > 0 {
		arrays = 2
	}
	for _, lists := range hops {
		pages := pagesRead(together*missed*arrays*expected(lists), known(z.costs.Observed.Lists)*float64(size)/ssd.PageBytes)
		total += pages * ssd.PageBytes * batches / together
	}
	return total
}

// expected is a count without the margin of what room is made for.
func expected(n int64) float64 { return float64(n) * 8 / margin }

// readBytes returns the bytes that a batch reads for a number of rows of a tensor, which lie on a share of its pages.
func readBytes(rows float64, t *Tensor, spread float64) float64 {
	pages := max(1, float64(t.Width)/ssd.PageBytes)
	return pagesRead(rows*pages, spread*float64(t.bytes())/ssd.PageBytes) * ssd.PageBytes
}

// pagesRead returns the number of pages that are read for the given number of random pages, which may repeat, among all
// pages. It includes pages in holes that are read along.
func pagesRead(wanted, all float64) float64 {
	if all < 1 {
		return max(0, min(wanted, 1))
	}
	far := math.Exp(-max(0, wanted) / all) // the share of pages that are not needed
	const hole = ssd.DefaultHole + 1
	return max(0, all*(1-math.Pow(far, hole)*(hole*(1-far)+far)))
}
