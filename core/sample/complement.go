package sample

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// StrictBytes returns the memory that NewStrict takes, for negatives of a graph with a number of edges and given links,
// but for the targets that it records of dense sources.
func StrictBytes(n *Negatives, edges, links int64) (total int64) {
	if links > 0 {
		total = linkSetBytes(links)
	}
	if n.Timed() {
		return total
	}
	return total + n.denseBytes(edges, links)
}

// denseBytes returns the memory of staging in which findDense counts.
func (n *Negatives) denseBytes(edges, links int64) int64 {
	switch {
	case n.sparse(edges, links):
		return 0
	case n.Targets == nil:
		return 8 * n.NumSources
	}
	return 16 * n.NumSources
}

// sparse reports whether by their number alone too few pairs are taken for any complement.
func (n *Negatives) sparse(edges, links int64) bool {
	most := float64(edges + links)
	switch {
	case n.Targets != nil || n.Sources != nil && !n.Given:
		return false
	case n.Given:
		return 2*(most+1) < float64(n.NumTargets)
	case !n.Apart:
		most += float64(n.NumSources)
	}
	return 2*most < float64(n.NumSources)*float64(n.NumTargets)
}

// findDense finds sources most of whose targets are taken, and records these targets.
func (s *Strict) findDense(
	ctx context.Context, budget *mem.Budget, n *Negatives, indptr *offsets.Table, edges Edges, links Links,
) error {
	if n.sparse(indptr.NumEdges(), int64(len(links.Sources))) {
		return nil
	}
	// For each source: the number of its taken targets and, unless all have the weight 1, their weight. Copies of an edge
	// count repeatedly.
	block, err := budget.Alloc(mem.Staging, n.denseBytes(indptr.NumEdges(), int64(len(links.Sources))))
	if err != nil {
		return err
	}
	defer block.Free()
	all := mem.Slice[int64](block)
	clear(all)
	count, heavy := all[:n.NumSources], mem.Slice[float64](block)[n.NumSources:]
	each := func(visit func(source, target int64)) error {
		return s.eachTaken(ctx, n, indptr, edges, links, count, visit)
	}
	mass := func(v int64) float64 { return float64(count[v]) }
	add := func(source, _ int64) { count[source]++ }
	if n.Targets != nil {
		mass = func(v int64) float64 { return heavy[v] }
		add = func(source, target int64) {
			count[source]++
			heavy[source] += n.weight(n.Targets, target)
		}
	}
	if err := each(add); err != nil {
		return err
	}
	targets := before(n.Targets, n.NumTargets)
	holds := func(v int64) bool { return 2*mass(v) >= targets }
	if !n.Given {
		taken := 0.
		for v := range n.NumSources {
			taken += n.weight(n.Sources, v) * mass(v)
		}
		if 2*taken < before(n.Sources, n.NumSources)*targets {
			return nil
		}
		holds = func(v int64) bool { return n.weight(n.Sources, v) > 0 }
	}
	d := new(denseRows)
	s.dense = d
	if err := d.alloc(budget, n, links, count, holds); err != nil {
		return err
	}
	if d.ptr == nil {
		d.close()
		s.dense = nil
		return nil
	}
	if err := each(func(source, target int64) {
		if row := d.place[source]; row >= 0 {
			d.targets[d.end[row]] = uint32(target)
			d.end[row]++
		}
	}); err != nil {
		return err
	}
	return d.sumUp(ctx, n)
}

func (d *denseRows) close() {
	for _, b := range d.blocks {
		b.Free()
	}
}

// weight returns the weight of node v.
func (n *Negatives) weight(sums []float64, v int64) float64 {
	return before(sums, v+1) - before(sums, v)
}

// eachTaken visits all pairs that must not be negatives, some of them repeatedly. It prefetches the entries of a table
// by source.
func (s *Strict) eachTaken(
	ctx context.Context, n *Negatives, indptr *offsets.Table, edges Edges, links Links, table []int64,
	visit func(source, target int64),
) error {
	target := int64(0)
	err := edges.Scan(ctx, func(first int64, sources []int64) error {
		for i, source := range sources {
			if i%ahead == 0 {
				asm.Prefetch(table, sources[i:min(i+ahead, len(sources))])
			}
			for indptr.End(target) <= first+int64(i) {
				target++
			}
			visit(source, target)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.links != nil {
		for i, source := range links.Sources {
			visit(source, links.Targets[i])
		}
	}
	if n.Apart {
		return nil
	}
	for v := range n.NumSources {
		visit(v, v)
	}
	return nil
}

// alloc allocates the recorded rows: for all sources, or if sources are given, for the sources of links, which are all
// edges if there are none.
func (d *denseRows) alloc(budget *mem.Budget, n *Negatives, links Links, count []int64, holds func(int64) bool) error {
	take := func(bytes int64) (*mem.Block, error) {
		block, err := budget.Alloc(mem.Topology, bytes)
		if err == nil {
			d.blocks = append(d.blocks, block)
		}
		return block, err
	}
	block, err := take(4 * n.NumSources)
	if err != nil {
		return err
	}
	d.place = mem.Slice[int32](block)
	for v := range d.place {
		d.place[v] = -1
	}
	rows, total, loops := int64(0), int64(0), int64(1) // a node with itself
	if n.Apart {
		loops = 0
	}
	mark := func(v int64) {
		if d.place[v] < 0 && holds(v) {
			d.place[v] = 0
			rows++
			total += count[v]
		}
	}
	if n.Given && links.Sources != nil {
		for _, v := range links.Sources {
			mark(v)
		}
	} else {
		for v := range n.NumSources {
			if !n.Given || count[v] > loops {
				mark(v)
			}
		}
	}
	if rows == 0 {
		return nil
	}
	if block, err = take(8 * 5 * rows); err != nil {
		return err
	}
	numbers, sums := mem.Slice[int64](block), mem.Slice[float64](block)
	d.ptr, d.end, d.nodes = numbers[:rows], numbers[rows:2*rows], numbers[2*rows:3*rows]
	d.free, d.sources = sums[3*rows:4*rows], sums[4*rows:]
	if block, err = take(4 * total); err != nil {
		return err
	}
	d.targets = mem.Slice[uint32](block)
	row, at := int32(0), int64(0)
	for v := range n.NumSources {
		if d.place[v] < 0 {
			continue
		}
		d.place[v], d.nodes[row], d.ptr[row], d.end[row] = row, v, at, at
		at += count[v]
		row++
	}
	return nil
}

// sumUp sorts the rows and sums the weights of their free targets.
func (d *denseRows) sumUp(ctx context.Context, n *Negatives) error {
	total := 0.
	for row := range d.ptr {
		if err := ctx.Err(); err != nil {
			return err
		}
		list := d.targets[d.ptr[row]:d.end[row]]
		slices.Sort(list)
		d.end[row] = d.ptr[row] + int64(len(slices.Compact(list)))
		d.free[row] = 0
		d.intervals(n, int32(row), func(_, _ int64, free float64) bool {
			d.free[row] += free
			return true
		})
		if n.Given && d.free[row] == 0 {
			return fmt.Errorf("sample: node %d is linked with every node that a negative could lead to: %w",
				d.nodes[row], ErrNegative)
		}
		total += n.weight(n.Sources, d.nodes[row]) * d.free[row]
		d.sources[row] = total
	}
	if total == 0 && !n.Given {
		return fmt.Errorf("sample: every pair of nodes that could be drawn is a link: %w", ErrNegative)
	}
	return nil
}

// intervals visits the gaps between the taken targets of a row.
func (d *denseRows) intervals(n *Negatives, row int32, visit func(lo, hi int64, free float64) bool) {
	gaps(d.targets[d.ptr[row]:d.end[row]], n.Targets, n.NumTargets, visit)
}

// gaps visits the ranges of nodes below count that are free and have weight, until visit returns false. taken ascends.
func gaps[I int64 | uint32](taken []I, sums []float64, count int64, visit func(lo, hi int64, free float64) bool) {
	lo := int64(0)
	for i := range len(taken) + 1 {
		hi := count
		if i < len(taken) {
			hi = int64(taken[i])
		}
		if free := before(sums, hi) - before(sums, lo); hi > lo && free > 0 && !visit(lo, hi, free) {
			return
		}
		lo = hi + 1
	}
}

// target draws a free target of a row.
func (d *denseRows) target(n *Negatives, row int32, s stream) (int64, stream) {
	x, s := s.next()
	pick := picker{left: unit(x) * d.free[row]}
	d.intervals(n, row, pick.visit)
	return pick.from(n.Targets), s
}

// picker finds the node at a point in the weights of ranges of nodes.
type picker struct {
	left   float64 // of the point, beyond the visited ranges
	lo, hi int64   // the range that contains the point; the last one if rounding leaves it beyond all
}

// visit takes the next range. It returns false if the range contains the point.
func (p *picker) visit(lo, hi int64, weight float64) bool {
	p.lo, p.hi = lo, hi
	if p.left < weight {
		return false
	}
	p.left -= weight
	return true
}

// from returns the node, by the running sums of weights.
func (p *picker) from(sums []float64) int64 { return findSum(sums, p.lo, p.hi, p.left) }

// pair draws a source in proportion to the weight of its free targets, and a target.
func (d *denseRows) pair(n *Negatives, s stream) (source, target int64, _ stream) {
	x, s := s.next()
	rows := int64(len(d.sources))
	row := findSum(d.sources, 0, rows, unit(x)*d.sources[rows-1])
	target, s = d.target(n, int32(row), s)
	return d.nodes[row], target, s
}
