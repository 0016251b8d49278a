package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/loader"
	"freshgo/core/manifest"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
	"freshgo/csrc"
)

// TestHeteroBatchesBecomeTensors: with everything that adds tensors a batch has as many as its loader says.
func TestHeteroBatchesBecomeTensors(t *testing.T) {
	noBuffers(t)
	random := rand.New(rand.NewPCG(8, 9))
	ids := make([]int64, 300)
	edges := make([]int64, 2*900)
	for i := range edges {
		edges[i] = random.Int64N(300)
	}
	x := store.Dense(manifest.DType_INT64, []int64{300}, bytesOf(ids))
	w := store.Dense(manifest.DType_INT64, []int64{900}, bytesOf(edges[:900]))
	in := store.Input{
		NodeTypes: []store.NodeInput{
			{Name: "a", NumNodes: 300, Tensors: []store.NamedSource{{Name: "x", Source: x}, {Name: "y", Source: x}}},
			{Name: "b", NumNodes: 300},
		},
	}
	for i, types := range [][2]string{{"a", "b"}, {"b", "a"}, {"b", "b"}} {
		in.EdgeTypes = append(in.EdgeTypes, store.EdgeInput{
			Source: types[0], Relation: fmt.Sprint(i), Target: types[1],
			EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 900}, bytesOf(edges)),
			Tensors:   []store.NamedSource{{Name: "w", Source: w}},
		})
	}
	path := filepath.Join(t.TempDir(), "g.freshgo")
	require.NoError(t, store.Convert(t.Context(), ssd.OS, in, path, store.ConvertOptions{}))
	opened, err := store.Open(ssd.OS, path)
	require.NoError(t, err)
	s := newStoreHandle(opened)
	require.NoError(t, s.use())
	o := draw.Options{
		RelationFanouts: [][]int64{{3, 2}, {2, 2}, {1, 0}}, BatchSize: 50, Prefetch: 2, FeatureCache: draw.Auto,
		NeighborCache: draw.Auto, IO: ssd.Auto,
		Cache: "auto", Superbatch: draw.Auto, CarryOver: true, Lookahead: true, Transfer: "auto", TraceMemory: draw.Auto,
		BufferMemory: draw.Auto,
		Transpose:    true, Sampler: &sample.Labor{BatchDependency: 1},
	}
	h, err := openLoader(t.Context(), s.opened(), o, csrc.Allocator{}, func(string, int64, int64) {})
	require.NoError(t, err)
	s.drop()
	require.NoError(t, h.alone(func() error { return h.loader.Start(0, 0, loader.Train) }))
	for range h.loader.NumBatches() {
		b, err := h.next(-1)
		require.NoError(t, err)
		names := map[string]bool{}
		for _, a := range b.Arrays {
			names[a.Name] = true
		}
		tensors, err := exported(b, true)
		require.NoError(t, err)
		assert.Len(t, names, 2*3+2+3*(8+1))
		assert.LessOrEqual(t, len(tensors), h.maxTensors)
		for _, tensor := range tensors {
			csrc.Tensor.Delete(tensor)
		}
	}
	require.NoError(t, h.close())
	require.ErrorIs(t, s.use(), errClosed)
}
