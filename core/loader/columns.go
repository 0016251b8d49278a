package loader

import (
	"cmp"
	"slices"
)

// columns lays out a slot of the cache, which holds a node's rows of all tables on disk: one column for each table or, where nodes have types, for the
// widest tables of all types, the second widest, and so on. It returns the widths and tells which table is in which column. resident is which tensors
// are in memory.
//
// Slots are of one size, so that a node of any type may take the place of any other and plans need not know types. Where the widths of types differ
// much, the narrow ones waste the difference; types that fit whole are held whole first, the narrow before the wide.
func (p *parts) columns(resident []bool, place func(tensor, column int)) (widths []int) {
	next := make(map[int]int) // of each type, its next column
	for _, i := range p.cacheOrder(resident) {
		t := &p.tensors[i]
		column := next[t.typ]
		next[t.typ]++
		if column == len(widths) {
			widths = append(widths, t.width)
		}
		widths[column] = max(widths[column], t.width)
		place(i, column)
	}
	return widths
}

// cacheOrder is the tensors that are cached row by row: in their order, with types by falling width.
func (p *parts) cacheOrder(resident []bool) (order []int) {
	for i := range p.tensors {
		if t := &p.tensors[i]; !t.byEdge && t.onDisk != nil && !resident[i] && p.reaches(t) {
			order = append(order, i)
		}
	}
	if !p.types.unnamed() {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.tensors[b].width, p.tensors[a].width) })
	}
	return order
}

// cacheable is how many nodes have rows that are cached.
func (p *parts) cacheable(resident []bool) (n int64) {
	if p.types.unnamed() {
		return p.numNodes
	}
	seen := make([]bool, p.types.types())
	for _, i := range p.cacheOrder(resident) {
		if t := p.tensors[i].typ; !seen[t] {
			seen[t] = true
			n += p.types.count(t)
		}
	}
	return n
}

// nodesOf is how many rows of a tensor a batch brings that is of this demand.
func (p *parts) nodesOf(d *demand, t *tensor) int64 {
	if p.types.unnamed() {
		return d.nodes
	}
	c := p.types.demanded(d)
	return c.nodes[t.typ+1] - c.nodes[t.typ]
}

// holdTypes holds all rows of a node type where they have room, the type with the narrowest rows first. Types that come later have slots as narrow as
// they are themselves.
func (z *sizer) holdTypes(s *split, room int64) int64 {
	if z.parts.types.unnamed() {
		return room
	}
	type share struct {
		typ          int
		width, bytes int64
	}
	shares := make([]share, z.parts.types.types())
	for i := range shares {
		shares[i].typ = i
	}
	for _, i := range z.parts.cacheOrder(s.resident) {
		t := &z.parts.tensors[i]
		shares[t.typ].width += int64(t.width)
		shares[t.typ].bytes += t.bytes()
	}
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(a.width, b.width) })
	for _, of := range shares {
		if of.bytes > room/2 {
			continue // what does not fit is worth more than the type that does
		}
		for _, i := range z.parts.cacheOrder(s.resident) {
			if z.parts.tensors[i].typ == of.typ {
				s.resident[i] = true
			}
		}
		room -= of.bytes
	}
	return room
}
