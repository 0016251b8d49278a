package loader

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/packed"
	"freshgo/core/ssd"
)

// withNodeTimes gives the nodes of a form without types times "when".
func (f *form) withNodeTimes(dtype manifest.DType, time func(v int64) int64) *form {
	var rows []byte
	for v := range f.counts[0] {
		one := time(v)
		rows = append(rows, mem.Bytes([]int64{one})[:dtype.Size()]...)
	}
	f.nodes[0] = append(f.nodes[0], draw.GraphTensor{Name: "when", DType: dtype, Rows: rows})
	return f
}

// nodeTimes are times of nodes.
type nodeTimes struct {
	dtype manifest.DType
	bytes int64   // that each takes in memory
	other []int64 // the times of two nodes of three; a third has times from 0 to 99
	exact bool    // float64, and so requireTrees, has them all
}

func (c nodeTimes) time(v int64) int64 {
	if c.other != nil && v%3 != 0 {
		return c.other[v%3-1]
	}
	return v * 7919 % 100
}

var timesOfNodes = map[string]nodeTimes{
	"int8":                {manifest.DType_INT8, 4, []int64{-128, 127}, true},
	"int16":               {manifest.DType_INT16, 4, []int64{math.MinInt16, math.MaxInt16}, true},
	"int32":               {manifest.DType_INT32, 4, []int64{math.MinInt32, math.MaxInt32}, true},
	"uint8":               {manifest.DType_UINT8, 4, []int64{0, 255}, true},
	"uint16":              {manifest.DType_UINT16, 4, []int64{0, math.MaxUint16}, true},
	"uint32":              {manifest.DType_UINT32, 4, []int64{0, math.MaxUint32}, true},
	"int64":               {manifest.DType_INT64, 4, nil, true},
	"int64, 2^32-1 apart": {manifest.DType_INT64, 4, []int64{-7, math.MaxUint32 - 7}, true},
	"int64, 2^32 apart":   {manifest.DType_INT64, 8, []int64{-7, math.MaxUint32 - 6}, true},
	"int64, all":          {manifest.DType_INT64, 8, []int64{math.MinInt64, math.MaxInt64}, false},
}

// Times of nodes take four bytes each, or eight where they are far apart, wherever neighbour lists are; and batches do
// not depend on where either is.
func TestTimesOfNodesInMemory(t *testing.T) {
	const nodes, edges = 700, 9000
	for name, c := range timesOfNodes {
		explore.Run(t, name, func(t *testing.T) {
			d := newDataset(nodes, edges)
			for e := 0; e < edges; e += 50 {
				d.targets[e] = 7 // a hub
			}
			f := d.form("").withNodeTimes(c.dtype, c.time)
			g, s := f.graph(t), f.store(t, ssd.OS)
			base, other := f.options(), relaid(t, s, "hot")
			base.Seed, base.TimeAttr, base.Disjoint = explore.Seed(t, 5), "when", true
			want := epochOf(t, open(t, g, base), 0)
			for _, b := range want {
				if c.exact {
					f.requireTrees(t, g, base, b)
				}
			}
			held, long, inOrder := c.bytes*nodes, int64(4*nodes), int64(12*edges)
			lists := 4*edges + packed.Bytes(edges, packed.Width(edges)) // trees read neighbours that are not packed
			for what, place := range map[string]struct {
				neighbors, least, most int64 // bytes of the times
				relaid                 bool
			}{
				"all in memory":               {draw.Auto, inOrder, inOrder, false},
				"nothing in memory":           {0, 0, 0, false},
				"a byte less":                 {held - 1, 0, 0, false},
				"times":                       {held, held, held, false},
				"times and some lists":        {held + 4*edges, held, held, false},
				"times and lists":             {held + lists, held, held, false},
				"times, lists and order":      {held + lists + long, held + 1, held + long, false},
				"lists and times in order":    {held + lists + inOrder, inOrder, inOrder, false},
				"relaid, all in memory":       {draw.Auto, inOrder, inOrder, true},
				"relaid, times":               {2 * held, held, held, true},
				"relaid, times, lists, order": {held + lists + long, held + 1, held + long, true},
				"relaid, a byte less":         {2*held - 1, 0, 0, true},
			} {
				of := s
				if place.relaid {
					of = other
				}
				o, apart := base, base
				o.NeighborCache, apart.NeighborCache = place.neighbors, place.neighbors
				apart.TimeAttr = ""
				l := open(t, draw.OpenStore(of), o)
				requireSame(t, want, epochOf(t, l, 0))
				without := open(t, draw.OpenStore(of), apart)
				topology := func(l *Loader) int64 { return l.Stats().MemoryByPurpose["topology"] }
				used := topology(l) - topology(without) - 8*nodes // of the seeds
				require.GreaterOrEqual(t, used, place.least, what)
				require.LessOrEqual(t, used, place.most, what)
			}
		})
	}
}

// A loader with room for times of nodes alone reads less than one without.
func TestTimesOfNodesSaveReads(t *testing.T) {
	f := newDataset(20_000, 200_000).form("")
	f.withNodeTimes(manifest.DType_INT64, func(v int64) int64 { return v % 1000 })
	s := f.store(t, ssd.OS)
	base := f.options()
	base.TimeAttr, base.BatchSize, base.Cache, base.FeatureCache = "when", 200, "none", 0
	var bytes []int64
	for _, neighbors := range []int64{0, 4 * 20_000} {
		o := base
		o.NeighborCache = neighbors
		l := open(t, draw.OpenStore(s), o)
		before := l.Stats().BytesRead
		require.NoError(t, l.Start(0, 0, Trace))
		require.NotEmpty(t, rest(t, l))
		bytes = append(bytes, l.Stats().BytesRead-before)
	}
	require.Less(t, bytes[1], bytes[0]*9/10, fmt.Sprint(bytes))
}

// Beside a graph in memory times of edges in order take what memory there is, and times of nodes what is needed.
func TestTimesBesideGraphsInMemory(t *testing.T) {
	f := newDataset(3000, 200_000).form("")
	f.withNodeTimes(manifest.DType_INT64, func(v int64) int64 { return v % 1000 })
	g := f.graph(t)
	o := f.options()
	o.TimeAttr, o.Spare, o.Fanouts, o.BatchSize, o.Workers, o.Prefetch = "when", true, []int64{3, 2}, 8, 1, 0
	o.Seeds = []int64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3}
	want := epochOf(t, open(t, g, o), 0)
	o.Memory = 1
	parts := g.Parts()
	least := leastMemory(t, g, o) - g.Budget.Used()
	require.Less(t, least, 12*parts.NumEdges)
	inOrder := map[bool]int{}
	for o.Memory = least; o.Memory < least+16*parts.NumEdges; o.Memory += 100_000 {
		l := open(t, g, o)
		requireSame(t, want, epochOf(t, l, 0))
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory+g.Budget.Used())
		inOrder[l.draw.Split.TimesInOrder]++
	}
	require.Positive(t, inOrder[false])
	require.Positive(t, inOrder[true])
}
