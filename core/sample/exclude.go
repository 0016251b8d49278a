package sample

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"freshgo/core/mem"
)

// Edges that a request excludes are removed from their targets' lists before the draw: a uniform draw takes offsets in
// the shorter list and shifts them past the excluded edges; a weighted draw gives excluded edges the weight 0. So the
// remaining edges have exactly the probabilities of a list without the excluded edges.
//
// The cost is one pass per batch over the lists of the targets of excluded edges, which on disk are read. A node is
// expanded once along each relation that ends at its type, seeds first, and these targets are seeds, so only the first
// hop looks for excluded edges. In trees a node is expanded in each tree that reaches it, and every hop looks. Excluded
// edges do not count towards the latest k edges.

// Link is a pair of nodes.
type Link struct{ Source, Target int64 }

func (l Link) compare(o Link) int {
	return cmp.Or(cmp.Compare(l.Target, o.Target), cmp.Compare(l.Source, o.Source))
}

// SortLinks sorts links in the order of Request.Exclude, removes duplicates, and returns the links that remain.
func SortLinks(links []Link) []Link {
	slices.SortFunc(links, Link.compare)
	return slices.Compact(links)
}

// checkExclude validates the excluded links of each relation.
func (w *Worker) checkExclude(exclude [][]Link) error {
	for _, e := range w.edges {
		e.skipped.clear()
		e.excluded.found = false
	}
	if len(exclude) != 0 && len(exclude) != len(w.edges) {
		return fmt.Errorf("sample: excluded edges of %d relations, expected %d as there are, or none: %w",
			len(exclude), len(w.edges), ErrConfig)
	}
	for i, links := range exclude {
		if len(links) == 0 {
			continue
		}
		if err := w.sampler.kind.check(w.sampler.asked | CanExclude); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		if err := w.edges[i].relation.canExclude(links); err != nil {
			return w.sampler.in(i, err)
		}
	}
	return nil
}

// canExclude returns an error if links cannot be excluded from the draws of a relation.
func (r *relation) canExclude(links []Link) error {
	if !slices.IsSortedFunc(links, Link.compare) {
		return fmt.Errorf("sample: excluded edges are not sorted by target and source: %w", ErrConfig)
	}
	nodes := r.numTargets()
	if first, last := links[0].Target, links[len(links)-1].Target; first < 0 || last >= nodes {
		return fmt.Errorf("sample: excluded edges into nodes %d to %d, expected nodes in [0, %d): %w",
			first, last, nodes, ErrConfig)
	}
	return nil
}

// skips holds positions that must not be drawn, by target.
type skips struct {
	targets []int32 // numbers within the hop, ascending
	ptr     []int   // first position of each target; one element more than targets
	pos     []int64 // ascending for each target
}

func (k *skips) clear() { k.targets, k.ptr, k.pos = k.targets[:0], append(k.ptr[:0], 0), k.pos[:0] }

func (k *skips) any() bool { return len(k.targets) > 0 }

// from returns the first entry whose target has at least this number in the hop.
func (k *skips) from(place int) int {
	if len(k.targets) == 0 {
		return 0
	}
	at, _ := slices.BinarySearch(k.targets, int32(place))
	return at
}

// has reports whether an entry belongs to the target with this number.
func (k *skips) has(entry, place int) bool {
	return entry < len(k.targets) && int(k.targets[entry]) == place
}

// of returns the positions of an entry.
func (k *skips) of(entry int) []int64 { return k.pos[k.ptr[entry]:k.ptr[entry+1]] }

// over shifts positions in a list without the positions of the entry, if it belongs to the target, to positions in the
// whole list. It returns the entry of the next target.
func (k *skips) over(entry, place int, out []int64) int {
	if !k.has(entry, place) {
		return entry
	}
	skipped := k.of(entry)
	for i, p := range out {
		// Counts the skipped positions before this one: skipped[j]-j does not decrease.
		lo, hi := 0, len(skipped)
		for lo < hi {
			if mid := (lo + hi) / 2; skipped[mid]-int64(mid) <= p {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		out[i] = p + int64(lo)
	}
	return entry + 1
}

// skip finds the excluded edges in the spans of a hop's targets. It shortens the spans by them, except for weighted
// draws. first is the local id of the first target.
func (b *batch) skip(number, first int, targets []int64, spans []span, k int64) error {
	s := &b.skipped
	s.clear()
	if len(b.exclude) == 0 || number > 0 && !b.relation.disjoint {
		return nil
	}
	if !b.excluded.found {
		if err := b.findExcluded(); err != nil {
			return err
		}
	}
	if b.relation.temporal != nil && b.relation.method != nil {
		return nil // which skips them in the lists that it sorts
	}
	widest := int64(0)
	for i, v := range targets {
		pos := b.excluded.of(v)
		if b.relation.narrowed() && len(pos) > 0 {
			pos = b.narrowWithout(first+i, v, pos, &spans[i], k)
		} else if b.relation.method == nil {
			spans[i].deg -= int64(len(pos))
		}
		if len(pos) == 0 {
			continue
		}
		s.targets, s.pos = append(s.targets, int32(i)), append(s.pos, pos...)
		s.ptr = append(s.ptr, len(s.pos))
		widest = max(widest, spans[i].deg)
	}
	if b.relation.method == nil || widest == 0 {
		return nil
	}
	for i := range b.threads {
		if err := b.threads[i].masked.grow(b.budget, widest); err != nil {
			return err
		}
	}
	return nil
}

// excluded holds the positions of a batch's excluded edges, by target; with times in memory, their places in the order
// of time.
type excluded struct {
	nodes []int64 // ascending
	ptr   []int   // first position of each node; one element more than nodes
	pos   []int64 // ascending for each node
	found bool    // whether this batch's edges were looked for
}

// of returns the positions in the list of a node.
func (x *excluded) of(node int64) []int64 {
	at, found := slices.BinarySearch(x.nodes, node)
	if !found {
		return nil
	}
	return x.pos[x.ptr[at]:x.ptr[at+1]]
}

// findExcluded finds the excluded edges in the lists of their targets.
func (b *batch) findExcluded() error {
	g, x := &b.relation.Relation, &b.excluded
	x.nodes, x.ptr, x.pos = x.nodes[:0], append(x.ptr[:0], 0), x.pos[:0]
	for _, l := range b.exclude {
		if n := len(x.nodes); n == 0 || x.nodes[n-1] != l.Target {
			x.nodes = append(x.nodes, l.Target)
		}
	}
	links := b.exclude
	next := func(v int64) []Link { // returns the links of the targets in order
		n := firstOf(links, v+1)
		mine := links[:n]
		links = links[n:]
		return mine
	}
	end := func(v int64) {
		pos := x.pos[x.ptr[len(x.ptr)-1]:]
		if r := b.relation; r.narrowed() && r.temporal.Times.ordered() && len(pos) > 0 {
			begin, end := g.Indptr.Range(v)
			r.temporal.Times.findPlaces(begin, end, pos)
		}
		x.ptr = append(x.ptr, len(x.pos))
	}
	if g.Adjacency != nil {
		var mine []Link
		err := g.eachFetched(b.ctx, x.nodes, func(p listPiece) {
			v := x.nodes[p.target]
			if p.first == g.Indptr.Begin(v) {
				mine = next(v)
			}
			x.pos = findSources(x.pos, p.ids, p.first, mine)
			if p.last {
				end(v)
			}
		})
		x.found = err == nil
		return err
	}
	for j, v := range x.nodes {
		if err := checkContext(b.ctx, j); err != nil {
			return err
		}
		lo, hi := g.Indptr.Range(v)
		if g.Indices32 != nil {
			x.pos = findSources(x.pos, g.Indices32[lo:hi], lo, next(v))
		} else {
			x.pos = findSources(x.pos, g.Indices64[lo:hi], lo, next(v))
		}
		end(v)
	}
	x.found = true
	return nil
}

// firstOf returns the index of the first link of a target.
func firstOf(links []Link, target int64) int {
	at, _ := slices.BinarySearchFunc(links, Link{Source: math.MinInt64, Target: target}, Link.compare)
	return at
}

// checkContext returns the error of ctx, and checks at every 64th call.
func checkContext(ctx context.Context, i int) error {
	if i%64 != 0 || ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("sample: %w", ctx.Err())
}

// findSources appends the positions of list entries that are sources of the sorted links.
func findSources[I int32 | int64](pos []int64, list []I, first int64, links []Link) []int64 {
	lowest, highest := I(links[0].Source), I(links[len(links)-1].Source)
	for i, source := range list {
		if source < lowest || source > highest {
			continue
		}
		bySource := func(l Link, v int64) int { return cmp.Compare(l.Source, v) }
		if _, found := slices.BinarySearchFunc(links, int64(source), bySource); found {
			pos = append(pos, first+int64(i))
		}
	}
	return pos
}

// masked holds a copy of a list of weights in which excluded edges have weight 0.
type masked struct{ weights, sums buffer[float64] }

func (m *masked) grow(budget *mem.Budget, deg int64) error {
	return reserve(budget, room{&m.weights, deg, 0}, room{&m.sums, SumsLen(deg), 0})
}

func (m *masked) free() {
	m.weights.free()
	m.sums.free()
}

// mask copies a list that starts at position start, with weights of 0 at the positions of skipped, and sums its blocks.
func mask[W float32 | float64](m *masked, list []W, skipped []int64, start int64) (left, sums []float64) {
	left, sums = m.weights.data[:len(list)], m.sums.data[:SumsLen(int64(len(list)))]
	for i, w := range list {
		left[i] = float64(w)
	}
	for _, p := range skipped {
		left[p-start] = 0
	}
	sumBlocks(left, 0, sums)
	return left, sums
}
