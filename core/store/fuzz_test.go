package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

// castagnoli is the table of the standard library, whose sums ours equal.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FuzzOpen opens a store whose manifest is anything at all, with a header that makes it look whole.
func FuzzOpen(f *testing.F) {
	path := sampleStore(f)
	name := filepath.Join(path, manifest.Name)
	good, err := os.ReadFile(name)
	require.NoError(f, err)
	f.Add(good[manifest.HeaderBytes:])
	f.Add([]byte{})
	heterogeneous := filepath.Join(f.TempDir(), "g")
	require.NoError(f, Convert(context.Background(), ssd.OS, newHeteroGraph(3, 50).Input, heterogeneous, ConvertOptions{}))
	several, err := os.ReadFile(filepath.Join(heterogeneous, manifest.Name))
	require.NoError(f, err)
	f.Add(several[manifest.HeaderBytes:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		file := append([]byte("FRESHGO\x00\x01\x00\x00\x00"), 0, 0, 0, 0, 0, 0, 0, 0)
		binary.LittleEndian.PutUint32(file[12:], uint32(len(payload)))
		file = append(file, payload...)
		sum := crc32.Update(crc32.Checksum(file[:16], castagnoli), castagnoli, payload)
		binary.LittleEndian.PutUint32(file[16:], sum)
		m, err := manifest.Decode(file)
		if err != nil {
			return
		}
		s := newStore(ssd.OS, path, m)
		if s.check() != nil {
			return
		}
		for _, a := range s.arrays() {
			require.Equal(t, path, filepath.Dir(a.Path))
			require.Equal(t, path, filepath.Dir(a.CRCPath))
			require.GreaterOrEqual(t, a.Bytes, a.Rows*int64(a.Layout.RowBytes))
		}
		s.Describe()
		require.NotEmpty(t, s.NodeTypes())
		require.NotEmpty(t, s.EdgeTypes())
		// With files of the right size it opens; then reading it may fail, but must not panic.
		require.NoError(t, os.WriteFile(name, file, 0o600))
		if s, err = Open(ssd.OS, path); err == nil {
			_ = s.Verify(context.Background(), nil)
		}
	})
}

// FuzzLayout checks the layout's arithmetic against big factors.
func FuzzLayout(f *testing.F) {
	f.Add(int64(3000), int64(100), int64(10))
	f.Add(int64(math.MaxInt64), int64(maxRowBytes), int64(0))
	f.Fuzz(func(t *testing.T, rows, rowBytes, perPage int64) {
		if rows < 0 || rowBytes < 1 || rowBytes > maxRowBytes || perPage < 0 || perPage*rowBytes > ssd.PageBytes ||
			perPage > ssd.PageBytes {
			return
		}
		l := ssd.Layout{RowBytes: int(rowBytes), RowsPerPage: int(perPage), NumRows: rows}
		size, ok := fileBytes(l)
		if !ok {
			require.Greater(t, float64(rows)*float64(rowBytes)*float64(max(1, ssd.PageBytes/max(1, perPage*rowBytes)+1)),
				float64(math.MaxInt64)/2)
			return
		}
		require.Zero(t, size%ssd.PageBytes)
		require.GreaterOrEqual(t, size, rows*rowBytes)
		if rows > 0 {
			require.LessOrEqual(t, l.Offset(rows-1)+rowBytes, size)
			require.Greater(t, l.Offset(rows-1)+ssd.PageBytes+rowBytes, size)
		}
	})
}

// FuzzChecksums writes anything anywhere into a file of arrays or of checksums, or cuts its end off: Verify finds it,
// and finds nothing where nothing has changed.
func FuzzChecksums(f *testing.F) {
	path := filepath.Join(f.TempDir(), "g")
	graph := newRandomGraph(4, 90, 900, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	require.NoError(f, Convert(context.Background(), ssd.OS, graph.Input, path, ConvertOptions{}))
	s, err := Open(ssd.OS, path)
	require.NoError(f, err)
	var names []string
	for _, a := range s.arrays() {
		names = append(names, a.Path, a.CRCPath)
	}
	good := map[string][]byte{}
	for _, name := range names {
		good[name], err = os.ReadFile(name)
		require.NoError(f, err)
		f.Add(uint8(len(good)), uint16(len(good[name])), uint16(0), []byte{})
		f.Add(uint8(len(good)), uint16(0), uint16(0), good[name][:4])
	}
	f.Fuzz(func(t *testing.T, file uint8, at, cut uint16, data []byte) {
		name := names[int(file)%len(names)]
		whole := good[name]
		changed := append([]byte{}, whole...)
		copy(changed[min(int(at), len(whole)):], data)
		changed = changed[:len(changed)-min(int(cut), len(changed))]
		require.NoError(t, os.WriteFile(name, changed, 0o600))
		err := s.Verify(context.Background(), nil)
		require.NoError(t, os.WriteFile(name, whole, 0o600))
		switch {
		case bytes.Equal(changed, whole):
			require.NoError(t, err)
		case len(changed) < len(whole):
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
		default:
			require.ErrorIs(t, err, ErrCorrupt)
		}
	})
}
