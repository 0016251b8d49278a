package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// TestWantedLists holds the rule by which lists are ranked.
func TestWantedLists(t *testing.T) {
	edge := func(source, name, target string, pairs ...int64) draw.GraphEdges {
		var ends [2][]int64
		for i, v := range pairs {
			ends[i%2] = append(ends[i%2], v)
		}
		index := store.Dense(manifest.DType_INT64, []int64{2, int64(len(pairs) / 2)},
			mem.Bytes(append(ends[0], ends[1]...)))
		return draw.GraphEdges{Source: source, Relation: name, Target: target, EdgeIndex: index}
	}
	d := &form{names: []string{"author", "paper", "term", "alone"}, counts: []int64{3, 4, 2, 1},
		nodes: make([][]draw.GraphTensor, 4)}
	d.edges = []draw.GraphEdges{
		edge("paper", "by", "author", 0, 0, 1, 0, 1, 1, 1, 2),
		edge("author", "rev_by", "paper", 0, 0, 0, 1, 1, 1, 2, 1),
		edge("paper", "has", "term", 0, 0, 2, 1, 3, 1),
		edge("term", "rev_has", "paper", 0, 0, 1, 2, 1, 3),
		edge("paper", "to", "alone", 0, 0),
		edge("alone", "self", "alone", 0, 0),
	}
	s := d.store(t, ssd.OS)
	list := func(hops ...int64) (all [][]int64) {
		for range d.edges {
			all = append(all, hops)
		}
		return all
	}
	of := func(relation int) *links.Options { return &links.Options{Relation: relation} }
	for name, c := range map[string]struct {
		change func(o *draw.Options)
		read   []int     // relations
		wanted []float32 // author 0 to 2, paper 0 to 3, term 0 and 1, alone
	}{
		"two hops from authors": {func(o *draw.Options) { o.Seeds, o.RelationFanouts = []int64{1, 2, 1}, list(2, 2) },
			[]int{0, 1, 3}, []float32{0, 2, 1, 1, 3, 0, 0, 0, 0, 0}}, // papers by "by", authors as often as they are input
		"three hops from authors": {func(o *draw.Options) { o.Seeds, o.RelationFanouts = []int64{1}, list(2, 2, 2) },
			[]int{0, 1, 2, 3}, []float32{2, 1, 1, 1, 3, 0, 0, 1, 2, 0}},
		"one hop": {func(o *draw.Options) { o.Seeds, o.RelationFanouts = []int64{1}, list(2) },
			[]int{0}, []float32{0, 1, 0, 1, 3, 0, 0, 0, 0, 0}},
		"a relation that is not drawn along": {func(o *draw.Options) {
			o.Seeds, o.RelationFanouts = []int64{3}, [][]int64{{2, 2}, {0, 0}, {2, 2}, {2, 2}, {2, 2}, {2, 2}}
		}, []int{2, 3}, []float32{0, 0, 0, 1, 0, 0, 0, 1, 2, 0}},
		"induced": {func(o *draw.Options) { o.Seeds, o.RelationFanouts, o.Subgraph = []int64{1}, list(2, 2), sample.Induced },
			[]int{0, 1, 2, 3}, []float32{2, 1, 1, 1, 3, 0, 0, 1, 2, 0}},
		"walks": {func(o *draw.Options) {
			o.Seeds, o.RelationFanouts = []int64{0}, [][]int64{{2}}
			o.Metapaths = []sample.Metapath{{Path: []int{0, 1}, Walks: []sample.Walk{{Walks: 2, Length: 2}}}}
		}, []int{0, 1}, []float32{2, 1, 1, 1, 3, 0, 0, 0, 0, 0}},
		"links": {func(o *draw.Options) { o.Links, o.RelationFanouts = of(3), list(2) },
			[]int{1, 2, 3}, []float32{2, 1, 1, 1, 0, 1, 1, 1, 2, 0}},
		"links of a type to which nothing leads": {func(o *draw.Options) {
			o.Links, o.RelationFanouts = of(2), [][]int64{{2, 2}, {2, 2}, {2, 0}, {0, 0}, {2, 2}, {2, 2}}
		}, []int{0, 1, 2}, []float32{2, 1, 1, 1, 0, 1, 1, 1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Fanouts, o.NeighborCache, o.Cache, o.BatchSize = nil, 0, "none", 2
			c.change(&o)
			l := open(t, draw.OpenStore(s), o)
			types := l.draw.Parts.Schema
			var read []int
			for i := range types.Relations {
				if types.MayList(i) {
					read = append(read, i)
				}
			}
			require.Equal(t, c.read, read)
			wanted, err := draw.NewLists(&l.draw).WantedLists(context.Background())
			require.NoError(t, err)
			defer wanted.Close()
			require.Equal(t, c.wanted, []float32(wanted.Hotness))
		})
	}
}
