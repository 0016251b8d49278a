package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// view is a way to lay out an array of rows in a larger buffer, as slicing and transposing in NumPy does.
type view struct {
	name    string
	shape   []int64
	strides []int64 // in elements
	offset  int64   // in elements
	file    bool    // whether a file may have it
}

var views = []view{
	{"dense", []int64{37, 5}, []int64{5, 1}, 0, true},
	{"dense with an offset", []int64{37, 5}, []int64{5, 1}, 3, true},
	{"every other row", []int64{37, 5}, []int64{10, 1}, 0, true},
	{"every tenth row", []int64{37, 5}, []int64{50, 1}, 2, true},
	{"some columns", []int64{37, 3}, []int64{5, 1}, 1, true},
	{"Fortran order", []int64{37, 5}, []int64{1, 37}, 0, true},
	{"Fortran order, three dimensions", []int64{11, 2, 3}, []int64{1, 11, 22}, 0, true},
	{"a column", []int64{37}, []int64{5}, 2, true},
	{"one row", []int64{1, 4}, []int64{9, 1}, 1, true},
	{"rows backwards", []int64{37, 5}, []int64{-5, 1}, 180, false},
	{"columns backwards", []int64{37, 5}, []int64{5, -1}, 4, false},
	{"broadcast", []int64{37, 5}, []int64{0, 1}, 0, false},
	{"every other column", []int64{37, 3}, []int64{6, 2}, 0, false},
}

// dense copies the elements of a view of data.
func (v view) dense(data []byte, size int64) []byte {
	var out []byte
	for r := range v.shape[0] {
		_ = eachIndex(v.shape[1:], v.strides[1:], func(offset int64) error {
			at := (v.offset + r*v.strides[0] + offset) * size
			out = append(out, data[at:at+size]...)
			return nil
		})
	}
	return out
}

func (v view) source(d manifest.DType) Source {
	s := Source{DType: d, Shape: v.shape}
	for _, stride := range v.strides {
		s.Strides = append(s.Strides, stride*int64(d.Size()))
	}
	return s
}

func TestViewsOfMemoryAndFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const header = 128 // what comes before the payload of a .npy file
	for _, v := range views {
		for _, d := range []manifest.DType{manifest.DType_UINT8, manifest.DType_FLOAT16, manifest.DType_FLOAT32,
			manifest.DType_FLOAT64} {
			t.Run(fmt.Sprint(v.name, " ", d.Label()), func(t *testing.T) {
				size := int64(d.Size())
				data := randomBytes(rng, 2000*size)
				want := v.dense(data, size)
				name := filepath.Join(t.TempDir(), "x.npy")
				require.NoError(t, os.WriteFile(name, append(make([]byte, header), data...), 0o600))

				memory := v.source(d)
				memory.Mem = unsafe.Pointer(&data[v.offset*size]) // an element of data
				file := v.source(d)
				file.File, file.Offset = name, header+v.offset*size

				// The same at an address that no type is aligned to.
				shifted := append([]byte{0}, data...)
				unaligned := v.source(d)
				unaligned.Mem = unsafe.Pointer(&shifted[1+v.offset*size]) // likewise

				for _, src := range []Source{memory, file, unaligned} {
					checked, err := src.check(ssd.OS, "x")
					if src.File != "" && !v.file {
						require.ErrorIs(t, err, ErrInvalid)
						continue
					}
					require.NoError(t, err)
					for _, step := range []int64{1, 8, 100} {
						require.True(t, bytes.Equal(want, readAll(t, checked, step)), "%d rows at a time from %q", step, src.File)
					}
				}
			})
		}
	}
}

func readAll(t *testing.T, src Source, step int64) []byte {
	t.Helper()
	budget := mem.NewBudget(0)
	r, err := newRowReader(ssd.OS, src, "x", step, budget)
	require.NoError(t, err)
	require.Equal(t, src.scratchBytes(step), budget.Used())
	dst := make([]byte, step*src.rowBytes())
	var out []byte
	for first := int64(0); first < src.rows(); first += step {
		rows, err := r.read(dst, first, min(step, src.rows()-first))
		require.NoError(t, err)
		out = append(out, rows...)
	}
	r.close()
	require.Zero(t, budget.Used())
	return out
}

func TestEdgeListsOfEveryType(t *testing.T) {
	src, dst := []int64{5, 1, 0, 100, 7}, []int64{3, 2, 100, 0, 3}
	want := &randomGraph{Input: Input{NumNodes: 101}}
	want.indptr, want.indices, want.ids = oracle(src, dst, 101)
	list := append(append([]int64{}, src...), dst...)
	for d := manifest.DType_BOOL; d.Known(); d++ {
		t.Run(d.Label(), func(t *testing.T) {
			if !d.IsInteger() {
				_, err := checkEdges(ssd.OS, []Source{Dense(d, []int64{2, 5}, make([]byte, 80))}, edgesName)
				require.ErrorIs(t, err, ErrInvalid)
				return
			}
			size := d.Size()
			var rowMajor, columnMajor []byte
			for i := range list {
				rowMajor = append(rowMajor, int64Bytes(list[i : i+1])[:size]...)
				j := i%2*5 + i/2
				columnMajor = append(columnMajor, int64Bytes(list[j : j+1])[:size]...)
			}
			g := *want
			g.EdgeIndex = Dense(d, []int64{2, 5}, rowMajor)
			requireGraph(t, &g, mustConvert(t, g.Input, 0))
			g.EdgeIndex = Dense(d, []int64{2, 5}, columnMajor)
			g.EdgeIndex.Strides = []int64{int64(size), 2 * int64(size)}
			requireGraph(t, &g, mustConvert(t, g.Input, 0))
			shifted := append([]byte{0}, rowMajor...)
			g.EdgeIndex = Dense(d, []int64{2, 5}, shifted[1:])
			requireGraph(t, &g, mustConvert(t, g.Input, 0))

			name := filepath.Join(t.TempDir(), "e.npy")
			require.NoError(t, os.WriteFile(name, append(make([]byte, 80), columnMajor...), 0o600))
			g.EdgeIndex = Source{DType: d, Shape: []int64{2, 5}, Strides: []int64{int64(size), 2 * int64(size)}, File: name,
				Offset: 80}
			requireGraph(t, &g, mustConvert(t, g.Input, 0))
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.npy")
	require.NoError(t, os.WriteFile(name, make([]byte, 128+399), 0o600))
	src := Source{DType: manifest.DType_FLOAT32, Shape: []int64{10, 10}, File: name, Offset: 128}
	convertIt := func(src Source) error {
		in := Input{NumNodes: -1, EdgeIndex: edgesOf(nil, nil), NodeTensors: []NamedSource{{"x", src}}}
		return Convert(context.Background(), ssd.OS, in, filepath.Join(dir, "g"), ConvertOptions{})
	}
	err := convertIt(src)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, name+" has 527 bytes, expected 528")

	require.NoError(t, os.WriteFile(name, make([]byte, 128+400), 0o600))
	require.NoError(t, convertIt(src))

	for _, tc := range []struct {
		change func(*Source)
		target error
		want   string
	}{
		{func(s *Source) { s.File += "x" }, ErrNotFound, "x: "},
		{func(s *Source) { s.File = dir }, ErrInvalid, "is a directory"},
		{func(s *Source) { s.Offset = -1 }, ErrInvalid, "begins at byte -1"},
		{func(s *Source) { s.Strides = []int64{-40, 4} }, ErrInvalid, "strides [-40 4]"},
		{func(s *Source) { s.Strides = []int64{1 << 62, 4} }, ErrInvalid, "strides"},
		{func(s *Source) { s.Strides = []int64{40} }, ErrInvalid, "x has 1 strides for 2 dimensions"},
	} {
		bad := src
		tc.change(&bad)
		err := convertIt(bad)
		require.ErrorIs(t, err, tc.target)
		require.ErrorContains(t, err, tc.want)
	}
}
