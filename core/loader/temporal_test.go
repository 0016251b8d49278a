package loader

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// timed adds an edge tensor "time" of a type, with values from 0 to 99.
func (d *dataset) timed(dtype manifest.DType) *dataset {
	var rows []byte
	for e := range d.sources {
		rows = append(rows, append([]byte{byte(e * 7919 % 100)}, make([]byte, dtype.Size()-1)...)...)
	}
	d.extra = append(d.extra, draw.GraphTensor{Name: "time", DType: dtype, Rows: rows})
	return d
}

func (d *dataset) timeOf(e int64) int64 { return e * 7919 % 100 }

// seedTimes returns times for n seeds, some before and some after all others.
func seedTimes(n int64) []int64 {
	rng, times := rand.New(rand.NewPCG(3, 1)), make([]int64, n)
	for i := range times {
		times[i] = rng.Int64N(120) - 10
	}
	times[0], times[1] = math.MinInt64, math.MaxInt64
	return times
}

// timed adds times: "born" to users and tags, "when" to two relations and "mixed" to a type and a relation.
func (f *form) timed() *form {
	rng := rand.New(rand.NewPCG(8, 1))
	add := func(name string, rows int64) draw.GraphTensor {
		times := make([]int32, rows)
		for i := range times {
			times[i] = rng.Int32N(100)
		}
		return draw.GraphTensor{Name: name, DType: manifest.DType_INT32, Rows: mem.Bytes(times)}
	}
	for _, typ := range []int{0, 2} {
		f.nodes[typ] = append(f.nodes[typ], add("born", f.counts[typ]))
	}
	for _, i := range []int{0, 2} {
		f.edges[i].Tensors = append(f.edges[i].Tensors, add("when", int64(len(f.edges[i].Tensors[1].Rows)/4)))
	}
	f.nodes[1] = append(f.nodes[1], add("mixed", f.counts[1]))
	f.edges[0].Tensors = append(f.edges[0].Tensors, add("mixed", int64(len(f.edges[0].Tensors[1].Rows)/4)))
	return f
}

// numbers returns the elements of a tensor with one for each row; nil where there is no tensor of this name.
func numbers(tensors []draw.GraphTensor, name string) []float64 {
	for _, x := range tensors {
		if x.Name == name {
			out := make([]float64, len(x.Rows)/rowBytes(x))
			store.DecodeFloats(x.DType, x.Rows, out)
			return out
		}
	}
	return nil
}

// treeOptions are ways to draw trees.
func (f *form) treeOptions() map[string]func(o *draw.Options) {
	if len(f.names) > 1 {
		given := func(o *draw.Options) { o.SeedTimes = seedTimes(int64(len(o.Seeds))) }
		return map[string]func(o *draw.Options){
			"disjoint": func(o *draw.Options) { o.Disjoint = true },
			"weighted": func(o *draw.Options) { o.Disjoint, o.WeightAttr = true, "w" },
			"nodes": func(o *draw.Options) {
				o.TimeAttr, o.Seeds = "born", append([]int64{3, 4, 3, 899}, 900+2500, 900+2500+59) // users and tags
			},
			"nodes, given": func(o *draw.Options) { o.TimeAttr = "born"; given(o) },
			"edges":        func(o *draw.Options) { o.TimeAttr = "when"; given(o) },
			"last":         func(o *draw.Options) { o.TimeAttr, o.TemporalLast = "when", true; given(o) },
			"window":       func(o *draw.Options) { o.TimeAttr, o.TimeWindow = "when", 30; given(o) },
		}
	}
	edges := func(o *draw.Options) { o.TimeAttr, o.SeedTimes = "time", seedTimes(f.counts[0]) }
	return map[string]func(o *draw.Options){
		"disjoint":          func(o *draw.Options) { o.Disjoint = true },
		"disjoint weighted": func(o *draw.Options) { o.Disjoint, o.WeightAttr = true, "weight" },
		"edge times":        edges,
		"edge times last":   func(o *draw.Options) { edges(o); o.TemporalLast = true },
		"edge times window": func(o *draw.Options) { edges(o); o.TimeWindow, o.Fanouts = 20, []int64{-1, 2} },
		"node times":        func(o *draw.Options) { o.TimeAttr = "y" },
		"node times, given": func(o *draw.Options) {
			o.TimeAttr, o.SeedTimes, o.TemporalLast, o.Replace = "y", seedTimes(f.counts[0]), true, true
		},
	}
}

// timedForms are forms with times and weights.
func timedForms(d *dataset) []*form {
	all := forms(d.weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT32))
	all[2].timed()
	return all
}

// The metamorphic test of the samplers, for trees and times.
func TestTreesAgreeEverywhere(t *testing.T) {
	for _, f := range []*form{
		newDataset(800, 9000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT64).form(""),
		newDataset(300, 4000).bySorted().weighted(manifest.DType_INT16).timed(manifest.DType_UINT8).form(""),
		severalTypes().timed(),
	} {
		s := f.store(t, ssd.OS)
		for name, change := range f.treeOptions() {
			base := f.options()
			base.Seed = explore.Seed(t, 5)
			change(&base)
			agreeEverywhere(t, f, s, fmt.Sprint(f, " ", f.counts, " ", name), base)
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
	for _, neighbors := range []int64{draw.Auto, 0} {
		for _, memory := range []int64{0, 32 << 20} {
			o := base
			o.NeighborCache, o.Memory = neighbors, memory
			requireSame(t, want, epochOf(t, open(t, draw.OpenStore(s), o), 0))
		}
	}
}

// place is the place among all seeds of one among those of a type.
func (f *form) place(o draw.Options, typ int, among int64) int64 {
	first := int64(0)
	for _, n := range f.counts[:typ] {
		first += n
	}
	if o.Seeds == nil {
		return first + among
	}
	for at, v := range o.Seeds {
		if v >= first && v < first+f.counts[typ] {
			if among--; among < 0 {
				return int64(at)
			}
		}
	}
	return -1
}

// visible selects the edges of a relation, by their numbers, that can be drawn for one of the times: edges that have a
// weight and are neither later than the time nor before its window.
func (f *form) visible(o *draw.Options, relation, source int, times []int64) func(id, at int64) bool {
	sources, _ := f.ends(relation)
	byEdge, byNode := numbers(f.edges[relation].Tensors, o.TimeAttr), numbers(f.nodes[source], o.TimeAttr)
	weights := numbers(f.edges[relation].Tensors, o.WeightAttr)
	return func(id, at int64) bool {
		when := int64(0)
		switch {
		case weights != nil && weights[id] == 0:
			return false
		case byEdge != nil:
			when = int64(byEdge[id])
		case byNode != nil:
			when = int64(byNode[sources[id]])
		default:
			return true
		}
		return when <= times[at] && (o.TimeWindow == 0 || times[at] < math.MinInt64+o.TimeWindow ||
			when > times[at]-o.TimeWindow)
	}
}

// requireTrees looks at every edge of a batch: its time, its tree, its ends; and at what every node brings.
func (f *form) requireTrees(t *testing.T, g *draw.Graph, o draw.Options, b *seen) {
	t.Helper()
	types := g.Parts().Schema
	of := func(typ int, name string) []int64 { return b.int64s(types.NodeName(typ, name)) }
	var times []int64 // of the seeds
	trees, ids, count := make([][]int64, len(f.names)), make([][]int64, len(f.names)), 0
	for typ := range f.names {
		trees[typ], ids[typ] = of(typ, draw.TreeName), of(typ, "n_id")
		require.Len(t, trees[typ], len(ids[typ]))
		own, mine := numbers(f.nodes[typ], o.TimeAttr), of(typ, draw.SeedTimeName)
		for i, p := range of(typ, "input_id") {
			require.EqualValues(t, count, trees[typ][i])
			count++
			switch {
			case o.TimeAttr == "":
			case o.SeedTimes != nil:
				require.Equal(t, o.SeedTimes[f.place(o, typ, p)], mine[i])
			default:
				require.EqualValues(t, own[ids[typ][i]], mine[i])
			}
		}
		times = append(times, mine...)
	}
	if o.TimeAttr == "" {
		require.Empty(t, times)
	} else {
		require.Len(t, times, count)
	}
	for i, e := range g.Edges {
		sources, targets := f.ends(i)
		allowed := f.visible(&o, i, e.Source, times)
		inEdges := f.inEdges(i)
		name := func(of string) string { return types.EdgeName(i, of) }
		ptr, eID, edgeIndex := b.int64s(name("ptr")), b.int64s(name("e_id")), b.int64s(name("edge_index"))
		sampled := of(e.Target, "num_sampled_nodes")
		end, hop := sampled[0], 0
		for target := range int64(len(ptr) - 1) {
			for target >= end {
				hop++
				end += sampled[hop]
			}
			tree, node, want := trees[e.Target][target], ids[e.Target][target], int64(0)
			for _, id := range inEdges[node] {
				if allowed(id, tree) {
					want++
				}
			}
			if k := f.fanouts(o)[i][hop]; k >= 0 && (want > k || o.Replace && want > 0) {
				want = k
			}
			require.Equal(t, want, ptr[target+1]-ptr[target])
			for j := ptr[target]; j < ptr[target+1]; j++ {
				id, source := eID[j], edgeIndex[j]
				if !allowed(id, tree) || trees[e.Source][source] != tree || edgeIndex[int64(len(eID))+j] != target ||
					sources[id] != ids[e.Source][source] || targets[id] != node {
					t.Fatalf("edge %d of relation %d and tree %d, which is the graph's %d", j, i, tree, id)
				}
			}
		}
	}
	type place struct{ tree, node int64 }
	for typ, tensors := range f.nodes {
		places := map[place]bool{}
		for i, v := range ids[typ] {
			places[place{trees[typ][i], v}] = true
		}
		require.Len(t, places, len(ids[typ]), "a node is twice in a tree")
		for _, x := range tensors {
			got, size := b.arrays[types.NodeName(typ, x.Name)], rowBytes(x)
			for i, v := range ids[typ] {
				if !slices.Equal(x.Rows[int(v)*size:][:size], got[i*size:][:size]) {
					t.Fatalf("row %d of %s of type %d is not that of %d", i, x.Name, typ, v)
				}
			}
		}
	}
}

func TestTreesAreRight(t *testing.T) {
	for _, f := range timedForms(newDataset(400, 5000)) {
		g, s := f.graph(t), f.store(t, ssd.OS)
		ways := f.treeOptions()
		for _, name := range some(f, slices.Sorted(maps.Keys(ways))...) {
			explore.Run(t, fmt.Sprint(f, ", ", name), func(t *testing.T) {
				o := f.options()
				o.Seed = explore.Seed(t, 5)
				ways[name](&o)
				o.BatchSize, o.NeighborCache, o.Cache, o.FeatureCache = 50, 0, "belady", f.rooms()[2]
				for _, src := range []draw.Source{g, draw.OpenStore(s)} {
					for _, b := range epochOf(t, open(t, src, o), 0) {
						f.requireTrees(t, g, o, b)
					}
				}
			})
		}
	}
}
