package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/crc"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

func TestEdgeNumberTypes(t *testing.T) {
	for e, want := range map[int64]manifest.DType{
		0: manifest.DType_UINT32, 1 << 32: manifest.DType_UINT32, 1<<32 + 1: manifest.DType_UINT40,
		1 << 40: manifest.DType_UINT40, 1<<40 + 1: manifest.DType_INT64,
	} {
		require.Equal(t, want, edgeIDType(e), e)
	}
	numbers := []int64{0, 1, 255, 1 << 32, 1<<32 + 77, 1<<40 - 1}
	data, back := make([]byte, 5*len(numbers)), make([]int64, len(numbers))
	encodeIntegers(manifest.DType_UINT40, numbers, data)
	DecodeIntegers(manifest.DType_UINT40, data, back)
	require.Equal(t, numbers, back)
	require.Equal(t, []byte{77, 0, 0, 0, 1}, data[20:25])
}

// loadedNumbers returns the numbers of all edges by position, which it loads packed too.
func loadedNumbers(t *testing.T, e *EdgeType) (numbers []int64) {
	t.Helper()
	budget := mem.NewBudget(0)
	block, err := e.EdgeIDs.LoadIDs(context.Background(), e.NumEdges, budget, mem.Topology)
	require.NoError(t, err)
	defer block.Free()
	if e.EdgeIDs.IDBytes() == 4 {
		numbers = widened(mem.Slice[int32](block))
	} else {
		numbers = slices.Clone(mem.Slice[int64](block))
	}
	all, packed, err := e.EdgeIDs.LoadPacked(context.Background(), e.NumEdges, budget, mem.Topology)
	require.NoError(t, err)
	defer packed.Free()
	same := make([]int64, all.Len())
	all.Unpack(0, same)
	require.Equal(t, append([]int64{}, numbers...), same)
	return numbers
}

// TestFiveByteNumbers: numbers of five bytes are those of four, in a store of the next version, by every way in which
// they are written: from a spill, in rounds, in memory, of a hub, merged by an append, and with weights, which verify
// finds by them.
func TestFiveByteNumbers(t *testing.T) {
	ctx := context.Background()
	for _, edges := range []int64{0, 1, 818, 819, 820, 200_000} {
		in, _, _ := weightedInput(5, 300, int(edges), manifest.DType_FLOAT32)
		four := mustConvert(t, in, 0)
		in.numbers = manifest.DType_UINT40
		smallest := smallestBudget(t, in)
		need := spaceNeeded(t, in, smallest).Need
		for memory, fs := range map[int64]ssd.FS{0: ssd.OS, smallest: ssd.OS, smallest + 1: little{ssd.OS, need}} {
			path := filepath.Join(t.TempDir(), "g")
			require.NoError(t, Convert(ctx, fs, in, path, ConvertOptions{Memory: memory}))
			s := mustVerify(t, path)
			info, err := os.Stat(filepath.Join(path, manifest.Name))
			require.NoError(t, err)
			require.Equal(t, need, written(t, path)-info.Size())
			if four.EdgeTypes()[0].EdgeIDs == nil { // they are sorted
				require.Nil(t, s.EdgeTypes()[0].EdgeIDs)
				continue
			}
			require.Equal(t, 2, s.Describe().Version)
			ids := s.EdgeTypes()[0].EdgeIDs
			require.Equal(t, ssd.Layout{RowBytes: 5, RowsPerPage: 819, NumRows: edges}, ids.Layout)
			require.Equal(t, loadedNumbers(t, &four.EdgeTypes()[0]), loadedNumbers(t, &s.EdgeTypes()[0]))
			requireDamageFound(t, path, ids)
		}
	}
}

// requireDamageFound puts a wrong number at the end of a file of numbers, with the right checksums.
func requireDamageFound(t *testing.T, path string, ids *Array) {
	t.Helper()
	data, err := os.ReadFile(ids.Path)
	require.NoError(t, err)
	good := slices.Clone(data)
	putUint40(data[ids.Layout.Offset(ids.Rows-1):], uint64(ids.Rows))
	rewriteNumbers(t, path, ids.File, data)
	s := mustOpen(t, path)
	var damaged *CorruptError
	require.ErrorAs(t, s.Verify(context.Background(), nil), &damaged)
	require.Equal(t, ids.Layout.Offset(ids.Rows-1), damaged.Off)
	_, err = s.edgeTypes[0].EdgeIDs.LoadIDs(context.Background(), ids.Rows, mem.NewBudget(0), mem.Topology)
	require.True(t, errors.As(err, &damaged))
	budget := mem.NewBudget(0)
	_, _, err = s.EdgeTypes()[0].EdgeIDs.LoadPacked(context.Background(), ids.Rows, budget, mem.Topology)
	require.True(t, errors.As(err, &damaged))
	require.Zero(t, budget.Used())
	rewriteNumbers(t, path, ids.File, good)
	mustVerify(t, path)
}

// rewriteNumbers replaces the file of edge numbers, and its checksums.
func rewriteNumbers(t *testing.T, path, file string, data []byte) {
	t.Helper()
	var sums []uint32
	for at := 0; at < len(data); at += ssd.PageBytes {
		sums = append(sums, crc.Checksum(data[at:at+ssd.PageBytes]))
	}
	require.NoError(t, os.WriteFile(filepath.Join(path, file), data, 0o600))
	forge(t, path, func(m *manifest.Manifest) {
		of := m.EdgeTypes[0].EdgeIds
		of.CrcFileCrc = crc.Checksum(mem.Bytes(sums))
		require.NoError(t, os.WriteFile(filepath.Join(path, of.CrcFile), mem.Bytes(sums), 0o600))
	})
}

// TestFiveByteSuccessors: appends merge numbers of five bytes with others of four and five, to either; relayouts and
// updates take them over, and copies where files cannot be shared.
func TestFiveByteSuccessors(t *testing.T) {
	ctx := context.Background()
	src, dst := make([]int64, 3000), make([]int64, 3000)
	for i := range src {
		src[i], dst[i] = int64(i*7%50), int64(i*i%50)
	}
	x := NamedSource{"x", Dense(manifest.DType_UINT8, []int64{50, 1}, make([]byte, 50))}
	whole := mustConvert(t, Input{NumNodes: 50, EdgeIndex: edgesOf(src, dst)}, 0)
	want := loadedNumbers(t, &whole.EdgeTypes()[0])
	for _, was := range []manifest.DType{manifest.DType_UINT32, manifest.DType_UINT40} {
		in := Input{NumNodes: 50, EdgeIndex: edgesOf(src[:2000], dst[:2000]), NodeTensors: []NamedSource{x}, numbers: was}
		s := mustConvert(t, in, 0)
		for _, to := range []manifest.DType{manifest.DType_UINT32, manifest.DType_UINT40} {
			path := filepath.Join(t.TempDir(), "g")
			more := EdgeInput{EdgeIndex: edgesOf(src[2000:], dst[2000:]), numbers: to}
			require.NoError(t, Append(ctx, s, path, Growth{Edges: []EdgeInput{more}}, ConvertOptions{}))
			grown := mustVerify(t, path)
			require.Equal(t, to, grown.EdgeTypes()[0].EdgeIDs.DType)
			require.Equal(t, want, loadedNumbers(t, &grown.EdgeTypes()[0]))
		}
		again := filepath.Join(t.TempDir(), "again")
		require.NoError(t, Relayout(ctx, s, again, RelayoutOptions{Order: Community, HotRows: -1}))
		relaid := mustVerify(t, again)
		require.Equal(t, loadedNumbers(t, &s.EdgeTypes()[0]), loadedNumbers(t, &relaid.EdgeTypes()[0]))
		again = filepath.Join(t.TempDir(), "again")
		require.NoError(t, Update(ctx, s, again, Changes{Nodes: []NodeChange{{Drop: []string{"x"}}}}, ConvertOptions{}))
		require.Equal(t, was, mustVerify(t, again).EdgeTypes()[0].EdgeIDs.DType)
	}
}

// TestFiveByteNumbersThatStraddle pages are refused: readers take whole pages of them.
func TestFiveByteNumbersThatStraddle(t *testing.T) {
	in := Input{NumNodes: 5, EdgeIndex: edgesOf([]int64{0, 1}, []int64{3, 1}), numbers: manifest.DType_UINT40}
	m := mustConvert(t, in, 0).Manifest()
	m.EdgeTypes[0].EdgeIds.RowsPerPage = 0
	err := newStore(ssd.OS, "s", m).check()
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "edge_ids has numbers of five bytes that straddle pages")
	m.EdgeTypes[0].EdgeIds.RowsPerPage = 819
	m.EdgeTypes[0].Indices.Dtype = manifest.DType_UINT40
	require.ErrorContains(t, newStore(ssd.OS, "s", m).check(), "indices has the unknown dtype 14")
}
