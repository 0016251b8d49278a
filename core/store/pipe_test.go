package store

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
)

// throughPipe replaces the rows of a tensor by a pipe through which the bytes come, in pieces of odd sizes.
func throughPipe(t *testing.T, s Source, bytes []byte) Source {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	fd := int(r.Fd())
	written := make(chan struct{})
	t.Cleanup(func() {
		r.Close()
		<-written
	})
	go func() {
		defer close(written)
		defer w.Close()
		for len(bytes) > 0 {
			n, err := w.Write(bytes[:min(len(bytes), 7777)])
			if err != nil {
				return // nobody reads any more
			}
			bytes = bytes[n:]
		}
	}()
	return Source{DType: s.DType, Shape: s.Shape, Pipe: fd}
}

// denseRows reads all rows of a source.
func denseRows(t *testing.T, s Source) []byte {
	t.Helper()
	s, err := s.check(ssd.OS, "rows")
	require.NoError(t, err)
	reader, err := newRowReader(ssd.OS, s, "rows", s.rows(), mem.NewBudget(0))
	require.NoError(t, err)
	defer reader.close()
	rows, err := reader.read(make([]byte, s.rows()*s.rowBytes()), 0, s.rows())
	require.NoError(t, err)
	return append([]byte(nil), rows...)
}

// TestTensorsThroughPipes gives every tensor through a pipe: the files equal the files of tensors in memory.
func TestTensorsThroughPipes(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	g := newRandomGraph(3, 5000, 20_000, map[string][]int64{"x": {25}, "y": nil}, manifest.DType_FLOAT32)
	in := g.Input
	require.NoError(t, Convert(ctx, ssd.OS, in, filepath.Join(dir, "memory"), ConvertOptions{Memory: 8 << 20}))
	for _, list := range []*[]NamedSource{&in.NodeTensors, &in.EdgeTensors} {
		piped := make([]NamedSource, len(*list))
		for i, s := range *list {
			piped[i] = NamedSource{Name: s.Name, Source: throughPipe(t, s.Source, denseRows(t, s.Source))}
		}
		*list = piped
	}
	require.NoError(t, Convert(ctx, ssd.OS, in, filepath.Join(dir, "piped"), ConvertOptions{Memory: 8 << 20}))
	want, got := arrayFiles(t, filepath.Join(dir, "memory")), arrayFiles(t, filepath.Join(dir, "piped"))
	require.True(t, maps.EqualFunc(want, got, func(a, b []byte) bool { return string(a) == string(b) }))
}

// arrayFiles reads the files of the arrays of a store.
func arrayFiles(t *testing.T, path string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, "*.bin"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	files := map[string][]byte{}
	for _, name := range names {
		files[filepath.Base(name)], err = os.ReadFile(name)
		require.NoError(t, err)
	}
	return files
}

// TestPipesThatEndEarly: a pipe that ends before its rows do says where, and nothing is at the target.
func TestPipesThatEndEarly(t *testing.T) {
	g := newRandomGraph(4, 3000, 9000, map[string][]int64{"x": {25}}, manifest.DType_FLOAT32)
	in := g.Input
	rows := denseRows(t, in.NodeTensors[0].Source)
	in.NodeTensors = []NamedSource{{Name: "x", Source: throughPipe(t, in.NodeTensors[0].Source, rows[:len(rows)-1])}}
	path := filepath.Join(t.TempDir(), "g")
	err := Convert(context.Background(), ssd.OS, in, path, ConvertOptions{Memory: 8 << 20})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "x, rows")
	require.NoDirExists(t, path)
}

// TestPipesAreReadOnce: what would be read twice, or in another order, is refused before anything is written.
func TestPipesAreReadOnce(t *testing.T) {
	piped := func(dtype manifest.DType, shape ...int64) Source {
		return Source{DType: dtype, Shape: shape, Pipe: 1 << 20}
	}
	g := newRandomGraph(5, 30, 90, map[string][]int64{"x": {25}}, manifest.DType_FLOAT32).Input
	edges, weights, narrowed, strided := g, g, g, g
	edges.EdgeIndex = piped(manifest.DType_INT64, 2, 90)
	weights.EdgeTensors = []NamedSource{{Name: "w", Source: piped(manifest.DType_FLOAT32, 90)}}
	weights.WeightsOf = "w"
	x := piped(manifest.DType_FLOAT32, 30, 25)
	x.Narrow = narrow.Float16
	narrowed.NodeTensors = []NamedSource{{Name: "x", Source: x}}
	x = piped(manifest.DType_FLOAT32, 30, 25)
	x.Strides = []int64{4, 120}
	strided.NodeTensors = []NamedSource{{Name: "x", Source: x}}
	for message, in := range map[string]Input{
		"edges are read more than once": edges, "weights by position are read": weights,
		"to store it as float16": narrowed, "expected C order": strided,
	} {
		err := Convert(context.Background(), ssd.OS, in, filepath.Join(t.TempDir(), "g"), ConvertOptions{Memory: 8 << 20})
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, message)
	}
	reader, err := newRowReader(ssd.OS, piped(manifest.DType_FLOAT32, 30), "x", 5, mem.NewBudget(0))
	require.NoError(t, err)
	defer reader.close()
	_, err = reader.read(make([]byte, 20), 5, 5)
	require.ErrorContains(t, err, "row 5 was asked for after 0")
}
