package sample

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"freshgo/core/offsets"
)

// Temporal draws along edges that existed at the time of a batch's seeds (Request.Times): every reached node has the
// time t of the seed of its tree (Disjoint), and only in-edges with times in (t-Window, t] count as its neighbours. The
// time of an edge is its own, or the time of its source if nodes have times: the sampler does not distinguish them.
//
// Neighbours are drawn as the package documents, from the allowed part of a list in ascending order of times, equal
// times by position. So a fanout of -1, or of at least the number of allowed edges, yields them in this order, as in
// PyG.
//
// Times of edges in memory cost each target log(degree) lookups, whose steps all targets of a hop take together, as the
// allowed edges are one range of a list in ascending order. If positions do not ascend in time, an edge costs another
// lookup, of its position. Times of nodes cost a target a lookup for each of its in-edges, in 4 or 8 bytes a node.
// Times on disk are read list by list, each list completely.
type Temporal struct {
	Times *Times
	// Last draws the latest allowed edges, up to the fanout, of equal times the later position; with Replace it draws from
	// these.
	Last bool
	// Window bounds the age of an edge, in units of times: 1 allows only edges of the same time. 0: unlimited.
	Window int64
}

var temporal = Kind{
	Name: "time_attr",
	Else: "edges that existed at the time of a seed are drawn uniformly, for it alone: omit one of the two",
	Can: CanTimes | CanTrees | CanReplace | CanTypes | CanLinks | CanExclude | CanBidirectional | CanTranspose |
		CanDisk | CanExpected | CanEdgeIDs,
	WholeLists: true,
	For:        CanTimes,
	along: func(c *Config, relation int, r *Relation) (method, error) {
		t := c.Temporal[relation]
		if t == nil {
			return nil, nil
		}
		if err := t.check(r); err != nil {
			return nil, err
		}
		draws := timedDraws{Temporal: t, replace: c.Replace}
		switch nodes := t.Times.Nodes; {
		case t.Times.Source != nil, nodes != nil && (nodes.Source != nil || r.Adjacency != nil):
			return &temporalLists{draws}, nil
		case nodes != nil:
			return &temporalNodes{draws}, nil
		}
		return nil, nil // uniform draws from narrowed lists
	},
}

// Times holds the times of edges: Ascending with at most one order, Source or Nodes.
type Times struct {
	// Ascending holds the times of each list in ascending order, equal times by position: element i of a list that begins
	// at position s is at s+i. Order32 or Order64 has its position in the index array; neither, if that is s+i too.
	Ascending []int64
	Order32   []uint32
	Order64   []int64
	Source    TimeSource
	Nodes     *TimesByNode // the time of an edge is the time of its source
	Long      *LongLists   // of Nodes and lists in memory; nil: every list is sorted when a batch draws from it
}

// TimeSource provides times on disk.
type TimeSource interface {
	// FetchTimes sets out[i] to the time of the edge at d.Pos[i], like Adjacency.Fetch for sources. It is called with
	// whole lists, or a piece of one.
	FetchTimes(ctx context.Context, d Drawn, out []int64) error
}

// fetch is FetchTimes for times on disk.
func (t *Times) fetch(ctx context.Context, d Drawn, out []int64) error {
	return inPieces(d, out, func(d Drawn, out []int64) error { return t.Source.FetchTimes(ctx, d, out) })
}

// TimesAscend reports whether the times of every list are in ascending order, by position.
func TimesAscend(indptr *offsets.Table, times []int64) bool {
	for v := range indptr.NumNodes() {
		if begin, end := indptr.Range(v); !slices.IsSorted(times[begin:end]) {
			return false
		}
	}
	return true
}

// SortTimes sorts the times of every list, given by position, in ascending order and writes their positions to order.
// It works in place, as a hub's list may be most of the graph.
func SortTimes[P uint32 | int64](ctx context.Context, indptr *offsets.Table, times []int64, order []P) error {
	sorter := new(timedList[P])
	for v := range indptr.NumNodes() {
		if v%checkEdges == 0 && ctx.Err() != nil {
			return fmt.Errorf("sample: sorting times: %w", ctx.Err())
		}
		start, end := indptr.Range(v)
		list := order[start:end]
		for i := range list {
			list[i] = P(start + int64(i))
		}
		if slices.IsSorted(times[start:end]) {
			continue
		}
		sorter.times, sorter.order = times[start:end], list
		sort.Sort(sorter)
	}
	return nil
}

// timedList holds times and their positions.
type timedList[P uint32 | int64] struct {
	times []int64
	order []P
}

func (l *timedList[P]) Len() int { return len(l.times) }

func (l *timedList[P]) Less(i, j int) bool {
	return l.times[i] < l.times[j] || l.times[i] == l.times[j] && l.order[i] < l.order[j]
}

func (l *timedList[P]) Swap(i, j int) {
	l.times[i], l.times[j] = l.times[j], l.times[i]
	l.order[i], l.order[j] = l.order[j], l.order[i]
}

func (t *Temporal) check(r *Relation) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("sample: %s: %w", fmt.Sprintf(format, args...), ErrConfig)
	}
	edges := r.numEdges()
	switch {
	case t.Window < 0:
		return refuse("a window of %d, expected a positive number, or 0 for none", t.Window)
	case t.Times == nil:
		return refuse("no times of edges")
	case t.Times.Source != nil || t.Times.Nodes != nil:
		if t.Times.Ascending != nil || t.Times.Order32 != nil || t.Times.Order64 != nil ||
			t.Times.Source != nil && t.Times.Nodes != nil {
			return refuse("times of edges in memory, a source of times or times of nodes, expected one of them")
		}
	case int64(len(t.Times.Ascending)) != edges:
		return refuse("%d times, expected %d as indptr ends", len(t.Times.Ascending), edges)
	case t.Times.Order32 != nil && t.Times.Order64 != nil:
		return refuse("two orders of times, expected at most one")
	case t.Times.ordered() && int64(len(t.Times.Order32)+len(t.Times.Order64)) != edges:
		return refuse("an order of %d times, expected %d as indptr ends", len(t.Times.Order32)+len(t.Times.Order64), edges)
	}
	return nil
}

func (t *Times) ordered() bool { return t.Order32 != nil || t.Order64 != nil }

// bounds returns the range of times that a seed of time t sees: after `after`, up to t; with open set, all up to t.
func (t *Temporal) bounds(at int64) (after int64, open bool) {
	if t.Window == 0 || at < math.MinInt64+t.Window {
		return 0, true
	}
	return at - t.Window, false
}

// narrow returns the number of leading allowed edges, of n in ascending order, that the fanout cannot draw.
func (t *Temporal) narrow(n, k int64) (skipped int64) {
	if t.Last && k != All && n > k {
		return n - k
	}
	return 0
}

// narrowed reports whether spans are ranges of lists in ascending order, narrowed to the allowed edges.
func (r *relation) narrowed() bool { return r.temporal != nil && r.method == nil }

// narrow narrows each span to what its target may draw with a fanout of k. first is the target's local id.
func (b *batch) narrow(first int, spans []span, k int64) {
	t := b.relation.temporal
	var limits, ends, begins [group]int64
	for len(spans) > 0 {
		part := spans[:min(group, len(spans))]
		for i := range part {
			limits[i] = b.times[b.target.forest.trees.data[first+i]]
		}
		upTo(t.Times.Ascending, part, &limits, &ends)
		if t.Window > 0 {
			var early [group]span // by list: the edges that may be too early
			for i, s := range part {
				after, open := t.bounds(limits[i])
				if limits[i] = after; !open {
					early[i] = span{start: s.start, deg: ends[i]}
				}
			}
			upTo(t.Times.Ascending, early[:len(part)], &limits, &begins)
		}
		for i := range part {
			n := ends[i] - begins[i]
			skipped := t.narrow(n, k)
			part[i] = span{start: part[i].start + begins[i] + skipped, deg: n - skipped}
		}
		first, spans = first+len(part), spans[len(part):]
	}
}

// narrowWithout narrows the span of a target, node v, like narrow, without the edges at the given places of its list.
// It returns those places that the target would see, by which the span is shorter.
func (b *batch) narrowWithout(local int, v int64, places []int64, s *span, k int64) []int64 {
	t, indptr := b.relation.temporal, b.relation.Indptr
	at := b.times[b.target.forest.trees.data[local]]
	from, to := indptr.Range(v)
	times := t.Times.Ascending[from:to]
	above := func(time int64) int64 {
		n, _ := slices.BinarySearchFunc(times, time, func(a, limit int64) int {
			if a > limit {
				return 1
			}
			return -1
		})
		return int64(n)
	}
	begin, end := int64(0), above(at)
	if after, open := t.bounds(at); !open {
		begin = min(above(after), end)
	}
	first, _ := slices.BinarySearch(places, from+begin)
	last, _ := slices.BinarySearch(places, from+end)
	places = places[first:last]
	n := end - begin - int64(len(places))
	skipped := t.narrow(n, k)
	*s = span{start: from + begin + skipped, deg: n - skipped}
	return places
}

// upTo counts, for each of at most group lists in ascending order, the times up to its limit. The lists take the steps
// of their searches together, so that their cache misses overlap.
func upTo(times []int64, lists []span, limits, counts *[group]int64) {
	var left [group]int64
	most := int64(0)
	for i, s := range lists {
		counts[i], left[i] = 0, s.deg
		most = max(most, s.deg)
	}
	// The count is in [counts, counts+left]; a step halves left until it is 0.
	for ; most > 0; most /= 2 {
		for i, s := range lists {
			n := left[i]
			if n == 0 {
				continue
			}
			half := (n + 1) / 2
			if times[s.start+counts[i]+half-1] <= limits[i] {
				counts[i] += half
				left[i] = n - half
			} else {
				left[i] = half - 1
			}
		}
	}
}

// place converts places in ascending order to positions.
func (t *Times) place(pos []int64) {
	switch {
	case t.Order32 != nil:
		for i, p := range pos {
			pos[i] = int64(t.Order32[p])
		}
	case t.Order64 != nil:
		for i, p := range pos {
			pos[i] = t.Order64[p]
		}
	}
}

// findPlaces converts positions of some edges of the list from lo to hi to places, both ascending.
func (t *Times) findPlaces(lo, hi int64, pos []int64) {
	places, at := make([]int64, 0, len(pos)), make([]int64, 1)
	for p := lo; p < hi; p++ {
		at[0] = p
		t.place(at)
		if _, found := slices.BinarySearch(pos, at[0]); found {
			places = append(places, p)
		}
	}
	copy(pos, places)
}
