package loader

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/propagate"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// TestAggregate: a tensor that was computed comes with batches where it is asked for, in the place of the one that it
// was made from; a stale one is refused.
func TestAggregate(t *testing.T) {
	ctx := context.Background()
	s := newDataset(500, 3000).store(t, ssd.OS)
	o := propagate.Options{Tensor: "x", Reduce: propagate.Mean, Hops: 1, Name: "x_mean"}
	_, err := propagate.Run(ctx, s, o)
	require.NoError(t, err)
	s, err = store.Open(ssd.OS, s.Path())
	require.NoError(t, err)
	names := func(aggregate string) (names []string) {
		p := draw.OpenStore(s).Parts()
		require.NoError(t, p.Choose(aggregate))
		for i := range p.Tensors {
			names = append(names, p.Tensors[i].Name)
		}
		return names
	}
	require.Equal(t, []string{"wide", "x", "y", "edge_attr"}, names(""))
	require.Equal(t, []string{"wide", "y", "x_mean", "edge_attr"}, names("x_mean"))
	p := draw.OpenStore(s).Parts()
	err = p.Choose("x")
	require.ErrorIs(t, err, draw.ErrOption)
	require.ErrorContains(t, err, `aggregate is "x", expected a tensor that propagate has computed`)

	m := s.Manifest()
	m.NodeTypes[0].Tensors[3].Aggregate.Parts[0].Topology++
	data, err := manifest.Encode(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.Path(), manifest.Name), data, 0o600))
	s, err = store.Open(ssd.OS, s.Path())
	require.NoError(t, err)
	_, err = Open(ctx, draw.OpenStore(s), draw.Options{Fanouts: []int64{2}, BatchSize: 5, Aggregate: "x_mean",
		Cache:    "auto",
		Transfer: "auto", Superbatch: draw.Auto, FeatureCache: draw.Auto, NeighborCache: draw.Auto,
		ScratchBytes: draw.Auto}, nil)
	require.ErrorIs(t, err, draw.ErrOption)
	require.ErrorContains(t, err, `the aggregate "x_mean" was computed from other edges than the store has`)
}
