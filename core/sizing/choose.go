package sizing

import (
	"fmt"
	"math"
	"slices"

	"freshgo/core/ssd"
)

// How Divide chooses among divisions. Each way to work, with batches planned or not, with each number of batches that
// share reads of lists, and with each way to hold neighbour lists and rows, is a candidate whose epochs move fewer
// bytes the more memory it has. A larger memory has all candidates of a smaller one, so that the best candidate never
// gets worse. Candidates are in order of preference: of those that move hardly more bytes than the best, Divide takes
// the first that costs hardly more than the cheapest.

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
	unweighted bool  // weights or times are not held
	byNode     bool  // times of nodes are not held in order
	group      int64 // planned batches that share reads of lists; 1: each reads its own
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
	drawnBy := []candidate{{}}
	if z.graph.Weights > 0 {
		drawnBy = append(drawnBy, candidate{unweighted: true})
	}
	if z.graph.TimesOfNodes {
		drawnBy = append(drawnBy, candidate{byNode: true})
	}
	for _, planned := range kinds {
		for _, w := range z.ways(z.ask.room(s, planned)) {
			for _, h := range holdings {
				for _, c := range drawnBy {
					c.Working, c.holding, c.planned = w, h, planned
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// room is the memory for the working set and caches that are not sized by name.
func (r *Request) room(s *Split, planned bool) int64 {
	room := r.Memory - r.explicit()
	if planned || r.Cache != "auto" { // a cache by choice may be planned, and may not
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

// groups lists the numbers of batches that may share reads of lists: an epoch in one group, in two, and so on in steps
// of a half, down to groups of one. What an epoch reads depends on the number of its groups: other sizes would take
// memory for nothing.
func (r *Request) groups() (sizes []int64) {
	for parts := int64(1); parts < r.EpochBatches; parts += max(1, parts/2) {
		if size := (r.EpochBatches + parts - 1) / parts; len(sizes) == 0 || size < sizes[len(sizes)-1] {
			sizes = append(sizes, size)
		}
	}
	return append(sizes, 1)
}

// topology tells the choices of candidates apart that hold the same lists and leave as much.
type topology struct {
	Working
	planned, neighbors, edgeIDs, weights bool
	lists, together, rest                int64
}

// best is the division that Divide takes.
func (z *division) best(s *Split) *Split {
	var splits []*Split
	fewest, seen := math.Inf(1), make(map[topology]bool)
	for _, c := range z.candidates(s) {
		groups := []int64{1}
		if c.planned && z.costs.Wanted > 0 && z.graph.topology() > 0 {
			groups = z.ask.groups()
		}
		for _, c.group = range groups {
			held, of := z.topologyOf(*s, &c)
			if of.rest < 0 || c.group > 1 && held.Together == 0 || seen[of] || z.lists(held).bytes > hardlyMore*fewest {
				continue
			}
			seen[of] = true
			for c.less = 0; ; {
				split := z.with(*held, &c, of.rest)
				if z.worthwhile(split) {
					splits, fewest = append(splits, split), min(fewest, split.predicted.bytes-split.beyond)
				}
				if split.slack < 0 || split.predicted.bytes == 0 {
					break
				}
				c.less += split.slack + 1
			}
		}
	}
	all := make([]moved, len(splits))
	for i, split := range splits {
		all[i] = split.predicted
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
		if t := &z.graph.Tensors[i]; t.ByEdge && !s.HoldsTensor(&z.graph, i) {
			edges += batches * readBytes(expected(z.costs.Edges), t, 1)
		}
	}
	m, lists := z.movement(s), z.lists(s)
	lists.bytes, lists.cost = lists.bytes+edges, lists.cost+byPage*edges
	if s.Cache != "belady" {
		rows := m.onDemand(1 - m.rows.fixed(float64(s.CacheRows)))
		return moved{lists.bytes + rows, lists.cost + byPage*rows + m.scanned(s.CacheRows)}
	}
	rows := m.planned(s.window(z), s.CacheRows)
	each := 1.0 // of the cost of rows, by byte
	if rows.cost > rows.bytes {
		each = byPage
	}
	return moved{lists.bytes + rows.bytes, lists.cost + rows.cost + each*m.taken(s.CacheRows)}
}

// lists predicts what an epoch reads of neighbour lists, of edge numbers and of weights, hop by hop. Planned batches
// share their reads of neighbours, in groups as large as there is room for their requests. Each batch reads its edge
// numbers by itself, of all hops at once.
func (z *division) lists(s *Split) (total moved) {
	batches := float64(max(1, z.ask.EpochBatches))
	hops := z.costs.Expanded
	if hops == nil {
		hops = []int64{z.costs.Nodes}
	}
	read := func(lists float64, array int64, spread, times float64) {
		of := pagesMoved(lists, spread*float64(array)/ssd.PageBytes)
		total.bytes, total.cost = total.bytes+of.bytes*times, total.cost+of.cost*times
	}
	window := int64(batches) // where it is not known yet, at most
	if s.Superbatch > 0 {
		window = s.window(z)
	}
	missed, spread, drawn := z.all.missed(s.NeighborLists, z.graph.lists()), known(z.costs.Observed.Lists), 0.0
	for _, n := range hops {
		lists := expected(n)
		switch {
		case z.graph.Weights == 0 || s.Weights:
		case z.graph.TimesOfNodes:
			read(lists*z.graph.degree(), z.graph.Weights, 1, batches)
		default:
			read(lists, z.graph.Weights, 1, batches)
		}
		if !s.Neighbors && z.graph.Neighbors > 0 {
			for _, of := range z.costs.groups(s, z.ask.EpochBatches, window, missed) {
				read(of.batches*missed*lists, z.graph.Neighbors, spread, of.times)
			}
		}
		drawn += lists
	}
	if !s.EdgeIDs && z.graph.EdgeIDs > 0 {
		read(missed*drawn, z.graph.EdgeIDs, spread, batches)
	}
	return total
}

// degree is the number of edges of a list on average, where neighbours take four bytes.
func (g *Graph) degree() float64 { return float64(g.Neighbors) / 4 / float64(max(1, g.Nodes)) }

// groups is a number of equal groups of batches.
type groups struct{ batches, times float64 }

// groups returns the groups of batches of an epoch that share reads of lists. They end with the epoch. Where plans are
// in memory they end with a window too, and the end of the epoch is in the middle of a window that is shorter.
func (c *Costs) groups(s *Split, epoch, window int64, missed float64) (all []groups) {
	batches, size := float64(max(1, epoch)), c.groupSize(s, missed)
	divide := func(n, times float64) {
		full := math.Floor(n / size)
		all = append(all, groups{size, full * times}, groups{n - full*size, times})
	}
	if n := float64(window); n < batches && !s.Stored {
		divide(n, batches/n-1)
		divide(n/2, 2)
	} else {
		divide(batches, 1)
	}
	return all
}

// groupSize returns the number of batches for whose requests there is room, which share reads of lists.
func (c *Costs) groupSize(s *Split, missed float64) float64 {
	each := missed * inWindow(c.Wanted)
	if s.Together == 0 || each <= 0 {
		return 1
	}
	return max(1, math.Floor(float64(s.WantedRoom())/each))
}

// expected is a count without the margin of what room is made for.
func expected(n int64) float64 { return float64(n) * 8 / margin }

// readBytes returns the bytes that a batch reads for a number of rows of a tensor, which lie on a share of its pages.
func readBytes(rows float64, t *Tensor, spread float64) float64 {
	return pagesRead(rows*t.pages(), spread*float64(t.bytes())/ssd.PageBytes) * ssd.PageBytes
}

// pagesMoved predicts reading the given number of random pages, which may repeat, among all pages. A page by itself
// costs byPage times its bytes, a run of pages one request, or one for each buffer of the read engine.
func pagesMoved(wanted, all float64) moved {
	read := pagesRead(wanted, all)
	far := math.Exp(-max(0, wanted) / max(1, all)) // the share of pages that are not needed
	requests := min(read, all*(1-far)*math.Pow(far, ssd.DefaultHole+1)+read*ssd.PageBytes/MinSlot)
	return moved{read * ssd.PageBytes, (read + (byPage-1)*requests) * ssd.PageBytes}
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
