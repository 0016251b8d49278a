package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// walked are options of walks in both directions between users and items; relation 0 leads from users to items and 1
// back.
func (d *form) walked() draw.Options {
	o := d.options()
	once, again := []sample.Walk{{Walks: 3, Length: 1}, {Walks: 2, Length: 1}},
		[]sample.Walk{{Walks: 4, Length: 3, Restart: .5}, {Walks: 2, Length: 2}}
	o.Metapaths = []sample.Metapath{{Path: []int{0, 1}, Walks: again}, {Path: []int{1, 0}, Walks: again},
		{Path: []int{1}, Walks: once}}
	o.RelationFanouts = [][]int64{{5, 3}, {3, -1}, {2, 0}}
	o.Seeds = o.Seeds[:450] // without tags
	return o
}

func TestMetapathsAreTheSameInAnyPlace(t *testing.T) {
	d := severalTypes()
	g, s := d.graph(t), d.store(t, ssd.OS)
	want := epochOf(t, open(t, g, d.walked()), 1)
	for name, tt := range map[string]struct {
		source draw.Source
		change func(o *draw.Options)
	}{
		"8 threads":        {g, func(o *draw.Options) { o.Workers, o.Prefetch = 8, 5 }},
		"one at a time":    {g, func(o *draw.Options) { o.Workers, o.Prefetch, o.Memory = 2, 0, 24<<20 }},
		"store":            {draw.OpenStore(s), func(o *draw.Options) {}},
		"topology on disk": {draw.OpenStore(s), func(o *draw.Options) { o.NeighborCache, o.FeatureCache = 0, 0 }},
		"degree":           {draw.OpenStore(s), func(o *draw.Options) { o.Cache, o.FeatureCache = "degree", 60<<10 }},
		"presc": {draw.OpenStore(s), func(o *draw.Options) {
			o.Cache, o.FeatureCache, o.NeighborCache = "presc", 60<<10, 0
		}},
		"lru": {draw.OpenStore(s), func(o *draw.Options) { o.Cache, o.FeatureCache = "lru", 60<<10 }},
		"belady": {draw.OpenStore(s), func(o *draw.Options) {
			o.Cache, o.FeatureCache, o.Transfer, o.Superbatch, o.BufferMemory = "belady", 120<<10, "scan+forward", 4, 8<<20
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := d.walked()
			tt.change(&o)
			l := open(t, tt.source, o)
			requireSame(t, want, epochOf(t, l, 1))
			require.NoError(t, l.Start(1, 3, Train))
			requireSame(t, want[3:], rest(t, l))
		})
	}
	for _, b := range want {
		for _, name := range []string{"e0/e_id", "e0/attr", "e3/edge_index"} {
			require.NotContains(t, b.arrays, name)
		}
		require.Contains(t, b.arrays, "e2/edge_weight")
		require.Empty(t, b.arrays["n2/n_id"])
	}
}

// TestPreSCAlongMetapaths: a cache that is filled by sampled walks has rows, and batches are as without it. Its ties
// stay, since expected visits follow draws from lists, and there are fewer lists of fanouts than relations.
func TestPreSCAlongMetapaths(t *testing.T) {
	d := severalTypes()
	o := d.walked()
	want := epochOf(t, open(t, d.graph(t), o), 1)
	o.Cache, o.NeighborCache, o.FeatureCache = "presc", 0, 150<<10
	l := open(t, draw.OpenStore(d.store(t, ssd.OS)), o)
	require.Less(t, len(l.draw.Options.RelationFanouts), len(l.draw.Parts.Schema.Relations))
	require.NotEmpty(t, l.rows.OnDisk)
	require.Positive(t, l.draw.Split.CacheRows)
	requireSame(t, want, epochOf(t, l, 1))
}

// TestMetapathsInABudget: the smallest memory that is named works; types that no walk comes to take none of it.
func TestMetapathsInABudget(t *testing.T) {
	d := severalTypes()
	s := d.store(t, ssd.OS)
	o := d.walked()
	want := epochOf(t, open(t, d.graph(t), o), 0)
	o.Memory = 1
	least := leastMemory(t, draw.OpenStore(s), o)
	for _, more := range []int64{0, 1 << 20} {
		o.Memory = least + more
		l := open(t, draw.OpenStore(s), o)
		requireSame(t, want, epochOf(t, l, 0))
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
	}
	o = d.walked()
	o.Cache = "degree"
	l := open(t, draw.OpenStore(s), o)
	for i, x := range l.draw.Parts.Tensors {
		require.False(t, x.ByEdge)
		require.Equal(t, x.Type < 2, l.draw.Split.Resident[i], "%s of type %d", x.Name, x.Type)
	}
}

func TestMetapathsAreCounted(t *testing.T) {
	d := severalTypes()
	o := d.walked()
	o.Transpose = true
	requireCounted(t, open(t, d.graph(t), o))
}

func TestMetapathsThatAreRefused(t *testing.T) {
	d := severalTypes()
	g := d.graph(t)
	for _, tt := range []struct {
		change  func(o *draw.Options)
		target  error
		message string
	}{
		{func(o *draw.Options) { o.Metapaths[1].Path = []int{7} }, draw.ErrOption,
			"metapath 1 names edge type 7, expected 0 to 6"},
		{func(o *draw.Options) { o.Metapaths[1].Path = nil }, draw.ErrOption, "metapath 1 has no edge types"},
		{func(o *draw.Options) { o.Metapaths[1].Path = []int{0, 0} }, sample.ErrConfig, "does not connect"},
		{func(o *draw.Options) { o.RelationFanouts = o.RelationFanouts[1:] }, sample.ErrFanout,
			"2 metapaths, expected 3"},
		{func(o *draw.Options) { o.Cache = "expected" }, draw.ErrOption, "presc"},
		{func(o *draw.Options) { o.Disjoint = true }, draw.ErrOption, "walks"},
		{func(o *draw.Options) { o.Subgraph = sample.Induced }, draw.ErrOption, "walks"},
		{func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 1} }, sample.ErrConfig,
			"random walks cannot be combined with LABOR"},
	} {
		o := d.walked()
		tt.change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, tt.target)
		require.ErrorContains(t, err, tt.message)
	}
	o := plain()
	o.Metapaths = d.walked().Metapaths
	_, err := Open(context.Background(), newDataset(10, 10).graph(t), o, mem.NewAllocator())
	require.ErrorIs(t, err, draw.ErrOption)
}
