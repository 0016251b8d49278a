package loader

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/sample"
)

// linkForest is a batch of links of a relation, in trees.
type linkForest struct {
	*testing.T
	f              *form
	g              *draw.Graph
	types          *draw.Schema
	o              draw.Options
	source, target int // types
	b              *seen

	links     links.Options
	input     []int64
	n         int // links
	sources   int // seeds that are sources
	ends      int // seeds that are targets
	first     int // of these among the seeds of their type
	negatives int
	times     []int64                     // of links; nil: there are none
	sees      []func(id, link int64) bool // by relation
	tree      [][]int                     // by type, of each node: the number of its seed, sources first
}

func (l *linkForest) of(typ int, name string) []int64 {
	return l.b.int64s(l.types.NodeName(typ, name))
}

func (l *linkForest) along(relation int, name string) []int64 {
	return l.b.int64s(l.types.EdgeName(relation, name))
}

// requireLinkTrees looks at every seed and edge of a batch.
func (f *form) requireLinkTrees(t *testing.T, g *draw.Graph, o draw.Options, source, target int, b *seen) {
	t.Helper()
	l := &linkForest{T: t, f: f, g: g, types: g.Parts().Schema, o: o, source: source, target: target, b: b,
		links: *o.Links}
	if l.links.Sources == nil {
		l.links.Sources, l.links.Targets = f.ends(l.links.Relation)
	}
	l.input = l.along(l.links.Relation, "input_id")
	l.n = len(l.input)
	l.negatives = int(math.Ceil(float64(l.n) * l.links.Negatives))
	l.ends = l.n + l.negatives
	l.sources = l.ends
	if l.links.Triplets {
		l.sources = l.n
	}
	if source == target {
		l.first = l.sources
	}
	l.seeds()
	l.strict()
	l.seedTimes()
	l.edges()
}

// seeds holds that sources and targets of links are seeds in their order, each with its link.
func (l *linkForest) seeds() {
	from, to, k := l.of(l.source, "n_id"), l.of(l.target, "n_id"), &l.links
	for i, at := range l.input {
		if k.Sources[at] != from[i] || k.Targets[at] != to[l.first+i] {
			l.Fatalf("seeds of link %d are %d and %d", i, from[i], to[l.first+i])
		}
	}
	if k.Triplets {
		require.Equal(l, upwards(0, l.n), l.of(l.source, "src_index"))
		require.Equal(l, upwards(l.first, l.first+l.n), l.of(l.target, "dst_pos_index"))
		each := int(k.Negatives)
		for at, end := range l.of(l.target, "dst_neg_index") {
			if want := l.first + l.n + at%each*l.n + at/each; end != int64(want) {
				l.Fatalf("negative %d is seed %d, want %d", at, end, want)
			}
		}
	} else {
		want := append(upwards(0, l.sources), upwards(l.first, l.first+l.ends)...)
		require.Equal(l, want, l.along(k.Relation, "edge_label_index"))
	}
	l.tree = make([][]int, len(l.f.names))
	for typ := range l.tree {
		count := 0
		if typ == l.source {
			count += l.sources
		}
		if typ == l.target {
			count += l.ends
		}
		require.EqualValues(l, count, l.of(typ, "num_sampled_nodes")[0])
		for range l.of(typ, "n_id") {
			l.tree[typ] = append(l.tree[typ], -1)
		}
	}
	for i := range l.sources {
		l.tree[l.source][i] = i
	}
	for i := range l.ends {
		l.tree[l.target][l.first+i] = l.sources + i
	}
}

// strict holds that strict negatives are no edges of the graph, and no node with itself.
func (l *linkForest) strict() {
	if !l.links.Strict {
		return
	}
	sources, _ := l.f.ends(l.links.Relation)
	into := l.f.inEdges(l.links.Relation)
	from, to := l.of(l.source, "n_id"), l.of(l.target, "n_id")
	for j := range l.negatives {
		u, v := from[j%l.n], to[l.first+l.n+j]
		if !l.links.Triplets {
			u = from[l.n+j]
		}
		isEdge := slices.ContainsFunc(into[v], func(id int64) bool { return sources[id] == u })
		require.False(l, isEdge || l.source == l.target && u == v, "negative %d is from %d to %d", j, u, v)
	}
}

// linkOf is the link of a tree.
func (l *linkForest) linkOf(tree int) int64 {
	if tree >= l.sources {
		tree -= l.sources
	}
	return int64(tree % l.n)
}

// seedTimes looks at the times of links and of what goes with them: ends of negatives are not later than their link.
func (l *linkForest) seedTimes() {
	if l.o.TimeAttr == "" {
		return
	}
	given := numbers(l.f.edges[l.links.Relation].Tensors, l.o.TimeAttr)
	for _, p := range l.input {
		if l.o.SeedTimes != nil {
			l.times = append(l.times, l.o.SeedTimes[p])
		} else {
			l.times = append(l.times, int64(given[p]))
		}
	}
	if l.links.Triplets {
		require.Equal(l, l.times, l.of(l.source, draw.SeedTimeName))
		require.Equal(l, l.times, l.of(l.target, draw.SeedTimeName))
	} else {
		var want []int64
		for j := range l.ends {
			want = append(want, l.times[j%l.n])
		}
		require.Equal(l, want, l.along(l.links.Relation, draw.LinkTimeName))
	}
	for _, end := range []struct{ typ, first, count int }{{l.source, 0, l.sources}, {l.target, l.first, l.ends}} {
		born, ids := numbers(l.f.nodes[end.typ], l.o.TimeAttr), l.of(end.typ, "n_id")
		for i := l.n; i < end.count && born != nil; i++ {
			require.LessOrEqual(l, int64(born[ids[end.first+i]]), l.times[i%l.n])
		}
	}
}

// allowed says which edges of a relation a link sees.
func (l *linkForest) allowed(relation int) func(id, link int64) bool {
	f, source, k := l.f, l.g.Edges[relation].Source, &l.links
	sources, targets := f.ends(relation)
	excluded := map[sample.Link]bool{}
	for _, p := range l.input {
		if k.Exclude != links.ExcludeNone && k.Relation == relation {
			excluded[sample.Link{Source: k.Sources[p], Target: k.Targets[p]}] = true
		}
		if k.Exclude == links.ExcludeBoth && k.Reverse == relation {
			excluded[sample.Link{Source: k.Targets[p], Target: k.Sources[p]}] = true
		}
	}
	visible := f.visible(&l.o, relation, source, l.times)
	return func(id, link int64) bool {
		return !excluded[sample.Link{Source: sources[id], Target: targets[id]}] && visible(id, link)
	}
}

// edges looks at them hop by hop: each is in one tree, seen by its link, and there are all or the fanout.
func (l *linkForest) edges() {
	begin := make([]int64, len(l.f.names))
	for i := range l.g.Edges {
		l.sees = append(l.sees, l.allowed(i))
	}
	for hop := range l.f.fanouts(l.o)[0] {
		for i, e := range l.g.Edges {
			l.expand(i, hop, begin[e.Target], begin[e.Target]+l.of(e.Target, "num_sampled_nodes")[hop])
		}
		for typ := range begin {
			begin[typ] += l.of(typ, "num_sampled_nodes")[hop]
		}
	}
	type place struct {
		tree int
		node int64
	}
	for typ, tensors := range l.f.nodes {
		ids, trees, places := l.of(typ, "n_id"), l.of(typ, draw.TreeName), map[place]bool{}
		for i, v := range ids {
			places[place{l.tree[typ][i], v}] = true
			if link := l.linkOf(l.tree[typ][i]); link != trees[i] {
				l.Fatalf("node %d of type %d goes with link %d, its tree with %d", i, typ, trees[i], link)
			}
		}
		require.Len(l, places, len(ids), "a node is twice in a tree")
		for _, x := range tensors {
			l.f.requireRows(l.T, l.b, l.types.NodeName(typ, x.Name), x, ids)
		}
	}
}

// expand looks at what some targets of a relation have drawn in a hop.
func (l *linkForest) expand(relation, hop int, begin, end int64) {
	e, allowed := l.g.Edges[relation], l.sees[relation]
	sources, targets := l.f.ends(relation)
	inEdges := l.f.inEdges(relation)
	ptr, eID, index := l.along(relation, "ptr"), l.along(relation, "e_id"), l.along(relation, "edge_index")
	from, to := l.of(e.Source, "n_id"), l.of(e.Target, "n_id")
	for target := begin; target < end; target++ {
		tree, want := l.tree[e.Target][target], int64(0)
		for _, id := range inEdges[to[target]] {
			if allowed(id, l.linkOf(tree)) {
				want++
			}
		}
		if k := l.f.fanouts(l.o)[relation][hop]; k >= 0 && (want > k || l.o.Replace && want > 0) {
			want = k
		}
		if have := ptr[target+1] - ptr[target]; have != want {
			l.Fatalf("node %d has %d edges of relation %d, want %d", target, have, relation, want)
		}
		for at := ptr[target]; at < ptr[target+1]; at++ {
			id, source := eID[at], index[at]
			if l.tree[e.Source][source] < 0 {
				l.tree[e.Source][source] = tree
			}
			if !allowed(id, l.linkOf(tree)) || l.tree[e.Source][source] != tree || sources[id] != from[source] ||
				targets[id] != to[target] {
				l.Fatalf("edge %d of relation %d and tree %d, which is the graph's %d", at, relation, tree, id)
			}
		}
	}
}

func upwards(from, to int) (all []int64) {
	for v := from; v < to; v++ {
		all = append(all, int64(v))
	}
	return all
}
