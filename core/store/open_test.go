package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// sampleStore writes a store with every kind of array and returns its path.
func sampleStore(t testing.TB) string {
	t.Helper()
	g := newRandomGraph(11, 3000, 9000, map[string][]int64{"x": {100}}, manifest.DType_FLOAT32)
	g.EdgeTensors = []NamedSource{{"w", Dense(manifest.DType_INT8, []int64{9000}, make([]byte, 9000))}}
	g.WeightsOf = "w"
	g.Splits["train"] = Dense(manifest.DType_INT64, []int64{3}, int64Bytes([]int64{1, 2, 2999}))
	path := filepath.Join(t.TempDir(), "g.freshgo")
	require.NoError(t, Convert(context.Background(), ssd.OS, g.Input, path, ConvertOptions{}))
	return path
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, writeIn(foreign, manifest.Name, "a manifest of somebody else's"))
	path := sampleStore(t)
	for name, tc := range map[string]struct {
		path   string
		fs     ssd.FS
		target error
	}{
		"nothing":          {filepath.Join(dir, "none"), ssd.OS, ErrNotFound},
		"file":             {file, ssd.OS, ErrFormat},
		"directory":        {dir, ssd.OS, ErrFormat},
		"foreign manifest": {foreign, ssd.OS, ErrFormat},
		"directory locked": {path, faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Stat, Nth: 1, Errno: syscall.EACCES}),
			ErrPermission},
		"manifest locked": {path, faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Open, Nth: 1, Errno: syscall.EPERM}),
			ErrPermission},
		"array not visible": {path,
			faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Stat, Path: "indices.bin",
				Nth: 1, Errno: syscall.EACCES}), ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tc.fs, tc.path)
			require.ErrorIs(t, err, tc.target)
		})
	}
}

// TestTruncatedFiles cuts, extends, removes and replaces every file.
func TestTruncatedFiles(t *testing.T) {
	path := sampleStore(t)
	for name, data := range readFiles(t, path) {
		file := filepath.Join(path, name)
		for _, size := range []int{0, 1, len(data) / 2, len(data) - 1, len(data) + 1, len(data) + ssd.PageBytes} {
			if size == len(data) {
				continue
			}
			require.NoError(t, os.Truncate(file, int64(size)))
			_, err := Open(ssd.OS, path)
			if name == manifest.Name && size < 8 {
				require.ErrorIs(t, err, ErrFormat, "%s of %d bytes", name, size)
			} else {
				var damage *CorruptError
				require.ErrorAs(t, err, &damage, "%s of %d bytes", name, size)
				require.Equal(t, file, damage.Path)
				if name != manifest.Name {
					require.ErrorContains(t, err, fmt.Sprintf("%d bytes, expected %d", size, len(data)))
				}
			}
			require.NoError(t, os.WriteFile(file, data, 0o600))
		}
		require.NoError(t, os.Remove(file))
		_, err := Open(ssd.OS, path)
		require.Error(t, err, name)
		require.NoError(t, os.Mkdir(file, 0o700))
		_, err = Open(ssd.OS, path)
		require.Error(t, err, name)
		require.NoError(t, os.Remove(file))
		for _, other := range []func() error{ // a pipe that nobody writes to, and a device
			func() error { return syscall.Mkfifo(file, 0o600) },
			func() error { return os.Symlink("/dev/null", file) },
		} {
			require.NoError(t, other())
			_, err = Open(ssd.OS, path)
			var damage *CorruptError
			require.ErrorAs(t, err, &damage, name)
			require.Equal(t, file, damage.Path)
			require.NoError(t, os.Remove(file))
		}
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	_ = mustOpen(t, path)
}

// TestFlippedBytes changes a byte in every page of every file. Verify must find it, and say where.
func TestFlippedBytes(t *testing.T) {
	requireFlippedFound(t, sampleStore(t))
	requireFlippedFound(t, mustConvert(t, newHeteroGraph(3, 50).Input, 0).Path())
}

func requireFlippedFound(t *testing.T, path string) {
	t.Helper()
	for name, data := range readFiles(t, path) {
		file := filepath.Join(path, name)
		for at := 17; at < len(data); at += 3 * ssd.PageBytes {
			data[at] ^= 0x10
			require.NoError(t, os.WriteFile(file, data, 0o600))
			data[at] ^= 0x10
			s, err := Open(ssd.OS, path)
			if name == manifest.Name {
				require.ErrorIs(t, err, ErrCorrupt)
				continue
			}
			require.NoError(t, err)
			err = s.Verify(context.Background(), nil)
			var damage *CorruptError
			require.ErrorAs(t, err, &damage)
			require.Equal(t, file, damage.Path)
			if filepath.Ext(name) == ".bin" {
				require.EqualValues(t, at/ssd.PageBytes*ssd.PageBytes, damage.Off)
			}
		}
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	s := mustOpen(t, path)
	require.NoError(t, s.Verify(context.Background(), nil))
}

// forge changes the manifest of a store and makes its checksum right again.
func forge(t *testing.T, path string, change func(m *manifest.Manifest)) {
	t.Helper()
	name := filepath.Join(path, manifest.Name)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	m, err := manifest.Decode(data)
	require.NoError(t, err)
	change(m)
	data, err = manifest.Encode(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

func TestHostileManifests(t *testing.T) {
	path := sampleStore(t)
	name := filepath.Join(path, manifest.Name)
	original, err := os.ReadFile(name)
	require.NoError(t, err)
	node := func(m *manifest.Manifest) *manifest.NodeType { return m.NodeTypes[0] }
	edge := func(m *manifest.Manifest) *manifest.EdgeType { return m.EdgeTypes[0] }
	x := func(m *manifest.Manifest) *manifest.Array { return m.NodeTypes[0].Tensors[0].Data }
	for what, tc := range map[string]struct {
		change func(m *manifest.Manifest)
		target error
	}{
		"no uuid":        {func(m *manifest.Manifest) { m.Uuid = nil }, ErrCorrupt},
		"no node type":   {func(m *manifest.Manifest) { m.NodeTypes = nil }, ErrCorrupt},
		"two edge types": {func(m *manifest.Manifest) { m.EdgeTypes = append(m.EdgeTypes, m.EdgeTypes[0]) }, ErrCorrupt},
		"order of int32": {func(m *manifest.Manifest) { node(m).Order = edge(m).Indices; edge(m).Indices = nil },
			ErrCorrupt},
		"order elsewhere":  {func(m *manifest.Manifest) { node(m).Order = edge(m).Indices }, ErrCorrupt},
		"quantised":        {func(m *manifest.Manifest) { node(m).Tensors[0].Scale = 2 }, ErrVersion},
		"no nodes":         {func(m *manifest.Manifest) { node(m).Count = 0 }, ErrCorrupt},
		"negative nodes":   {func(m *manifest.Manifest) { node(m).Count = -1 }, ErrCorrupt},
		"all the nodes":    {func(m *manifest.Manifest) { node(m).Count = math.MaxInt64 }, ErrCorrupt},
		"one node more":    {func(m *manifest.Manifest) { node(m).Count++ }, ErrCorrupt},
		"negative edges":   {func(m *manifest.Manifest) { edge(m).Count = -1 }, ErrCorrupt},
		"one edge less":    {func(m *manifest.Manifest) { edge(m).Count-- }, ErrCorrupt},
		"other node type":  {func(m *manifest.Manifest) { edge(m).Source = "paper" }, ErrCorrupt},
		"no indptr":        {func(m *manifest.Manifest) { edge(m).Indptr = nil }, ErrCorrupt},
		"indptr of floats": {func(m *manifest.Manifest) { edge(m).Indptr.Dtype = manifest.DType_FLOAT64 }, ErrCorrupt},
		"indptr of pairs":  {func(m *manifest.Manifest) { edge(m).Indptr.RowShape = []int64{2} }, ErrCorrupt},
		"padded indices":   {func(m *manifest.Manifest) { edge(m).Indices.RowsPerPage = 1000 }, ErrCorrupt},
		"wide edge ids":    {func(m *manifest.Manifest) { edge(m).EdgeIds.Dtype = manifest.DType_INT64 }, ErrCorrupt},
		"parent directory": {func(m *manifest.Manifest) { x(m).File = "../x.bin" }, ErrCorrupt},
		"absolute path":    {func(m *manifest.Manifest) { x(m).File = "/etc/passwd" }, ErrCorrupt},
		"dot dot":          {func(m *manifest.Manifest) { x(m).CrcFile = ".." }, ErrCorrupt},
		"no file":          {func(m *manifest.Manifest) { x(m).File = "" }, ErrCorrupt},
		"NUL":              {func(m *manifest.Manifest) { x(m).File = "x\x00.bin" }, ErrCorrupt},
		"file twice":       {func(m *manifest.Manifest) { x(m).File = "indptr.bin" }, ErrCorrupt},
		"the manifest":     {func(m *manifest.Manifest) { x(m).CrcFile = manifest.Name }, ErrCorrupt},
		"unknown dtype":    {func(m *manifest.Manifest) { x(m).Dtype = 77 }, ErrCorrupt},
		"no dtype":         {func(m *manifest.Manifest) { x(m).Dtype = 0 }, ErrCorrupt},
		"negative dtype":   {func(m *manifest.Manifest) { x(m).Dtype = -5 }, ErrCorrupt},
		"overflowing row": {func(m *manifest.Manifest) { x(m).RowShape = []int64{1 << 40, 1 << 40, 1 << 40} },
			ErrCorrupt},
		"negative columns": {func(m *manifest.Manifest) { x(m).RowShape = []int64{-100, -1} }, ErrCorrupt},
		"no columns":       {func(m *manifest.Manifest) { x(m).RowShape = []int64{0} }, ErrCorrupt},
		"many dimensions":  {func(m *manifest.Manifest) { x(m).RowShape = make([]int64, 1000) }, ErrCorrupt},
		"overflowing rows": {func(m *manifest.Manifest) {
			node(m).Count, x(m).Rows = math.MaxInt64/2, math.MaxInt64/2
		}, ErrCorrupt},
		"negative per page": {func(m *manifest.Manifest) { x(m).RowsPerPage = -1 }, ErrCorrupt},
		"too many per page": {func(m *manifest.Manifest) { x(m).RowsPerPage = math.MaxInt64 }, ErrCorrupt},
		"other per page":    {func(m *manifest.Manifest) { x(m).RowsPerPage = 1 }, ErrCorrupt},
		"negative size":     {func(m *manifest.Manifest) { x(m).FileBytes = -4096 }, ErrCorrupt},
		"huge size":         {func(m *manifest.Manifest) { x(m).FileBytes = math.MaxInt64 }, ErrCorrupt},
		"no array":          {func(m *manifest.Manifest) { node(m).Tensors[0].Data = nil }, ErrCorrupt},
		"nameless tensor":   {func(m *manifest.Manifest) { node(m).Tensors[0].Name = "" }, ErrCorrupt},
		"tensor twice": {func(m *manifest.Manifest) { node(m).Tensors = append(node(m).Tensors, node(m).Tensors[0]) },
			ErrCorrupt},
		"split without ids":   {func(m *manifest.Manifest) { node(m).Splits[0].Ids = nil }, ErrCorrupt},
		"split, negative":     {func(m *manifest.Manifest) { node(m).Splits[0].Ids.Rows = -3 }, ErrCorrupt},
		"checksums elsewhere": {func(m *manifest.Manifest) { x(m).CrcFile = "gone.crc" }, ErrCorrupt},
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, os.WriteFile(name, original, 0o600))
			forge(t, path, tc.change)
			_, err := Open(ssd.OS, path)
			require.ErrorIs(t, err, tc.target)
		})
	}
}

func TestNewerVersion(t *testing.T) {
	path := sampleStore(t)
	name := filepath.Join(path, manifest.Name)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	binary.LittleEndian.PutUint32(data[8:], manifest.Version+1)
	require.NoError(t, os.WriteFile(name, data, 0o600))
	_, err = Open(ssd.OS, path)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "version 3, expected 1 to 2")
}

// TestHostileIDs puts wrong numbers into arrays whose checksums are right: they must not reach memory.
func TestHostileIDs(t *testing.T) {
	ctx, budget := context.Background(), mem.NewBudget(0)
	ids := func(a *Array, limit int64) error { _, err := a.LoadIDs(ctx, limit, budget, mem.Topology); return err }
	loads := map[string]func(s *Store) error{
		"indptr":       func(s *Store) error { _, err := s.edgeTypes[0].LoadIndptr(ctx, budget, mem.Topology); return err },
		"indices":      func(s *Store) error { return ids(s.edgeTypes[0].Indices, s.edgeTypes[0].NumSources) },
		"edge_ids":     func(s *Store) error { return ids(s.edgeTypes[0].EdgeIDs, s.edgeTypes[0].NumEdges) },
		"split0_train": func(s *Store) error { _, err := s.nodeTypes[0].LoadSplit(ctx, "train"); return err },
	}
	for _, tc := range []struct {
		file  string
		row   int
		value int64
	}{
		{"indptr", 0, 1}, {"indptr", 1, -1}, {"indptr", 1000, 1 << 40}, {"indptr", 2999, 0}, {"indptr",
			3000, 8999}, {"indptr", 3000, 9001},
		{"indices", 0, 3000}, {"indices", 8999, -1}, {"edge_ids", 5, 9000}, {"edge_ids", 8999, math.MaxUint32},
		{"split0_train", 2, 3000}, {"split0_train", 0, -1},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			path := sampleStore(t)
			name := filepath.Join(path, tc.file+".bin")
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			width := 8
			if tc.file == "indices" || tc.file == "edge_ids" {
				width = 4
			}
			copy(data[tc.row*width:(tc.row+1)*width], int64Bytes([]int64{tc.value}))
			require.NoError(t, os.WriteFile(name, data, 0o600))
			var sums []byte
			for page := 0; page < len(data); page += ssd.PageBytes {
				sums = binary.LittleEndian.AppendUint32(sums, crc32.Checksum(data[page:page+ssd.PageBytes], castagnoli))
			}
			require.NoError(t, os.WriteFile(filepath.Join(path, tc.file+".crc"), sums, 0o600))
			forge(t, path, func(m *manifest.Manifest) {
				edge := m.EdgeTypes[0]
				for _, a := range []*manifest.Array{edge.Indptr, edge.Indices, edge.EdgeIds, m.NodeTypes[0].Splits[0].Ids} {
					if a.File == tc.file+".bin" {
						a.CrcFileCrc = crc32.Checksum(sums, castagnoli)
					}
				}
			})
			s := mustOpen(t, path)
			for _, err := range []error{loads[tc.file](s), s.Verify(ctx, nil)} {
				var damage *CorruptError
				require.ErrorAs(t, err, &damage)
				require.Equal(t, name, damage.Path)
				require.Contains(t, damage.Reason, "expected")
			}
		})
	}
	require.Zero(t, budget.Used())
}

func TestFailedLoadsLeaveNothing(t *testing.T) {
	path := sampleStore(t)
	s := mustOpen(t, path)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	budget := mem.NewBudget(0)
	_, err := s.edgeTypes[0].Indices.LoadIDs(cancelled, s.edgeTypes[0].NumSources, budget, mem.Topology)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Verify(cancelled, nil), context.Canceled)
	require.Zero(t, budget.Used())

	x := &s.NodeTypes()[0].Tensors[0].Array
	for limit := int64(1); ; limit *= 2 {
		budget := mem.NewBudget(limit)
		block, err := x.Load(context.Background(), budget, mem.FeatureCache)
		if err == nil {
			block.Free()
			break
		}
		require.ErrorIs(t, err, mem.ErrBudget)
		require.Zero(t, budget.Used())
	}

	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.EdgeTypes()[0].LoadIndptr(context.Background(), budget, mem.Topology)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Verify(context.Background(), nil), ErrClosed)
	require.ErrorIs(t, s.CheckCurrent(), ErrClosed)
	require.Zero(t, budget.Used())
}

func TestVerifyReportsProgress(t *testing.T) {
	s := mustOpen(t, sampleStore(t))
	last := int64(-1)
	whole := s.Describe().NumBytes + s.edgeTypes[0].verifiedBytes() // weights are read again, with their tensor
	require.NoError(t, s.Verify(context.Background(), func(done, total int64) {
		require.Greater(t, done, last)
		require.Equal(t, whole, total)
		last = done
	}))
	require.Equal(t, whole, last)
}

func TestDescribe(t *testing.T) {
	s := mustOpen(t, sampleStore(t))
	text, err := json.Marshal(s.Describe())
	require.NoError(t, err)
	var d map[string]any
	require.NoError(t, json.Unmarshal(text, &d))
	require.EqualValues(t, 3000, d["num_nodes"])
	require.EqualValues(t, 9000, d["num_edges"])
	require.EqualValues(t, 1, d["format_version"])
	require.Len(t, d["uuid"], 32)
	require.Len(t, d["topology"], 5)
	require.Equal(t, "w", d["weights_of"])
	x := d["tensors"].([]any)[0].(map[string]any)
	require.Equal(t, "float32", x["dtype"])
	require.Equal(t, []any{3000.0, 100.0}, x["shape"])
	require.EqualValues(t, 10, x["rows_per_page"])
	require.Equal(t, "train", d["splits"].([]any)[0].(map[string]any)["name"])
	require.Len(t, d["edge_tensors"], 1)
	require.EqualValues(t, s.UUID(), [16]byte(s.Manifest().Uuid))
}
