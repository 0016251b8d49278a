package loader

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// timed adds an edge tensor "time" of a type, with values from 0 to 99.
func (d *dataset) timed(dtype manifest.DType) *dataset {
	var rows []byte
	for e := range d.sources {
		rows = append(rows, append([]byte{byte(e * 7919 % 100)}, make([]byte, dtype.Size()-1)...)...)
	}
	d.extra = append(d.extra, GraphTensor{Name: "time", DType: dtype, Rows: rows})
	return d
}

func (d *dataset) timeOf(e int64) int64 { return e * 7919 % 100 }

// seedTimes are times for so many seeds, some before and some after all others.
func seedTimes(n int64) []int64 {
	rng, times := rand.New(rand.NewPCG(3, 1)), make([]int64, n)
	for i := range times {
		times[i] = rng.Int64N(120) - 10
	}
	times[0], times[1] = math.MinInt64, math.MaxInt64
	return times
}

func treeOptions(d *dataset) map[string]func(o *Options) {
	edges := func(o *Options) { o.TimeAttr, o.SeedTimes = "time", seedTimes(d.nodes) }
	return map[string]func(o *Options){
		"disjoint":          func(o *Options) { o.Disjoint = true },
		"disjoint weighted": func(o *Options) { o.Disjoint, o.WeightAttr = true, "weight" },
		"edge times":        edges,
		"edge times last":   func(o *Options) { edges(o); o.TemporalLast = true },
		"edge times window": func(o *Options) { edges(o); o.TimeWindow, o.Fanouts = 20, []int64{-1, 2} },
		"node times":        func(o *Options) { o.TimeAttr = "y" },
		"node times, given": func(o *Options) {
			o.TimeAttr, o.SeedTimes, o.TemporalLast, o.Replace = "y", seedTimes(d.nodes), true, true
		},
	}
}

// The metamorphic test of the samplers, for trees and times.
func TestTreesAgreeEverywhere(t *testing.T) {
	for order, d := range map[string]*dataset{
		"":        newDataset(800, 9000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT64),
		" sorted": newDataset(300, 4000).bySorted().weighted(manifest.DType_INT16).timed(manifest.DType_UINT8),
	} {
		s := d.store(t, ssd.OS)
		for name, change := range treeOptions(d) {
			base := plain()
			base.Seed = explore.Seed(t, 5)
			change(&base)
			agreeEverywhere(t, d, s, name+order, base)
		}
	}
}

// A store whose rows are in another order has the same times.
func TestNodeTimesOfRelaidStores(t *testing.T) {
	d := newDataset(1500, 20000)
	base := plain()
	base.TimeAttr = "y"
	want := epochOf(t, open(t, d.graph(t), base), 0)
	s := relaid(t, d.store(t, ssd.OS), "hot")
	for _, neighbors := range []int64{Auto, 0} {
		for _, memory := range []int64{0, 32 << 20} {
			o := base
			o.NeighborCache, o.Memory = neighbors, memory
			requireSame(t, want, epochOf(t, open(t, OpenStore(s), o), 0))
		}
	}
}

// requireTrees looks at every edge of a batch: its time, its tree, its ends; and at what every node brings.
func requireTrees(t *testing.T, d *dataset, o Options, b *seen) {
	t.Helper()
	nID, eID, input, tree := b.int64s("n_id"), b.int64s("e_id"), b.int64s("input_id"), b.int64s(TreeName)
	edgeIndex, ptr := b.int64s("edge_index"), b.int64s("ptr")
	row, col := edgeIndex[:len(eID)], edgeIndex[len(eID):]
	require.Len(t, tree, len(nID))
	var times []int64
	if o.TimeAttr != "" {
		times = b.int64s(SeedTimeName)
		for i, p := range input {
			if o.SeedTimes != nil {
				require.Equal(t, o.SeedTimes[p], times[i])
			} else {
				require.Equal(t, d.y[nID[i]], times[i])
			}
		}
	}
	require.Len(t, times, len(b.arrays[SeedTimeName])/8)
	allowed := func(e, seed int64) bool {
		if times == nil {
			return true
		}
		at := d.y[d.sources[e]]
		if o.TimeAttr == "time" {
			at = d.timeOf(e)
		}
		return at <= times[seed] && (o.TimeWindow == 0 || times[seed] < math.MinInt64+o.TimeWindow ||
			at > times[seed]-o.TimeWindow)
	}
	inEdges := map[int64][]int64{}
	for e, v := range d.targets {
		inEdges[v] = append(inEdges[v], int64(e))
	}
	firstOfHop, hop := b.int64s("num_sampled_nodes")[0], 0
	for target := range int64(len(ptr) - 1) {
		for target >= firstOfHop {
			hop++
			firstOfHop += b.int64s("num_sampled_nodes")[hop]
		}
		seed, want := tree[target], int64(0)
		for _, e := range inEdges[nID[target]] {
			if allowed(e, seed) && (o.WeightAttr == "" || e*7919%6 != 0) {
				want++
			}
		}
		if k := o.Fanouts[hop]; k >= 0 && (want > k || o.Replace && want > 0) {
			want = k
		}
		require.Equal(t, want, ptr[target+1]-ptr[target])
		for i := ptr[target]; i < ptr[target+1]; i++ {
			if e := eID[i]; !allowed(e, seed) || tree[row[i]] != seed || col[i] != target || d.sources[e] != nID[row[i]] ||
				d.targets[e] != nID[target] {
				t.Fatalf("edge %d of tree %d, which is the graph's %d", i, seed, e)
			}
		}
	}
	type place struct{ tree, node int64 }
	places := map[place]bool{}
	x, y := b.float32s("x"), b.int64s("y")
	for i, v := range nID {
		places[place{tree[i], v}] = true
		require.Equal(t, d.x[v*width:(v+1)*width], x[i*width:(i+1)*width])
		require.Equal(t, d.y[v], y[i])
	}
	require.Len(t, places, len(nID), "a node is twice in a tree")
}

func TestTreesAreRight(t *testing.T) {
	d := newDataset(400, 5000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT32)
	for name, change := range treeOptions(d) {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Seed = explore.Seed(t, 5)
			change(&o)
			o.BatchSize, o.NeighborCache, o.Cache, o.FeatureCache = 50, 0, "belady", rowsFor(50)
			for _, src := range []Source{d.graph(t), OpenStore(d.store(t, ssd.OS))} {
				for _, b := range epochOf(t, open(t, src, o), 0) {
					requireTrees(t, d, o, b)
				}
			}
		})
	}
}

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
	for _, src := range []Source{d.graph(t), OpenStore(s)} {
		o := base
		o.Held, o.NeighborCache = held, 0
		for i, b := range epochOf(t, open(t, src, o), 0) {
			nID, place, x := b.int64s("n_id"), mem.View[int32](b.arrays[PlaceName]), b.float32s("x")
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
	d := newDataset(500, 9000)
	o := plain()
	o.Disjoint, o.BatchSize, o.Fanouts = true, 500, []int64{10, 5}
	l := open(t, OpenStore(d.store(t, ssd.OS)), o)
	b := epochOf(t, l, 0)[0]
	require.Greater(t, len(b.int64s("n_id")), 5000)
	stats := l.Stats()
	require.EqualValues(t, len(b.int64s("n_id")), stats.Rows)
	distinct := b.int64s("n_id")
	slices.Sort(distinct)
	require.EqualValues(t, len(slices.Compact(distinct)), stats.Misses)
}

func TestTimesOfEveryType(t *testing.T) {
	var want []int64
	for _, dtype := range []manifest.DType{
		manifest.DType_INT8, manifest.DType_INT16, manifest.DType_INT32, manifest.DType_INT64, manifest.DType_UINT8,
		manifest.DType_UINT16, manifest.DType_UINT32,
	} {
		d := newDataset(300, 3000).timed(dtype)
		for _, neighbors := range []int64{Auto, 0} {
			o := plain()
			o.TimeAttr, o.SeedTimes, o.NeighborCache, o.BatchSize = "time", seedTimes(300), neighbors, 300
			got := epochOf(t, open(t, OpenStore(d.store(t, ssd.OS)), o), 0)[0].int64s("e_id")
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, dtype.Label())
		}
	}
}

func TestTimesWithoutEdges(t *testing.T) {
	d := newDataset(100, 0).timed(manifest.DType_INT64)
	for _, src := range []Source{d.graph(t), OpenStore(d.store(t, ssd.OS))} {
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
	d.extra = append(d.extra, GraphTensor{Name: "huge", DType: manifest.DType_UINT64, Rows: make([]byte, 8*500)})
	taken := newDataset(100, 500)
	taken.extra = []GraphTensor{{Name: "batch", DType: manifest.DType_INT64, Rows: make([]byte, 8*500)}}
	for name, c := range map[string]struct {
		d       *dataset
		change  func(o *Options)
		message string
	}{
		"missing": {d, func(o *Options) { o.TimeAttr = "when" },
			`time_attr "when" is no tensor of the graph, ` +
				`the edge tensors are ["edge_attr" "weight" "time" "huge"] and the node tensors ["wide" "x" "y"]`},
		"two columns": {d, func(o *Options) { o.TimeAttr = "edge_attr" },
			`time_attr "edge_attr" holds int32 [2] for each node or edge, expected one integer`},
		"floats":    {d, func(o *Options) { o.TimeAttr = "weight" }, `time_attr "weight" holds float32 []`},
		"too large": {d, func(o *Options) { o.TimeAttr = "huge" }, `time_attr "huge" holds uint64 []`},
		"no input_time": {d, func(o *Options) { o.TimeAttr = "time" },
			`time_attr "time" has times of edges, so input_time must give a time for each input node`},
		"input_time": {d, func(o *Options) { o.TimeAttr, o.SeedTimes = "time", make([]int64, 99) },
			`input_time has 99 times, expected one for each of 100 input nodes`},
		"of seeds": {d, func(o *Options) { o.TimeAttr, o.SeedTimes, o.Seeds = "y", make([]int64, 100), []int64{1, 2} },
			`expected one for each of 2 input nodes`},
		"window":   {d, func(o *Options) { o.TimeAttr, o.TimeWindow = "y", -1 }, `time_window must be at least 1`},
		"no times": {d, func(o *Options) { o.TemporalLast = true }, `need time_attr`},
		"weights":  {d, func(o *Options) { o.TimeAttr, o.WeightAttr = "y", "weight" }, `time_attr and weight_attr`},
		"labor": {d, func(o *Options) { o.Disjoint, o.Labor = true, &sample.Labor{BatchDependency: 1} },
			`LABOR and random walks`},
		"walks": {d, func(o *Options) {
			o.TimeAttr, o.Walks = "y", []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}}
		}, `LABOR and random walks`},
		"history": {d, func(o *Options) { o.Disjoint, o.History = true, &HistoryOptions{} },
			`a history and disjoint trees`},
		"name taken": {taken, func(o *Options) { o.Disjoint = true }, `the graph has a tensor "batch"`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, src := range []Source{c.d.graph(t), OpenStore(c.d.store(t, ssd.OS))} {
				o := plain()
				c.change(&o)
				_, err := Open(context.Background(), src, o, mem.NewAllocator())
				require.ErrorIs(t, err, ErrOption)
				require.ErrorContains(t, err, c.message)
			}
		})
	}
}

func TestFirsts(t *testing.T) {
	var f firsts
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 2, 3, 100, 5000, 7} {
		f.begin(n)
		seen := map[int64]int32{}
		for i := range int32(n) {
			node := rng.Int64N(int64(n)) * (math.MaxUint32 / int64(n))
			want, found := seen[node]
			if !found {
				want, seen[node] = i, i
			}
			first, again := f.add(node, i)
			require.Equal(t, want, first)
			require.Equal(t, found, again)
		}
	}
}
