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
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// randomScores makes scores with ties and zeros.
func randomScores(seed uint64, n int64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 3))
	scores := make([]float32, n)
	for i := range scores {
		switch rng.IntN(4) {
		case 0:
			scores[i] = float32(rng.IntN(5))
		case 1:
			scores[i] = rng.Float32() * 1000
		case 2:
			scores[i] = math.Float32frombits(rng.Uint32() % 0x7f800000)
		}
	}
	return scores
}

// mustRelayout relays a store out within memory and opens the result.
func mustRelayout(t *testing.T, src *Store, opts RelayoutOptions) *Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.freshgo")
	budget := mem.NewBudget(opts.Memory)
	last, total := int64(-1), int64(0)
	opts.Progress = func(stage string, done, all int64) {
		require.Greater(t, done, last)
		last, total = done, all
	}
	require.NoError(t, relayout(context.Background(), src, path, opts, budget))
	require.Equal(t, total, last, "progress ends with what was announced")
	require.Zero(t, budget.Used(), "memory left behind")
	if opts.Memory > 0 {
		require.LessOrEqual(t, budget.Peak(), opts.Memory)
	}
	names, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, names, 1, "files left behind")
	s := mustOpen(t, path)
	require.NoError(t, s.Verify(context.Background(), nil))
	require.Len(t, readFiles(t, path), 2*len(s.arrays())+1, "files that are no part of the store")
	return s
}

// orderOf loads the order of a store.
func orderOf(t *testing.T, s *Store) []uint32 {
	t.Helper()
	block, err := s.NodeTypes()[0].LoadOrder(context.Background(), mem.NewBudget(0), mem.Topology)
	require.NoError(t, err)
	defer block.Free()
	return slices.Clone(mem.Slice[uint32](block))
}

// requireReordered compares everything that a store holds with the graph it was made from, and how its rows are stored
// with its order.
func requireReordered(t *testing.T, g *randomGraph, s *Store) {
	t.Helper()
	ctx, budget := context.Background(), mem.NewBudget(0)
	order := orderOf(t, s)
	block, err := s.NodeTypes()[0].RowOf(ctx, budget, mem.Topology)
	require.NoError(t, err)
	rowOf := mem.Slice[uint32](block)
	for row, id := range order {
		require.EqualValues(t, row, rowOf[id])
	}
	block.Free()
	for _, tensor := range s.NodeTypes()[0].Tensors {
		stored, err := tensor.Load(ctx, budget, mem.Batch)
		require.NoError(t, err)
		read := tensorRows(t, s, &tensor.Array, budget)
		want, size := g.rows[tensor.Name], tensor.Layout.RowBytes
		require.True(t, bytes.Equal(want, read), tensor.Name)
		for row, id := range order {
			if !bytes.Equal(stored.Bytes()[row*size:][:size], want[int(id)*size:][:size]) {
				require.Fail(t, "wrong row", "row %d of %s, node %d", row, tensor.Name, id)
			}
		}
		stored.Free()
	}
	require.Zero(t, budget.Used())
	requireTopology(t, g, s)
}

// tensorRows returns the rows of an array in the user's order.
func tensorRows(t *testing.T, s *Store, a *Array, budget *mem.Budget) []byte {
	t.Helper()
	rows := make([]byte, a.Rows*int64(a.Layout.RowBytes))
	require.NoError(t, s.ReadTensor(t.Context(), a, rows, budget))
	return rows
}

func requireTopology(t *testing.T, g *randomGraph, s *Store) {
	t.Helper()
	bare := *g
	bare.rows = nil
	view := newStore(s.fs, s.path, s.manifest)
	view.nodeTypes, view.edgeTypes = []NodeType{{Count: s.edgeTypes[0].NumNodes}},
		[]EdgeType{{Topology: s.edgeTypes[0].Topology}}
	requireGraph(t, &bare, view)
}

func TestRelayoutKeepsEverything(t *testing.T) {
	g := newRandomGraph(21, 3000, 20_000, map[string][]int64{"x": {100}, "z": {}, "wide": {1500}}, manifest.DType_FLOAT32)
	weights := randomBytes(rand.New(rand.NewPCG(1, 1)), 20_000*6)
	g.EdgeTensors = []NamedSource{{"w", Dense(manifest.DType_INT16, []int64{20_000, 3}, weights)}}
	train := []int64{5, 5, 2999, 0}
	g.Splits["train"] = Dense(manifest.DType_INT64, []int64{4}, int64Bytes(train))
	src := mustConvert(t, g.Input, 0)
	for _, order := range Orders {
		t.Run(order, func(t *testing.T) {
			s := mustRelayout(t, src, RelayoutOptions{Order: order, Scores: randomScores(1, 3000), HotRows: -1})
			requireReordered(t, g, s)
			require.NotEqual(t, src.UUID(), s.UUID())
			require.NotNil(t, s.Describe().Order)
			require.Equal(t, src.NodeTypes()[0].Tensors[0].Layout, s.NodeTypes()[0].Tensors[0].Layout)
			split, err := s.NodeTypes()[0].LoadSplit(context.Background(), "train")
			require.NoError(t, err)
			require.Equal(t, train, split)
			require.Equal(t, weights, tensorRows(t, s, &s.EdgeTypes()[0].Tensors[0].Array, mem.NewBudget(0)))
		})
	}
	require.Nil(t, src.NodeTypes()[0].Order)
	block, err := src.NodeTypes()[0].RowOf(context.Background(), mem.NewBudget(0), mem.Topology)
	require.NoError(t, err)
	require.Nil(t, block)
}

// TestRelayoutTwice: a store that is relaid out again has the order of a store relaid out once, and its rows follow.
func TestRelayoutTwice(t *testing.T) {
	g := newRandomGraph(22, 2500, 9000, map[string][]int64{"x": {77}}, manifest.DType_FLOAT16)
	src := mustConvert(t, g.Input, 0)
	first := mustRelayout(t, src, RelayoutOptions{Order: Community})
	scores := randomScores(2, 2500)
	once := mustRelayout(t, src, RelayoutOptions{Order: HotCommunity, Scores: scores, HotRows: 100})
	twice := mustRelayout(t, first, RelayoutOptions{Order: HotCommunity, Scores: scores, HotRows: 100})
	requireReordered(t, g, twice)
	require.NotEqual(t, orderOf(t, first), orderOf(t, twice))
	one, two := readFiles(t, once.Path()), readFiles(t, twice.Path())
	delete(one, manifest.Name)
	delete(two, manifest.Name)
	require.Equal(t, one, two)

	// Over itself.
	require.ErrorIs(t, Relayout(context.Background(), first, first.Path(), RelayoutOptions{Order: Community}), ErrExists)
	require.NoError(t, Relayout(context.Background(), first, first.Path(),
		RelayoutOptions{Order: Hot, Scores: scores, Overwrite: true}))
	require.ErrorIs(t, first.CheckCurrent(), ErrReplaced)
	again := mustOpen(t, first.Path())
	requireReordered(t, g, again)
}

// TestEveryPlan rewrites tensors of every layout through each kind of plan, with windows and lanes that end within rows
// and pages.
func TestEveryPlan(t *testing.T) {
	const n = 700
	rng := explore.Rand(t, 8, 8)
	rowOf := make([]uint32, n)
	for i, p := range rng.Perm(n) {
		rowOf[i] = uint32(p)
	}
	for _, rowBytes := range explore.Part(t, "", []int64{1, 4, 400, 512, 1100, 4096, 33_660}) {
		g := newRandomGraph(uint64(rowBytes), n, 5, map[string][]int64{"x": {rowBytes}}, manifest.DType_UINT8)
		src := mustConvert(t, g.Input, 0)
		a := &src.NodeTypes()[0].Tensors[0].Array
		want := make([]byte, n*rowBytes)
		for id, row := range rowOf {
			copy(want[int64(row)*rowBytes:][:rowBytes], g.rows["x"][int64(id)*rowBytes:])
		}
		unit := int64(max(a.Layout.RowsPerPage, 1))
		for _, windows := range []int64{1, 3} {
			for _, lane := range []int64{0, ssd.PageBytes, 3 * ssd.PageBytes} {
				p := permutePlan{chunk: 64 << 10, lane: lane, windowRows: roundUp((n+windows-1)/windows, unit)}
				p.windows = (n + p.windowRows - 1) / p.windowRows
				dir := t.TempDir()
				budget := mem.NewBudget(p.bytes(a))
				moved := int64(0)
				c := &permuter{fs: src.fs, dir: dir, rowOf: rowOf, budget: budget,
					meter: &meter{report: func(_ string, done, _ int64) { moved = done }}}
				written, err := c.permute(context.Background(), a, "x", p)
				require.NoError(t, err)
				require.Zero(t, budget.Used())
				require.EqualValues(t, n, written.Rows)
				require.Equal(t, a.Bytes, written.FileBytes)
				require.Equal(t, p.moved(a), moved, "rows of %d, plan %+v", rowBytes, p)
				require.Len(t, readFiles(t, dir), 2, "the spill is left")
				array := *a
				array.in = &directory{fs: ssd.OS, path: dir, draft: true}
				array.Path, array.CRCPath, array.crc = filepath.Join(dir, "x.bin"), filepath.Join(dir, "x.crc"), written.CrcFileCrc
				block, err := array.Load(context.Background(), mem.NewBudget(0), mem.Batch)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, block.Bytes()), "rows of %d bytes, plan %+v", rowBytes, p)
				block.Free()
			}
		}
	}
}

// TestPermutePlans: plans keep to their memory from the smallest tensor to one of terabytes, and never read more often
// than they may.
func TestPermutePlans(t *testing.T) {
	for _, rowBytes := range []int{1, 4, 512, 1100, 33_660, 1 << 20} {
		for _, rows := range []int64{1, 1000, 1 << 20, 1 << 30} {
			if rows*int64(rowBytes) > 1<<42 {
				continue
			}
			l := LayoutFor(rowBytes, rows)
			size, ok := fileBytes(l)
			require.True(t, ok)
			a := &Array{Rows: rows, Layout: l, Bytes: size}
			worked := false
			for memory := int64(64 << 10); memory < 1<<40; memory += memory / 3 {
				p, ok := planPermute(a, memory)
				require.True(t, ok || !worked, "rows %d of %d: %d bytes are too little and less is not", rows, rowBytes, memory)
				if !ok {
					continue
				}
				worked = true
				require.LessOrEqual(t, p.bytes(a), memory)
				require.GreaterOrEqual(t, p.windows*p.windowRows, rows)
				require.Less(t, (p.windows-1)*p.windowRows, rows)
				if p.lane == 0 {
					require.LessOrEqual(t, p.windows, int64(maxGathers))
				} else {
					_, simpler := planGather(a, frugal.chunk, memory)
					require.False(t, simpler)
				}
			}
			require.True(t, worked, "rows %d of %d", rows, rowBytes)
			p, ok := planPermute(a, 0)
			require.True(t, ok)
			require.EqualValues(t, 1, p.windows)
		}
	}
}

// TestRelayoutBudgets: the smallest budget named works, less does not, and no budget changes a byte.
func TestRelayoutBudgets(t *testing.T) {
	g := newRandomGraph(23, 20_000, 60_000, map[string][]int64{"x": {64}, "z": {}}, manifest.DType_FLOAT32)
	src := mustConvert(t, g.Input, 0)
	reordered := mustRelayout(t, src, RelayoutOptions{Order: Community})
	for _, order := range Orders {
		for name, s := range map[string]*Store{"own order": src, "reordered": reordered} {
			explore.Run(t, order+" "+name, func(t *testing.T) {
				opts := RelayoutOptions{Order: order, Scores: randomScores(4, 20_000), HotRows: 50, Memory: 1}
				dir := t.TempDir()
				err := Relayout(context.Background(), s, filepath.Join(dir, "r"), opts)
				var short *mem.BudgetError
				require.ErrorAs(t, err, &short)
				require.ErrorContains(t, err, fmt.Sprint(short.Need))
				opts.Memory = short.Need - 64<<10
				require.ErrorIs(t, Relayout(context.Background(), s, filepath.Join(dir, "r"), opts), mem.ErrBudget)
				requireNothing(t, dir, "something was written before the budget was checked")
				var reference map[string][]byte
				for _, memory := range []int64{short.Need, 2 * short.Need, 0} {
					opts.Memory = memory
					relaid := mustRelayout(t, s, opts)
					requireReordered(t, g, relaid)
					files := readFiles(t, relaid.Path())
					delete(files, manifest.Name)
					if reference == nil {
						reference = files
					}
					require.Equal(t, reference, files)
				}
			})
		}
	}
}

func TestRelayoutOfOddStores(t *testing.T) {
	for name, in := range map[string]Input{
		"one node": {NumNodes: 1, EdgeIndex: edgesOf(nil, nil),
			NodeTensors: []NamedSource{{"x", Dense(manifest.DType_BFLOAT16, []int64{1, 3}, make([]byte, 6))}}},
		"no node tensors": {NumNodes: 5, EdgeIndex: edgesOf([]int64{0, 1}, []int64{1, 0})},
		"no edges": {NumNodes: 3, EdgeIndex: edgesOf(nil, nil),
			EdgeTensors: []NamedSource{{"w",
				Dense(manifest.DType_INT8, []int64{0, 4},
					nil)}}, Splits: map[string]Source{"none": Dense(manifest.DType_INT64, []int64{0}, nil)}},
		"loops only": {NumNodes: 2, EdgeIndex: edgesOf([]int64{0, 1, 1}, []int64{0, 1, 1})},
	} {
		t.Run(name, func(t *testing.T) {
			src := mustConvert(t, in, 0)
			for _, opts := range []RelayoutOptions{{Order: Hot}, {Order: HotCommunity, HotRows: -1},
				{Order: HotCommunity, HotRows: 1 << 40}} {
				opts.Scores = make([]float32, in.NumNodes)
				s := mustRelayout(t, src, opts)
				require.Equal(t, src.EdgeTypes()[0].NumEdges, s.EdgeTypes()[0].NumEdges)
				require.Len(t, s.NodeTypes()[0].Splits, len(in.Splits))
			}
		})
	}
}

func TestRelayoutBadInput(t *testing.T) {
	src := mustConvert(t, Input{NumNodes: 4, EdgeIndex: edgesOf([]int64{0}, []int64{1})}, 0)
	path := filepath.Join(t.TempDir(), "r")
	nan := float32(math.NaN())
	for name, tc := range map[string]struct {
		opts RelayoutOptions
		text string
	}{
		"no order": {RelayoutOptions{Scores: make([]float32, 4)},
			`order is "", expected one of ["hot" "community" "hot+community"]`},
		"misspelt":         {RelayoutOptions{Order: "warm", Scores: make([]float32, 4)}, `order is "warm"`},
		"no scores":        {RelayoutOptions{Order: Hot}, `"hot" needs hotness, a score for each node`},
		"no scores either": {RelayoutOptions{Order: HotCommunity}, "needs hotness, a score for each node"},
		"too few": {RelayoutOptions{Order: Hot, Scores: make([]float32, 3)},
			"3 scores, expected one for each of 4 nodes"},
		"too many": {RelayoutOptions{Order: Community, Scores: make([]float32, 5)},
			"5 scores, expected one for each of 4 nodes"},
		"NaN": {RelayoutOptions{Order: Hot, Scores: []float32{0, 0, nan, 0}}, "score of node 2 is NaN"},
		"infinite": {RelayoutOptions{Order: Hot, Scores: []float32{0, float32(math.Inf(1)), 0, 0}},
			"score of node 1 is +Inf"},
		"negative": {RelayoutOptions{Order: Hot, Scores: []float32{0, 0, 0, -1}}, "score of node 3 is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Relayout(context.Background(), src, path, tc.opts)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, tc.text)
		})
	}
	huge := &Store{nodeTypes: []NodeType{{Count: maxOrdered + 1}}}
	_, err := newRelayouter(huge, RelayoutOptions{Order: Community}, mem.NewBudget(0), false)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "4294967296 nodes, expected at most 4294967295")

	require.NoError(t, src.Close())
	require.ErrorIs(t, Relayout(context.Background(), src, path, RelayoutOptions{Order: Community}), ErrClosed)
	requireNothing(t, filepath.Dir(path))
}

// TestRelayoutRefusesWhatItWouldLose: arrays that this version does not read are not dropped in silence.
func TestRelayoutRefusesWhatItWouldLose(t *testing.T) {
	for name, change := range map[string]func(m *manifest.Manifest){
		"node times": func(m *manifest.Manifest) { m.NodeTypes[0].Times = &manifest.Array{} },
		"edge times": func(m *manifest.Manifest) { m.EdgeTypes[0].Times = &manifest.Array{} },
		"edge weights": func(m *manifest.Manifest) {
			m.EdgeTypes[0].Weights, m.EdgeTypes[0].WeightSums = &manifest.Array{},
				nil
		},
		"edge splits": func(m *manifest.Manifest) { m.EdgeTypes[0].Splits = []*manifest.Split{{Name: "a"}} },
	} {
		t.Run(name, func(t *testing.T) {
			path := sampleStore(t)
			forge(t, path, change)
			s := mustOpen(t, path)
			require.ErrorIs(t, Relayout(context.Background(), s, path+"2", RelayoutOptions{Order: Community}), ErrVersion)
		})
	}
}
