package history

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// BenchmarkUpdate: a lookup and an update of the paper's setting, 150,000 rows of layer 1 and 20,000 of layer 2 of a
// graph of 1 M nodes, whose popularity is skewed, in a buffer for 400,000 embeddings. ns/row is by rows looked up.
func BenchmarkUpdate(b *testing.B) {
	const nodes = 1_000_000
	for _, policy := range policies {
		b.Run(policy, func(b *testing.B) {
			c := Config{NumNodes: nodes, Layers: 2, Bytes: 400_000 * 1024, Stale: 200, GradFraction: 0.9, Policy: policy}
			c.Reuse = func(layer int, node int64) float32 { return 100 / float32(node+100) }
			h, err := New(mem.NewBudget(0), c)
			require.NoError(b, err)
			defer h.Close()
			require.NoError(b, h.SetRow(1024))
			rng := rand.New(rand.NewPCG(1, 1))
			layers, out, rows, i := make([]Observed, 2), make([]Admitted, 2), int64(0), int64(0)
			var hits, found []int32
			seen := make([]int64, nodes)
			for b.Loop() {
				b.StopTimer()
				needed := [][]int64{nil, nil}
				for l, n := range []int{150_000, 20_000} {
					for range n {
						x := rng.Float64()
						if node := int64(nodes * x * x); seen[node] <= 2*i+int64(l) {
							seen[node] = 2*i + int64(l) + 1
							needed[l] = append(needed[l], node)
						}
					}
				}
				b.StartTimer()
				hits = hits[:0]
				lookups := NewLookups(len(layers))
				for l := range layers {
					o := &layers[l]
					o.Nodes, o.HitNodes = o.Nodes[:0], o.HitNodes[:0]
					found = slices.Grow(found[:0], len(needed[l]))[:len(needed[l])]
					h.Lookup(i, l+1, needed[l], found, lookups)
					for k, node := range needed[l] {
						if slot := found[k]; slot == Miss {
							o.Nodes = append(o.Nodes, node)
						} else {
							o.HitNodes, hits = append(o.HitNodes, node), append(hits, slot)
						}
					}
					rows += int64(len(needed[l]))
				}
				h.Count(lookups)
				h.Pin(i, hits)
				b.StopTimer()
				for l := range layers {
					o := &layers[l]
					o.Norms, o.HitNorms, o.Saves = o.Norms[:0], o.HitNorms[:0], o.Saves[:0]
					for range o.Nodes {
						o.Norms, o.Saves = append(o.Norms, rng.Float32()), append(o.Saves, 10*rng.Float32())
					}
					for range o.HitNodes {
						o.HitNorms = append(o.HitNorms, rng.Float32())
					}
				}
				b.StartTimer()
				require.NoError(b, h.Update(i, layers, out))
				h.Unpin(i)
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
			b.ReportMetric(float64(rows)/float64(i), "rows")
		})
	}
}
