package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// A consumer may hold rows of nodes that are in several trees.
func TestTreesWithHeldRows(t *testing.T) {
	d := newDataset(600, 9000).timed(manifest.DType_INT64)
	base := plain()
	base.TimeAttr, base.SeedTimes = "time", seedTimes(d.nodes)
	s := d.store(t, ssd.OS)
	want := epochOf(t, open(t, d.graph(t), base), 0)
	held := make([]int32, d.nodes)
	for v := range held {
		if held[v] = -1; v%3 == 0 {
			held[v] = int32(v / 3)
		}
	}
	for _, src := range []draw.Source{d.graph(t), draw.OpenStore(s)} {
		o := base
		o.Held, o.NeighborCache = held, 0
		for i, b := range epochOf(t, open(t, src, o), 0) {
			nID, place, x := b.int64s("n_id"), mem.View[int32](b.arrays[draw.PlaceName]), b.float32s("x")
			require.Equal(t, want[i].int64s("n_id"), nID)
			missed := map[int64]bool{}
			for j, v := range nID {
				if held[v] >= 0 {
					require.Equal(t, held[v], place[j])
					continue
				}
				missed[v] = true
				at := int(^place[j]) * width
				require.Equal(t, d.x[v*width:(v+1)*width], x[at:at+width])
			}
			require.Len(t, x, len(missed)*width, "a row was brought twice")
		}
	}
}

// Only the drawn rows that are not in the batch yet are read: a node in many trees is read once.
func TestRowsOfTreesAreReadOnce(t *testing.T) {
	for _, f := range forms(newDataset(500, 9000)) {
		o := f.options()
		o.Disjoint, o.BatchSize = true, 500
		if len(f.names) == 1 {
			o.Fanouts = []int64{10, 5}
		}
		l := open(t, draw.OpenStore(f.store(t, ssd.OS)), o)
		b := epochOf(t, l, 0)[0]
		distinct, all := map[[2]int64]bool{}, 0
		for typ := range f.names {
			for _, v := range b.int64s(l.draw.Parts.Schema.NodeName(typ, "n_id")) {
				all++
				if f.nodes[typ] != nil {
					distinct[[2]int64{int64(typ), v}] = true
				}
			}
		}
		require.Greater(t, all, 2*len(distinct))
		require.EqualValues(t, all, l.Stats().Rows)
		require.EqualValues(t, len(distinct), l.Stats().Misses)
	}
}

// Whatever the memory, batches are right or the smallest that works is named; and a batch takes the bytes that room was
// made for.
func TestTreesAndSubgraphsInBudgets(t *testing.T) {
	f := severalTypes().timed()
	g, s := f.graph(t), f.store(t, ssd.OS)
	ways := f.treeOptions()
	ways["bidirectional"] = func(o *draw.Options) { o.Subgraph, o.Transpose = sample.Bidirectional, true }
	ways["induced"] = func(o *draw.Options) { o.Subgraph = sample.Induced }
	ways["bidirectional trees"] = func(o *draw.Options) { o.Subgraph, o.Disjoint = sample.Bidirectional, true }
	for name, change := range ways {
		base := f.options()
		change(&base)
		want := epochOf(t, open(t, g, base), 0)
		for kind, source := range map[string]draw.Source{"memory": g, "store": draw.OpenStore(s)} {
			explore.Run(t, name+"/"+kind, func(t *testing.T) {
				o := base
				o.Memory, o.Cache, o.Workers = 1, "auto", 2
				least := leastMemory(t, source, o)
				for _, more := range []int64{0, 4 << 20} {
					o.Memory = least + more
					l := open(t, source, o)
					requireSame(t, want, epochOf(t, l, 0))
					require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
				}
			})
		}
		requireCounted(t, open(t, g, base))
	}
}

func TestTimesOfEveryType(t *testing.T) {
	var want []int64
	for _, dtype := range []manifest.DType{
		manifest.DType_INT8, manifest.DType_INT16, manifest.DType_INT32, manifest.DType_INT64, manifest.DType_UINT8,
		manifest.DType_UINT16, manifest.DType_UINT32,
	} {
		d := newDataset(300, 3000).timed(dtype)
		for _, neighbors := range []int64{draw.Auto, 0} {
			o := plain()
			o.TimeAttr, o.SeedTimes, o.NeighborCache, o.BatchSize = "time", seedTimes(300), neighbors, 300
			got := epochOf(t, open(t, draw.OpenStore(d.store(t, ssd.OS)), o), 0)[0].int64s("e_id")
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, dtype.Label())
		}
	}
}

func TestTimesWithoutEdges(t *testing.T) {
	d := newDataset(100, 0).timed(manifest.DType_INT64)
	for _, src := range []draw.Source{d.graph(t), draw.OpenStore(d.store(t, ssd.OS))} {
		o := plain()
		o.TimeAttr, o.SeedTimes = "time", seedTimes(100)
		for _, b := range epochOf(t, open(t, src, o), 0) {
			require.Empty(t, b.int64s("e_id"))
			require.EqualValues(t, len(b.int64s("input_id")), len(b.int64s("n_id")))
		}
	}
}

func TestWrongTimes(t *testing.T) {
	d := newDataset(100, 500).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT64)
	d.extra = append(d.extra, draw.GraphTensor{Name: "huge", DType: manifest.DType_UINT64, Rows: make([]byte, 8*500)})
	taken := newDataset(100, 500)
	taken.extra = []draw.GraphTensor{{Name: "batch", DType: manifest.DType_INT64, Rows: make([]byte, 8*500)}}
	for name, c := range map[string]struct {
		d       *dataset
		change  func(o *draw.Options)
		message string
	}{
		"missing": {d, func(o *draw.Options) { o.TimeAttr = "when" },
			`time_attr "when" is no tensor of the graph, ` +
				`the edge tensors are ["edge_attr" "weight" "time" "huge"] and the node tensors are ["wide" "x" "y"]`},
		"two columns": {d, func(o *draw.Options) { o.TimeAttr = "edge_attr" },
			`time_attr "edge_attr" holds int32 [2] for each node or edge, expected one integer`},
		"floats":    {d, func(o *draw.Options) { o.TimeAttr = "weight" }, `time_attr "weight" holds float32 for each`},
		"too large": {d, func(o *draw.Options) { o.TimeAttr = "huge" }, `time_attr "huge" holds uint64 for each`},
		"no input_time": {d, func(o *draw.Options) { o.TimeAttr = "time" },
			`time_attr "time" has no times of input nodes, so input_time must give a time for each`},
		"input_time": {d, func(o *draw.Options) { o.TimeAttr, o.SeedTimes = "time", make([]int64, 99) },
			`input_time has 99 times, expected one for each of 100 input nodes`},
		"of seeds": {d, func(o *draw.Options) { o.TimeAttr, o.SeedTimes, o.Seeds = "y", make([]int64, 100), []int64{1, 2} },
			`expected one for each of 2 input nodes`},
		"window":   {d, func(o *draw.Options) { o.TimeAttr, o.TimeWindow = "y", -1 }, `time_window must be at least 1`},
		"no times": {d, func(o *draw.Options) { o.TemporalLast = true }, `need time_attr`},
		"weights": {d, func(o *draw.Options) { o.TimeAttr, o.WeightAttr = "y", "weight" },
			`time_attr cannot be combined with weight_attr`},
		"labor": {d, func(o *draw.Options) { o.Disjoint, o.Sampler = true, &sample.Labor{BatchDependency: 1} },
			`LABOR cannot be combined with disjoint=True; uniform draws, weight_attr and time_attr can`},
		"walks": {d, func(o *draw.Options) {
			o.TimeAttr, o.Walks = "y", []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}}
		}, `random walks cannot be combined with time_attr`},
		"history": {d, func(o *draw.Options) { o.Disjoint, o.History = true, &draw.HistoryOptions{} },
			`disjoint=True cannot be combined with history: trees, which time_attr makes too,`},
		"name taken": {taken, func(o *draw.Options) { o.Disjoint = true }, `the graph has a tensor "batch"`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, src := range []draw.Source{c.d.graph(t), draw.OpenStore(c.d.store(t, ssd.OS))} {
				o := plain()
				c.change(&o)
				_, err := Open(context.Background(), src, o, mem.NewAllocator())
				require.ErrorIs(t, err, draw.ErrOption)
				require.ErrorContains(t, err, c.message)
			}
		})
	}
}

func TestWrongTimesOfTypes(t *testing.T) {
	d := severalTypes().timed()
	g := d.graph(t)
	for message, change := range map[string]func(o *draw.Options){
		`time_attr "born!" is no tensor of the graph, the edge tensors are [`: func(o *draw.Options) {
			o.TimeAttr = "born!"
		},
		`time_attr "mixed" names tensors of nodes (node type "item") and of edges (edge`: func(o *draw.Options) {
			o.TimeAttr = "mixed"
		},
		`node type "item": loader: invalid option: time_attr "born" has no times of input nodes`: func(o *draw.Options) {
			o.TimeAttr = "born"
		},
		`node type "user": loader: invalid option: time_attr "x" holds uint8 [96]`: func(o *draw.Options) {
			o.TimeAttr = "x"
		},
		`edge type (user, r0, item): loader: invalid option: time_attr "w" holds float32`: func(o *draw.Options) {
			o.TimeAttr = "w"
		},
		`expected one for each of 452 input nodes`: func(o *draw.Options) {
			o.TimeAttr, o.SeedTimes = "born", make([]int64, 3)
		},
		`LABOR cannot be combined with disjoint=True`: func(o *draw.Options) {
			o.Disjoint, o.Sampler = true, &sample.Labor{BatchDependency: 1}
		},
		`joins what is disjoint`: func(o *draw.Options) { o.Disjoint, o.Subgraph = true, sample.Induced },
	} {
		o := d.options()
		change(&o)
		_, err := Open(context.Background(), g, o, mem.NewAllocator())
		require.ErrorIs(t, err, draw.ErrOption)
		require.ErrorContains(t, err, message)
	}
}
