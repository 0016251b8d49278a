package loader

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// fiveBytes stores the edge numbers of a store of one edge type in five bytes each, as if it had more edges than four
// bytes count.
func fiveBytes(t *testing.T, path string) {
	t.Helper()
	name := filepath.Join(path, manifest.Name)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	m, err := manifest.Decode(data)
	require.NoError(t, err)
	of := m.EdgeTypes[0].EdgeIds
	four, err := os.ReadFile(filepath.Join(path, of.File))
	require.NoError(t, err)
	pages := map[int64][]byte{}
	of.Dtype, of.RowsPerPage = manifest.DType_UINT40, ssd.PageBytes/5
	for row := range of.Rows {
		page := row / of.RowsPerPage
		number := binary.LittleEndian.AppendUint64(nil, uint64(binary.LittleEndian.Uint32(four[4*row:])))
		pages[page] = append(pages[page], number[:5]...)
	}
	sparse(t, path, of, of.Rows, 5, pages)
	data, err = manifest.Encode(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

// TestFiveByteNumbers: batches of a store with edge numbers of five bytes are those of the same store with four, by
// every way in which numbers are read: whole in memory, with cached lists, from disk, for weights, for links.
func TestFiveByteNumbers(t *testing.T) {
	d := newDataset(4000, 50_000).weighted(manifest.DType_FLOAT32)
	path := filepath.Join(t.TempDir(), "g")
	for _, p := range []string{path, path + "five"} {
		require.NoError(t, store.Convert(context.Background(), ssd.OS, d.form("").input(), p, store.ConvertOptions{}))
	}
	fiveBytes(t, path+"five")
	four, five := opened(t, ssd.OS, path), opened(t, ssd.OS, path+"five")
	require.NoError(t, five.Verify(context.Background(), nil))
	const whole = 12 * 50_000 // of four and eight bytes
	options := map[string]draw.Options{
		"in memory": plain(), "all lists": onDisk(plain(), whole), "many lists": onDisk(plain(), whole/2),
		"few lists": onDisk(plain(), whole/20), "on disk": onDisk(plain(), 0),
	}
	for name, o := range options {
		o.WeightAttr = "weight"
		options[name+", weights"] = o
	}
	checked := onDisk(plain(), whole/3)
	checked.Checksums = true
	options["checksums"] = checked
	linked := onDisk(plain(), whole/3)
	linked.Links = &links.Options{}
	options["links"] = linked
	for name, o := range options {
		t.Run(name, func(t *testing.T) {
			want := open(t, draw.OpenStore(four), o)
			got := open(t, draw.OpenStore(five), o)
			requireSame(t, epochOf(t, want, 0), epochOf(t, got, 0))
			requireSame(t, epochOf(t, want, 1), epochOf(t, got, 1))
		})
	}
}
