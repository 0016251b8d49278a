package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// convertWatched converts and returns the largest spill and the most bytes that the directory had.
func convertWatched(t *testing.T, fs ssd.FS, in Input, path string, memory int64) (spill, peak int64) {
	t.Helper()
	opts := ConvertOptions{Memory: memory, Progress: func(string, int64, int64) {
		if info, err := os.Stat(filepath.Join(path+partialSuffix, spillName)); err == nil {
			spill = max(spill, info.Size())
		}
		peak = max(peak, written(t, path+partialSuffix))
	}}
	require.NoError(t, Convert(context.Background(), fs, in, path, opts))
	return spill, peak
}

// spaceNeeded returns the space that Convert asks for on a disk without room.
func spaceNeeded(t *testing.T, in Input, memory int64) *SpaceError {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g")
	err := Convert(context.Background(), little{ssd.OS, 1}, in, path, ConvertOptions{Memory: memory})
	return requireNoSpace(t, err, path+partialSuffix, 1)
}

const maskedEdges = 1_000_000

// maskedInput is a graph with splits of both kinds whose edges the smallest memory cannot hold.
func maskedInput() *randomGraph {
	g := newRandomGraph(7, 30_000, maskedEdges, map[string][]int64{"x": {25}}, manifest.DType_FLOAT32)
	mask := make([]byte, 30_000)
	for i := range mask {
		mask[i] = byte(i % 3 / 2)
	}
	g.Splits["train"] = Dense(manifest.DType_BOOL, []int64{30_000}, mask)
	g.Splits["val"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{3, 4}))
	g.EdgeTensors = []NamedSource{{"w", Dense(manifest.DType_FLOAT64, []int64{maskedEdges}, make([]byte, 8*maskedEdges))}}
	g.WeightsOf = "w"
	return g
}

// TestSpaceOfAConversionIsExact: what is needed is what is there in the end, but for the manifest and the lock, splits,
// edge numbers and weights included. Where there is room for a spill too, to the byte, it takes at most 13 bytes an
// edge, and never more than there is.
func TestSpaceOfAConversionIsExact(t *testing.T) {
	g := maskedInput()
	for _, memory := range []int64{smallestBudget(t, g.Input), 0} {
		need := spaceNeeded(t, g.Input, memory).Need
		spill := int64(0)
		for _, beside := range []func() int64{
			func() int64 { return math.MaxInt64 - need }, func() int64 { return 0 },
			func() int64 { return spill }, func() int64 { return spill - 1 },
		} {
			free := need + beside()
			path := filepath.Join(t.TempDir(), "g")
			took, peak := convertWatched(t, little{ssd.OS, free}, g.Input, path, memory)
			if free == math.MaxInt64 {
				spill = took
				require.Equal(t, memory > 0, spill > 0)
				require.LessOrEqual(t, spill, int64(13*maskedEdges))
			}
			require.Equal(t, free >= need+spill, took == spill)
			info, err := os.Stat(filepath.Join(path, manifest.Name))
			require.NoError(t, err)
			require.Equal(t, need, written(t, path)-info.Size())
			require.LessOrEqual(t, peak, need+took+16)
			requireGraph(t, g, mustVerify(t, path))
			if memory == 0 {
				break
			}
		}
	}
}

func mustVerify(t *testing.T, path string) *Store {
	t.Helper()
	s := mustOpen(t, path)
	t.Cleanup(func() { s.Close() })
	require.NoError(t, s.Verify(context.Background(), nil))
	return s
}

// TestShortDiskSpillsNothing: where the store fits and its spill does not, edges are read again, as often as the memory
// requires.
func TestShortDiskSpillsNothing(t *testing.T) {
	g := maskedInput()
	memory := smallestBudget(t, g.Input)
	path := filepath.Join(t.TempDir(), "g")
	budget := mem.NewBudget(memory)
	rounds, last := 0, ""
	opts := ConvertOptions{Progress: func(stage string, done, total int64) {
		require.LessOrEqual(t, done, total)
		if stage == "partitioning edges" && stage != last {
			rounds++
		}
		last = stage
		require.NoFileExists(t, filepath.Join(path+partialSuffix, spillName))
	}}
	fs := little{ssd.OS, spaceNeeded(t, g.Input, memory).Need}
	require.NoError(t, convert(context.Background(), fs, g.Input, path, opts, budget))
	require.Greater(t, rounds, 3)
	require.LessOrEqual(t, budget.Peak(), memory)
	requireGraph(t, g, mustVerify(t, path))
}

// TestHubOnAShortDisk: the edges of a target that memory cannot hold are spilled. The error says how much of the space
// that takes, and that more memory needs none.
func TestHubOnAShortDisk(t *testing.T) {
	ends := make([]int64, maskedEdges)
	ends[0] = 1
	in := Input{NumNodes: 2, EdgeIndex: edgesOf(ends, ends)}
	memory := smallestBudget(t, in)
	short := spaceNeeded(t, in, memory)
	require.Positive(t, short.Spill)
	require.LessOrEqual(t, short.Spill, int64(13*maskedEdges))
	free := short.Need - 1
	path := filepath.Join(t.TempDir(), "g")
	err := Convert(context.Background(), little{ssd.OS, free}, in, path, ConvertOptions{Memory: memory})
	require.ErrorContains(t, err, fmt.Sprintf("takes %d bytes, %d of them while edges are sorted, the file system has %d "+
		"free; a larger memory= sorts them without: no space left", short.Need, short.Spill, free))
	require.NoDirExists(t, path+partialSuffix)
	require.NoError(t, Convert(context.Background(), little{ssd.OS, free}, in, path, ConvertOptions{Memory: 64 << 20}))
	require.NoError(t, os.RemoveAll(path))
	spill, peak := convertWatched(t, little{ssd.OS, short.Need}, in, path, memory)
	require.Equal(t, short.Spill, spill)
	require.LessOrEqual(t, peak, short.Need+16)
}

// TestSpaceErrorAdvises: of a store that does not fit even without a spill, narrow features are advised.
func TestSpaceErrorAdvises(t *testing.T) {
	g := maskedInput()
	require.ErrorContains(t, spaceNeeded(t, g.Input, 0), "; dtype= stores features in fewer bytes: no space left")
	g.NodeTensors, g.EdgeTensors, g.WeightsOf = nil, nil, ""
	require.ErrorContains(t, spaceNeeded(t, g.Input, 0), "has 1 free: no space left")
}

// TestSortedEdgesSpillNothing, whatever the memory, and come out as they are: with a hub over many pieces, targets
// without edges before, between and behind, and weights.
func TestSortedEdgesSpillNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	const n, e = 60_000, 400_000
	var src, dst []int64
	for i := range e {
		src = append(src, rng.Int64N(n))
		switch {
		case i%2 == 0:
			dst = append(dst, 7001)
		default:
			dst = append(dst, 10+rng.Int64N(n/2))
		}
	}
	slices.Sort(dst)
	g := &randomGraph{}
	g.indptr, g.indices, g.ids = oracle(src, dst, n)
	g.NumNodes, g.EdgeIndex = n, edgesOf(src, dst)
	g.EdgeTensors = []NamedSource{{"w", Dense(manifest.DType_INT64, []int64{e}, int64Bytes(dst))}}
	g.WeightsOf = "w"
	for _, memory := range []int64{smallestBudget(t, g.Input), 8 << 20, 0} {
		short := spaceNeeded(t, g.Input, memory)
		require.Zero(t, short.Spill)
		path := filepath.Join(t.TempDir(), "g")
		budget := mem.NewBudget(memory)
		require.NoError(t, convert(context.Background(), little{ssd.OS, short.Need}, g.Input, path,
			ConvertOptions{Progress: func(stage string, _, _ int64) { require.NotContains(t, stage, "partitioning") }}, budget))
		if memory > 0 {
			require.LessOrEqual(t, budget.Peak(), memory)
		}
		s := mustVerify(t, path)
		require.Nil(t, s.EdgeTypes()[0].EdgeIDs)
		requireGraph(t, g, s)
	}
	src[e-1] = n
	g.EdgeIndex = edgesOf(src, dst)
	err := Convert(context.Background(), ssd.OS, g.Input, filepath.Join(t.TempDir(), "g"), ConvertOptions{})
	require.ErrorContains(t, err, "edge_index[0, 399999] is 60000, expected an id in [0, 60000)")
}

// TestSortedEdgesThatChange between being counted and being copied are an error, and no wrong graph.
func TestSortedEdgesThatChange(t *testing.T) {
	const n, e = 1000, 200_000
	for _, to := range []int64{0, 1, n - 1} {
		for _, at := range []int{0, 40_000, 32<<10 - 1, 32 << 10, e / 2, e - 1} {
			src, dst := make([]int64, e), make([]int64, e)
			for i := range dst {
				dst[i] = int64(i) * n / e
			}
			if dst[at] == to {
				continue
			}
			ends := append(slices.Clone(src), dst...)
			in := Input{NumNodes: n, EdgeIndex: Dense(manifest.DType_INT64, []int64{2, e}, int64Bytes(ends)),
				NodeTensors: []NamedSource{{"x", Dense(manifest.DType_UINT8, []int64{n}, make([]byte, n))}}}
			opts := ConvertOptions{Progress: func(stage string, _, _ int64) {
				if stage == "writing x" {
					ends[e+at] = to
				}
			}}
			err := Convert(context.Background(), ssd.OS, in, filepath.Join(t.TempDir(), "g"), opts)
			if err == nil { // as if it had come so
				require.True(t, slices.IsSorted(ends[e:]), "%d at %d", to, at)
				continue
			}
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, "edge_index changed while it was being read")
		}
	}
}
