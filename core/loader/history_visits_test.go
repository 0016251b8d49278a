package loader

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// countedVisits is, by layer, how many batches of an epoch have each node within the hops in which the layer is
// computed, on average over epochs of batches without history.
func countedVisits(t *testing.T, src draw.Source, o draw.Options) [][]float64 {
	t.Helper()
	const epochs = 30
	o.History = nil
	l := open(t, src, o)
	types := l.draw.Parts.Schema
	first := types.First[:types.NumTypes()]
	visits := make([][]float64, o.Hops())
	for layer := range visits {
		visits[layer] = make([]float64, l.draw.Parts.NumNodes)
	}
	for epoch := range int64(epochs) {
		for _, b := range epochOf(t, l, 1000+epoch) {
			seen := make([]map[int64]bool, o.Hops())
			for typ, base := range first {
				name := func(of string) string { return types.NodeName(typ, of) }
				ids, hops := b.int64s(name("n_id")), b.int64s(name("num_sampled_nodes"))
				for layer := 1; layer < o.Hops(); layer++ {
					if seen[layer] == nil {
						seen[layer] = map[int64]bool{}
					}
					for _, v := range ids[:draw.Sum(hops[:o.Hops()-layer+1])] {
						if !seen[layer][base+v] {
							seen[layer][base+v] = true
							visits[layer][base+v] += 1. / epochs
						}
					}
				}
			}
		}
	}
	return visits
}

// TestReuseIsWhatBatchesNeed: the policy that weighs rows knows how often batches have a node within the hops of a
// layer, by the weights that they draw by.
func TestReuseIsWhatBatchesNeed(t *testing.T) {
	explore.Figures(t)
	uneven := func(edges int) []byte {
		weights := make([]float32, edges)
		for e := range weights {
			weights[e] = float32(math.Exp(float64(e*7919%1000) / 150))
		}
		return mem.Bytes(weights)
	}
	d, several := newDataset(someNodes, 20_000), severalTypes()
	d.extra = append(d.extra, draw.GraphTensor{Name: "w", DType: manifest.DType_FLOAT32, Rows: uneven(len(d.sources))})
	for _, e := range several.edges {
		if len(e.Tensors) > 0 {
			e.Tensors[1].Rows = uneven(len(e.Tensors[1].Rows) / 4)
		}
	}
	for _, f := range []*form{d.form(""), several} {
		g, o := f.graph(t), f.withHistory(f.options(), history.Performance)
		o.NeighborCache = 0
		uniform := open(t, g, o)
		o.WeightAttr = "w"
		weighted := open(t, g, o)
		onDisk := open(t, draw.OpenStore(f.store(t, ssd.OS)), o)
		byWeight := countedVisits(t, g, o)
		o.WeightAttr = ""
		evenly := countedVisits(t, g, o)
		for layer := 1; layer < o.Hops(); layer++ {
			require.Equal(t, weighted.history.reuse[layer-1].Hotness, onDisk.history.reuse[layer-1].Hotness)
			for _, of := range []struct {
				l           *Loader
				want, other []float64
			}{{weighted, byWeight[layer], evenly[layer]}, {uniform, evenly[layer], byWeight[layer]}} {
				expected, counted := 0., 0.
				for v, n := range of.want {
					expected, counted = expected+float64(of.l.history.reuse[layer-1].Hotness[v]), counted+n
				}
				require.InEpsilon(t, counted, expected, .03)
				own, other := errorOf(of.l, layer, of.want), errorOf(of.l, layer, of.other)
				t.Logf("%s, layer %d: %.0f visits expected, %.0f counted; off by %.3f, from the other draws by %.3f", f, layer,
					expected, counted, own, other)
				require.Less(t, own, .08) // most of it is the error of counting
				require.Less(t, own, other*.75)
			}
		}
	}
}

// errorOf returns the error of expected visits, as a part of the visits.
func errorOf(l *Loader, layer int, counted []float64) float64 {
	off, all := 0., 0.
	for v, n := range counted {
		off, all = off+math.Abs(float64(l.history.reuse[layer-1].Hotness[v])-n), all+n
	}
	return off / all
}
