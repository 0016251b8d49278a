package store

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// smallestBudget is the budget that Convert asks for when it has next to nothing.
func smallestBudget(t *testing.T, in Input) int64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g.freshgo")
	err := Convert(context.Background(), ssd.OS, in, path, ConvertOptions{Memory: 1})
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	require.Contains(t, err.Error(), fmt.Sprint(short.Need))
	requireNothing(t, filepath.Dir(path), "something was written before the budget was checked")
	return short.Need
}

// edgesThroughDisk returns a graph that the smallest budget cannot hold.
func edgesThroughDisk(seed uint64) *randomGraph {
	return newRandomGraph(seed, 30_000, 300_000, map[string][]int64{"x": {25}}, manifest.DType_FLOAT32)
}

// TestBudgetDoesNotChangeTheStore converts within every kind of plan and compares the files, byte for byte.
func TestBudgetDoesNotChangeTheStore(t *testing.T) {
	g := edgesThroughDisk(1)
	smallest := smallestBudget(t, g.Input)
	var reference map[string][]byte
	for _, memory := range []int64{0, smallest, smallest + 1<<20, 4 * smallest, 64 << 20} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			budget := mem.NewBudget(memory)
			path := filepath.Join(t.TempDir(), "g.freshgo")
			spilled := false
			opts := ConvertOptions{Progress: func(stage string, _, _ int64) {
				if _, err := os.Stat(filepath.Join(path+partialSuffix, spillName)); err == nil {
					spilled = true
				}
			}}
			require.NoError(t, convert(context.Background(), ssd.OS, g.Input, path, opts, budget))
			require.Equal(t, memory > 0 && memory <= smallest+1<<20, spilled, "reading again moves fewer bytes")
			if memory > 0 {
				require.LessOrEqual(t, budget.Peak(), memory)
			}
			require.Zero(t, budget.Used())
			s := mustOpen(t, path)
			requireGraph(t, g, s)
			files := readFiles(t, path)
			delete(files, manifest.Name)
			if reference == nil {
				reference = files
			}
			require.Equal(t, len(reference), len(files))
			for name, data := range files {
				require.True(t, bytes.Equal(reference[name], data), name)
			}
		})
	}
}

func readFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	return files
}

// TestSmallestBudget checks that the smallest budget that an error names is enough, and that it is the smallest, for
// every part of the work that may need it.
func TestSmallestBudget(t *testing.T) {
	name := filepath.Join(t.TempDir(), "e.npy")
	require.NoError(t, os.WriteFile(name, make([]byte, 400_000), 0o600))
	y := NamedSource{"y", Dense(manifest.DType_FLOAT32, []int64{100_000}, make([]byte, 400_000))}
	for what, in := range map[string]Input{
		"edges in memory": {NumNodes: 9, EdgeIndex: edgesOf(make([]int64, 50_000), make([]int64, 50_000))},
		"edges in a file": {NumNodes: 9,
			EdgeIndex: Source{DType: manifest.DType_UINT16, Shape: []int64{2, 100_000}, Strides: []int64{2, 4}, File: name}},
		"large rows": {NumNodes: 2, EdgeIndex: edgesOf(nil, nil), NodeTensors: []NamedSource{
			{"x", Dense(manifest.DType_UINT8, []int64{2, 3 << 20}, make([]byte, 6<<20))},
		}},
		"labels and splits": {NumNodes: 100_000, EdgeIndex: edgesOf(nil, nil), NodeTensors: []NamedSource{y},
			Splits: map[string]Source{
				"train": {DType: manifest.DType_INT16, Shape: []int64{1000}, Strides: []int64{6}, File: name},
			}},
	} {
		t.Run(what, func(t *testing.T) {
			smallest := smallestBudget(t, in)
			budget := mem.NewBudget(smallest)
			require.NoError(t, convert(context.Background(), ssd.OS, in, filepath.Join(t.TempDir(), "g"), ConvertOptions{},
				budget))
			require.LessOrEqual(t, budget.Peak(), smallest)
			err := Convert(context.Background(), ssd.OS, in, filepath.Join(t.TempDir(), "g"),
				ConvertOptions{Memory: smallest - 64<<10})
			require.ErrorIs(t, err, mem.ErrBudget)
		})
	}
}

// TestHub puts most edges on targets with far more of them than a partition holds.
func TestHub(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const n = 200_000 // several targets to a bucket
	var src, dst []int64
	for i := range 200_000 {
		src = append(src, rng.Int64N(n))
		switch {
		case i%4 < 2:
			dst = append(dst, 77_777)
		case i%4 == 2:
			dst = append(dst, 77_776+2*rng.Int64N(2)) // its neighbours, in the same bucket or the next
		default:
			dst = append(dst, rng.Int64N(n))
		}
	}
	g := &randomGraph{}
	g.indptr, g.indices, g.ids = oracle(src, dst, n)
	g.NumNodes, g.EdgeIndex = n, edgesOf(src, dst)
	requireGraph(t, g, mustConvert(t, g.Input, smallestBudget(t, g.Input)))
	requireGraph(t, g, mustConvert(t, g.Input, 0))
}

// TestWideRecords runs the sorter with every width of ids, which only huge graphs would choose.
func TestWideRecords(t *testing.T) {
	explore.Run(t, "int32 uint32", testRecords[int32, uint32])
	explore.Run(t, "int32 int64", testRecords[int32, int64])
	explore.Run(t, "int64 uint32", testRecords[int64, uint32])
	explore.Run(t, "int64 int64", testRecords[int64, int64])
}

func testRecords[I int32 | int64, E uint32 | int64](t *testing.T) {
	const n, e = 5000, 100_000
	var index I
	var id E
	indexSize, idSize := int64(len(mem.Bytes([]I{index}))), int64(len(mem.Bytes([]E{id})))
	indexType, idType := manifest.DType_INT32, manifest.DType_UINT32
	if indexSize == 8 {
		indexType = manifest.DType_INT64
	}
	if idSize == 8 {
		idType = manifest.DType_INT64
	}
	src, dst := randomEdges(rand.New(rand.NewPCG(1, 1)), n, e)
	indptr, indices, ids := oracle(src, dst, n)
	edges, err := checkEdges(ssd.OS, []Source{edgesOf(src, dst)}, edgesName)
	require.NoError(t, err)
	for _, inMemory := range []bool{true, false} {
		dir := t.TempDir()
		s := &edgeSorter{fs: ssd.OS, dir: dir, edges: edges, sources: n, targets: n, budget: mem.NewBudget(0),
			progress: func(string, int64, int64) {}}
		s.plan = edgePlan{threads: 3, workers: 2, chunk: 64 << 10, scanRows: 1000, shift: 3, buckets: (n-1)/8 + 1,
			inMemory: inMemory, work: 4 << 20}
		s.plan.record, s.plan.source, s.plan.number = newRecordForm(2, indexSize, idSize), indexSize, idSize
		s.plan.cost = int64(s.plan.record.bytes) + 1 + indexSize + idSize
		s.plan.round = 100_000_000
		s.plan.target = 64 + 2000*s.plan.cost // the hubs of the graph do not fit
		require.NoError(t, s.count(context.Background()))
		widths := []manifest.DType{manifest.DType_INT64, indexType, idType}
		var writers []*arrayWriter
		for i, name := range []string{"indptr", "indices", "edge_ids"} {
			w, err := newArrayWriter(ssd.OS, dir, name, widths[i], nil, 64<<10, s.budget)
			require.NoError(t, err)
			writers = append(writers, w)
		}
		require.NoError(t, s.sort(context.Background(), topologySinks{writers[0], writers[1], writers[2]}))
		for _, w := range writers {
			_, err := w.finish(0)
			require.NoError(t, err)
		}
		s.close()
		require.Zero(t, s.budget.Used())
		files := readFiles(t, dir)
		require.Equal(t, indptr, mem.View[int64](files["indptr.bin"])[:n+1])
		for i, v := range mem.View[I](files["indices.bin"])[:e] {
			require.EqualValues(t, indices[i], v)
		}
		for i, v := range mem.View[E](files["edge_ids.bin"])[:e] {
			require.EqualValues(t, ids[i], v)
		}
	}
}

// TestPlan checks that plans keep to their memory from the smallest graph to one of a trillion edges, and that the
// smallest budget named works.
func TestPlan(t *testing.T) {
	for _, n := range []int64{1, 1000, 1 << 20, 1<<31 - 1, 1 << 31, 1 << 40} {
		for _, e := range []int64{0, 1, 1 << 20, 1 << 32, 1<<32 + 1, 1 << 40} {
			edges := edgeList{count: e, sources: Source{DType: manifest.DType_INT64, Shape: []int64{e}, Strides: []int64{8}}}
			edges.targets = edges.sources
			var short *mem.BudgetError
			_, err := planEdges(edges, n, n, 1, 4)
			require.ErrorAs(t, err, &short, "%d nodes, %d edges", n, e)
			smallest := short.Need
			_, err = planEdges(edges, n, n, smallest-64<<10, 4)
			require.ErrorAs(t, err, &short, "%d nodes, %d edges", n, e)
			require.Equal(t, smallest, short.Need)
			// Partitions and the buffers of all partitions share it, so it grows with the root.
			root := math.Sqrt(2 * (40*float64(e) + 8*float64(n)) * 24 * 1024)
			require.Less(t, float64(smallest), 8<<20+2*root, "%d nodes, %d edges", n, e)
			for _, memory := range []int64{smallest, 2 * smallest, 16 * smallest} {
				p, err := planEdges(edges, n, n, memory, 4)
				require.NoError(t, err)
				total := e*p.cost + n*8
				fixed := 3*arrayWriterBytes(p.chunk) + int64(p.threads)*(edgeReaderBytes(edges, p.scanRows)+int64(p.buckets)*8)
				require.LessOrEqual(t, fixed+int64(p.workers)*p.workerBytes(), memory)
				if !p.inMemory {
					require.LessOrEqual(t, fixed+p.bufferBytes(total, blockBytes), memory)
				} else {
					require.LessOrEqual(t, fixed+e*int64(p.record.bytes), memory)
				}
				require.GreaterOrEqual(t, p.target, p.least())
				if again := p.again; again != nil {
					require.LessOrEqual(t, fixed+again.round+int64(again.workers)*again.workerBytes(), memory)
					require.LessOrEqual(t, fixed+again.round+again.bufferBytes(total, again.cachedBuffer()), memory)
					require.GreaterOrEqual(t, again.target, again.least())
				}
			}
		}
	}
}

func TestSortedEdgesNeedNoEdgeIDs(t *testing.T) {
	src, dst := []int64{4, 0, 0, 3, 2, 1}, []int64{0, 0, 1, 1, 1, 4}
	g := &randomGraph{}
	g.indptr, g.indices, g.ids = oracle(src, dst, 5)
	g.NumNodes, g.EdgeIndex = 5, edgesOf(src, dst)
	s := mustConvert(t, g.Input, 0)
	require.Nil(t, s.EdgeTypes()[0].EdgeIDs)
	requireGraph(t, g, s)
	// Each half is sorted, the whole is not: what one thread sees must not decide.
	g.EdgeIndex = edgesOf([]int64{0, 1, 2, 3}, []int64{3, 4, 0, 1})
	require.NotNil(t, mustConvert(t, g.Input, 0).EdgeTypes()[0].EdgeIDs)
}

func TestNumberOfNodes(t *testing.T) {
	mask := Dense(manifest.DType_BOOL, []int64{9}, make([]byte, 9))
	x := NamedSource{"x", Dense(manifest.DType_UINT8, []int64{9, 1}, make([]byte, 9))}
	for name, tc := range map[string]struct {
		in   Input
		want int64
	}{
		"given":         {Input{NumNodes: 7}, 7},
		"from a tensor": {Input{NumNodes: -1, NodeTensors: []NamedSource{x}}, 9},
		"from a mask":   {Input{NumNodes: -1, Splits: map[string]Source{"train": mask}}, 9},
		"from the ids":  {Input{NumNodes: -1}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.EdgeIndex = edgesOf([]int64{5, 0}, []int64{1, 2})
			require.Equal(t, tc.want, mustConvert(t, tc.in, 0).EdgeTypes()[0].NumNodes)
		})
	}
}

func TestSplits(t *testing.T) {
	mask := make([]byte, 10_000)
	var members []int64
	for i := range mask {
		if i%7 == 3 {
			mask[i] = 1
			members = append(members, int64(i))
		}
	}
	ids := []int64{9999, 0, 5, 5, 3}
	in := Input{NumNodes: 10_000, EdgeIndex: edgesOf(nil, nil), Splits: map[string]Source{
		"train": Dense(manifest.DType_BOOL, []int64{10_000}, mask),
		"val":   Dense(manifest.DType_INT64, []int64{5}, int64Bytes(ids)),
		"none":  Dense(manifest.DType_INT64, []int64{0}, nil),
		"a/b":   Dense(manifest.DType_UINT8, []int64{2}, []byte{200, 7}),
	}}
	s := mustConvert(t, in, 0)
	for name, want := range map[string][]int64{"train": members, "val": ids, "none": nil, "a/b": {200, 7}} {
		got, err := s.NodeTypes()[0].LoadSplit(context.Background(), name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	_, err := s.NodeTypes()[0].LoadSplit(context.Background(), "test")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `["a/b" "none" "train" "val"]`)
}

func TestBadInput(t *testing.T) {
	good := func() Input {
		return Input{
			NumNodes: 4, EdgeIndex: edgesOf([]int64{0, 1, 2}, []int64{1, 2, 3}), Splits: map[string]Source{},
			NodeTensors: []NamedSource{{"x", Dense(manifest.DType_FLOAT32, []int64{4, 2}, make([]byte, 32))}},
		}
	}
	floats := func(v ...float32) Source {
		var b []byte
		for _, f := range v {
			bits := math.Float32bits(f)
			b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		return Dense(manifest.DType_FLOAT32, []int64{int64(len(v))}, b)
	}
	for name, tc := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"negative target": {func(in *Input) { in.EdgeIndex = edgesOf([]int64{0, 1}, []int64{1, -3}) },
			"edge_index[1, 1] is -3, expected an id in [0, 4)"},
		"target too high": {func(in *Input) { in.EdgeIndex = edgesOf([]int64{0}, []int64{4}) },
			"edge_index[1, 0] is 4, expected an id in [0, 4)"},
		"source too high": {func(in *Input) { in.EdgeIndex = edgesOf([]int64{0, 9}, []int64{1, 1}) },
			"edge_index[0, 1] is 9"},
		"huge unsigned": {func(in *Input) {
			in.EdgeIndex.DType = manifest.DType_UINT64
			in.EdgeIndex = withFirst(in.EdgeIndex, -1)
		}, "edge_index[0, 0] is 18446744073709551615"},
		"negative, no count": {func(in *Input) { *in = Input{NumNodes: -1, EdgeIndex: edgesOf([]int64{-1}, []int64{0})} },
			"edge_index[0, 0] is -1"},
		"float edges": {func(in *Input) { in.EdgeIndex.DType = manifest.DType_FLOAT64 },
			"edge_index holds float64, expected integers"},
		"edges transposed": {func(in *Input) { in.EdgeIndex.Shape = []int64{3, 2} },
			"edge_index has shape [3 2], expected [2, number of edges]"},
		"edge strides": {func(in *Input) { in.EdgeIndex.Strides = []int64{8} },
			"edge_index has 1 strides for 2 dimensions"},
		"ragged": {func(in *Input) { in.NodeTensors = append(in.NodeTensors, NamedSource{"z", floats(1, 2, 3)}) },
			"z has 3 rows, expected 4 as the number of nodes"},
		"ragged, no count": {func(in *Input) {
			in.NumNodes = -1
			in.NodeTensors = append(in.NodeTensors, NamedSource{"z", floats(1)})
		}, "z has 1 rows, expected 4 as x"},
		"short mask": {func(in *Input) {
			in.Splits["train"] = Dense(manifest.DType_BOOL, []int64{3},
				make([]byte, 3))
		}, `split "train" has 3 rows, expected 4`},
		"float split": {func(in *Input) { in.Splits["train"] = floats(1) },
			`split "train" holds float32, expected integers or bool`},
		"two-dimensional split": {func(in *Input) {
			in.Splits["train"] = Dense(manifest.DType_INT64, []int64{1, 1},
				make([]byte, 8))
		}, `split "train" has shape [1 1]`},
		"nameless split": {func(in *Input) { in.Splits[""] = floats(1) }, "a split has no name"},
		"split id": {func(in *Input) {
			in.Splits["val"] = Dense(manifest.DType_INT64, []int64{2},
				int64Bytes([]int64{3, 4}))
		}, `element 1 of split "val" is 4, expected an id in [0, 4)`},
		"ragged edge tensor": {func(in *Input) { in.EdgeTensors = []NamedSource{{"w", floats(1, 2)}} },
			"w has 2 rows, expected 3 as edge_index has edges"},
		"no nodes": {func(in *Input) { *in = Input{EdgeIndex: edgesOf(nil, nil)} }, "the graph has no nodes"},
		"no nodes and no count": {func(in *Input) { *in = Input{NumNodes: -1, EdgeIndex: edgesOf(nil, nil)} },
			"the graph has no nodes"},
		"too many nodes": {func(in *Input) { *in = Input{NumNodes: math.MaxInt64, EdgeIndex: edgesOf(nil, nil)} },
			"nodes, expected at most"},
		"unknown dtype": {func(in *Input) { in.NodeTensors[0].DType = 99 }, "x has the unknown dtype 99"},
		"scalar":        {func(in *Input) { in.NodeTensors[0].Shape = nil }, "x has 0 dimensions"},
		"no columns": {func(in *Input) { in.NodeTensors[0].Shape = []int64{4, 0} },
			"x has shape [4 0], expected rows of 1 to"},
		"negative shape": {func(in *Input) { in.NodeTensors[0].Shape = []int64{-4, 2} }, "x has shape [-4 2]"},
		"overflowing shape": {func(in *Input) { in.NodeTensors[0].Shape = []int64{math.MaxInt64, 2} },
			"expected fewer than 2^63 bytes"},
		"no memory": {func(in *Input) { in.NodeTensors[0].Mem = nil }, "x has neither memory nor a file"},
		"name twice": {func(in *Input) { in.NodeTensors = append(in.NodeTensors, in.NodeTensors[0]) },
			`the tensor name "x" is empty or given twice`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := good()
			tc.change(&in)
			err := Convert(context.Background(), ssd.OS, in, filepath.Join(dir, "g.freshgo"), ConvertOptions{})
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, tc.want)
			requireNothing(t, dir)
			if strings.HasPrefix(tc.want, "edge_index[") && in.NumNodes > 0 {
				_, err := buildCSC(context.Background(), in.EdgeIndex, in.NumNodes, mem.NewBudget(0))
				require.ErrorIs(t, err, ErrInvalid)
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
}

// withFirst returns a copy of a source of eight-byte elements with another first element.
// TestTheFirstBadEdgeIsNamed: the last edge of a thread's segment is bad, and so is the first one of the next segment,
// which is met long before.
func TestTheFirstBadEdgeIsNamed(t *testing.T) {
	const n, e = 100, 2_000_000
	const first = e/2 - 1
	good := Input{NumNodes: n, EdgeIndex: edgesOf(make([]int64, e), make([]int64, e))}
	for row, name := range []string{"source", "target"} {
		for _, memory := range []int64{0, smallestBudget(t, good)} {
			ends := [][]int64{make([]int64, e), make([]int64, e)}
			for at := int64(first); at < e; at++ {
				ends[row][at] = n + at
			}
			in := Input{NumNodes: n, EdgeIndex: edgesOf(ends[0], ends[1])}
			err := Convert(context.Background(), ssd.OS, in, filepath.Join(t.TempDir(), "g"), ConvertOptions{Memory: memory})
			require.ErrorContains(t, err, fmt.Sprintf("edge_index[%d, %d] is %d", row, first, n+first), name)
		}
	}
}

func withFirst(s Source, first int64) Source {
	values := make([]int64, s.Shape[0]*s.Shape[1])
	values[0] = first
	return Dense(s.DType, s.Shape, int64Bytes(values))
}

func TestEdgeTensorsKeepTheUsersOrder(t *testing.T) {
	g := newRandomGraph(3, 50, 400, nil, manifest.DType_INT64)
	w := randomBytes(rand.New(rand.NewPCG(9, 9)), 400*6)
	g.EdgeTensors = []NamedSource{{"edge_attr", Dense(manifest.DType_FLOAT16, []int64{400, 3}, w)}}
	s := mustConvert(t, g.Input, 0)
	require.Len(t, s.EdgeTypes()[0].Tensors, 1)
	block, err := s.EdgeTypes()[0].Tensors[0].Load(context.Background(), mem.NewBudget(0), mem.FeatureCache)
	require.NoError(t, err)
	require.True(t, bytes.Equal(w, block.Bytes()))
	requireGraph(t, g, s)
}

// TestCancel cancels at every stage.
func TestCancel(t *testing.T) {
	g := edgesThroughDisk(2)
	g.Splits["train"] = Dense(manifest.DType_INT64, []int64{1}, int64Bytes([]int64{1}))
	requireCancelled(t, g.Input,
		"counting edges", "writing split train", "writing x", "partitioning edges", "sorting edges")
	requireCancelled(t, largeHeteroGraph().Input,
		"counting edges of to", "writing split user.train", "writing user.x", "writing item.x",
		"writing (user, to, item).time", "partitioning edges of to", "sorting edges of to", "writing (item, to, user).time")
}

// requireCancelled holds that a conversion has these stages and that nothing stays of one that ends in any of them.
func requireCancelled(t *testing.T, in Input, want ...string) {
	t.Helper()
	memory := smallestBudget(t, in)
	var stages []string
	path := filepath.Join(t.TempDir(), "g")
	require.NoError(t, Convert(context.Background(), ssd.OS, in, path,
		ConvertOptions{Memory: memory, Progress: func(stage string, done, total int64) {
			require.LessOrEqual(t, done, total)
			if !slices.Contains(stages, stage) {
				stages = append(stages, stage)
			}
		}}))
	require.Equal(t, want, stages)
	for _, stop := range stages {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		budget := mem.NewBudget(memory)
		err := convert(ctx, ssd.OS, in, filepath.Join(dir, "g"),
			ConvertOptions{Progress: func(stage string, _, _ int64) {
				if stage == stop {
					cancel()
				}
			}}, budget)
		require.ErrorIs(t, err, context.Canceled, stop)
		require.Zero(t, budget.Used(), stop)
		requireNothing(t, dir, stop)
	}
}
