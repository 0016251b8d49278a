package prune

import (
	"slices"

	"freshgo/core/history"
	"freshgo/core/sample"
)

// flat is a flat batch with a type, a hop and in-edges for each of its nodes, which are places in Nodes.
type flat struct {
	shape    *history.Shape
	hops     int
	first    []int // of each type, its first node; and the end
	typ, hop []int
	in       [][]edge // relation after relation
}

// edge is one of a flat batch, its ends as nodes of that.
type edge struct {
	relation, source, target int
	position                 int64
}

func flatten(shape *history.Shape, g *sample.Subgraph) *flat {
	f := &flat{shape: shape, hops: len(g.NodesPerHop)/shape.Types() - 1, first: []int{0}}
	for typ := range shape.Types() {
		for hop := range f.hops + 1 {
			for range g.NodesPerHop[typ*(f.hops+1)+hop] {
				f.typ, f.hop = append(f.typ, typ), append(f.hop, hop)
			}
		}
		f.first = append(f.first, len(f.typ))
	}
	f.in = make([][]edge, len(f.typ))
	ptr, base := g.Ptr, int64(0)
	for i, r := range shape.Relations {
		last := int64(0)
		for v := f.first[r.Target]; v < f.first[r.Target+1] && f.hop[v] < f.hops; v, ptr = v+1, ptr[1:] {
			for e := base + ptr[0]; e < base+ptr[1]; e++ {
				f.in[v] = append(f.in[v], edge{i, f.first[r.Source] + int(g.Row[e]), v, g.Pos[e]})
			}
			last = ptr[1]
		}
		ptr, base = ptr[1:], base+last
	}
	return f
}

// level is a table of a hidden level: global numbers of its nodes, in order.
type level struct{ Computed, Hits []int64 }

// remains holds the remaining batch, and the place in it of each drawn node whose features are read.
type remains struct {
	Nodes, NodesPerHop, Ptr, Pos, EdgesPerHop []int64
	Row                                       []uint32
	Places                                    []int32
	Levels                                    []level // of hidden level l at l-1
}

// row is a row of a level.
type row struct {
	level int
	node  int // of the flat batch
}

// leave prunes a batch by a search over single rows: a seed's output is computed; a computed row reads its node and the
// sources of all its in-edges, a level below; and any of these that the history does not have is computed. Nodes with a
// reached row remain, and all in-edges of nodes with a computed row.
func leave(shape *history.Shape, g *sample.Subgraph, found func(layer int, node int64) bool) *remains {
	f := flatten(shape, g)
	reached, computed := map[row]bool{}, map[row]bool{}
	var visit func(r row)
	visit = func(r row) {
		if reached[r] {
			return
		}
		reached[r] = true
		if r.level == 0 || r.level < f.hops && found(r.level, g.Nodes[r.node]) {
			return
		}
		computed[r] = true
		visit(row{r.level - 1, r.node})
		for _, e := range f.in[r.node] {
			visit(row{r.level - 1, e.source})
		}
	}
	for v, hop := range f.hop {
		if hop == 0 {
			visit(row{f.hops, v})
		}
	}
	kept := f.order(reached, computed)
	left := f.rebuild(g, kept, computed)
	left.tables(f, g, kept, reached, computed)
	left.Places = make([]int32, len(g.Nodes))
	number := numbers(kept)
	for v := range left.Places {
		if left.Places[v] = -1; f.hop[v] == 0 || reached[row{0, v}] {
			left.Places[v] = int32(number[v])
		}
	}
	return left
}

// some reports whether a set has a row of a node.
func (f *flat) some(set map[row]bool, node int) bool {
	for l := range f.hops + 1 {
		if set[row{l, node}] {
			return true
		}
	}
	return false
}

// order is the nodes that remain: as they stood, and those of the last hop as the edges name them that remain.
func (f *flat) order(reached, computed map[row]bool) (kept []int) {
	of := make([][]int, f.shape.Types())
	named := map[int]bool{}
	for typ := range of {
		for v := f.first[typ]; v < f.first[typ+1]; v++ {
			if f.hop[v] < f.hops && f.some(reached, v) {
				of[typ] = append(of[typ], v)
			}
		}
	}
	for _, targets := range slices.Clone(of) {
		for _, v := range targets {
			if f.hop[v] < f.hops-1 || !f.some(computed, v) {
				continue
			}
			for _, e := range f.in[v] {
				if f.hop[e.source] == f.hops && !named[e.source] {
					named[e.source] = true
					of[f.typ[e.source]] = append(of[f.typ[e.source]], e.source)
				}
			}
		}
	}
	return slices.Concat(of...)
}

func numbers(kept []int) map[int]int {
	number := map[int]int{}
	for n, v := range kept {
		number[v] = n
	}
	return number
}

// rebuild is the flat batch of the nodes that remain.
func (f *flat) rebuild(g *sample.Subgraph, kept []int, computed map[row]bool) *remains {
	types, relations := f.shape.Types(), f.shape.Relations
	left := &remains{NodesPerHop: make([]int64, types*(f.hops+1)), EdgesPerHop: make([]int64, len(relations)*f.hops)}
	first := make([]int, types+1)
	for _, v := range kept {
		left.Nodes = append(left.Nodes, g.Nodes[v])
		left.NodesPerHop[f.typ[v]*(f.hops+1)+f.hop[v]]++
		first[f.typ[v]+1]++
	}
	for typ := range types {
		first[typ+1] += first[typ]
	}
	number := numbers(kept)
	for i, r := range relations {
		begin := len(left.Row)
		left.Ptr = append(left.Ptr, 0)
		for _, v := range kept[first[r.Target]:first[r.Target+1]] {
			if f.hop[v] == f.hops {
				continue
			}
			for _, e := range f.in[v] {
				if e.relation == i && f.some(computed, v) {
					left.Row = append(left.Row, uint32(number[e.source]-first[r.Source]))
					left.Pos = append(left.Pos, e.position)
					left.EdgesPerHop[i*f.hops+f.hop[v]]++
				}
			}
			left.Ptr = append(left.Ptr, int64(len(left.Row)-begin))
		}
	}
	return left
}

// tables makes those of the hidden levels: of each type first the targets of the layer above, as they are computed.
func (left *remains) tables(f *flat, g *sample.Subgraph, kept []int, reached, computed map[row]bool) {
	left.Levels = make([]level, f.hops-1)
	above := kept // the rows that layer l+1 computes, in order
	for l := f.hops - 1; l > 0; l-- {
		var table, next []int
		for typ := range f.shape.Types() {
			for _, v := range above {
				if f.typ[v] == typ && computed[row{l + 1, v}] {
					table = append(table, v)
				}
			}
			for _, v := range kept {
				if f.typ[v] == typ && reached[row{l, v}] && !computed[row{l + 1, v}] {
					table = append(table, v)
				}
			}
		}
		for _, v := range table {
			if computed[row{l, v}] {
				left.Levels[l-1].Computed = append(left.Levels[l-1].Computed, g.Nodes[v])
				next = append(next, v)
			} else {
				left.Levels[l-1].Hits = append(left.Levels[l-1].Hits, g.Nodes[v])
			}
		}
		above = next
	}
}

// made returns the batch that a Cut has left, as Build returns it.
func made(c *Cut, shape *history.Shape, places []int32) *remains {
	g := c.Batch.Graph()
	left := &remains{
		Nodes: slices.Clone(g.Nodes), NodesPerHop: slices.Clone(g.NodesPerHop), Ptr: slices.Clone(g.Ptr),
		Pos: slices.Clone(g.Pos), EdgesPerHop: slices.Clone(g.EdgesPerHop), Row: slices.Clone(g.Row),
		Places: slices.Clone(places), Levels: make([]level, len(c.Batch.Tables)-1),
	}
	f := flatten(shape, g)
	for l := range left.Levels {
		table, nodes := &c.Batch.Tables[l+1], []int64(nil)
		for typ := range shape.Types() {
			for _, v := range table.Nodes[table.First[typ]:table.First[typ+1]] {
				nodes = append(nodes, g.Nodes[f.first[typ]+int(v)])
			}
		}
		for _, at := range table.Computed {
			left.Levels[l].Computed = append(left.Levels[l].Computed, nodes[at])
		}
		for _, at := range table.Hits {
			left.Levels[l].Hits = append(left.Levels[l].Hits, nodes[at])
		}
	}
	return left
}

// plain makes lists without elements nil.
func (left *remains) plain() *remains {
	for _, list := range []*[]int64{&left.Nodes, &left.Ptr, &left.Pos, &left.NodesPerHop, &left.EdgesPerHop} {
		*list = append([]int64(nil), *list...)
	}
	left.Row, left.Places = append([]uint32(nil), left.Row...), append([]int32(nil), left.Places...)
	return left
}
