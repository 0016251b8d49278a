package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
)

// TestGatheredFloats compares numbers gathered by place with all of them decoded, in every type of floats and in
// integers.
func TestGatheredFloats(t *testing.T) {
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(37*i+1) % 120
	}
	for _, dtype := range []manifest.DType{
		manifest.DType_FLOAT16, manifest.DType_BFLOAT16, manifest.DType_FLOAT32, manifest.DType_FLOAT64,
		manifest.DType_INT8, manifest.DType_INT64,
	} {
		all := make([]float64, len(data)/dtype.Size())
		DecodeFloats(dtype, data, all)
		places := []int64{int64(len(all)) - 1, 0, 3, 3}
		out := make([]float64, len(places))
		GatherFloats(dtype, data, places, out)
		require.Equal(t, []float64{all[len(all)-1], all[0], all[3], all[3]}, out, dtype.Label())
		require.NotEqual(t, out[1], out[2], dtype.Label())
	}
}
