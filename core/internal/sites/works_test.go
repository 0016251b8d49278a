package sites_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/loader"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/propagate"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// work is something that reads and writes files. It may be done again where it failed.
type work struct {
	prepare func(t *testing.T, dir string)
	always  []faultfs.Fault // what the file system cannot
	run     func(fs ssd.FS, dir string) error
	digest  func(dir string) (uint64, error) // of what it leaves, or nil: run leaves nothing but what it returns
	// every site is made to fail, and not only those that no work before it has reached: what comes after is different
	every bool
}

const (
	nodes, edges = 600, 6000
	columns      = 30
	wide         = 700 // columns: the smallest memory holds less than a third of them, so that relayouts spill rows
)

func bytesOf(values any) []byte {
	out, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return out
}

// input is a graph that takes every kind of path through the file system: sources in files and in memory, splits,
// weights, attachments.
func input(dir string, columns int) store.Input {
	random := rand.New(rand.NewPCG(1, 2))
	ends, x, w := make([]int64, 2*edges), make([]float32, nodes*columns), make([]float32, edges)
	for i := range ends {
		ends[i] = int64(nodes * random.Float64() * random.Float64())
	}
	for i := range x {
		x[i] = random.Float32()
	}
	for i := range w {
		w[i] = random.Float32()
	}
	in := store.Input{
		NumNodes:  nodes,
		EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, edges}, bytesOf(ends)),
		NodeTensors: []store.NamedSource{
			{Name: "x", Source: store.Dense(manifest.DType_FLOAT32, []int64{nodes, int64(columns)}, bytesOf(x))},
			{Name: "z", Source: store.Dense(manifest.DType_UINT8, []int64{nodes, 90}, make([]byte, nodes*90))},
		},
		EdgeTensors: []store.NamedSource{
			{Name: "w", Source: store.Dense(manifest.DType_FLOAT32, []int64{edges}, bytesOf(w))},
		},
		WeightsOf: "w",
		Splits: map[string]store.Source{
			"train": store.Dense(manifest.DType_INT64, []int64{2}, bytesOf([]int64{0, 7})),
		},
		Attachments: []store.NamedSource{
			{Name: "ids", Source: store.Dense(manifest.DType_UINT8, []int64{9000}, make([]byte, 9000))},
		},
	}
	source := &in.NodeTensors[0].Source
	source.File = filepath.Join(dir, fmt.Sprint(columns, ".npy"))
	if err := os.WriteFile(source.File, bytesOf(x), 0o600); err != nil {
		panic(err)
	}
	source.Mem = nil
	return in
}

// hubInput is a graph one of whose nodes has more in-edges than the smallest memory holds, so that they are spilled.
func hubInput() store.Input {
	ends := make([]int64, 2*50_000)
	ends[50_000] = 1
	return store.Input{NumNodes: 2, EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 50_000}, bytesOf(ends))}
}

// least is the smallest memory with which a work does not refuse.
func least(t *testing.T, run func(memory int64) error) int64 {
	t.Helper()
	var short *mem.BudgetError
	require.ErrorAs(t, run(1), &short)
	return short.Minimum()
}

func opened(fs ssd.FS, path string, run func(s *store.Store) error) error {
	s, err := store.Open(fs, path)
	if err != nil {
		return err
	}
	return errors.Join(run(s), s.Close())
}

// written is the digest of the store g: its numbers, and its arrays under whatever names.
func written(dir string) (uint64, error) {
	sum := uint64(0)
	err := opened(ssd.OS, filepath.Join(dir, "g"), func(s *store.Store) error {
		if err := s.Verify(context.Background(), nil); err != nil {
			return err
		}
		named := map[string]bool{}
		for _, tensor := range s.NodeTypes()[0].Tensors {
			named[filepath.Base(tensor.Path)], named[filepath.Base(tensor.CRCPath)] = true, true
		}
		names, err := os.ReadDir(s.Path())
		for _, name := range names {
			left := strings.HasPrefix(name.Name(), "added") && !named[name.Name()] // nobody looks at it
			if left || name.Name() == manifest.Name || name.Name() == "lock" {
				continue
			}
			data, readErr := os.ReadFile(filepath.Join(s.Path(), name.Name()))
			err = errors.Join(err, readErr)
			h := fnv.New64a()
			_, _ = h.Write(data)
			sum += h.Sum64()
		}
		for _, tensor := range s.NodeTypes()[0].Tensors {
			h := fnv.New64a()
			_, _ = io.WriteString(h, tensor.Name)
			sum += h.Sum64()
		}
		return err
	})
	return sum, err
}

func works(t *testing.T) map[string]work {
	t.Helper()
	ctx := context.Background()
	sources := t.TempDir()
	in, base, broad := input(sources, columns), filepath.Join(sources, "base"), filepath.Join(sources, "broad")
	smallest := least(t, func(memory int64) error {
		return store.Convert(ctx, ssd.OS, in, base, store.ConvertOptions{Memory: memory})
	})
	require.NoError(t, store.Convert(ctx, ssd.OS, in, base, store.ConvertOptions{}))
	require.NoError(t, store.Convert(ctx, ssd.OS, input(sources, wide), broad, store.ConvertOptions{}))
	tiny := func(t *testing.T, dir string) {
		graph := store.Input{NumNodes: 5, EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 1}, make([]byte, 16))}
		require.NoError(t, store.Convert(ctx, ssd.OS, graph, filepath.Join(dir, "g"), store.ConvertOptions{}))
	}
	copied := func(t *testing.T, dir string) { require.NoError(t, os.CopyFS(filepath.Join(dir, "g"), os.DirFS(base))) }
	hub := hubInput()
	leastOfHub := least(t, func(memory int64) error {
		return store.Convert(ctx, ssd.OS, hub, filepath.Join(sources, "hub"), store.ConvertOptions{Memory: memory})
	})
	convertHub := func(fs ssd.FS, dir string) error {
		o := store.ConvertOptions{Memory: leastOfHub, Overwrite: true}
		return store.Convert(ctx, fs, hub, filepath.Join(dir, "g"), o)
	}
	convert := func(fs ssd.FS, dir string) error {
		o := store.ConvertOptions{Memory: smallest, Overwrite: true}
		return store.Convert(ctx, fs, in, filepath.Join(dir, "g"), o)
	}
	scores := make([]float32, nodes)
	for i := range scores {
		scores[i] = float32(i * 7 % 31)
	}
	hot := store.RelayoutOptions{Order: store.HotCommunity, HotRows: -1, Scores: scores, Overwrite: true}
	relayout := func(fs ssd.FS, dir string, o store.RelayoutOptions) error {
		return opened(fs, broad, func(s *store.Store) error { return store.Relayout(ctx, s, filepath.Join(dir, "g"), o) })
	}
	hot.Memory = least(t, func(memory int64) error {
		o := hot
		o.Memory = memory
		return relayout(ssd.OS, t.TempDir(), o)
	})
	changed := store.NamedSource{Name: "y", Source: store.Dense(manifest.DType_UINT8, []int64{nodes}, make([]byte, nodes))}
	update := func(fs ssd.FS, dir string) error {
		changes := store.Changes{Nodes: []store.NodeChange{{Tensors: []store.NamedSource{changed}, Drop: []string{"z"}}}}
		return opened(fs, base, func(s *store.Store) error {
			return store.Update(ctx, s, filepath.Join(dir, "g"), changes, store.ConvertOptions{Overwrite: true})
		})
	}
	more := input(sources, columns) // every node again, and its edges
	growth := store.Growth{
		Nodes: []store.NodeInput{{NumNodes: nodes, Tensors: more.NodeTensors}},
		Edges: []store.EdgeInput{{EdgeIndex: more.EdgeIndex, Tensors: more.EdgeTensors}},
	}
	appended := func(fs ssd.FS, dir string) error {
		return opened(fs, base, func(s *store.Store) error {
			return store.Append(ctx, s, filepath.Join(dir, "g"), growth, store.ConvertOptions{Overwrite: true})
		})
	}
	sums := propagate.Options{
		Tensor: "x", Reduce: propagate.GCN, Hops: 2, Name: "agg", WeightAttr: "w", IO: ssd.Pread, Overwrite: true,
	}
	propagated := func(fs ssd.FS, dir string) error {
		return opened(fs, filepath.Join(dir, "g"), func(s *store.Store) error {
			_, err := propagate.Run(ctx, s, sums)
			return err
		})
	}
	scratch := t.TempDir()
	copied(t, scratch)
	sums.Memory = least(t, func(memory int64) error {
		return opened(ssd.OS, filepath.Join(scratch, "g"), func(s *store.Store) error {
			o := sums
			o.Memory = memory
			_, err := propagate.Run(ctx, s, o)
			return err
		})
	})
	always := func(op faultfs.Op, errno syscall.Errno) []faultfs.Fault {
		return []faultfs.Fault{{Op: op, Nth: 1, Times: faultfs.Forever, Errno: errno}}
	}
	all := map[string]work{
		"convert":              {run: convert, digest: written},
		"convert over a store": {prepare: tiny, run: convert, digest: written},
		"convert without exchange": {
			prepare: tiny, always: always(faultfs.Exchange, syscall.EINVAL), run: convert, digest: written, every: true},
		"convert without O_DIRECT": {always: always(faultfs.OpenDirect, syscall.EINVAL), run: convert, digest: written},
		"convert, direct writes refused": {
			always: []faultfs.Fault{{Op: faultfs.Write, Path: "edges.spill", Nth: 1, Errno: syscall.EINVAL}},
			run:    convertHub, digest: written},
		"convert with a spill": {run: convertHub, digest: written},
		"convert after a kill": {prepare: func(t *testing.T, dir string) {
			partial := filepath.Join(dir, "g.partial")
			require.NoError(t, os.Mkdir(partial, 0o700))
			for _, name := range []string{"lock", "x.bin"} {
				require.NoError(t, os.WriteFile(filepath.Join(partial, name), []byte("half"), 0o600))
			}
		}, run: convert, digest: written},
		"convert after a kill between renames": {prepare: func(t *testing.T, dir string) {
			tiny(t, dir)
			require.NoError(t, os.Rename(filepath.Join(dir, "g"), filepath.Join(dir, "g.replaced")))
		}, run: convert, digest: written},
		"convert after a kill in a removal": {prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "g.replaced"), 0o700))
			for _, name := range []string{"removed", "x.bin"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "g.replaced", name), []byte("half"), 0o600))
			}
		}, run: convert, digest: written},
		"relayout": {run: func(fs ssd.FS, dir string) error { return relayout(fs, dir, hot) }, digest: written},
		"convert and relayout": {run: func(fs ssd.FS, dir string) error {
			o := store.ConvertOptions{Overwrite: true}
			draft, err := store.ConvertDraft(ctx, fs, in, filepath.Join(dir, "g"), store.Hot, o)
			if err != nil {
				return err
			}
			return draft.Relayout(ctx, store.RelayoutOptions{Order: store.Hot, Scores: scores})
		}, digest: written},
		"update":                {run: update, digest: written},
		"update with no shares": {always: always(faultfs.Share, syscall.EXDEV), run: update, digest: written},
		"append":                {run: appended, digest: written},
		"propagate":             {prepare: copied, run: propagated, digest: written},
		"propagate again": {prepare: func(t *testing.T, dir string) {
			copied(t, dir)
			require.NoError(t, propagated(ssd.OS, dir))
			for _, name := range []string{"added9_agg.bin", "manifest.pb.new"} { // what a killed one left
				require.NoError(t, os.WriteFile(filepath.Join(dir, "g", name), []byte("half"), 0o600))
			}
		}, run: propagated, digest: written},
		"read": {prepare: copied, run: readAll},
		"update of a store in another order": {prepare: func(t *testing.T, dir string) {
			require.NoError(t, relayout(ssd.OS, dir, store.RelayoutOptions{Order: store.Community}))
		}, run: func(fs ssd.FS, dir string) error {
			changes := store.Changes{Nodes: []store.NodeChange{{Tensors: []store.NamedSource{changed}}}}
			path := filepath.Join(dir, "g")
			return opened(fs, path, func(s *store.Store) error {
				return store.Update(ctx, s, path, changes, store.ConvertOptions{Overwrite: true})
			})
		}, digest: written},
		"a temporary file where no space can be taken": {
			prepare: copied, always: always(faultfs.Allocate, syscall.EOPNOTSUPP),
			run: func(fs ssd.FS, dir string) error { return writeTemp(fs, dir, 1) }},
		"a temporary file, much of it": {
			prepare: copied, run: func(fs ssd.FS, dir string) error { return writeTemp(fs, dir, 17) }},
		"write, direct writes refused": {
			always: []faultfs.Fault{{Op: faultfs.Write, Path: "much", Nth: 1, Errno: syscall.EINVAL}},
			run:    func(fs ssd.FS, dir string) error { return writeMuch(fs, dir, 1) }},
		"write much through the page cache": {
			always: always(faultfs.OpenDirect, syscall.EINVAL),
			run:    func(fs ssd.FS, dir string) error { return writeMuch(fs, dir, 17) }},
	}
	all["a table"] = tableWork()
	batches, err := take(ssd.OS, base, func(*draw.Options) {})
	require.NoError(t, err)
	devices := filepath.Join(sources, "devices.json")
	ready := func(t *testing.T, dir string) {
		copied(t, dir)
		left := filepath.Join(dir, ssd.TempPrefix+strings.Repeat("0", 16)) // by one that was killed
		require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	}
	training := func(kind ssd.Kind, calibration string, checksums bool) work {
		return work{prepare: ready, run: func(fs ssd.FS, dir string) error {
			if calibration == "" {
				return train(fs, dir, kind, filepath.Join(dir, "devices.json"), checksums, batches)
			}
			return train(fs, dir, kind, calibration, checksums, batches)
		}}
	}
	for _, kind := range []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered} {
		all[fmt.Sprint("train by ", kind)] = training(kind, devices, kind == ssd.Pread)
	}
	cut := all[fmt.Sprint("train by ", ssd.IOUring)]
	cut.always = []faultfs.Fault{{Op: faultfs.Write, Nth: 2, Short: 512}}
	all["train by io_uring, a write cut short"] = cut
	all["trying the disk"] = training(ssd.Buffered, "", false) // which takes long, and is the last to be done
	return all
}

// writeMuch writes a file. More than 16 chunks in the page cache are forced out in between.
func writeMuch(fs ssd.FS, dir string, chunks int) error {
	const chunk = 4 << 20
	w, err := ssd.NewWriter(fs, filepath.Join(dir, "much"), mem.NewBudget(0), chunk)
	if err != nil {
		return err
	}
	for data, n := make([]byte, chunk), 0; n < chunks && err == nil; n++ {
		_, err = w.Write(data)
	}
	if err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// writeTemp writes a temporary file through the page cache, and reads its end. More than 16 chunks are forced out in
// between.
func writeTemp(fs ssd.FS, dir string, chunks int64) (err error) {
	const chunk = 4 << 20
	budget := mem.NewBudget(0)
	e, err := ssd.NewEngine(ssd.Options{Kind: ssd.Buffered, FS: fs, Budget: budget}, filepath.Join(dir, "g"))
	if err != nil {
		return err
	}
	defer e.Close()
	block, err := budget.Alloc(mem.Staging, chunk)
	if err != nil {
		return err
	}
	defer block.Free()
	ssd.RemoveTemps(fs, dir)
	temp, err := e.CreateTemp(dir, budget)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, temp.Close()) }()
	if err := temp.Grow(chunk * chunks); err != nil {
		return err
	}
	for i := range chunks {
		block.Bytes()[0] = byte(i)
		if err := temp.Write(block.Bytes(), i*chunk); err != nil {
			return err
		}
	}
	last := []ssd.Range{{Off: (chunks - 1) * chunk, Len: ssd.PageBytes}}
	return e.Read(context.Background(), temp.Handle(), last, func(_ int, page []byte) error {
		if page[0] != byte(chunks-1) {
			return errors.New("wrong bytes")
		}
		return nil
	})
}

// readAll reads everything of a store in every way.
func readAll(fs ssd.FS, dir string) error {
	ctx, budget := context.Background(), mem.NewBudget(0)
	return opened(fs, filepath.Join(dir, "g"), func(s *store.Store) error {
		if err := s.Verify(ctx, nil); err != nil {
			return err
		}
		if err := s.CheckCurrent(); err != nil {
			return err
		}
		if _, err := s.NodeTypes()[0].LoadSplit(ctx, "train"); err != nil {
			return err
		}
		ids := s.Attachments()[0].Array
		if err := ids.ReadRows(ctx, 4000, make([]byte, 2000*ids.Layout.RowBytes), budget); err != nil {
			return err
		}
		block, err := s.NodeTypes()[0].Tensors[0].Load(ctx, budget, mem.Topology)
		if err == nil {
			block.Free()
		}
		return err
	})
}

// take takes two epochs of the store at path and returns the digest of their batches.
func take(fs ssd.FS, path string, change func(o *draw.Options)) (uint64, error) {
	sum := fnv.New64a()
	err := opened(fs, path, func(s *store.Store) error {
		o := draw.Options{
			Fanouts: []int64{4, 3}, BatchSize: 20, Seed: 5, Shuffle: true, Prefetch: 2, Workers: 2, Cache: "none",
			FeatureCache: draw.Auto, NeighborCache: draw.Auto, IO: ssd.Auto, Superbatch: draw.Auto, CarryOver: true,
			Lookahead: true, PreSCEpochs: 1, ReorderRows: draw.Auto, Transfer: "random", TraceMemory: draw.Auto,
			BufferMemory: draw.Auto, ScratchBytes: draw.Auto,
		}
		change(&o)
		alloc := mem.NewAllocator()
		l, err := loader.Open(context.Background(), draw.OpenStore(s), o, alloc)
		if err != nil {
			return err
		}
		err = errors.Join(epochs(l, sum), l.Close())
		if buffers, _ := alloc.Live(); buffers != 0 && err == nil {
			err = errors.New("batches are left")
		}
		return err
	})
	return sum.Sum64(), err
}

// train takes two epochs with the planned cache, in so little memory that packs go to the scratch file, and not all of
// them.
func train(fs ssd.FS, dir string, kind ssd.Kind, calibration string, checksums bool, batches uint64) error {
	got, err := take(fs, filepath.Join(dir, "g"), func(o *draw.Options) {
		o.IO, o.Cache, o.Transfer, o.Superbatch, o.Checksums = kind, "belady", "pack", 8, checksums
		o.FeatureCache, o.NeighborCache, o.BufferMemory, o.TraceMemory = 60_000, 0, 150_000, 60_000
		o.Scratch, o.ScratchBytes, o.Calibration = dir, 1<<20, calibration
	})
	if err == nil && got != batches {
		return errors.New("wrong batches")
	}
	return err
}

func epochs(l *loader.Loader, sum io.Writer) error {
	for epoch := range int64(2) {
		if err := l.Start(epoch, 0, loader.Train); err != nil {
			return err
		}
		for {
			b, err := l.Next(context.Background())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			for _, a := range b.Arrays {
				_, _ = sum.Write(a.Buffer.Bytes())
			}
			b.Release()
		}
	}
	return nil
}
