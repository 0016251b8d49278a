package loader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/sample"
)

// drawnEdge is a drawn edge: its relation and its user's number. Positions of one that was drawn twice differ.
type drawnEdge struct {
	relation int
	id       int64
	source   int64 // global numbers
	target   int64
}

// edgesOf lists the edges of a batch by target, in the order of relations.
func (r *trainer) edgesOf(b *seen) map[int64][]drawnEdge {
	s, out := r.l.draw.Parts.Schema, map[int64][]drawnEdge{}
	for i, of := range s.Relations {
		index, ids := b.int64s(s.EdgeName(i, "edge_index")), b.int64s(s.EdgeName(i, "e_id"))
		sources, targets := b.int64s(s.NodeName(of.Source, "n_id")), b.int64s(s.NodeName(of.Target, "n_id"))
		for e, id := range ids {
			edge := drawnEdge{i, id, s.First[of.Source] + sources[index[e]], s.First[of.Target] + targets[index[len(ids)+e]]}
			out[edge.target] = append(out[edge.target], edge)
		}
	}
	return out
}

// requirePruned compares a batch with the plain one, level by level from the seeds (breadth first, over all relations),
// given which rows were found.
func (r *trainer) requirePruned(plain, b *seen) {
	s, levels, drawn := r.l.draw.Parts.Schema, r.levels(b), r.edgesOf(plain)
	computed := map[int64]bool{}
	for typ := range s.NumTypes() {
		for _, v := range b.int64s(s.NodeName(typ, "n_id"))[:b.int64s(s.NodeName(typ, "num_sampled_nodes"))[0]] {
			computed[s.First[typ]+v] = true
		}
		require.Equal(r, plain.int64s(s.NodeName(typ, "input_id")), b.int64s(s.NodeName(typ, "input_id")))
	}
	counts, numNodes, numEdges := b.int64s("history_counts"), 0, 0
	for typ := range s.NumTypes() {
		numNodes += len(plain.int64s(s.NodeName(typ, "n_id")))
	}
	for i := range s.Relations {
		numEdges += len(plain.int64s(s.EdgeName(i, "e_id")))
	}
	require.Equal(r, []int64{int64(numNodes), int64(numEdges)}, counts[2:4])
	remain, edges := maps.Clone(computed), map[int64]bool{}
	for l := len(levels.nodes) - 1; l >= 0; l-- {
		table, targets := map[int64]bool{}, map[int64]bool{}
		var layer []drawnEdge
		for v := range computed {
			table[v], edges[v] = true, true
			layer = append(layer, drawn[v]...)
			for _, e := range drawn[v] {
				table[e.source] = true
			}
		}
		got := map[int64]bool{}
		for at, v := range levels.nodes[l] {
			got[v], remain[v] = true, true
			if levels.targets[l][at] {
				targets[v] = true
			}
		}
		require.Equal(r, table, got, "level %d of batch %d", l, b.index)
		require.Equal(r, computed, targets, "targets of level %d of batch %d", l, b.index)
		r.requireLayer(b, levels, l, layer)
		computed = map[int64]bool{}
		if l > 0 {
			for _, at := range b.int64s(fmt.Sprint("history_computed_", l)) {
				computed[levels.nodes[l][at]] = true
			}
		}
	}
	var want, got []drawnEdge
	for v := range edges {
		want = append(want, drawn[v]...)
	}
	for _, of := range r.edgesOf(b) {
		got = append(got, of...)
	}
	require.Equal(r, sorted(want), sorted(got), "edges of batch %d", b.index)
	r.requireOrder(plain, b, remain, func(v int64) []drawnEdge {
		if edges[v] {
			return drawn[v]
		}
		return nil
	})
}

// requireOrder holds that nodes stand in the order of the plain batch, hop by hop, and those of the last hop in the
// order in which the edges that are left name them.
func (r *trainer) requireOrder(plain, b *seen, remain map[int64]bool, edges func(node int64) []drawnEdge) {
	s := r.l.draw.Parts.Schema
	leaf, leaves := map[int64]bool{}, make([][]int64, s.NumTypes()) // of the plain batch; those that are left
	inner, last := make([][]int64, s.NumTypes()), make([][]int64, s.NumTypes())
	for typ := range s.NumTypes() {
		ids, hops := plain.int64s(s.NodeName(typ, "n_id")), plain.int64s(s.NodeName(typ, "num_sampled_nodes"))
		before, end := draw.Sum(hops[:len(hops)-2]), draw.Sum(hops[:len(hops)-1])
		for at, v := range ids {
			switch v += s.First[typ]; {
			case int64(at) >= end:
				leaf[v] = true
			case remain[v]:
				inner[typ] = append(inner[typ], v)
				if int64(at) >= before {
					last[typ] = append(last[typ], v)
				}
			}
		}
	}
	for _, v := range slices.Concat(last...) {
		for _, e := range edges(v) {
			if leaf[e.source] {
				leaf[e.source] = false
				leaves[sample.TypeOf(s.First, e.source)] = append(leaves[sample.TypeOf(s.First, e.source)], e.source)
			}
		}
	}
	for typ := range s.NumTypes() {
		got := b.int64s(s.NodeName(typ, "n_id"))
		want := []int64{}
		for _, v := range append(inner[typ], leaves[typ]...) {
			want = append(want, v-s.First[typ])
		}
		require.Equal(r, want, append([]int64{}, got...), "nodes of type %d of batch %d", typ, b.index)
		require.EqualValues(r, len(got), draw.Sum(b.int64s(s.NodeName(typ, "num_sampled_nodes"))))
	}
}

// requireLayer compares the edges of the layer above a level.
func (r *trainer) requireLayer(b *seen, levels *levels, l int, want []drawnEdge) {
	s := r.l.draw.Parts.Schema
	var got []drawnEdge
	first := make([]int64, s.NumTypes()+1)
	for typ, n := range levels.size[l] {
		first[typ+1] = first[typ] + n
	}
	for i, of := range s.Relations {
		name := func(part string) string { return s.EdgeName(i, fmt.Sprintf("history_%s_%d", part, l+1)) }
		index, ids, ptr := b.int64s(name("edge_index")), b.int64s(name("edge")), b.int64s(name("ptr"))
		all := b.int64s(s.EdgeName(i, "e_id"))
		for e, at := range ids {
			source, target := index[e], index[len(ids)+e]
			require.True(r, ptr[target] <= int64(e) && int64(e) < ptr[target+1])
			got = append(got, drawnEdge{i, all[at], levels.nodes[l][first[of.Source]+source],
				levels.nodes[l][first[of.Target]+target]})
		}
	}
	require.Equal(r, sorted(want), sorted(got), "layer %d of batch %d", l+1, b.index)
}

func sorted(edges []drawnEdge) []drawnEdge {
	return slices.SortedFunc(slices.Values(edges), func(a, b drawnEdge) int {
		return cmp.Or(cmp.Compare(a.relation, b.relation), cmp.Compare(a.target, b.target), cmp.Compare(a.id, b.id),
			cmp.Compare(a.source, b.source))
	})
}

// TestHistoryPrunesBreadthFirst holds that a pruned batch is the part of the plain one that a search from the seeds
// reaches over all relations, and that this saves something.
func TestHistoryPrunesBreadthFirst(t *testing.T) {
	d := someDataset()
	for _, f := range forms(d) {
		g := f.graph(t)
		for _, policy := range explore.Part(t, f.String(), some(f, history.Performance, history.Gradient, history.All)) {
			for _, lag := range some(f, 2, 0) {
				o := f.withHistory(f.options(), policy)
				o.History.Lag = lag
				if o.Seeds == nil {
					for v := range int64(400) {
						o.Seeds = append(o.Seeds, v*7%someNodes)
					}
				}
				o.Seeds = slices.Compact(slices.Clone(o.Seeds[:400])) // each once, so that nodes name rows
				r := f.train(t, open(t, g, o))
				o.History = nil
				plain := open(t, g, o)
				rows, before := int64(0), int64(0)
				for epoch := range int64(3) {
					whole := epochOf(t, plain, epoch)
					for i, b := range r.epochOf(epoch) {
						r.requirePruned(whole[i], b)
						counts := b.int64s("history_counts")
						rows, before = rows+counts[1], before+counts[2]
					}
				}
				require.Positive(t, r.hits)
				require.Less(t, rows, before*9/10)
			}
		}
	}
}

// TestHistoryOfOneType: with all neighbours, so that nothing is drawn, a graph with one named type gives the batches of
// the same without types.
func TestHistoryOfOneType(t *testing.T) {
	d := newDataset(300, 1500)
	var all [2][]*seen
	for i, name := range []string{"", "node"} {
		f := d.form(name)
		o := f.withHistory(plain(), history.Gradient)
		o.Fanouts, o.BatchSize = []int64{-1, -1, -1}, 10
		r := f.train(t, open(t, f.graph(t), o))
		for epoch := range int64(3) {
			all[i] = append(all[i], r.epochOf(epoch)...)
		}
		require.Positive(t, r.hits)
	}
	for _, b := range all[1] {
		for name := range b.arrays {
			if _, plain, named := strings.Cut(name, "/"); named {
				b.arrays[plain], b.shapes[plain] = b.arrays[name], b.shapes[name]
				delete(b.arrays, name)
				delete(b.shapes, name)
			}
		}
	}
	requireSame(t, all[0], all[1])
}
