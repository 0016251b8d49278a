package store

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
)

// narrowed converts a graph whose nodes have rows of floats in a form, and returns the store and the rows.
func narrowed(t *testing.T, form narrow.Form, rows, width int64) (*Store, []float32) {
	t.Helper()
	rng := explore.Rand(t, 5, uint64(form))
	values := make([]float32, rows*width)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	x := NamedSource{"x", Dense(manifest.DType_FLOAT32, []int64{rows, width}, mem.Bytes(values))}
	x.Narrow = form
	path := filepath.Join(t.TempDir(), "store")
	in := Input{
		NumNodes: rows, NodeTensors: []NamedSource{x},
		EdgeIndex: Dense(manifest.DType_INT64, []int64{2, 1}, make([]byte, 16)),
	}
	require.NoError(t, Convert(context.Background(), ssd.OS, in, path, ConvertOptions{}))
	s := mustOpen(t, path)
	return s, values
}

func TestNarrowedTensorsAreEncodedRowsInTheirLayout(t *testing.T) {
	for _, form := range []narrow.Form{narrow.Float16, narrow.BFloat16, narrow.Int8Rows, narrow.Int8Columns} {
		widths := []int64{8, 30, 100, 1100, 5000} // several rows a page, packed, rows of several pages
		for _, width := range explore.Part(t, fmt.Sprint(form), widths) {
			s, values := narrowed(t, form, 300, width)
			x := &s.NodeTypes()[0].Tensors[0]
			require.Equal(t, form, x.Narrow.Form)
			dtype, shape := x.Values()
			require.Equal(t, manifest.DType_FLOAT32, dtype)
			require.Equal(t, []int64{width}, shape)
			block, err := x.Load(context.Background(), mem.NewBudget(0), mem.Staging)
			require.NoError(t, err)
			want := make([]byte, 300*x.Narrow.RowBytes())
			require.NoError(t, x.Narrow.Encode(want, values, 0, false))
			require.Equal(t, want, block.Bytes()[:len(want)], "%s %d", form, width)
			block.Free()
			require.NoError(t, s.Verify(context.Background(), nil))
		}
	}
}

type tensor = manifest.Tensor

// Whatever a manifest says of a narrowed tensor, it is refused or it describes the rows that are there.
func TestManifestsOfNarrowedTensorsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		form   narrow.Form
		damage func(t *tensor)
		want   error
	}{
		{"another scale", narrow.Float16, func(t *tensor) { t.Scale = 0.5 }, ErrVersion},
		{"NaN for a scale", narrow.Float16, func(t *tensor) { t.Scale = math.NaN() }, ErrVersion},
		{"scales in a file", narrow.Int8Rows, func(t *tensor) { t.Scales = t.Data }, ErrVersion},
		{"columns of floats", narrow.Float16, func(t *tensor) { t.Narrow.Columns = make([]float32, 60) }, ErrCorrupt},
		{"a shape of floats", narrow.BFloat16, func(t *tensor) { t.Narrow.ValueShape = []int64{30} }, ErrCorrupt},
		{"too few columns", narrow.Int8Columns, func(t *tensor) { t.Narrow.Columns = t.Narrow.Columns[:59] }, ErrCorrupt},
		{"no columns", narrow.Int8Columns, func(t *tensor) { t.Narrow.Columns = nil }, ErrCorrupt},
		{"columns and a shape", narrow.Int8Columns, func(t *tensor) { t.Narrow.ValueShape = []int64{22} }, ErrCorrupt},
		{"a longer row", narrow.Int8Rows, func(t *tensor) { t.Narrow.ValueShape = []int64{33} }, ErrCorrupt},
		{"a row of nothing", narrow.Int8Rows, func(t *tensor) { t.Narrow.ValueShape = []int64{0} }, ErrCorrupt},
		{"a negative shape", narrow.Int8Rows, func(t *tensor) { t.Narrow.ValueShape = []int64{-5, -6} }, ErrCorrupt},
		{"a shape that overflows", narrow.Int8Rows, func(t *tensor) { t.Narrow.ValueShape = []int64{1 << 40, 1 << 40} },
			ErrCorrupt},
		{"many dimensions", narrow.Int8Rows, func(t *tensor) {
			t.Narrow.ValueShape = append(slices.Repeat([]int64{1}, maxDims), 30)
		}, ErrCorrupt},
		{"integers", narrow.Int8Rows, func(t *tensor) { t.Data.Dtype = manifest.DType_UINT8 }, ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := narrowed(t, tt.form, 50, 30)
			m := s.Manifest()
			tt.damage(m.NodeTypes[0].Tensors[0])
			data, err := manifest.Encode(m)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(s.Path(), manifest.Name), data, 0o600))
			_, err = Open(ssd.OS, s.Path())
			require.ErrorIs(t, err, tt.want)
		})
	}
}
