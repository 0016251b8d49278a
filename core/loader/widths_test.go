package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// sparse makes the files of an array of zeros, but for some pages, however long: what is zero takes no space. The
// checksums are right.
func sparse(t *testing.T, dir string, a *manifest.Array, rows, rowBytes int64, pages map[int64][]byte) {
	t.Helper()
	table := crc32.MakeTable(crc32.Castagnoli)
	a.Rows = rows
	if a.RowsPerPage > 0 {
		a.FileBytes = (rows + a.RowsPerPage - 1) / a.RowsPerPage * ssd.PageBytes
	} else {
		a.FileBytes = (rows*rowBytes + ssd.PageBytes - 1) / ssd.PageBytes * ssd.PageBytes
	}
	file, err := os.Create(filepath.Join(dir, a.File))
	require.NoError(t, err)
	require.NoError(t, file.Truncate(a.FileBytes))
	sums := make([]byte, a.FileBytes/ssd.PageBytes*4)
	zero := crc32.Checksum(make([]byte, ssd.PageBytes), table)
	for i := 0; i < len(sums); i += 4 {
		binary.LittleEndian.PutUint32(sums[i:], zero)
	}
	for page, data := range pages {
		whole := append(data[:len(data):len(data)], make([]byte, ssd.PageBytes-len(data))...)
		_, err := file.WriteAt(whole, page*ssd.PageBytes)
		require.NoError(t, err)
		binary.LittleEndian.PutUint32(sums[4*page:], crc32.Checksum(whole, table))
	}
	require.NoError(t, file.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, a.CrcFile), sums, 0o600))
	a.CrcFileCrc = crc32.Checksum(sums, table)
}

// TestWidths trains on a store with more edges, and more bytes of features, than 32 bits count: a hub has almost all
// edges, and those of others lie behind them in the file. An array has more rows than that too. Files are sparse: they
// take 30 MB.
func TestWidths(t *testing.T) {
	const (
		nodes   = 10_000
		columns = 5 << 15 // rows of 640 KiB: 6.5 GB of them
	)
	tail := []int32{5, 6, 7, 8, 9} // sources of 998, twice, and of 999
	for _, hub := range explore.Part(t, "hub", []int64{1<<31 + 77, 1<<32 + 12345}) {
		t.Run(fmt.Sprint(hub), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "g")
			small := store.Input{
				NumNodes:  nodes,
				EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 1}, make([]byte, 16)),
				NodeTensors: []store.NamedSource{
					{Name: "x", Source: store.Dense(manifest.DType_FLOAT32, []int64{nodes, 2048}, make([]byte, nodes*8192))},
				},
				EdgeTensors: []store.NamedSource{{Name: "w", Source: store.Dense(manifest.DType_UINT8, []int64{1}, []byte{0})}},
				Attachments: []store.NamedSource{{Name: "far", Source: store.Dense(manifest.DType_UINT8, []int64{1}, []byte{0})}},
			}
			require.NoError(t, store.Convert(context.Background(), ssd.OS, small, path, store.ConvertOptions{}))
			name := filepath.Join(path, manifest.Name)
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			m, err := manifest.Decode(data)
			require.NoError(t, err)

			edge, edges := m.EdgeTypes[0], hub+int64(len(tail))
			edge.Count, edge.EdgeIds = edges, nil
			ptr := make([]int64, nodes+1)
			for v := range ptr {
				ptr[v] = hub
			}
			ptr[0] = 0
			for v := 999; v <= nodes; v++ {
				ptr[v] = map[bool]int64{true: hub + 2, false: edges}[v == 999]
			}
			pointers := map[int64][]byte{}
			for page, rest := int64(0), mem.Bytes(ptr); len(rest) > 0; page++ {
				n := min(len(rest), ssd.PageBytes)
				pointers[page], rest = rest[:n], rest[n:]
			}
			sparse(t, path, edge.Indptr, nodes+1, 8, pointers)
			// What stands in a row of one array at a place behind the hub's edges.
			behind := func(size int64, put func(page []byte, i int)) map[int64][]byte {
				pages := map[int64][]byte{}
				for i := range tail {
					at := (hub + int64(i)) * size
					page := at / ssd.PageBytes
					if pages[page] == nil {
						pages[page] = make([]byte, ssd.PageBytes)
					}
					put(pages[page][at%ssd.PageBytes:], i)
				}
				return pages
			}
			sparse(t, path, edge.Indices, edges, 4, behind(4, func(p []byte, i int) {
				binary.LittleEndian.PutUint32(p, uint32(tail[i]))
			}))
			sparse(t, path, edge.Tensors[0].Data, edges, 1, behind(1, func(p []byte, i int) { p[0] = byte(100 + i) }))
			x := m.NodeTypes[0].Tensors[0].Data
			x.RowShape, x.RowsPerPage = []int64{columns}, 0
			rows := map[int64][]byte{}
			for _, v := range []int64{0, 5, 6, 7, 8, 9, 997, 998, 999} { // those of the batches
				rows[v*columns*4/ssd.PageBytes] = mem.Bytes([]float32{float32(v) + .5})
			}
			sparse(t, path, x, nodes, columns*4, rows)
			const border = 1 << 32
			sparse(t, path, m.Attachments[0].Data, border+100, 1, map[int64][]byte{
				border/ssd.PageBytes - 1: append(make([]byte, ssd.PageBytes-2), 1, 2), border / ssd.PageBytes: {3, 4}})
			data, err = manifest.Encode(m)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(name, data, 0o600))

			s := opened(t, ssd.OS, path)
			far := make([]byte, 6)
			require.NoError(t, s.Attachments()[0].ReadRows(context.Background(), border-3, far, mem.NewBudget(0)))
			require.Equal(t, []byte{0, 1, 2, 3, 4, 0}, far)
			for _, change := range []func(o *draw.Options){
				func(*draw.Options) {},
				func(o *draw.Options) { o.Replace, o.Disjoint = true, true },
				func(o *draw.Options) { o.Checksums, o.IO = true, ssd.Pread },
				func(o *draw.Options) { o.Cache, o.FeatureCache, o.Transfer = "belady", 12<<20, "auto" },
			} {
				o := plain()
				o.Fanouts, o.BatchSize, o.Shuffle, o.NeighborCache, o.FeatureCache = []int64{6}, 2, false, 0, 0
				o.Seeds, o.Calibration = []int64{0, 999, 998, 997}, filepath.Join(shared, "devices.json")
				change(&o)
				numbers := map[int64]bool{}
				for _, b := range epochOf(t, open(t, draw.OpenStore(s), o), 0) {
					ids, ends, e := b.int64s("n_id"), b.int64s("edge_index"), b.int64s("e_id")
					for i, number := range e {
						source, target := ids[ends[i]], ids[ends[len(e)+i]]
						switch {
						case target == 0:
							require.Zero(t, source)
							require.Less(t, number, hub)
							require.Zero(t, b.arrays["w"][i])
							numbers[number] = true
						default:
							require.GreaterOrEqual(t, number, hub)
							require.EqualValues(t, tail[number-hub], source)
							require.Equal(t, map[bool]int64{true: 998, false: 999}[number < hub+2], target)
							require.EqualValues(t, 100+number-hub, b.arrays["w"][i])
						}
					}
					for i, v := range ids {
						row := b.arrays["x"][int64(i)*columns*4:]
						require.Equal(t, mem.Bytes([]float32{float32(v) + .5, 0}), row[:8])
					}
				}
				require.Greater(t, len(numbers), 4, "edges of the hub")
			}
		})
	}
}
