package history

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/sample"
)

func one(int64) float32 { return 1 }

func roomForSaves(o *Pruned) (saves [][]float32) {
	for l := 1; l < len(o.Levels); l++ {
		saves = append(saves, make([]float32, len(o.Levels[l].Computed)))
	}
	return saves
}

// chain is a batch of two layers: seed 0 reads 1 and 2, 1 reads 3 and 4, 2 reads 4 twice.
func chain() *sample.Subgraph {
	return &sample.Subgraph{
		Nodes: []int64{10, 11, 12, 13, 14}, Ptr: []int64{0, 2, 4, 6}, Row: []uint32{1, 2, 3, 4, 4, 4},
		Pos:         []int64{0, 1, 2, 3, 4, 5},
		NodesPerHop: []int64{1, 2, 2}, EdgesPerHop: []int64{2, 4},
	}
}

func TestSavesByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		hit  map[int64]bool // nodes that layer 1 need not compute
		free map[int64]bool // nodes cached as features
		want []float32      // of nodes 10, 11, 12 or those of them that are computed
	}{
		// Node 11 is used by 10 and itself, and so is 12; 14 once by 11 and twice by 12. Without hits only what one row
		// alone needs counts.
		{"all computed", nil, nil, []float32{1, 1, 0}},
		{"leaf cached", nil, map[int64]bool{14: true}, []float32{1, 1, 0}},
		{"all cached", nil, map[int64]bool{10: true, 11: true, 12: true, 13: true, 14: true}, []float32{0, 0, 0}},
		// Without 12's list 14 is 11's alone; 12 is still a source of 10. Another row is a hit with a chance of 1/3.
		{"a hit", map[int64]bool{12: true}, nil, []float32{1 + 1./3 + 1, 1./3 + 1 + 1}},
		{"a hit, leaf cached", map[int64]bool{12: true}, map[int64]bool{14: true}, []float32{1 + 1./3 + 1, 1./3 + 1}},
		// 11 and 12 are the seed's no more, and 14 has three uses.
		{"the seed a hit", map[int64]bool{10: true}, nil, []float32{1 + 1 + 1./9, 1 + 2./9}},
		{"all hit", map[int64]bool{10: true, 11: true, 12: true}, nil, []float32{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, out := newPruner(t)
			require.NoError(t, p.Prune(chain(), 1, Each(func(_ int, node int64) int32 {
				if c.hit[node] {
					return 7
				}
				return Miss
			}), out))
			saves := roomForSaves(out)
			require.NoError(t, p.Saves(out, func(node int64) float32 {
				if c.free[node] {
					return 0
				}
				return 1
			}, saves))
			require.Len(t, saves, 1)
			require.InDeltaSlice(t, c.want, saves[0], 1e-6)
		})
	}
}

// The rule, followed for each row by itself over the list of its uses.
func TestSavesAreTheRule(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup single) {
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], Each(lookup), out))
		cost := func(node int64) float32 { return float32(rand.New(rand.NewPCG(9, uint64(node))).IntN(2)) }
		saves := roomForSaves(out)
		require.NoError(t, p.Saves(out, cost, saves))
		value := make([]float64, len(out.Levels[0].Nodes))
		for i, v := range out.Levels[0].Nodes {
			value[i] = float64(cost(out.Graph.Nodes[v]))
		}
		for l, got := range saves {
			layer, level := &out.Layers[l], &out.Levels[l+1]
			users := make([][]int, len(value)) // once for each use
			for i := range got {
				users[i] = append(users[i], i)
				for _, u := range layer.Source[layer.Ptr[i]:layer.Ptr[i+1]] {
					users[u] = append(users[u], i)
				}
			}
			chance := float64(len(level.Hits)) / float64(len(level.Hits)+len(level.Computed))
			parts := make([]float64, len(got))
			for s, list := range users {
				for x, i := range list {
					part := value[s]
					for y := range list {
						if y != x {
							part *= chance
						}
					}
					parts[i] += part
				}
			}
			value = make([]float64, len(level.Nodes))
			for i, want := range parts {
				require.InEpsilon(t, 1+want, 1+float64(got[i]), 1e-4)
				value[level.Computed[i]] = want
			}
		}
	})
}

// TestSavesAreNeverTooManyAtFirst: without hits, one more saves at least what was estimated. The truth is found by
// pruning again.
func TestSavesAreNeverTooManyAtFirst(t *testing.T) {
	p, out := newPruner(t)
	loaded := func(o *Pruned) (n int) { return len(o.Levels[0].Nodes) }
	positive := 0
	cases(t, func(t *testing.T, g *sample.Subgraph, _ single) {
		seeds := g.NodesPerHop[0]
		require.NoError(t, p.Prune(g, seeds, Each(misses), out))
		saves, before := roomForSaves(out), loaded(out)
		require.NoError(t, p.Saves(out, one, saves))
		type entry struct {
			layer int
			node  int64
			saves float32
		}
		var entries []entry
		for l, level := range out.Levels[1:] {
			rows := map[int64]int{}
			for _, at := range level.Computed {
				rows[out.Graph.Nodes[level.Nodes[at]]]++
			}
			for i, at := range level.Computed {
				if node := out.Graph.Nodes[level.Nodes[at]]; rows[node] == 1 { // repeated seeds are hits together
					entries = append(entries, entry{l + 1, node, saves[l][i]})
				}
			}
		}
		for x := 0; x < len(entries); x += 1 + len(entries)/20 {
			e := entries[x]
			require.NoError(t, p.Prune(g, seeds, Each(func(layer int, node int64) int32 {
				if layer == e.layer && node == e.node {
					return 0
				}
				return Miss
			}), out))
			require.LessOrEqual(t, e.saves, float32(before-loaded(out)), "layer %d, node %d", e.layer, e.node)
			if e.saves > 0 {
				positive++
			}
		}
	})
	require.Greater(t, positive, 100)
}

func TestSavesNeedTheirRoom(t *testing.T) {
	p, out := newPruner(t)
	require.NoError(t, p.Prune(chain(), 1, Each(misses), out))
	require.Panics(t, func() { _ = p.Saves(out, one, nil) })
	require.Panics(t, func() { _ = p.Saves(out, one, [][]float32{make([]float32, 2)}) })
}
