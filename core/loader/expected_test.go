package loader

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// TestExpectedDoesNotDependOnPlaces: the scores equal the scores of the graph in memory wherever neighbours, edge
// numbers and weights are.
func TestExpectedDoesNotDependOnPlaces(t *testing.T) {
	d := newDataset(someNodes, 40_000).weighted(manifest.DType_FLOAT32)
	s := d.store(t, ssd.OS)
	hetero := severalTypes()
	for name, tt := range map[string]struct {
		memory, store draw.Source
		options       draw.Options
		nodes         int
	}{
		"homogeneous": {d.graph(t), draw.OpenStore(s), plain(), someNodes},
		"hetero":      {hetero.graph(t), draw.OpenStore(hetero.store(t, ssd.OS)), hetero.options(), 3500},
	} {
		for _, attr := range []string{"", "weight"} {
			o := tt.options
			o.Cache = "expected"
			if o.WeightAttr = attr; attr != "" && name == "hetero" {
				o.WeightAttr = "w"
			}
			want, got := make([]float32, tt.nodes), make([]float32, tt.nodes)
			require.NoError(t, draw.Hotness(context.Background(), tt.memory, o, want))
			require.NoError(t, draw.Hotness(context.Background(), tt.store, o, got))
			require.Equal(t, want, got, "%s %q", name, attr)
			positive := 0
			for _, x := range got {
				if x > 0 {
					positive++
				}
			}
			require.Greater(t, positive, len(got)/4)
			// With weights on disk the same rows are cached, which is all that the scores are for.
			var hits []int64
			for _, cached := range []int64{0, 4 << 20} {
				o.NeighborCache, o.FeatureCache = cached, rowsFor(200)
				l := open(t, tt.store, o)
				require.Equal(t, cached > 0 && attr != "", l.draw.Split.Weights)
				requireSame(t, epochOf(t, open(t, tt.memory, o), 0), epochOf(t, l, 0))
				hits = append(hits, l.Stats().Hits)
			}
			require.Positive(t, hits[0])
			require.Equal(t, hits[0], hits[1], "%s %q", name, attr)
		}
	}
}

// TestHeteroFloors: how much of what the optimal static cache of an epoch hits a cache does that was filled before.
func TestHeteroFloors(t *testing.T) {
	d := severalTypes()
	for _, attr := range []string{"", "w"} {
		for i := range d.edges {
			if attr != "" && len(d.edges[i].Tensors) > 0 {
				weights := make([]float32, len(d.edges[i].Tensors[1].Rows)/4)
				for k := range weights {
					weights[k] = float32(math.Exp(float64(k*7919%1000) / 200))
				}
				d.edges[i].Tensors[1].Rows = mem.Bytes(weights)
			}
		}
		g := d.graph(t)
		o := d.options()
		o.BatchSize, o.WeightAttr = 8, attr
		scores := map[string][]float32{}
		for name, seed := range map[string]uint64{"presc": 1, "oracle": 0, "expected": 0} {
			scores[name] = make([]float32, 3500)
			ranked := o
			ranked.Cache, ranked.Seed, ranked.PreSCEpochs = name, seed, 1
			require.NoError(t, draw.Hotness(context.Background(), g, ranked, scores[name]))
		}
		for _, k := range []int{175, 350, 700} {
			hits := map[string]float64{}
			for name, of := range scores {
				order := make([]int, len(of))
				for v := range order {
					order[v] = v
				}
				slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of[b], of[a]) })
				for _, v := range order[:k] {
					hits[name] += float64(scores["oracle"][v])
				}
			}
			t.Logf("weights %q, %d rows: presc %.3f, expected %.3f of the optimum", attr, k, hits["presc"]/hits["oracle"],
				hits["expected"]/hits["oracle"])
			require.GreaterOrEqual(t, hits["expected"]/hits["oracle"], .95)
			require.LessOrEqual(t, hits["expected"], hits["oracle"])
		}
	}
}

func TestExpectedDoesNotFollowWalks(t *testing.T) {
	o := plain()
	o.Cache, o.Walks = "expected", []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}}
	d := newDataset(100, 300)
	require.ErrorContains(t, draw.Hotness(context.Background(), d.graph(t), o, make([]float32, 100)),
		`random walks cannot be combined with cache="expected"`)
}
