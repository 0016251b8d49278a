package history

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/rows"
	"freshgo/core/sample"
)

// million is the batch of the paper's setting, 1000 seeds and fanouts 20, 15, 10, of a random graph of 1 M nodes, and
// what draws the next one like it.
func million(b *testing.B) (next func() *sample.Subgraph) {
	const nodes, degree = 1_000_000, 20
	budget := mem.NewBudget(0)
	indptrs, err := budget.Alloc(mem.Topology, (nodes+1)*8)
	require.NoError(b, err)
	b.Cleanup(indptrs.Free)
	sources, err := budget.Alloc(mem.Topology, nodes*degree*4)
	require.NoError(b, err)
	b.Cleanup(sources.Free)
	indptr, indices := mem.Slice[int64](indptrs), mem.Slice[int32](sources)
	rng := rand.New(rand.NewPCG(1, 2))
	for v := range indptr {
		indptr[v] = int64(v) * degree
	}
	for i := range indices {
		indices[i] = rng.Int32N(nodes)
	}
	sampler, err := sample.New(homogeneous(nodes, indptr, indices), sample.Config{Fanouts: [][]int64{{20, 15, 10}}})
	require.NoError(b, err)
	worker, err := sampler.NewWorker(budget, true, 1)
	require.NoError(b, err)
	b.Cleanup(worker.Close)
	seeds := make([]int64, 1000)
	key := sample.Key{Seed: 1}
	g := new(sample.Subgraph)
	return func() *sample.Subgraph {
		for i := range seeds {
			seeds[i] = rng.Int64N(nodes)
		}
		key.Batch++
		require.NoError(b, worker.Sample(context.Background(), key, seeds, g))
		return g
	}
}

// busy is the processor time of this process: others on the machine do not count.
func busy(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Pruning beside sampling the same batch and gathering its rows of 128 float32, for shares of the rows that the history
// has. ns/edge is processor time by edges drawn; prune/sample and saves/sample are its ratios to sampling, prune/plain
// that to sampling and gathering the plain batch, decide/prune the share of Decide; left is what remains of the edges,
// and loaded of the rows.
func BenchmarkPrune(b *testing.B) {
	const nodes, rowBytes = 1_000_000, 512
	next := million(b)
	budget := mem.NewBudget(0)
	features, err := budget.Alloc(mem.FeatureCache, nodes*rowBytes)
	require.NoError(b, err)
	defer features.Free()
	batch, err := budget.Alloc(mem.Batch, nodes*rowBytes)
	require.NoError(b, err)
	defer batch.Free()
	for i := 0; i < nodes*rowBytes; i += 4096 {
		features.Bytes()[i], batch.Bytes()[i] = 1, 1 // a page each, so that none is touched for the first time below
	}
	for _, c := range []struct {
		name     string
		fraction uint64 // of 256
	}{{"none", 0}, {"half", 128}, {"nine-tenths", 230}} {
		b.Run(c.name, func(b *testing.B) {
			p, out := NewPruner(budget), new(Pruned)
			defer p.Close()
			defer out.Free()
			slots := make([]int32, nodes) // one for both layers: what matters is that its misses are as a history's
			for v := range slots {
				slots[v] = Miss
				if rand.New(rand.NewPCG(3, uint64(v))).Uint64()%256 < c.fraction {
					slots[v] = int32(v)
				}
			}
			lookup := func(_ int, node int64) int32 { return slots[node] }
			cost := func(node int64) float32 { return float32(node & 1) }
			var sampling, gathering, deciding, pruning, saving time.Duration
			var edges, left, drawn, loaded int
			round := func() {
				start := busy(b)
				g := next()
				sampled := busy(b)
				require.NoError(b, p.Decide(g, 1000, Each(lookup), out))
				decided := busy(b)
				p.Build(g, out)
				pruned := busy(b)
				deciding += decided - sampled
				saves := roomForSaves(out)
				estimate := busy(b)
				require.NoError(b, p.Saves(out, cost, saves))
				saved := busy(b)
				rows.Gather(batch.Bytes()[:len(g.Nodes)*rowBytes], features.Bytes(), rowBytes, g.Nodes)
				gathering += busy(b) - saved
				saving += saved - estimate
				pruning += pruned - sampled
				sampling += sampled - start
				edges, left = edges+len(g.Row), left+len(out.Graph.Row)
				drawn, loaded = drawn+len(g.Nodes), loaded+len(out.Loaded)
			}
			round()
			sampling, gathering, deciding, pruning, saving = 0, 0, 0, 0, 0
			edges, left, drawn, loaded = 0, 0, 0, 0
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(pruning.Nanoseconds())/float64(edges), "prune-ns/edge")
			b.ReportMetric(float64(saving.Nanoseconds())/float64(edges), "saves-ns/edge")
			b.ReportMetric(float64(sampling.Nanoseconds())/float64(edges), "sample-ns/edge")
			b.ReportMetric(float64(pruning)/float64(sampling), "prune/sample")
			b.ReportMetric(float64(saving)/float64(sampling), "saves/sample")
			b.ReportMetric(float64(pruning)/float64(sampling+gathering), "prune/plain")
			b.ReportMetric(float64(deciding)/float64(pruning), "decide/prune")
			b.ReportMetric(float64(left)/float64(edges), "left")
			b.ReportMetric(float64(loaded)/float64(drawn), "loaded")
		})
	}
}
