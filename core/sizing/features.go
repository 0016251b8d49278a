package sizing

import (
	"cmp"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/plan"
)

// holdFeatures decides which tensors are held whole and how many rows of the others are cached, by what.
func (z *division) holdFeatures(s *Split, byRow bool, rest int64) {
	z.layOut(s)
	if !z.graph.OnDisk || z.ask.Cache == "none" {
		return
	}
	room, shared := z.ask.FeatureCache, rest
	if room == Auto {
		room, shared = rest, 0
	}
	order := z.byWidth(false)
	for _, i := range order {
		t := &z.graph.Tensors[i]
		if !byRow && t.Width <= smallRow && t.bytes() <= room/2 {
			s.Resident[i] = true
			room -= t.bytes()
		}
	}
	room = z.holdAll(s, order, room)
	room = z.holdAll(s, z.byWidth(true), room)
	if !byRow {
		room = z.holdTypes(s, room)
	}
	z.layOut(s)
	switch {
	case len(s.Columns) == 0:
		s.unplanned("everything is held in memory")
	case s.Cache == "belady":
		z.plan(s, room, shared)
	default:
		if s.Cache = z.ask.Cache; s.Cache == "auto" {
			s.Cache = "degree" // the ranking that costs least
		}
		widths := append(slices.Clone(s.Columns), z.residentSlot())
		// The address table of a cache spans all nodes, whichever types have rows in it.
		fit := cache.Capacity(z.mechanism(), room-z.costs.Rank, z.graph.Nodes, widths)
		s.CacheRows = min(fit, z.cacheable(s))
		if s.CacheRows == 0 && z.ask.Cache == "auto" {
			s.Cache = "none"
		}
	}
}

// byWidth is the tensors of nodes, or of edges, by rising width.
func (z *division) byWidth(edges bool) (order []int) {
	for i := range z.graph.Tensors {
		if t := &z.graph.Tensors[i]; t.ByEdge == edges && t.Used {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(z.graph.Tensors[a].Width, z.graph.Tensors[b].Width)
	})
	return order
}

// holdAll holds all of these tensors where there is room for all, and returns the room that is left.
func (z *division) holdAll(s *Split, which []int, room int64) int64 {
	var need int64
	for _, i := range which {
		if !s.Resident[i] {
			need += z.graph.Tensors[i].bytes()
		}
	}
	if need > room {
		return room
	}
	for _, i := range which {
		s.Resident[i] = true
	}
	return room - need
}

// holdTypes holds all rows of a node type where they have room, the type with the narrowest rows first, and returns the
// room that is left. Types that come later have slots as narrow as they are themselves.
func (z *division) holdTypes(s *Split, room int64) int64 {
	type share struct {
		typ          int
		width, bytes int64
	}
	shares := make([]share, len(z.graph.Types))
	for t := range shares {
		shares[t].typ = t
	}
	for _, i := range z.cached(s) {
		t := &z.graph.Tensors[i]
		shares[t.Type].width += int64(t.Width)
		shares[t.Type].bytes += t.bytes()
	}
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(a.width, b.width) })
	for _, of := range shares {
		if of.bytes > room/2 {
			continue // what does not fit is worth more than the type that does
		}
		for _, i := range z.cached(s) {
			if z.graph.Tensors[i].Type == of.typ {
				s.Resident[i] = true
			}
		}
		room -= of.bytes
	}
	return room
}

// cached is the node tensors that are cached row by row, by falling width.
func (z *division) cached(s *Split) (order []int) {
	for i := range z.graph.Tensors {
		if t := &z.graph.Tensors[i]; z.graph.OnDisk && !t.ByEdge && t.Used && !s.Resident[i] {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(z.graph.Tensors[b].Width, z.graph.Tensors[a].Width)
	})
	return order
}

// layOut lays out a slot of the cache, which holds a node's rows of all tensors that are cached: a column for the
// widest tensors of all types, one for the second widest, and so on.
//
// Slots are of one size, so that a node of any type may take the place of any other and plans need not know types.
// Where the widths of types differ much, the narrow ones waste the difference; types that fit whole are held whole
// first, the narrow before the wide.
func (z *division) layOut(s *Split) {
	s.Columns, s.ColumnOf = nil, slices.Repeat([]int{-1}, len(z.graph.Tensors))
	next := make([]int, len(z.graph.Types)) // of each type, its next column
	for _, i := range z.cached(s) {
		t := &z.graph.Tensors[i]
		column := next[t.Type]
		next[t.Type]++
		if column == len(s.Columns) {
			s.Columns = append(s.Columns, t.Width)
		}
		s.Columns[column] = max(s.Columns[column], t.Width)
		s.ColumnOf[i] = column
	}
}

// cacheable returns the number of nodes whose rows are cached.
func (z *division) cacheable(s *Split) (n int64) {
	seen := make([]bool, len(z.graph.Types))
	for i, column := range s.ColumnOf {
		if t := z.graph.Tensors[i].Type; column >= 0 && !seen[t] {
			seen[t] = true
			n += z.graph.Types[t]
		}
	}
	return n
}

// mechanism is the policy that holds the rows of Request.Cache.
func (z *division) mechanism() string {
	if slices.Contains(cache.OnlineNames(), z.ask.Cache) {
		return z.ask.Cache
	}
	return "static"
}

// residentSlot returns the size of the state of each row, in a cache that changes.
func (z *division) residentSlot() int {
	if z.mechanism() == "static" {
		return 0
	}
	return z.costs.ResidentSlot
}

// tableBytes returns the memory of the cache beside its rows.
func (z *division) tableBytes(s *Split) int64 {
	switch n := z.graph.Nodes; {
	case s.Cache == "belady":
		return 4*s.CacheRows + plan.StateBytes(n, s.CacheRows)
	case s.CacheRows > 0:
		return cache.PolicyBytes(z.mechanism(), n, s.CacheRows)
	}
	return 0
}
