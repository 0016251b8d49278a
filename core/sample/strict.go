package sample

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// Strict keeps negatives from being links: a pair is taken if it is an edge of the graph, a seed link, or a self-loop.
// Free pairs are drawn with exactly the probabilities that the weights give them:
//
//	rejection  redraws a taken pair. Edges are looked up in the list of the target, for all pairs of a batch together,
//	           so that lists on disk are read in the order of the file
//	complement serves if at least half of the weight of the candidates is taken, where rejection would take long, or for
//	           ever if all is. It records the taken targets and draws among the others
//
// The half is judged over all pairs if sources are drawn, and per source if they are given. So a rejected negative
// takes at most two proposals on average, and the recorded lists have at most one entry of four bytes per edge and seed
// link; most graphs have none.
//
// Rejected: a set of all edges, with at least eight bytes each.
type Strict struct {
	links *linkSet // seed links that may not be edges; nil: none
	dense *denseRows
}

// denseRows holds the taken targets of sources most of whose candidates are taken.
type denseRows struct {
	place   []int32   // by node: its row, or -1
	ptr     []int64   // by row: its start in targets
	end     []int64   // by row: its end in targets
	targets []uint32  // ascending within a row, distinct
	free    []float64 // by row: weight of the targets that are not taken
	nodes   []int64   // by row: its node
	sources []float64 // running sums of the weights of nodes times free, by row
	blocks  []*mem.Block
}

// Edges yields the sources of all edges of a graph by position, in pieces.
type Edges interface {
	Scan(ctx context.Context, visit func(first int64, sources []int64) error) error
}

// triesAtMost bounds rejections. Each try fails with a probability of at most a half. Arbitrary.
const triesAtMost = 256

// NewStrict makes n strict, for a graph whose edges it scans at most twice, and not at all if it has too few for a
// complement. With inGraph all links are edges of it; if none are given, they are all its edges. The tables are
// allocated from budget. It returns ErrNegative if nothing can be drawn: from all pairs, or for the source of a link.
func NewStrict(
	ctx context.Context, budget *mem.Budget, n *Negatives, indptr *offsets.Table, edges Edges, links Links, inGraph bool,
) (*Strict, error) {
	s := new(Strict)
	if most := max(n.NumSources, n.NumTargets); most > math.MaxUint32 {
		return nil, fmt.Errorf("sample: strict negatives of %d nodes, expected at most 2^32-1: %w", most, ErrTooLarge)
	}
	if !inGraph {
		var err error
		if s.links, err = newLinkSet(budget, links); err != nil {
			return nil, err
		}
	}
	if n.Timed() {
		return s, nil // the rest depends on the time
	}
	if err := s.findDense(ctx, budget, n, indptr, edges, links); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Bytes returns the memory of the tables.
func (s *Strict) Bytes() (total int64) {
	for _, b := range s.blocks() {
		total += int64(len(b.Bytes()))
	}
	return total
}

// Close frees the tables.
func (s *Strict) Close() {
	for _, b := range s.blocks() {
		b.Free()
	}
	s.links, s.dense = nil, nil
}

func (s *Strict) blocks() (all []*mem.Block) {
	if s.links != nil {
		all = append(all, s.links.block)
	}
	if s.dense != nil {
		all = append(all, s.dense.blocks...)
	}
	return all
}

// proposal is a pair whose state is still open.
type proposal struct {
	source, target int64
	number         int32
	taken          bool
}

func (n *Negatives) drawStrict(ctx context.Context, g *Relation, key Key, source, target []int64) error {
	if len(target) > math.MaxInt32 {
		return fmt.Errorf("sample: %d negatives, expected at most 2^31-1: %w", len(target), ErrTooLarge)
	}
	base, d := n.batchKey(key), n.Strict.dense
	streams := make([]stream, len(target))
	var open []proposal
	for j := range target {
		if err := checkContext(ctx, j); err != nil {
			return err
		}
		streams[j] = stream(absorb(base, uint64(j)))
		switch {
		case d == nil:
		case !n.Given:
			source[j], target[j], streams[j] = d.pair(n, streams[j])
			continue
		case d.place[source[j]] >= 0:
			target[j], streams[j] = d.target(n, d.place[source[j]], streams[j])
			continue
		}
		open = append(open, proposal{number: int32(j)})
	}
	for range triesAtMost {
		if len(open) == 0 {
			return nil
		}
		for i := range open {
			p := &open[i]
			j := p.number
			streams[j] = n.propose(streams[j], &source[j], &target[j])
			p.source, p.target = source[j], target[j]
		}
		if err := n.mark(ctx, g, open); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(p proposal) bool { return !p.taken })
	}
	return fmt.Errorf("sample: %d of %d negatives were links in each of %d draws, as almost all pairs are: %w",
		len(open), len(target), triesAtMost, ErrNegative)
}

// mark marks the taken proposals.
func (n *Negatives) mark(ctx context.Context, g *Relation, open []proposal) error {
	links := n.Strict.links
	for i := range open {
		p := &open[i]
		p.taken = !n.Apart && p.source == p.target || links != nil && links.has(p.source, p.target)
	}
	slices.SortFunc(open, func(a, b proposal) int {
		return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.source, b.source), cmp.Compare(a.number, b.number))
	})
	if g.Adjacency != nil {
		return markFetched(ctx, g, open)
	}
	indptr := g.Indptr
	for i := 0; i < len(open); {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sample: drawing negatives: %w", err)
		}
		same := open[i : i+sameTarget(open[i:])]
		lo, hi := indptr.Range(same[0].target)
		if g.Indices32 != nil {
			markSources(same, g.Indices32[lo:hi])
		} else {
			markSources(same, g.Indices64[lo:hi])
		}
		i += len(same)
	}
	return nil
}

// sameTarget returns the number of leading proposals with the target of the first.
func sameTarget(open []proposal) int {
	n := 1
	for n < len(open) && open[n].target == open[0].target {
		n++
	}
	return n
}

// markSources marks the proposals of one target, by source, whose sources are in the list.
func markSources[I int32 | int64](same []proposal, list []I) {
	if len(same) == 1 {
		p := &same[0]
		p.taken = p.taken || slices.Contains(list, I(p.source))
		return
	}
	for _, source := range list {
		at, found := slices.BinarySearchFunc(same, int64(source), func(p proposal, v int64) int {
			return cmp.Compare(p.source, v)
		})
		for ; found && at < len(same) && same[at].source == int64(source); at++ {
			same[at].taken = true
		}
	}
}

// markFetched is mark for lists on disk.
func markFetched(ctx context.Context, g *Relation, open []proposal) error {
	var targets []int64
	for i := 0; i < len(open); i += sameTarget(open[i:]) {
		targets = append(targets, open[i].target)
	}
	return g.eachFetched(ctx, targets, func(p listPiece) {
		same := open[:sameTarget(open)]
		markSources(same, p.ids)
		if p.last {
			open = open[len(same):]
		}
	})
}

// linkSet is a set of links, by open addressing over their numbers, at most half full.
type linkSet struct {
	Links
	block *mem.Block
	slots []uint32 // number + 1; 0: empty
}

// linkSetBytes returns the memory of a set of n links.
func linkSetBytes(n int64) int64 { return 4 * int64(setSlots(int(max(n, 1)))) }

func newLinkSet(budget *mem.Budget, links Links) (*linkSet, error) {
	n := int64(len(links.Sources))
	if n >= math.MaxUint32/2 {
		return nil, fmt.Errorf("sample: strict negatives of %d links, expected fewer than 2^31: %w", n, ErrTooLarge)
	}
	block, err := budget.Alloc(mem.Topology, linkSetBytes(n))
	if err != nil {
		return nil, err
	}
	l := &linkSet{Links: links, block: block, slots: mem.Slice[uint32](block)}
	clear(l.slots)
	for i := range links.Sources {
		at, found := l.find(links.Sources[i], links.Targets[i])
		if !found {
			l.slots[at] = uint32(i + 1)
		}
	}
	return l, nil
}

// find returns the slot of a link, or the slot where it belongs.
func (l *linkSet) find(source, target int64) (uint64, bool) {
	mask := uint64(len(l.slots) - 1)
	for at := absorb(uint64(source), uint64(target)) & mask; ; at = (at + 1) & mask {
		i := l.slots[at]
		if i == 0 {
			return at, false
		}
		if l.Sources[i-1] == source && l.Targets[i-1] == target {
			return at, true
		}
	}
}

func (l *linkSet) has(source, target int64) bool {
	_, found := l.find(source, target)
	return found
}
