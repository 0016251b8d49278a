package sizing

import (
	"cmp"
	"math"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/plan"
)

// holdFeatures decides which tensors are held whole and how many rows of the others are cached, and by which policy.
func (z *division) holdFeatures(s *Split, c *candidate, rest int64) {
	s.layOut(&z.graph)
	if !z.graph.OnDisk || z.ask.Cache == "none" {
		return
	}
	room, shared := z.ask.FeatureCache, rest
	if room == Auto {
		room, shared = rest, 0
	}
	room = z.holdTensors(s, c.less, room)
	s.layOut(&z.graph)
	switch {
	case len(s.Columns) == 0:
		s.unplanned("everything is held in memory")
	case s.Cache == "belady":
		z.plan(s, room, shared)
	default:
		if s.Cache = z.ask.Cache; s.Cache == "auto" {
			s.Cache = "oracle" // of batches to come, which takes no memory but the table
		}
		// Rows are ranked before the cache and batches have memory.
		if z.ask.Memory > 0 && z.costs.Rank > 0 && room+shared+s.Pool < rankingBytes(z) {
			return
		}
		state := 0 // of each row
		if z.ask.mechanism() != "static" {
			state = z.costs.ResidentSlot
		}
		widths := append(slices.Clone(s.Columns), state)
		// The address table of a cache spans all nodes, whichever types have rows in it.
		fit := cache.Capacity(z.ask.mechanism(), room, z.graph.Nodes, widths)
		s.CacheRows = min(fit, s.cacheable(&z.graph))
		if s.CacheRows == 0 && z.ask.Cache == "auto" {
			s.Cache = "none"
		}
	}
}

// holdTensors holds tensors whole as if there were less room by the given bytes, and returns the remaining room. It
// sets slack to the bytes by which less room would hold other tensors.
func (z *division) holdTensors(s *Split, less, room int64) int64 {
	s.slack = math.MaxInt64
	fits := func(bytes, share int64) bool { // if it takes at most a share of the room
		slack := (room - less) - share*bytes
		if slack >= 0 && bytes > 0 {
			s.slack = min(s.slack, slack)
		}
		return slack >= 0
	}
	hold := func(tensors []int) {
		room -= z.graph.bytesOf(s, tensors)
		for _, i := range tensors {
			s.Resident[i] = true
		}
	}
	constant := func(tensors []int) []int {
		return slices.DeleteFunc(tensors, func(i int) bool { return z.graph.Tensors[i].Trained })
	}
	nodes, edges := constant(z.graph.byWidth(false)), z.graph.byWidth(true)
	for _, i := range nodes {
		if t := &z.graph.Tensors[i]; t.Width <= smallRow && fits(t.bytes(), 2) {
			hold([]int{i})
		}
	}
	for _, all := range [][]int{nodes, edges} {
		if fits(z.graph.bytesOf(s, all), 1) {
			hold(all)
		}
	}
	for _, of := range z.graph.types(s) {
		if of = constant(of); fits(z.graph.bytesOf(s, of), 2) { // what does not fit is worth more than the type that does
			hold(of)
		}
	}
	if s.slack == math.MaxInt64 {
		s.slack = -1 // nothing is held
	}
	return room
}

// bytesOf returns the bytes of the given tensors that are not held.
func (g *Graph) bytesOf(s *Split, tensors []int) (total int64) {
	for _, i := range tensors {
		if !s.Resident[i] {
			total += g.Tensors[i].bytes()
		}
	}
	return total
}

// byWidth is the tensors of nodes, or of edges, by rising width.
func (g *Graph) byWidth(edges bool) (order []int) {
	for i := range g.Tensors {
		if t := &g.Tensors[i]; t.ByEdge == edges && t.Used {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(g.Tensors[a].Width, g.Tensors[b].Width)
	})
	return order
}

// types returns the tensors that are cached, of each node type, the type with the narrowest rows first: types that come
// later have slots as narrow as they are themselves.
func (g *Graph) types(s *Split) [][]int {
	types, widths := make([][]int, len(g.Types)), make([]int, len(g.Types))
	for _, i := range g.cached(s) {
		t := &g.Tensors[i]
		types[t.Type] = append(types[t.Type], i)
		widths[t.Type] += t.Width
	}
	types = slices.DeleteFunc(types, func(of []int) bool { return len(of) == 0 })
	slices.SortStableFunc(types, func(a, b []int) int {
		return cmp.Compare(widths[g.Tensors[a[0]].Type], widths[g.Tensors[b[0]].Type])
	})
	return types
}

// cached is the node tensors that are cached row by row, by falling width.
func (g *Graph) cached(s *Split) (order []int) {
	for i := range g.Tensors {
		if !g.Tensors[i].ByEdge && !s.HoldsTensor(g, i) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(g.Tensors[b].Width, g.Tensors[a].Width)
	})
	return order
}

// layOut lays out a slot of the cache, which holds a node's rows of all cached tensors: a column for the widest tensors
// of all types, one for the second widest, and so on.
//
// Slots have one size, so that a node of any type can replace any other and plans need not know types. If the widths of
// types differ much, narrow rows waste the difference; types that fit whole are held whole first, narrow before wide.
func (s *Split) layOut(g *Graph) {
	s.Columns, s.ColumnOf = nil, slices.Repeat([]int{-1}, len(g.Tensors))
	next := make([]int, len(g.Types)) // of each type, its next column
	for _, i := range g.cached(s) {
		t := &g.Tensors[i]
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
func (s *Split) cacheable(g *Graph) (n int64) {
	for _, t := range s.cachedTypes(g) {
		n += g.Types[t]
	}
	return n
}

// cachedTypes returns the node types whose rows are cached.
func (s *Split) cachedTypes(g *Graph) (types []int) {
	for i, column := range s.ColumnOf {
		if t := g.Tensors[i].Type; column >= 0 && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// mechanism is the policy that holds the rows of Request.Cache.
func (r *Request) mechanism() string {
	if slices.Contains(cache.OnlineNames(), r.Cache) {
		return r.Cache
	}
	return "static"
}

// rankingBytes returns the memory that ranking rows takes for a while, the scores included, which become the address
// table.
func rankingBytes(z *division) int64 {
	return z.costs.Rank + cache.PolicyBytes("static", z.graph.Nodes, 1)
}

// moreForRanking returns the temporary memory of a requested ranking beyond the cache. If there is room for all rows,
// nothing is ranked.
func moreForRanking(z *division) int64 {
	if z.costs.Rank == 0 || !z.graph.OnDisk || z.ask.FeatureCache == 0 {
		return 0
	}
	rows := int64(0)
	for i := range z.graph.Tensors {
		if t := &z.graph.Tensors[i]; t.Used && !t.ByEdge {
			rows += t.bytes()
		}
	}
	if named := max(0, z.ask.FeatureCache); named < rows {
		return max(0, min(rankingBytes(z), rows)-named)
	}
	return 0
}

// tableBytes returns the memory of the cache without its rows.
func (z *division) tableBytes(s *Split) int64 {
	switch {
	case s.Cache == "belady":
		return 4*s.CacheRows + plan.StateBytes(s.PlanRows, s.CacheRows)
	case s.CacheRows > 0:
		return cache.PolicyBytes(z.ask.mechanism(), z.graph.Nodes, s.CacheRows)
	}
	return 0
}
