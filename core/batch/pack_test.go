package batch

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// TestPack: tensors of a packed batch lie together, int64 in as few bytes as their values take, and nothing is left of
// the buffers once the batch is released.
func TestPack(t *testing.T) {
	alloc := mem.NewAllocator()
	values := map[string][]int64{
		"empty": {}, "zero": {0}, "bytes": {127, -128, 3}, "shorts": {128, 0}, "negative": {-129},
		"ints": {math.MaxInt16 + 1, math.MinInt32}, "wide": {math.MaxInt32 + 1, 7, -1}, "lowest": {math.MinInt64},
	}
	stored := map[string]string{
		"empty": "int8", "zero": "int8", "bytes": "int8", "shorts": "int16", "negative": "int16", "ints": "int32",
		"wide": "int64", "lowest": "int64",
	}
	order := []string{"wide", "bytes", "empty", "ints", "shorts", "negative", "zero", "lowest"}
	b := NewBatch(0, alloc)
	require.NoError(t, b.beginPack(1024))
	for _, name := range order {
		data, err := b.add(name, int64(len(values[name])))
		require.NoError(t, err)
		copy(data, values[name])
	}
	floats, err := b.AddTensor("floats", manifest.DType_FLOAT32, []int64{2, 1})
	require.NoError(t, err)
	copy(mem.View[float32](floats), []float32{1.5, -2})
	_, err = b.AddTensor("large", manifest.DType_INT8, []int64{2000}) // more than there is room for
	require.NoError(t, err)
	_, err = b.AddApart("rows", manifest.DType_INT64, []int64{1})
	require.NoError(t, err)
	require.NoError(t, b.Pack())

	var layout [][5]any
	require.NoError(t, json.Unmarshal(b.Array(LayoutName).Buffer.Bytes(), &layout))
	require.Len(t, layout, len(order)+1)
	all, end := b.Array(PackName), float64(0)
	for i, name := range append(order, "floats") {
		part := layout[i]
		assert.Equal(t, name, part[0])
		begin := part[3].(float64)
		assert.GreaterOrEqual(t, begin, end)
		assert.Zero(t, int64(begin)%packAlign)
		if name == "floats" {
			assert.Equal(t, []any{"float32", "float32"}, part[1:3])
			assert.Equal(t, []any{2.0, 1.0}, part[4])
			assert.Equal(t, []float32{1.5, -2}, mem.View[float32](all.Buffer.Bytes()[int(begin):int(begin)+8]))
			continue
		}
		assert.Equal(t, []any{stored[name], "int64"}, part[1:3], name)
		got, size := widened(all.Buffer.Bytes()[int(begin):], part[1].(string), len(values[name]))
		assert.Equal(t, values[name], got, name)
		end = begin + float64(size)
	}
	assert.Len(t, b.Arrays, 4, "the pack, its layout, and two that are apart")
	assert.LessOrEqual(t, all.Shape[0], int64(packAlign*(len(order)+1)))
	b.Release()
	assertNoneLive(t, alloc)
}

func widened(data []byte, dtype string, n int) (values []int64, size int) {
	values = make([]int64, n)
	for i := range values {
		switch dtype {
		case "int8":
			values[i] = int64(mem.View[int8](data[:n])[i])
		case "int16":
			values[i] = int64(mem.View[int16](data[:2*n])[i])
		case "int32":
			values[i] = int64(mem.View[int32](data[:4*n])[i])
		default:
			values[i] = mem.View[int64](data[:8*n])[i]
		}
	}
	return values, n * map[string]int{"int8": 1, "int16": 2, "int32": 4, "int64": 8}[dtype]
}

// TestBatchesThatAreNotPacked have every tensor in a buffer of its own, and a batch that fails gives back its pack.
func TestBatchesThatAreNotPacked(t *testing.T) {
	alloc := mem.NewAllocator()
	b := NewBatch(0, alloc)
	_, err := b.add("n_id", 3)
	require.NoError(t, err)
	require.NoError(t, b.Pack())
	assert.Len(t, b.Arrays, 1)
	b.Release()
	b = NewBatch(0, alloc)
	require.NoError(t, b.beginPack(100))
	_, err = b.add("n_id", 3)
	require.NoError(t, err)
	b.Release()
	assertNoneLive(t, alloc)
}

func assertNoneLive(t *testing.T, alloc *mem.MapAllocator) {
	t.Helper()
	buffers, _ := alloc.Live()
	assert.Zero(t, buffers)
}
