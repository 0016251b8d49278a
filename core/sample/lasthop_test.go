package sample

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// evenTargets needs the lists of even targets.
type evenTargets struct {
	calls int
	err   error
	all   bool
}

func (e *evenTargets) Needed(_ context.Context, _ int, targets []int64, places []int32) ([]int32, error) {
	e.calls++
	for i, v := range targets {
		if e.all || v%2 == 0 {
			places = append(places, int32(i))
		}
	}
	return places, e.err
}

// fetchedTargets keeps the targets of each fetch.
type fetchedTargets struct {
	*testGraph
	targets [][]int64
}

func (f *fetchedTargets) Fetch(ctx context.Context, d Drawn, out []int64) error {
	f.targets = append(f.targets, append([]int64{}, d.Targets...))
	return f.testGraph.Fetch(ctx, d, out)
}

// Lists of the last hop that are not needed are not fetched; the others have the edges of a whole batch.
func TestLastHopFetchesWhatIsNeeded(t *testing.T) {
	g := newTestGraph(800, explore.Seed(t, 3))
	for _, disjoint := range []bool{false, true} {
		f := &fetchedTargets{testGraph: g}
		graph := plainGraph{NumNodes: g.nodes(), Indptr: g.indptr, Adjacency: f}
		cfg := plainConfig{Fanouts: []int64{5, 4}, Disjoint: disjoint}
		seeds := g.seeds(40, 2)
		var whole, sub Subgraph
		require.NoError(t, newWorker(t, graph, cfg, true, 1).Sample(context.Background(), Key{1, 2, 3}, seeds, &whole))
		f.targets = nil
		even, w := &evenTargets{}, newWorker(t, graph, cfg, true, 2)
		require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3}, Request{Seeds: seeds, LastHop: even}, &sub))
		require.Equal(t, 1, even.calls)
		require.Len(t, f.targets, 2)
		require.Equal(t, whole.Ptr, append([]int64{}, sub.Ptr...))
		require.Equal(t, whole.Pos, append([]int64{}, sub.Pos...))
		odd := 0
		for target := range len(sub.Ptr) - 1 {
			v := sub.Nodes[target]
			last := int64(target) >= sub.NodesPerHop[0]
			if odd += int(v % 2); last && v%2 == 0 {
				require.Contains(t, f.targets[1], v)
			} else if last {
				require.NotContains(t, f.targets[1], v)
			}
			for e := sub.Ptr[target]; e < sub.Ptr[target+1]; e++ {
				want := whole.Nodes[whole.Row[e]]
				if last && v%2 == 1 {
					want = seeds[0]
				}
				require.Equal(t, want, sub.Nodes[sub.Row[e]])
			}
		}
		require.Positive(t, odd)

		f.targets = nil
		require.NoError(t, w.Draw(context.Background(), Key{1, 2, 3}, Request{Seeds: seeds, LastHop: &evenTargets{all: true}},
			&sub))
		requireEqual(t, whole, sub)
		failure := errors.New("no turn")
		require.ErrorIs(t, w.Draw(context.Background(), Key{}, Request{Seeds: seeds, LastHop: &evenTargets{err: failure}},
			&sub), failure)
	}
}
