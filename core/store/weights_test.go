package store

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// weightedInput returns a graph with a hub, many weights of 0, and a list whose weights are all 0.
func weightedInput(
	seed uint64, nodes int64, edges int, dtype manifest.DType,
) (in Input, g *randomGraph, weights []float64) {
	g = newRandomGraph(seed, nodes, edges, nil, manifest.DType_UINT8)
	rng := rand.New(rand.NewPCG(seed, 1))
	weights = make([]float64, edges)
	data := make([]byte, 0, edges*8)
	for e := range weights {
		w := float64(rng.IntN(100))
		if rng.IntN(3) == 0 {
			w = 0
		}
		if dtype.IsFloat() {
			w /= 7
		}
		switch dtype {
		case manifest.DType_FLOAT32:
			w = float64(float32(w))
			data = append(data, mem.Bytes([]float32{float32(w)})...)
		case manifest.DType_FLOAT64:
			data = append(data, mem.Bytes([]float64{w})...)
		case manifest.DType_INT64:
			w = math.Round(w)
			data = append(data, mem.Bytes([]int64{int64(w)})...)
		case manifest.DType_UINT8:
			data = append(data, byte(w))
		}
		weights[e] = w
	}
	in = g.Input
	in.EdgeTensors = []NamedSource{{"w", Dense(dtype, []int64{int64(edges)}, data)}}
	in.WeightsOf = "w"
	return in, g, weights
}

// requireWeights compares what is stored with weights by edge number, and with sums added up list by list.
func requireWeights(t *testing.T, e *EdgeType, g *randomGraph, weights []float64) {
	t.Helper()
	ctx, budget := context.Background(), mem.NewBudget(0)
	require.NotNil(t, e.Weights)
	require.Equal(t, "w", e.Weights.Of)
	load := func(a *Array) []float64 {
		block, err := a.Load(ctx, budget, mem.Staging)
		require.NoError(t, err)
		defer block.Free()
		out := make([]float64, a.Rows)
		DecodeFloats(a.DType, block.Bytes()[:a.Rows*int64(a.DType.Size())], out)
		return out
	}
	byPosition := make([]float64, len(weights))
	for p, id := range g.ids {
		byPosition[p] = weights[id]
	}
	require.Equal(t, byPosition, load(&e.Weights.Array))
	sums := make([]float64, len(weights)/16)
	for v := range len(g.indptr) - 1 {
		sum := 0.
		for i, w := range byPosition[g.indptr[v]:g.indptr[v+1]] {
			if sum += w; i%16 == 15 {
				sums[g.indptr[v]/16+int64(i/16)] = sum
			}
		}
	}
	require.Equal(t, sums, load(&e.Weights.Sums))
}

func TestWeightsByPosition(t *testing.T) {
	for _, dtype := range []manifest.DType{manifest.DType_FLOAT32, manifest.DType_FLOAT64, manifest.DType_INT64,
		manifest.DType_UINT8} {
		for _, size := range []struct {
			nodes int64
			edges int
		}{{1, 0}, {1, 15}, {1, 16}, {3, 1000}, {2000, 60_000}} {
			in, g, weights := weightedInput(uint64(size.edges)+uint64(dtype), size.nodes, size.edges, dtype)
			s := mustConvert(t, in, 0)
			requireGraph(t, g, s)
			requireWeights(t, &s.edgeTypes[0], g, weights)
			require.Equal(t, "w", s.Describe().WeightsOf)

			var short *mem.BudgetError
			err := Convert(context.Background(), ssd.OS, in, filepath.Join(t.TempDir(), "s"), ConvertOptions{Memory: 1})
			require.ErrorAs(t, err, &short)
			s = mustConvert(t, in, short.Need)
			requireWeights(t, &s.edgeTypes[0], g, weights)
		}
	}
}

func TestWeightsOfTypesAndInAnotherOrder(t *testing.T) {
	in, g, weights := weightedInput(3, 700, 30_000, manifest.DType_FLOAT32)
	heterogeneous := Input{
		NodeTypes: []NodeInput{{Name: "a", NumNodes: 700}},
		EdgeTypes: []EdgeInput{
			{Source: "a", Relation: "plain", Target: "a", EdgeIndex: in.EdgeIndex, Tensors: in.EdgeTensors},
			{Source: "a", Relation: "drawn", Target: "a", EdgeIndex: in.EdgeIndex, Tensors: in.EdgeTensors, WeightsOf: "w"},
		},
	}
	s := mustConvert(t, heterogeneous, 0)
	require.Nil(t, s.edgeTypes[0].Weights)
	requireWeights(t, &s.edgeTypes[1], g, weights)

	s = mustConvert(t, in, 0)
	path := filepath.Join(t.TempDir(), "relaid")
	require.NoError(t, Relayout(context.Background(), s, path, RelayoutOptions{Order: Hot, Scores: make([]float32, 700)}))
	s = mustOpen(t, path)
	require.NoError(t, s.Verify(context.Background(), nil))
	requireWeights(t, &s.edgeTypes[0], g, weights)
}

func TestWeightsThatAreNone(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(in *Input)
		want  string
	}{
		"unknown": {func(in *Input) { in.WeightsOf = "v" }, `the tensor "v", the tensors of the edges are ["w"]`},
		"shape": {func(in *Input) {
			in.EdgeTensors[0].Source = Dense(manifest.DType_FLOAT32, []int64{50, 2}, make([]byte, 400))
		}, "expected one number"},
		"bool": {func(in *Input) { in.EdgeTensors[0].Source = Dense(manifest.DType_BOOL, []int64{50}, make([]byte, 50)) },
			"expected numbers"},
		"negative": {func(in *Input) { in.EdgeTensors[0].Source = oneBad(-1) }, "w[33] is -1, expected a finite weight"},
		"NaN":      {func(in *Input) { in.EdgeTensors[0].Source = oneBad(math.NaN()) }, "w[33] is NaN"},
		"large":    {func(in *Input) { in.EdgeTensors[0].Source = oneBad(1e291) }, "w[33] is 1e+291"},
		"infinite": {func(in *Input) { in.EdgeTensors[0].Source = oneBad(math.Inf(1)) }, "w[33] is +Inf"},
	} {
		t.Run(name, func(t *testing.T) {
			in, _, _ := weightedInput(1, 5, 50, manifest.DType_FLOAT32)
			tc.spoil(&in)
			path := filepath.Join(t.TempDir(), "s")
			err := Convert(context.Background(), ssd.OS, in, path, ConvertOptions{})
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, tc.want)
			require.NoDirExists(t, path)
			require.NoDirExists(t, path+partialSuffix)
		})
	}
}

func oneBad(w float64) Source {
	weights := make([]float64, 50)
	weights[33] = w
	return Dense(manifest.DType_FLOAT64, []int64{50}, mem.Bytes(weights))
}

// TestConversionThatEndsInItsWeights ends a conversion while weights are sorted, by a cancellation and as a killed
// process does: what that left is removed.
func TestConversionThatEndsInItsWeights(t *testing.T) {
	in, g, weights := weightedInput(5, 300, 20_000, manifest.DType_FLOAT64)
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var short *mem.BudgetError
	require.ErrorAs(t, Convert(ctx, ssd.OS, in, path, ConvertOptions{Memory: 1}), &short)
	seen := false
	killed := filepath.Join(t.TempDir(), "k"+partialSuffix)
	err := Convert(ctx, ssd.OS, in, path, ConvertOptions{Memory: short.Need, Progress: func(stage string, done, _ int64) {
		if strings.HasPrefix(stage, "sorting weights") && !seen {
			seen = true
			require.NoError(t, os.CopyFS(killed, os.DirFS(path+partialSuffix)))
			cancel()
		}
	}})
	require.True(t, seen)
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, path)
	require.NoDirExists(t, path+partialSuffix)

	again := strings.TrimSuffix(killed, partialSuffix)
	require.FileExists(t, filepath.Join(killed, "weights.bin"))
	require.NoError(t, Convert(context.Background(), ssd.OS, in, again, ConvertOptions{Memory: short.Need}))
	require.NoDirExists(t, killed)
	s := mustOpen(t, again)
	requireWeights(t, &s.edgeTypes[0], g, weights)
}

// replaced changes the bytes of an array, and its checksums so that only what it says is wrong.
func replaced(
	t *testing.T, s *Store, in func(m *manifest.EdgeType) *manifest.Array, name string, change func(data []byte),
) *Store {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.path, name+".bin"))
	require.NoError(t, err)
	change(data)
	w, err := newArrayWriter(ssd.OS, s.path, "changed_"+name, in(s.manifest.EdgeTypes[0]).Dtype, nil, frugal.chunk,
		mem.NewBudget(0))
	require.NoError(t, err)
	require.NoError(t, w.write(data))
	m := s.Manifest()
	array := in(m.EdgeTypes[0])
	written, err := w.finish(array.Rows)
	require.NoError(t, err)
	array.File, array.CrcFile, array.CrcFileCrc = written.File, written.CrcFile, written.CrcFileCrc
	return reopened(t, s, m)
}

// reopened writes another manifest and opens the store again.
func reopened(t *testing.T, s *Store, m *manifest.Manifest) *Store {
	t.Helper()
	file, err := manifest.Encode(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.path, manifest.Name), file, 0o600))
	s = mustOpen(t, s.path)
	return s
}

func TestWeightsThatDisagree(t *testing.T) {
	weightsIn := func(m *manifest.EdgeType) *manifest.Array { return m.Weights }
	sumsIn := func(m *manifest.EdgeType) *manifest.Array { return m.WeightSums }
	for name, tc := range map[string]struct {
		damage func(t *testing.T, s *Store) *Store
		want   string
	}{
		"a weight": {func(t *testing.T, s *Store) *Store {
			return replaced(t, s, weightsIn, "weights", func(data []byte) { data[400] ^= 1 })
		}, "sum 6 is"},
		"two weights for each other": {func(t *testing.T, s *Store) *Store {
			return replaced(t, s, weightsIn, "weights", func(data []byte) {
				w := mem.View[float32](data)
				i, j := 0, 1
				for w[i] == w[j] {
					j++
				}
				w[i], w[j] = w[j], w[i]
			})
		}, `not those of the tensor "w"`},
		"a sum": {func(t *testing.T, s *Store) *Store {
			return replaced(t, s, sumsIn, "weight_sums", func(data []byte) { mem.View[float64](data)[3] = 1e9 })
		}, "sum 3 is 1e+09"},
		"the last sum": {func(t *testing.T, s *Store) *Store {
			return replaced(t, s, sumsIn, "weight_sums", func(data []byte) { mem.View[float64](data)[3000/16-1]++ })
		}, "sum 186 is"},
		"a page": {func(t *testing.T, s *Store) *Store {
			name := filepath.Join(s.path, "weights.bin")
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			data[5] ^= 1
			require.NoError(t, os.WriteFile(name, data, 0o600))
			return s
		}, "checksum of the page"},
	} {
		t.Run(name, func(t *testing.T) {
			in, _, _ := weightedInput(9, 20, 3000, manifest.DType_FLOAT32)
			s := tc.damage(t, mustConvert(t, in, 0))
			err := s.Verify(context.Background(), nil)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestManifestOfWeights(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(e *manifest.EdgeType)
		fine   bool // opens, without weights
	}{
		"an older store":         {func(e *manifest.EdgeType) { e.Weights, e.WeightSums, e.WeightsOf = nil, nil, "" }, true},
		"weights without sums":   {func(e *manifest.EdgeType) { e.WeightSums, e.WeightsOf = nil, "" }, true},
		"sums without weights":   {func(e *manifest.EdgeType) { e.Weights = nil }, false},
		"of no tensor":           {func(e *manifest.EdgeType) { e.WeightsOf = "v" }, false},
		"too few":                {func(e *manifest.EdgeType) { e.Weights.Rows-- }, false},
		"too few sums":           {func(e *manifest.EdgeType) { e.WeightSums.Rows-- }, false},
		"another type":           {func(e *manifest.EdgeType) { e.Weights.Dtype = manifest.DType_INT32 }, false},
		"sums of float32":        {func(e *manifest.EdgeType) { e.WeightSums.Dtype = manifest.DType_FLOAT32 }, false},
		"files that are others'": {func(e *manifest.EdgeType) { e.WeightSums.File = e.Indices.File }, false},
		"of a tensor of rows":    {func(e *manifest.EdgeType) { e.WeightsOf = "rows" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			in, _, _ := weightedInput(9, 20, 3000, manifest.DType_FLOAT32)
			in.EdgeTensors = append(in.EdgeTensors,
				NamedSource{"rows", Dense(manifest.DType_UINT8, []int64{3000, 2}, make([]byte, 6000))})
			s := mustConvert(t, in, 0)
			m := s.Manifest()
			tc.change(m.EdgeTypes[0])
			file, err := manifest.Encode(m)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(s.path, manifest.Name), file, 0o600))
			s, err = Open(ssd.OS, s.path)
			if !tc.fine {
				require.True(t, errors.Is(err, ErrCorrupt), "%v", err)
				return
			}
			require.NoError(t, err)
			require.Nil(t, s.edgeTypes[0].Weights)
			require.NoError(t, s.Verify(context.Background(), nil))
		})
	}
}
