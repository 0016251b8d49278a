package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// dividedEdges writes edges of this dtype to files of random lengths, some with a row for each edge.
func dividedEdges(t *testing.T, rng *rand.Rand, src, dst []int64, dtype manifest.DType) (parts []Source) {
	t.Helper()

	size := int64(dtype.Size())
	for at := 0; at < len(src); {
		n := min(rng.IntN(len(src)/3), len(src)-at)
		numbers := append(append([]int64{}, src[at:at+n]...), dst[at:at+n]...)
		part := Source{DType: dtype, Shape: []int64{2, int64(n)}, Offset: 8,
			File: filepath.Join(t.TempDir(), fmt.Sprintf("part%d.npy", len(parts)))}
		if rng.IntN(2) == 0 {
			for i := range n {
				numbers[2*i], numbers[2*i+1] = src[at+i], dst[at+i]
			}
			part.Strides = []int64{size, 2 * size}
		}
		data := make([]byte, 8+2*int64(n)*size)
		encodeIntegers(dtype, numbers, data[8:])
		require.NoError(t, os.WriteFile(part.File, data, 0o600))
		parts = append(parts, part)
		at += n
	}
	return parts
}

// TestEdgesInParts: edges in several files give the store of the same edges in one array, within the same memory, in
// whatever order they lie.
func TestEdgesInParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	const nodes, edges = 5000, 300_000
	src, dst := make([]int64, edges), make([]int64, edges)
	for i := range src {
		src[i], dst[i] = rng.Int64N(nodes), rng.Int64N(nodes)
	}
	for _, sorted := range []bool{false, true} {
		if sorted {
			for i := range dst {
				dst[i] = int64(i) * nodes / edges
			}
		}
		whole := filepath.Join(t.TempDir(), "whole")
		in := Input{NumNodes: -1, EdgeIndex: edgesOf(src, dst)}
		require.NoError(t, Convert(context.Background(), ssd.OS, in, whole, ConvertOptions{}))
		want := readFiles(t, whole)
		delete(want, manifest.Name)
		for _, dtype := range []manifest.DType{manifest.DType_INT32, manifest.DType_UINT32, manifest.DType_INT64} {
			parts := dividedEdges(t, rng, src, dst, dtype)
			in.EdgeIndex, in.More = parts[0], parts[1:]
			for _, memory := range []int64{smallestBudget(t, in), 0} {
				path, budget := filepath.Join(t.TempDir(), "g"), mem.NewBudget(memory)
				require.NoError(t, convert(context.Background(), ssd.OS, in, path, ConvertOptions{}, budget))
				require.Zero(t, budget.Used())
				got := readFiles(t, path)
				for name, data := range want {
					require.True(t, bytes.Equal(data, got[name]), "%s of %s", name, dtype.Label())
				}
			}
		}
	}
}

// TestEdgesInPartsThatAreWrong are refused with the file that they are in.
func TestEdgesInPartsThatAreWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "second.npy")
	require.NoError(t, os.WriteFile(file, int64Bytes([]int64{1, 1, 0, 9}), 0o600))
	second := Source{DType: manifest.DType_INT64, Shape: []int64{2, 2}, File: file}
	in := Input{NumNodes: 5, EdgeIndex: edgesOf([]int64{0, 1, 2}, []int64{4, 4, 4}), More: []Source{second}}
	path := filepath.Join(t.TempDir(), "g")
	err := Convert(context.Background(), ssd.OS, in, path, ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "edge_index[1, 4], which is number 1 in "+file+", is 9, expected an id in [0, 5)")
	in.More[0].DType, in.More[0].Shape = manifest.DType_INT32, []int64{2, 4}
	err = Convert(context.Background(), ssd.OS, in, path, ConvertOptions{})
	require.ErrorContains(t, err, "edge_index holds int64 in")
	in.More[0].Shape = []int64{2, 5}
	err = Convert(context.Background(), ssd.OS, in, path, ConvertOptions{})
	require.ErrorContains(t, err, "second.npy has 32 bytes, expected 40: the file is truncated")
	require.NoDirExists(t, path)
}
