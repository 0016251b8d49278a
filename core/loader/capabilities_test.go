package loader

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/propagate"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// drawnBy are options of draws by a kind.
func drawnBy(k *sample.Kind) draw.Options {
	o := plain()
	switch {
	case k.Key != "":
		o.Sampler = k.Options()
	case k.For == sample.CanWeights:
		o.WeightAttr = "weight"
	case k.For == sample.CanTimes:
		o.TimeAttr, o.SeedTimes = "time", make([]int64, 500)
		for i := range o.SeedTimes {
			o.SeedTimes[i] = 50
		}
	case k.For == sample.CanWalks:
		o.Walks = []sample.Walk{{Walks: 4, Length: 3, Restart: .5}, {Walks: 2, Length: 2}}
	}
	return o
}

// TestCapabilitiesOfLoaders asks every kind of the table for the options of a loader alone. Batches could be drawn
// in the cases that are listed as lacking, but would not be right: what a history keeps is of single nodes, LABOR and
// walks draw for all; walks and times do not draw among all neighbours, over which aggregates are; expected visits are
// counted along the lists of neighbours, in which walks go on.
func TestCapabilitiesOfLoaders(t *testing.T) {
	d := newDataset(500, 3000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT64)
	s := d.store(t, ssd.OS)
	_, err := propagate.Run(context.Background(), s,
		propagate.Options{Tensor: "x", Reduce: propagate.Mean, Hops: 1, Name: "x_mean"})
	require.NoError(t, err)
	s, err = store.Open(ssd.OS, s.Path())
	require.NoError(t, err)
	for c, ask := range map[sample.Capability]struct {
		change  func(*draw.Options)
		lacking []string // kinds
	}{
		sample.CanTranspose: {func(o *draw.Options) { o.Transpose = true }, nil},
		sample.CanLinks: {func(o *draw.Options) {
			o.Links = &links.Options{Sources: []int64{1, 2, 3}, Targets: []int64{4, 5, 6}, Negatives: 1}
			o.BatchSize = 2
			if o.SeedTimes != nil {
				o.SeedTimes = o.SeedTimes[:3]
			}
		}, nil},
		sample.CanHistory: {func(o *draw.Options) {
			o.History = &draw.HistoryOptions{
				Policy: "performance", GradFraction: .9, Stale: draw.Span{Count: 100}, Memory: 1 << 20, Lag: 1,
			}
		}, []string{"random walks", "LABOR", "time_attr"}},
		sample.CanAggregate: {func(o *draw.Options) { o.Aggregate = "x_mean" }, []string{"random walks", "time_attr"}},
		sample.CanExpected: {func(o *draw.Options) { o.Cache, o.FeatureCache = "expected", rowsFor(50) },
			[]string{"random walks"}},
		sample.CanDisk: {func(o *draw.Options) { o.NeighborCache = 0 }, nil},
	} {
		for _, k := range sample.Kinds() {
			t.Run(k.Name+"/"+c.String(), func(t *testing.T) {
				require.Equal(t, slices.Contains(ask.lacking, k.Name), !k.Can.Has(c))
				o := drawnBy(k)
				ask.change(&o)
				l, err := Open(context.Background(), draw.OpenStore(s), o, mem.NewAllocator())
				if !k.Can.Has(c) {
					var unsupported *sample.UnsupportedError
					require.ErrorIs(t, err, draw.ErrOption)
					require.ErrorAs(t, err, &unsupported)
					require.ErrorContains(t, err, "cannot be combined with")
					return
				}
				require.NoError(t, err)
				defer l.Close()
				require.Equal(t, k, l.draw.Kind)
				require.NoError(t, l.Start(0, 0, Train))
				b, err := l.Next(context.Background())
				require.NoError(t, err)
				require.Positive(t, b.NumSeeds)
				b.Release()
			})
		}
	}
}
