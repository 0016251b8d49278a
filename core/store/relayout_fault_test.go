package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
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

func mustOpen(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(ssd.OS, path)
	require.NoError(t, err)
	return s
}

// requireNothing holds that a directory is empty.
func requireNothing(t *testing.T, dir string, args ...any) {
	t.Helper()
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names, args...)
}

// rewrite replaces the contents of an array and makes all checksums right again.
func rewrite(t *testing.T, path, name string, data []byte) {
	t.Helper()
	var sums []byte
	for page := 0; page < len(data); page += ssd.PageBytes {
		sums = binary.LittleEndian.AppendUint32(sums, crc32.Checksum(data[page:page+ssd.PageBytes], castagnoli))
	}
	require.NoError(t, os.WriteFile(filepath.Join(path, name+".bin"), data, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, name+".crc"), sums, 0o600))
	forge(t, path, func(m *manifest.Manifest) {
		node, edge := m.NodeTypes[0], m.EdgeTypes[0]
		for _, a := range []*manifest.Array{edge.Indptr, edge.Indices, edge.EdgeIds, node.Order} {
			if a.GetFile() == name+".bin" {
				a.CrcFileCrc = crc32.Checksum(sums, castagnoli)
			}
		}
	})
}

// reorderedSample is the sample store in another order.
func reorderedSample(t *testing.T) string {
	t.Helper()
	path := sampleStore(t)
	opts := RelayoutOptions{Order: Hot, Scores: randomScores(6, 3000), Overwrite: true}
	require.NoError(t, Relayout(context.Background(), mustOpen(t, path), path, opts))
	return path
}

// TestDamagedOrder: whatever is in the file of an order, nothing uses it unchecked.
func TestDamagedOrder(t *testing.T) {
	ctx, budget := context.Background(), mem.NewBudget(0)
	uses := map[string]func(s *Store) error{
		"RowOf":     func(s *Store) error { _, err := s.NodeTypes()[0].RowOf(ctx, budget, mem.Topology); return err },
		"LoadOrder": func(s *Store) error { _, err := s.NodeTypes()[0].LoadOrder(ctx, budget, mem.Topology); return err },
		"ReadTensor": func(s *Store) error {
			a := &s.NodeTypes()[0].Tensors[0].Array
			return s.ReadTensor(ctx, a, make([]byte, a.Rows*int64(a.Layout.RowBytes)), budget)
		},
		"Verify":   func(s *Store) error { return s.Verify(ctx, nil) },
		"Relayout": func(s *Store) error { return Relayout(ctx, s, s.Path()+"2", RelayoutOptions{Order: Community}) },
	}
	put := func(row int, id uint32) func(order []uint32) { return func(order []uint32) { order[row] = id } }
	for name, tc := range map[string]struct {
		change func(order []uint32)
		row    int
		text   string
	}{
		"first out of range": {put(0, 3000), 0, "row 0 is 3000, expected 0 to 2999"},
		"last out of range":  {put(2999, 1<<32-1), 2999, "row 2999 is 4294967295"},
		"twice":              {func(order []uint32) { order[2500] = order[17] }, 2500, "which has another row"},
	} {
		t.Run(name, func(t *testing.T) {
			path := reorderedSample(t)
			data := readFiles(t, path)["order.bin"]
			tc.change(mem.View[uint32](data)[:3000])
			rewrite(t, path, "order", data)
			s := mustOpen(t, path)
			for use, run := range uses {
				err := run(s)
				var damage *CorruptError
				require.ErrorAs(t, err, &damage, use)
				require.Equal(t, filepath.Join(path, "order.bin"), damage.Path)
				require.Contains(t, damage.Reason, tc.text, use)
				require.EqualValues(t, tc.row*4, damage.Off, use)
			}
		})
	}
	t.Run("flipped", func(t *testing.T) {
		path := reorderedSample(t)
		data := readFiles(t, path)["order.bin"]
		data[5000] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(path, "order.bin"), data, 0o600))
		s := mustOpen(t, path)
		for use, run := range uses {
			var damage *CorruptError
			require.ErrorAs(t, run(s), &damage, use)
			require.EqualValues(t, ssd.PageBytes, damage.Off, use)
		}
	})
	t.Run("truncated", func(t *testing.T) {
		path := reorderedSample(t)
		require.NoError(t, os.Truncate(filepath.Join(path, "order.bin"), ssd.PageBytes))
		_, err := Open(ssd.OS, path)
		require.ErrorIs(t, err, ErrCorrupt)
	})
	require.Zero(t, budget.Used())
}

// TestHostileOrders forges what the manifest says of an order.
func TestHostileOrders(t *testing.T) {
	path := reorderedSample(t)
	name := filepath.Join(path, manifest.Name)
	original, err := os.ReadFile(name)
	require.NoError(t, err)
	for what, tc := range map[string]struct {
		change func(m *manifest.Manifest)
		target error
	}{
		"int64":     {func(m *manifest.Manifest) { m.NodeTypes[0].Order.Dtype = manifest.DType_INT64 }, ErrCorrupt},
		"too few":   {func(m *manifest.Manifest) { m.NodeTypes[0].Order.Rows-- }, ErrCorrupt},
		"pairs":     {func(m *manifest.Manifest) { m.NodeTypes[0].Order.RowShape = []int64{2} }, ErrCorrupt},
		"own file":  {func(m *manifest.Manifest) { m.NodeTypes[0].Order.File = "indptr.bin" }, ErrCorrupt},
		"elsewhere": {func(m *manifest.Manifest) { m.NodeTypes[0].Order.CrcFile = "../x" }, ErrCorrupt},
		"too many nodes": {func(m *manifest.Manifest) { m.NodeTypes[0].Count = maxOrdered + 1; m.EdgeTypes[0].Indptr = nil },
			ErrVersion},
	} {
		require.NoError(t, os.WriteFile(name, original, 0o600))
		forge(t, path, tc.change)
		_, err := Open(ssd.OS, path)
		require.ErrorIs(t, err, tc.target, what)
	}
}

// faultySource is a store whose relayout takes every kind of path through the file system: copies, the adjacency, a
// spill.
func faultySource(t *testing.T) (string, RelayoutOptions) {
	t.Helper()
	g := newRandomGraph(31, 1500, 9000, map[string][]int64{"x": {300}}, manifest.DType_FLOAT32)
	g.Splits["train"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{0, 7}))
	s := mustConvert(t, g.Input, 0)
	opts := RelayoutOptions{Order: HotCommunity, Scores: randomScores(7, 1500), HotRows: 30, Memory: 1}
	var short *mem.BudgetError
	require.ErrorAs(t, Relayout(context.Background(), s, s.Path()+"2", opts), &short)
	opts.Memory = short.Need
	r, err := newRelayouter(s, opts, mem.NewBudget(opts.Memory), false)
	require.NoError(t, err)
	require.Positive(t, r.plan.tensors[0][0].lane, "no spill")
	return s.Path(), opts
}

func TestEveryCallOfARelayoutFails(t *testing.T) {
	source, opts := faultySource(t)
	c := writer{opts.Memory, func(fs ssd.FS) func(string, bool, *mem.Budget) error {
		s, err := Open(fs, source)
		require.NoError(t, err)
		return func(path string, overwrite bool, budget *mem.Budget) error {
			opts.Overwrite = overwrite
			return relayout(context.Background(), s, path, opts, budget)
		}
	}, func(path string) { requireNodes(t, path, 1500) }, 2}
	requireEveryCallFails(t, c, true, faultfs.Open, faultfs.Exchange, faultfs.Rename, faultfs.Remove, faultfs.SyncDir,
		faultfs.Read, faultfs.Write, faultfs.Stat)
	requireEveryCallFails(t, c, false, faultfs.OpenDirect, faultfs.Rename, faultfs.Mkdir, faultfs.ReadDir, faultfs.Sync,
		faultfs.Truncate, faultfs.Allocate, faultfs.Size, faultfs.Lock)
}

// TestDamagedRowSpill overwrites the rows on disk between the two passes.
func TestDamagedRowSpill(t *testing.T) {
	source, opts := faultySource(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "g")
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Read, Path: rowSpillName, Nth: 2, Short: 1 << 30, Hook: func() {
		name := filepath.Join(path+partialSuffix, rowSpillName)
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		for at := 1000; at < len(data); at += ssd.PageBytes {
			data[at] ^= 4
		}
		require.NoError(t, os.WriteFile(name, data, 0o600))
	}})
	s, err := Open(fs, source)
	require.NoError(t, err)
	var damage *CorruptError
	require.ErrorAs(t, Relayout(context.Background(), s, path, opts), &damage)
	require.Contains(t, damage.Path, rowSpillName)
	requireNothing(t, dir)
}

// TestDamagedSource: a flipped byte in any array of the source is found, named, and not copied.
func TestDamagedSource(t *testing.T) {
	source, opts := faultySource(t)
	for name, data := range readFiles(t, source) {
		if name == manifest.Name {
			continue
		}
		file := filepath.Join(source, name)
		at := len(data) / 2
		data[at] ^= 0x40
		require.NoError(t, os.WriteFile(file, data, 0o600))
		var damage *CorruptError
		require.ErrorAs(t, Relayout(context.Background(), mustOpen(t, source), source+"2", opts), &damage)
		require.Equal(t, file, damage.Path)
		data[at] ^= 0x40
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	require.NoError(t, Relayout(context.Background(), mustOpen(t, source), source+"2", opts))
}

// TestRelayoutWithoutDirectIO works on a file system without O_DIRECT, and one that transfers less than asked.
func TestRelayoutWithoutDirectIO(t *testing.T) {
	source, opts := faultySource(t)
	want := readFiles(t, mustRelayout(t, mustOpen(t, source), opts).Path())
	for name, faults := range map[string][]faultfs.Fault{
		"refused": {{Op: faultfs.OpenDirect, Nth: 1, Times: faultfs.Forever, Errno: syscall.EINVAL}},
		"short": {{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Short: 8192},
			{Op: faultfs.Write, Nth: 1, Times: faultfs.Forever, Short: 8192}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(faultfs.New(ssd.OS, faults...), source)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "g")
			require.NoError(t, Relayout(context.Background(), s, path, opts))
			got := readFiles(t, path)
			for file, data := range want {
				require.True(t, file == manifest.Name || bytes.Equal(data, got[file]), file)
			}
		})
	}
}

// TestCancelledRelayout cancels at every report of progress: nothing stays, memory and files included.
func TestCancelledRelayout(t *testing.T) {
	source, opts := faultySource(t)
	dir := t.TempDir()
	for after := 1; ; after += 1 + after/2 {
		ctx, cancel := context.WithCancel(context.Background())
		reports := 0
		opts.Progress = func(string, int64, int64) {
			if reports++; reports == after {
				cancel()
			}
		}
		fs := faultfs.New(ssd.OS)
		s, err := Open(fs, source)
		require.NoError(t, err)
		budget := mem.NewBudget(opts.Memory)
		err = relayout(ctx, s, filepath.Join(dir, "g"), opts, budget)
		cancel()
		require.Zero(t, budget.Used())
		require.Zero(t, fs.OpenFiles())
		if reports < after {
			require.NoError(t, err)
			require.Greater(t, after, 20)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		requireNothing(t, dir)
	}
}

// TestOneRelayoutAtATime: a second one, or a conversion, to the same path is refused; what a killed one left is removed
// by the next.
func TestOneRelayoutAtATime(t *testing.T) {
	source, opts := faultySource(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "g")
	var second, third error
	busy := opts
	busy.Progress = func(string, int64, int64) {
		if second == nil {
			second = Relayout(context.Background(), mustOpen(t, source), path, opts)
			third = convertTiny(path, 1, true)
		}
	}
	require.NoError(t, Relayout(context.Background(), mustOpen(t, source), path, busy))
	require.ErrorIs(t, second, ErrBusy)
	require.ErrorIs(t, third, ErrBusy)

	killed, err := prepareSite(ssd.OS, path, true)
	require.NoError(t, err)
	require.NoError(t, killed.writeFile(rowSpillName, make([]byte, 100)))
	require.NoError(t, killed.writeFile("rows0_x.bin", make([]byte, 100)))
	require.NoError(t, killed.lock.Close()) // as the end of the process does
	opts.Overwrite = true
	require.NoError(t, Relayout(context.Background(), mustOpen(t, source), path, opts))
	require.NoError(t, mustOpen(t, path).Verify(context.Background(), nil))
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
}
