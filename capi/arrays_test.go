package main

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/store"
)

func TestSizedTakesStructsOfOlderCallers(t *testing.T) {
	type options struct {
		size uint32
		a    int32
		b, c int64
	}
	for _, c := range []struct {
		size uint32
		want *options // nil: refused
	}{
		{0, nil}, {7, nil}, {8, &options{size: 8, a: 1}}, {16, &options{size: 16, a: 1, b: 2}},
		{24, &options{size: 24, a: 1, b: 2, c: 3}}, {25, nil}, {1 << 31, nil},
	} {
		got, err := sized(&options{c.size, 1, 2, 3}, "options")
		if c.want == nil {
			require.ErrorIs(t, err, errArgument, "size %d", c.size)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, *c.want, got)
	}
	_, err := sized[options](nil, "options")
	require.ErrorIs(t, err, errArgument)
}

func TestEveryDTypeHasAName(t *testing.T) {
	seen := map[any]bool{}
	for d := manifest.DType_BOOL; d.Known(); d++ {
		dl, ok := dtypes[d]
		require.True(t, ok, d.Label())
		assert.EqualValues(t, d.Size()*8, dl.Bits)
		assert.False(t, seen[dl], "two dtypes look like %v", dl)
		seen[dl] = true
	}
}

func TestDenseBytes(t *testing.T) {
	data := make([]float32, 24)
	at := unsafe.Pointer(unsafe.SliceData(data))
	for _, c := range []struct {
		shape, strides []int64
		want           int // -1: refused
	}{
		{[]int64{4, 6}, nil, 96},
		{[]int64{4, 6}, []int64{24, 4}, 96},
		{[]int64{1, 6}, []int64{999, 4}, 24}, // the stride of a single row means nothing
		{[]int64{4, 6}, []int64{28, 4}, -1},
		{[]int64{4, 6}, []int64{4, 16}, -1},
		{[]int64{0, 6}, []int64{24, 4}, 0},
		{[]int64{4, 0}, []int64{4, 4}, 0},
		{[]int64{-1}, nil, -1},
		{[]int64{1 << 40, 1 << 40}, nil, -1},
	} {
		got, err := denseBytes(store.Source{DType: manifest.DType_FLOAT32, Shape: c.shape, Strides: c.strides, Mem: at})
		if c.want < 0 {
			require.ErrorIs(t, err, errArgument, "%v", c)
			continue
		}
		require.NoError(t, err)
		assert.Len(t, got, c.want)
	}
	_, err := denseBytes(store.Source{DType: manifest.DType_INT8, Shape: []int64{3}, File: "x"})
	require.ErrorIs(t, err, errArgument)
}
