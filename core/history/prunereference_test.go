package history

import "freshgo/core/sample"

// state is a row of a level: what a breadth-first search over a batch and its layers visits.
type state struct{ level, node int } // node: local id in the plain batch

// plainReference is a batch pruned as algorithms and paper say it, with maps, from the set of states that a
// breadth-first search reaches: no CSR2, bits, ranks or passes by layer.
type plainReference struct {
	layers    int
	reached   map[state]bool
	computed  map[state]bool // reached and computed by the layer of that level
	kept      []int          // plain ids, in the order of the pruned batch
	edges     [][2]int       // of the pruned batch: plain ids of source and target
	positions []int64        // of them in the index array
	first     map[int]int    // number of a target's first edge
	tables    [][]int        // T_l in plain ids
	outputs   [][]int        // C_l in plain ids, 1 <= l <= L
}

func referencePrune(g *sample.Subgraph, hit func(level int, node int64) bool) *plainReference {
	r := &plainReference{layers: len(g.EdgesPerHop), reached: map[state]bool{}, computed: map[state]bool{},
		first: map[int]int{}}
	seeds := int(g.NodesPerHop[0])
	var queue []state
	visit := func(s state) {
		if !r.reached[s] {
			r.reached[s] = true
			queue = append(queue, s)
		}
	}
	for v := range seeds {
		visit(state{r.layers, v})
	}
	for ; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if s.level == 0 || s.level < r.layers && hit(s.level, g.Nodes[s.node]) {
			continue
		}
		r.computed[s] = true
		visit(state{s.level - 1, s.node})
		for _, u := range inEdges(g, s.node) {
			visit(state{s.level - 1, u})
		}
	}
	r.rebuild(g, seeds)
	r.order(g, seeds)
	return r
}

func inEdges(g *sample.Subgraph, v int) (sources []int) {
	if v < len(g.Ptr)-1 {
		for _, u := range g.Row[g.Ptr[v]:g.Ptr[v+1]] {
			sources = append(sources, int(u))
		}
	}
	return sources
}

// any reports whether set has a node at some level.
func (r *plainReference) any(set map[state]bool, node int) bool {
	for l := range r.layers + 1 {
		if set[state{l, node}] {
			return true
		}
	}
	return false
}

// rebuild makes the nodes and edges of the pruned batch.
func (r *plainReference) rebuild(g *sample.Subgraph, seeds int) {
	inner := len(g.Ptr) - 1
	for v := range inner {
		if v < seeds || r.any(r.reached, v) {
			r.kept = append(r.kept, v)
		}
		r.first[v] = len(r.edges)
		if r.any(r.computed, v) {
			for k, u := range inEdges(g, v) {
				r.edges = append(r.edges, [2]int{u, v})
				r.positions = append(r.positions, g.Pos[g.Ptr[v]+int64(k)])
			}
		}
	}
	named := map[int]bool{}
	for _, e := range r.edges {
		if e[0] >= inner && !named[e[0]] {
			named[e[0]] = true
			r.kept = append(r.kept, e[0])
		}
	}
}

// order makes the tables of the levels.
func (r *plainReference) order(g *sample.Subgraph, seeds int) {
	r.tables, r.outputs = make([][]int, r.layers+1), make([][]int, r.layers+1)
	for v := range seeds {
		r.tables[r.layers] = append(r.tables[r.layers], v)
	}
	for l := r.layers; l > 0; l-- {
		for _, v := range r.tables[l] {
			if r.computed[state{l, v}] {
				r.outputs[l] = append(r.outputs[l], v)
			}
		}
		r.tables[l-1] = append([]int{}, r.outputs[l]...)
		for _, v := range r.kept { // in the order of their new numbers
			if r.reached[state{l - 1, v}] && !r.computed[state{l, v}] {
				r.tables[l-1] = append(r.tables[l-1], v)
			}
		}
	}
}

// flat is everything that is exported of a Pruned, in plain Go memory, with empty lists for those of no elements.
type flat struct {
	Nodes, Ptr, Pos, NodesPerHop, EdgesPerHop []int64
	Row, Degree, Kept, Loaded                 []int
	Tables, Computed, Hits, Slots             [][]int
	NumSrc, NumDst                            []int64
	LayerPtr                                  [][]int64
	Source, Edge                              [][]int
	PlainNodes, PlainEdges                    int64
}

func ints[T int32 | uint32](values []T) []int {
	list := []int{}
	for _, v := range values {
		list = append(list, int(v))
	}
	return list
}

func longs(values []int64) []int64 { return append([]int64{}, values...) }

func flatten(o *Pruned) flat {
	g := &o.Graph
	f := flat{
		Nodes: longs(g.Nodes), Ptr: longs(g.Ptr), Pos: longs(g.Pos), NodesPerHop: longs(g.NodesPerHop),
		EdgesPerHop: longs(g.EdgesPerHop),
		Row:         ints(g.Row), Degree: ints(o.Degree), Kept: ints(o.Kept), Loaded: ints(o.Loaded),
		PlainNodes: o.PlainNodes, PlainEdges: o.PlainEdges,
	}
	for l := range o.Levels {
		f.Tables = append(f.Tables, ints(o.Levels[l].Nodes))
		f.Computed = append(f.Computed, ints(o.Levels[l].Computed))
		f.Hits = append(f.Hits, ints(o.Levels[l].Hits))
		f.Slots = append(f.Slots, ints(o.Levels[l].Slots))
		layer := &o.Layers[l]
		f.NumSrc, f.NumDst = append(f.NumSrc, layer.NumSrc), append(f.NumDst, layer.NumDst)
		f.LayerPtr = append(f.LayerPtr, longs(layer.Ptr))
		f.Source, f.Edge = append(f.Source, ints(layer.Source)), append(f.Edge, ints(layer.Edge))
	}
	return f
}

// flat returns the expected result of Prune.
func (r *plainReference) flat(g *sample.Subgraph, slot func(level int, node int64) int32) flat {
	f := flat{
		Nodes: []int64{}, Ptr: []int64{0}, Pos: longs(r.positions), NodesPerHop: make([]int64, r.layers+1),
		EdgesPerHop: make([]int64, r.layers),
		Row:         []int{}, Degree: []int{}, Kept: append([]int{}, r.kept...), Loaded: []int{},
		PlainNodes: int64(len(g.Nodes)), PlainEdges: int64(len(g.Row)),
	}
	number := map[int]int{}
	for n, v := range r.kept {
		number[v] = n
		f.Nodes = append(f.Nodes, g.Nodes[v])
		hop, end := 0, int(g.NodesPerHop[0])
		for v >= end {
			hop++
			end += int(g.NodesPerHop[hop])
		}
		f.NodesPerHop[hop]++
		f.Degree = append(f.Degree, len(inEdges(g, v)))
		if hop < r.layers {
			edges := int64(0)
			if r.any(r.computed, v) {
				edges = int64(len(inEdges(g, v)))
			}
			f.EdgesPerHop[hop] += edges
			f.Ptr = append(f.Ptr, f.Ptr[len(f.Ptr)-1]+edges)
		}
		if hop == 0 || r.reached[state{0, v}] {
			f.Loaded = append(f.Loaded, n)
		}
	}
	for _, e := range r.edges {
		f.Row = append(f.Row, number[e[0]])
	}
	for l := range r.layers {
		table, computed, hits, slots := []int{}, []int{}, []int{}, []int{}
		at := map[int]int{}
		for i, v := range r.tables[l] {
			table = append(table, number[v])
			at[v] = i
			switch {
			case l == 0:
			case r.computed[state{l, v}]:
				computed = append(computed, i)
			default:
				hits = append(hits, i)
				slots = append(slots, int(slot(l, g.Nodes[v])))
			}
		}
		f.Tables, f.Computed = append(f.Tables, table), append(f.Computed, computed)
		f.Hits, f.Slots = append(f.Hits, hits), append(f.Slots, slots)
		ptr, source, edge := []int64{0}, []int{}, []int{}
		for _, v := range r.outputs[l+1] {
			for k, u := range inEdges(g, v) {
				source = append(source, at[u])
				edge = append(edge, r.first[v]+k)
			}
			ptr = append(ptr, int64(len(source)))
		}
		f.NumSrc, f.NumDst = append(f.NumSrc, int64(len(table))), append(f.NumDst, int64(len(r.outputs[l+1])))
		f.LayerPtr, f.Source, f.Edge = append(f.LayerPtr, ptr), append(f.Source, source), append(f.Edge, edge)
	}
	return f
}
