package sample

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"freshgo/core/mem"
)

// NodeTimes restricts negatives to nodes that exist at the time of their link. It has the nodes in ascending order of
// time, equal times by number, so the nodes up to a time are a prefix, from which a draw picks a place. The running
// sums of Negatives are then in this order too. If the ends are of two types, each type has times of its own, or none.
// PyG draws again up to five times and then takes the oldest node, even a later one.
//
// Strict negatives are drawn again while they are taken, as without times. If that does not end, for instance among the
// few oldest nodes, which may all be linked, the lists of all nodes up to the time are read, and a free pair is drawn.
type NodeTimes struct {
	Nodes []uint32 // by place
	Place []uint32 // by node
	Times []int64  // by place
}

// NodeTimesBytes returns the memory of the tables of NewNodeTimes.
func NodeTimesBytes(numNodes int64) int64 { return 16 * max(1, numNodes) }

// NewNodeTimes sorts the nodes by times. It keeps block, of NodeTimesBytes, and not times.
func NewNodeTimes(times []int64, block *mem.Block) (*NodeTimes, error) {
	n := len(times)
	if int64(n) > math.MaxUint32 {
		return nil, fmt.Errorf("sample: negatives by time of %d nodes, expected at most 2^32-1: %w", n, ErrTooLarge)
	}
	all := mem.Slice[uint32](block)
	t := &NodeTimes{Times: mem.Slice[int64](block)[:n], Nodes: all[2*n : 3*n], Place: all[3*n : 4*n]}
	for v := range t.Nodes {
		t.Nodes[v] = uint32(v)
	}
	slices.SortFunc(t.Nodes, func(a, b uint32) int { return cmp.Or(cmp.Compare(times[a], times[b]), cmp.Compare(a, b)) })
	for place, v := range t.Nodes {
		t.Times[place], t.Place[v] = times[v], uint32(place)
	}
	return t, nil
}

// Sort sets sums to the running sums of the node weights in the order of the times.
func (t *NodeTimes) Sort(weights, sums []float64) error {
	for place, v := range t.Nodes {
		sums[place] = weights[v]
	}
	return RunningSums(sums)
}

// upTo returns the number of nodes that are not later than a time: all, without times or for a nil NodeTimes.
func (t *NodeTimes) upTo(at, all int64) int64 {
	if t == nil {
		return all
	}
	return int64(sort.Search(len(t.Times), func(i int) bool { return t.Times[i] > at }))
}

// node returns the node at a place.
func (t *NodeTimes) node(place int64) int64 {
	if t == nil {
		return place
	}
	return int64(t.Nodes[place])
}

// place returns the place of a node in the order of times.
func (t *NodeTimes) place(node int64) int64 {
	if t == nil {
		return node
	}
	return int64(t.Place[node])
}

// Timed reports whether negatives depend on a time, so that DrawUpTo draws them.
func (n *Negatives) Timed() bool { return n.SourceTimes != nil || n.TargetTimes != nil }

// upTo returns the numbers of sources and targets that are not later than a time.
func (n *Negatives) upTo(at int64) (sources, targets int64) {
	return n.SourceTimes.upTo(at, n.NumSources), n.TargetTimes.upTo(at, n.NumTargets)
}

// any reports whether a pair can be drawn from the first sources and targets.
func (n *Negatives) any(sources, targets int64) bool {
	return before(n.Targets, targets) > 0 && (n.Given || before(n.Sources, sources) > 0)
}

// Earliest returns ErrNegative if nothing can be drawn at a time, and so possibly at later ones: call it with the
// earliest time. For strict negatives of given sources it checks times alone, because the free targets depend on the
// source.
func (n *Negatives) Earliest(ctx context.Context, edges *Relation, at int64) error {
	if !n.any(n.upTo(at)) {
		return fmt.Errorf(
			"sample: no node that a negative could lead to or from is as early as time %d, of the earliest link: %w",
			at,
			ErrNegative,
		)
	}
	if n.Strict == nil || n.Given {
		return nil
	}
	_, _, err := n.drawLeft(ctx, edges, stream(0), -1, at)
	return err
}

// DrawUpTo is Draw among nodes that are not later than times[j], for negative j.
func (n *Negatives) DrawUpTo(ctx context.Context, edges *Relation, key Key, times, source, target []int64) error {
	if len(target) > math.MaxInt32 {
		return fmt.Errorf("sample: %d negatives, expected at most 2^31-1: %w", len(target), ErrTooLarge)
	}
	base, streams := n.batchKey(key), make([]stream, len(target))
	open := make([]proposal, len(target))
	for j := range target {
		streams[j], open[j].number = stream(absorb(base, uint64(j))), int32(j)
	}
	for try := 0; len(open) > 0; try++ {
		for i := range open {
			if err := checkContext(ctx, i); err != nil {
				return err
			}
			p := &open[i]
			j := p.number
			var err error
			switch {
			case try < fewTries:
				streams[j], err = n.proposeUpTo(streams[j], times[j], &source[j], &target[j])
			case n.Given:
				_, target[j], err = n.drawLeft(ctx, edges, streams[j], source[j], times[j])
			default:
				source[j], target[j], err = n.drawLeft(ctx, edges, streams[j], -1, times[j])
			}
			if err != nil {
				return err
			}
			p.source, p.target = source[j], target[j]
		}
		if n.Strict == nil || try == fewTries {
			return nil
		}
		if err := n.mark(ctx, edges, open); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(p proposal) bool { return !p.taken })
	}
	return nil
}

// fewTries bounds rejections before all lists are read. Arbitrary: for a source linked with nine in ten of the nodes it
// is reached once in a thousand draws.
const fewTries = 64

// proposeUpTo is propose among nodes up to a time.
func (n *Negatives) proposeUpTo(s stream, at int64, source, target *int64) (stream, error) {
	sources, targets := n.upTo(at)
	if !n.any(sources, targets) {
		return s, fmt.Errorf("sample: no node that a negative could lead to or from is as early as time %d: %w",
			at, ErrNegative)
	}
	if !n.Given {
		*source, s = n.SourceTimes.draw(s, n.Sources, sources)
	}
	*target, s = n.TargetTimes.draw(s, n.Targets, targets)
	return s, nil
}

// draw draws one of the first count nodes.
func (t *NodeTimes) draw(s stream, sums []float64, count int64) (int64, stream) {
	place, s := node(s, sums, count)
	return t.node(place), s
}

// leftChunk is the number of targets that drawLeft reads together, with 16 bytes each. Arbitrary: their lists usually
// have more edges than are fetched at a time.
const leftChunk = 1 << 14

// drawLeft draws a free pair of nodes up to a time, with the given source unless it is negative. It reads the lists of
// all these nodes, and then again the lists of the leftChunk targets that contain the drawn one.
func (n *Negatives) drawLeft(ctx context.Context, g *Relation, s stream, source, at int64) (int64, int64, error) {
	sources, count := n.upTo(at)
	seeds := n.takenLinks(sources, count)
	targets, mass := make([]int64, min(count, leftChunk)), make([]float64, min(count, leftChunk))
	var first, next int64 // places of targets
	var total float64     // the free mass of all nodes before next; mass holds its running sums
	var taken []int64
	linked := false // the source with the target, in the part of the list read so far
	visit := func(p listPiece) {
		at, place := p.target, first+int64(p.target)
		v, weight := targets[at], before(n.Targets, place+1)-before(n.Targets, place)
		if !(weight > 0) {
			mass[at] = total
			return
		}
		begins := p.first == g.Indptr.Begin(v)
		if source < 0 {
			taken = n.takenSources(taken, begins, p.ids, sources)
		} else {
			linked = slices.Contains(p.ids, source) || linked && !begins
		}
		if !p.last {
			return
		}
		switch {
		case source < 0:
			taken = n.takenBesides(taken, v, seeds, sources)
			gaps(taken, n.Sources, sources, func(_, _ int64, free float64) bool {
				total += weight * free
				return true
			})
		case (n.Apart || source != v) && !linked && (n.Strict.links == nil || !n.Strict.links.has(source, v)):
			total += weight
		}
		mass[at] = total
	}
	look := func(from int64) error {
		first, next = from, min(from+leftChunk, count)
		targets, mass = targets[:next-first], mass[:next-first]
		for i := range targets {
			targets[i] = n.TargetTimes.node(first + int64(i))
		}
		return g.eachList(ctx, targets, visit)
	}
	var sums []float64 // by chunk
	for next < count {
		if err := look(next); err != nil {
			return 0, 0, err
		}
		sums = append(sums, total)
	}
	switch {
	case total == 0 && source >= 0:
		return 0, 0, fmt.Errorf("sample: node %d is linked with every node up to time %d that a negative could lead to: %w",
			source, at, ErrNegative)
	case total == 0:
		return 0, 0, fmt.Errorf("sample: every pair of nodes up to time %d that could be drawn is a link: %w",
			at, ErrNegative)
	}
	x, s := s.next()
	u := unit(x) * total
	chunk := findSum(sums, 0, int64(len(sums)), u)
	if from := chunk * leftChunk; from != first {
		total = before(sums, chunk) // so that all sums equal the sums of the first pass
		if err := look(from); err != nil {
			return 0, 0, err
		}
	}
	target := targets[findSum(mass, 0, next-first, u)]
	if source >= 0 {
		return source, target, nil
	}
	err := g.eachList(ctx, []int64{target}, func(p listPiece) {
		taken = n.takenSources(taken, p.first == g.Indptr.Begin(target), p.ids, sources)
	})
	if err != nil {
		return 0, 0, err
	}
	taken = n.takenBesides(taken, target, seeds, sources)
	free := 0.
	gaps(taken, n.Sources, sources, func(_, _ int64, mass float64) bool {
		free += mass
		return true
	})
	x, _ = s.next()
	pick := picker{left: unit(x) * free}
	gaps(taken, n.Sources, sources, pick.visit)
	return n.SourceTimes.node(pick.from(n.Sources)), target, nil
}

// takenLinks returns the seed links among the first sources and targets, by target.
func (n *Negatives) takenLinks(sources, targets int64) (links []Link) {
	if n.Strict.links == nil {
		return nil
	}
	for i, source := range n.Strict.links.Sources {
		if target := n.Strict.links.Targets[i]; n.SourceTimes.place(source) < sources &&
			n.TargetTimes.place(target) < targets {
			links = append(links, Link{source, target})
		}
	}
	return SortLinks(links)
}

// takenSources adds the places below count of the sources in a piece of a list, the first piece of a target or a later
// one. They ascend, so there are at most as many as nodes.
func (n *Negatives) takenSources(places []int64, first bool, list []int64, count int64) []int64 {
	if first {
		places = places[:0]
	}
	for _, v := range list {
		if place := n.SourceTimes.place(v); place < count {
			places = append(places, place)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// takenBesides adds the places that are taken for a target independently of its list.
func (n *Negatives) takenBesides(places []int64, target int64, seeds []Link, count int64) []int64 {
	add := func(v int64) {
		if place := n.SourceTimes.place(v); place < count {
			places = append(places, place)
		}
	}
	if !n.Apart { // self-loops
		add(target)
	}
	for _, l := range seeds[firstOf(seeds, target):firstOf(seeds, target+1)] {
		add(l.Source)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// eachList calls visit with the pieces of every target's list, in the order of the targets and of the lists, in memory
// or on disk.
func (g *Relation) eachList(ctx context.Context, targets []int64, visit func(p listPiece)) error {
	if g.Adjacency != nil {
		return g.eachFetched(ctx, targets, visit)
	}
	var wide []int64
	for i, v := range targets {
		if err := checkContext(ctx, i); err != nil {
			return err
		}
		lo, hi := g.Indptr.Range(v)
		if g.Indices64 != nil {
			visit(listPiece{target: i, first: lo, ids: g.Indices64[lo:hi], last: true})
			continue
		}
		wide = wide[:0]
		if g.Indices32 != nil {
			for _, source := range g.Indices32[lo:hi] {
				wide = append(wide, int64(source))
			}
		}
		visit(listPiece{target: i, first: lo, ids: wide, last: true})
	}
	return nil
}
