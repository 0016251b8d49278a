package propagate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
	"freshgo/core/store"
)

// mustRun runs and opens the result, with the memory that was given and no more.
func mustRun(t *testing.T, s *store.Store, o Options) (*store.Store, Report) {
	t.Helper()
	budget := mem.NewBudget(o.Memory)
	last, total := int64(-1), int64(0)
	o.Progress = func(_ string, done, all int64) {
		require.GreaterOrEqual(t, done, last)
		last, total = done, all
	}
	report, err := run(context.Background(), s, o, budget)
	require.NoError(t, err)
	require.Equal(t, total, last, "progress ends with what was announced")
	require.Zero(t, budget.Used(), "memory left behind")
	if o.Memory > 0 {
		require.LessOrEqual(t, budget.Peak(), o.Memory)
	}
	out := open(t, s.FS(), s.Path())
	require.NoError(t, out.Verify(context.Background(), nil))
	require.Equal(t, s.UUID(), out.UUID(), "what the store had is as it was")
	return out, report
}

func tensor(t *testing.T, n *store.NodeType, name string) *store.Tensor {
	t.Helper()
	found := find(n.Tensors, name)
	require.NotNil(t, found, name)
	return found
}

// TestEqualsTheProduct: every column is what a plain loop over the edges gives, in graphs of one type and of several,
// of every type of float, weighted in each way that a store has weights, as converted and relaid out; and the bits do
// not depend on memory.
func TestEqualsTheProduct(t *testing.T) {
	cases := 30
	if testing.Short() {
		cases = 9
	}
	for i := range cases {
		rng := explore.Rand(t, 1, uint64(i))
		g := newRandomGraph(rng, []int{1, 1, 3}[i%3])
		kind, weighted := Reductions[rng.IntN(3)], rng.IntN(2) == 0
		o := Options{Tensor: "x", Reduce: kind, Hops: 1, Name: "agg"}
		any := false
		for k, e := range g.edges {
			if kind == GCN && e.from == e.to {
				o.Relations = append(o.Relations, k)
			}
			any = any || e.w != nil && (kind != GCN || e.from == e.to)
		}
		if kind == GCN && o.Relations == nil {
			continue
		}
		if weighted = weighted && any; weighted {
			o.WeightAttr = "w"
		}
		s := g.store(t, ssd.OS)
		if rng.IntN(2) == 0 {
			s = relaid(t, s, rng)
		}
		explore.Run(t, fmt.Sprint(i, kind), func(t *testing.T) {
			out, _ := mustRun(t, s, o)
			g.check(t, out, kind, weighted)
			bits := map[int][]float64{}
			for k, n := range out.NodeTypes() {
				if agg := find(n.Tensors, "agg"); agg != nil {
					bits[k] = read(t, out, agg)
				}
			}
			var budget *mem.BudgetError
			small := o
			small.Overwrite, small.Memory = true, 1
			_, err := run(context.Background(), s, small, mem.NewBudget(small.Memory))
			require.ErrorAs(t, err, &budget)
			small.Memory = budget.Minimum()
			_, err = run(context.Background(), s, func(o Options) Options { o.Memory--; return o }(small),
				mem.NewBudget(small.Memory-1))
			require.ErrorAs(t, err, &budget)
			again, report := mustRun(t, open(t, ssd.OS, s.Path()), small)
			require.Positive(t, report.Slices)
			for k, n := range again.NodeTypes() {
				if agg := find(n.Tensors, "agg"); agg != nil {
					require.Equal(t, bits[k], read(t, again, agg))
				}
			}
		})
	}
}

// check compares all columns of all aggregates.
func (g *randomGraph) check(t *testing.T, s *store.Store, kind string, weighted bool) {
	t.Helper()
	for typ, n := range s.NodeTypes() {
		agg := find(n.Tensors, "agg")
		if agg == nil {
			continue
		}
		rows, width := read(t, s, agg), int(agg.RowShape[0])
		require.Empty(t, agg.Aggregate.Stale)
		require.Equal(t, kind, agg.Aggregate.Reduce)
		at := int(agg.Aggregate.Own)
		if kind == GCN {
			require.Zero(t, at)
		} else {
			require.Equal(t, g.widths[typ], at)
			require.Equal(t, g.x[typ], columnsOf(rows, width, 0, at), "own rows are copied")
		}
		for _, p := range agg.Aggregate.Parts {
			var of int
			if p.Relation != "" {
				_, err := fmt.Sscanf(p.Relation, "r%d", &of)
				require.NoError(t, err)
			}
			e := &g.edges[of]
			require.Equal(t, typ, e.to)
			w := g.widths[e.from]
			want := g.along(e, g.x[e.from], w, kind, weighted)
			requireNear(t, agg.DType, want, columnsOf(rows, width, at, w), p.Relation)
			at += w
		}
		require.Equal(t, width, at)
	}
}

// TestHops: each hop aggregates the one before.
func TestHops(t *testing.T) {
	rng := explore.Rand(t, 2, 0)
	for _, kind := range Reductions {
		g := newRandomGraph(rng, 1)
		g.dtypes[0] = manifest.DType_FLOAT64
		s, _ := mustRun(t, g.store(t, ssd.OS), Options{Tensor: "x", Reduce: kind, Hops: 3, Name: "h"})
		rows := g.x[0]
		for hop, name := range []string{"h", "h2", "h3"} {
			rows = g.along(&g.edges[0], rows, g.widths[0], kind, false)
			node := s.NodeTypes()[0]
			h := tensor(t, &node, name)
			require.Equal(t, hop+1, h.Aggregate.Hop)
			got := columnsOf(read(t, s, h), int(h.RowShape[0]), int(h.Aggregate.Own), g.widths[0])
			for i, want := range rows {
				if math.Abs(want-got[i]) > 1e-10*(1+math.Abs(want)) {
					require.Failf(t, "other numbers", "%s %s %d: %v, expected %v", kind, name, i, got[i], want)
				}
			}
		}
	}
}

// TestSlices: memory for a tenth of the rows reads and writes rows, results and their spills once, and the lists once
// for each slice.
func TestSlices(t *testing.T) {
	rng := explore.Rand(t, 3, 0)
	g := sliced(rng)
	stored := g.store(t, ssd.OS)
	for name, s := range map[string]*store.Store{"as converted": stored, "relaid out": relaid(t, stored, rng)} {
		explore.Run(t, name, func(t *testing.T) {
			whole, one := mustRun(t, s, Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg"})
			g.check(t, whole, Mean, false)
			require.Equal(t, 1, one.Slices)
			require.LessOrEqual(t, one.Read, int64(2*slicedRows+slicedLists+slack), "rows, own rows, and the lists")
			require.LessOrEqual(t, one.Written, int64(2*slicedRows+slicedRows/50))
			wholeNode := whole.NodeTypes()[0]
			bits := read(t, whole, tensor(t, &wholeNode, "agg"))
			little := Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg", Memory: 5800 << 10, Overwrite: true}
			few, many := mustRun(t, whole, little)
			g.check(t, few, Mean, false)
			require.Greater(t, many.Slices, 4)
			require.LessOrEqual(t, many.Read, int64(4*slicedRows+many.Slices*slicedLists+slack))
			require.LessOrEqual(t, many.Written, int64(4*slicedRows+slack))
			node := few.NodeTypes()[0]
			require.Equal(t, bits, read(t, few, tensor(t, &node, "agg")))
			_, err := os.Stat(tensor(t, &wholeNode, "agg").Path)
			require.ErrorIs(t, err, os.ErrNotExist, "what was replaced is gone")
			for _, name := range files(t, few) {
				require.False(t, strings.HasPrefix(name, ssd.TempPrefix), name)
			}
		})
	}
}

// TestFewSlices: memory for all rows but not for the results moves nothing twice. With two or three slices rows are
// read as often, no rows are written to be read again, and neither are the results of the last slice.
func TestFewSlices(t *testing.T) {
	g := sliced(explore.Rand(t, 4, 0))
	s := g.store(t, ssd.OS)
	for slices, memory := range map[int]int64{1: 16 << 20, 2: 11 << 20, 3: 8730 << 10} {
		explore.Run(t, fmt.Sprint(slices), func(t *testing.T) {
			o := Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg", Memory: memory, Overwrite: true}
			out, report := mustRun(t, s, o)
			g.check(t, out, Mean, false)
			require.Equal(t, slices, report.Slices)
			spilled := slicedRows * (slices - 1) / slices
			require.LessOrEqual(t, report.Read, int64((slices+1)*slicedRows+spilled+slices*slicedLists+slack))
			require.LessOrEqual(t, report.Written, int64(2*slicedRows+spilled+slack))
		})
	}
}

const (
	slicedNodes, slicedWidth, slicedEdges = 40000, 64, 100000

	slicedRows  = slicedNodes * slicedWidth * 4 // bytes
	slicedLists = slicedEdges*4 + slicedNodes*8
	slack       = slicedRows/10 + slicedNodes*4
)

// sliced is a graph whose features take more memory than anything else.
func sliced(rng *rand.Rand) *randomGraph {
	const nodes, width, edges = slicedNodes, slicedWidth, slicedEdges
	g := newRandomGraph(rng, 1)
	g.counts[0], g.widths[0], g.dtypes[0] = nodes, width, manifest.DType_FLOAT32
	g.x[0] = make([]float64, nodes*width)
	for i := range g.x[0] {
		g.x[0][i] = float64(i % 100)
	}
	e := &g.edges[0]
	*e = randomEdges{}
	for range edges {
		e.sources, e.targets = append(e.sources, rng.Int64N(nodes)), append(e.targets, rng.Int64N(nodes))
	}
	return g
}

func smallGraph() *randomGraph {
	return &randomGraph{
		names: []string{""}, counts: []int64{5}, widths: []int{3}, dtypes: []manifest.DType{manifest.DType_FLOAT32},
		x: [][]float64{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}},
		edges: []randomEdges{{sources: []int64{3, 0, 1, 4, 0}, targets: []int64{1, 0, 1, 2, 1},
			w: []float64{1, 2, 1, 1, .5}}},
	}
}

// TestBadOptions: what is wrong with what was asked for is said.
func TestBadOptions(t *testing.T) {
	s := smallGraph().store(t, ssd.OS)
	good := Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg"}
	for name, tc := range map[string]struct {
		change func(o *Options)
		text   string
	}{
		"reduce":             {func(o *Options) { o.Reduce = "max" }, `one of ["mean" "sum" "gcn"], got "max"`},
		"hops":               {func(o *Options) { o.Hops = 0 }, "hops must be at least 1, got 0"},
		"memory":             {func(o *Options) { o.Memory = -1 }, "memory must be at least 0"},
		"no tensor":          {func(o *Options) { o.Tensor = "z" }, `has the tensor "z"`},
		"no weights":         {func(o *Options) { o.WeightAttr = "z" }, `has the tensor "z"`},
		"its own name":       {func(o *Options) { o.Name = "x" }, "that of the tensor itself"},
		"no name":            {func(o *Options) { o.Name = "" }, "needs a name"},
		"unknown relation":   {func(o *Options) { o.Relations = []int{1} }, "relations[0] is 1"},
		"repeated relation":  {func(o *Options) { o.Relations = []int{0, 0} }, "relations[1] is 0"},
		"no relation at all": {func(o *Options) { o.Relations = []int{} }, "names no edge type"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := Run(context.Background(), s, o)
			require.ErrorIs(t, err, store.ErrInvalid)
			require.ErrorContains(t, err, tc.text)
		})
	}
	out, _ := mustRun(t, s, good)
	_, err := Run(context.Background(), out, good)
	require.ErrorIs(t, err, store.ErrExists)
	good.Tensor, good.Name = "agg", "twice"
	_, err = Run(context.Background(), out, good)
	require.ErrorContains(t, err, "was computed by propagate itself")
}

// files are the names in a store.
func files(t *testing.T, s *store.Store) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.Path())
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestFailures: whichever call fails, the store is as it was or whole with the tensor, and the next run does its work.
func TestFailures(t *testing.T) {
	large := smallGraph()
	large.counts[0], large.widths[0], large.x[0] = 2000, 64, make([]float64, 2000*64)
	for name, tc := range map[string]struct {
		graph  *randomGraph
		sliced bool // so little memory that the results are spilled
	}{"in memory": {smallGraph(), false}, "spilled": {large, true}} {
		explore.Run(t, name, func(t *testing.T) {
			fs := faultfs.New(ssd.OS)
			s := tc.graph.store(t, fs)
			before := files(t, s)
			o := Options{Tensor: "x", Reduce: GCN, Hops: 2, Name: "agg", WeightAttr: "w", IO: ssd.Pread, Overwrite: true}
			ops := []faultfs.Op{faultfs.Open, faultfs.OpenDirect, faultfs.Read, faultfs.Write, faultfs.Sync, faultfs.Rename,
				faultfs.SyncDir, faultfs.Stat, faultfs.Lock}
			if tc.sliced {
				var budget *mem.BudgetError
				_, err := run(context.Background(), s, o, mem.NewBudget(1))
				require.ErrorAs(t, err, &budget)
				o.Memory = budget.Minimum()
				ops = append(ops, faultfs.Allocate)
			}
			for _, op := range ops {
				failed := 0
				for nth := 1; ; nth++ {
					fs.Clear()
					var fired atomic.Bool
					fs.Arm(faultfs.Fault{Op: op, Nth: nth, Errno: syscall.EIO, Hook: func() { fired.Store(true) }})
					report, err := Run(context.Background(), s, o)
					fs.Clear()
					now := open(t, ssd.OS, s.Path())
					require.NoError(t, now.Verify(context.Background(), nil), "%v %d", op, nth)
					if !fired.Load() {
						require.NoError(t, err)
						require.Equal(t, tc.sliced, report.Slices > 2)
						break
					}
					failed++
					if len(now.NodeTypes()[0].Tensors) == 1 {
						require.Equal(t, before, files(t, s), "%v %d", op, nth)
					} else {
						require.Len(t, now.NodeTypes()[0].Tensors, 3)
					}
				}
				require.Positive(t, failed, op)
				require.Zero(t, fs.OpenFiles())
			}
			fs.SetSpace(3000)
			_, err := Run(context.Background(), s, o)
			require.ErrorIs(t, err, syscall.ENOSPC)
		})
	}
}

// TestKilled: what a run left that was killed at any moment is removed by the next.
func TestKilled(t *testing.T) {
	s := smallGraph().store(t, ssd.OS)
	before := files(t, s)
	for _, name := range []string{"added0_agg.bin", "added0_agg.crc", "manifest.pb.new", "added3_z.bin"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.Path(), name), []byte("half"), 0o600))
	}
	require.NoError(t, s.Verify(context.Background(), nil), "nobody looks at what the manifest does not name")
	out, _ := mustRun(t, s, Options{Tensor: "x", Reduce: Sum, Hops: 1, Name: "agg"})
	require.Len(t, files(t, out), len(before)+2)
	smallGraph().check(t, out, Sum, false)
}

// TestOthers: while one adds, another is refused; whoever has the store open goes on reading.
func TestOthers(t *testing.T) {
	s := smallGraph().store(t, ssd.OS)
	a, err := s.BeginAddition()
	require.NoError(t, err)
	o := Options{Tensor: "x", Reduce: Sum, Hops: 1, Name: "agg"}
	_, err = Run(context.Background(), s, o)
	require.ErrorIs(t, err, store.ErrBusy)
	require.NoError(t, a.Discard())
	mustRun(t, s, o)
	require.NoError(t, s.CheckCurrent())
	require.NoError(t, s.Verify(context.Background(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Name = "late"
	_, err = Run(ctx, s, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, open(t, ssd.OS, s.Path()).NodeTypes()[0].Tensors, 2)
	require.NoError(t, s.Close())
	_, err = Run(context.Background(), s, o)
	require.ErrorIs(t, err, store.ErrClosed)
}

// TestStale: an aggregate of other rows, edges or weights than the store holds says so; relayout changes neither.
func TestStale(t *testing.T) {
	g := smallGraph()
	o := Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg", WeightAttr: "w"}
	stale := func(s *store.Store) string {
		node := s.NodeTypes()[0]
		return tensor(t, &node, "agg").Aggregate.Stale
	}
	out, _ := mustRun(t, g.store(t, ssd.OS), o)
	require.Empty(t, stale(out))
	rng := explore.Rand(t, 4, 0)
	require.Empty(t, stale(relaid(t, out, rng)))
	for name, tc := range map[string]struct {
		change func(g *randomGraph)
		text   string
	}{
		"features": {func(g *randomGraph) { g.x[0][7]++ }, `other rows of "x"`},
		"topology": {func(g *randomGraph) { g.edges[0].sources[0] = 2 }, "other edges"},
		"weights":  {func(g *randomGraph) { g.edges[0].w[1] = 7 }, `other weights "w"`},
	} {
		t.Run(name, func(t *testing.T) {
			other := smallGraph()
			tc.change(other)
			s := other.store(t, ssd.OS)
			graft(t, out, s)
			grafted := open(t, ssd.OS, s.Path())
			require.Contains(t, stale(grafted), tc.text)
			require.Contains(t, stale(relaid(t, grafted, rng)), "other", "and it stays so")
			fresh, _ := mustRun(t, grafted, Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg", Overwrite: true})
			require.Empty(t, stale(fresh))
		})
	}
}

// graft puts the aggregate of one store into another.
func graft(t *testing.T, from, to *store.Store) {
	t.Helper()
	agg := from.Manifest().NodeTypes[0].Tensors[1]
	for _, name := range []string{agg.Data.File, agg.Data.CrcFile} {
		data, err := os.ReadFile(filepath.Join(from.Path(), name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to.Path(), name), data, 0o600))
	}
	m := to.Manifest()
	m.NodeTypes[0].Tensors = append(m.NodeTypes[0].Tensors, agg)
	data, err := manifest.Encode(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(to.Path(), manifest.Name), data, 0o600))
}

// TestDamage: a damaged page of the rows or the lists ends the run, names the file, and leaves the store as it was.
func TestDamage(t *testing.T) {
	for _, file := range []string{"node0_x.bin", "indices.bin", "indptr.bin"} {
		s := smallGraph().store(t, ssd.OS)
		path := filepath.Join(s.Path(), file)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[5] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o600))
		before := files(t, s)
		_, err = Run(context.Background(), s, Options{Tensor: "x", Reduce: Mean, Hops: 1, Name: "agg"})
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.True(t, strings.Contains(err.Error(), file), err)
		require.Equal(t, before, files(t, s))
	}
}
