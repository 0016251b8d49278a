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
		Nodes: []int64{10, 11, 12, 13, 14}, Ptr: []int64{0, 2, 4, 6}, Row: []uint32{1, 2, 3, 4, 4, 4}, Pos: []int64{0, 1, 2, 3, 4, 5},
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
		// Node 11 is used by 10 and itself, and so is 12; 14 once by 11 and twice by 12.
		{"all computed", nil, nil, []float32{1 + 0.5 + 0.5, 0.5 + 1 + 1./3, 0.5 + 2./3}},
		{"leaf cached", nil, map[int64]bool{14: true}, []float32{2, 1.5, 0.5}},
		{"all cached", nil, map[int64]bool{10: true, 11: true, 12: true, 13: true, 14: true}, []float32{0, 0, 0}},
		// Without 12's list 14 is 11's alone; 12 is still a source of 10.
		{"a hit", map[int64]bool{12: true}, nil, []float32{1 + 0.5 + 1, 0.5 + 1 + 1}},
		{"the seed a hit", map[int64]bool{10: true}, nil, []float32{1 + 1 + 1./3, 1 + 2./3}},
		{"all hit", map[int64]bool{10: true, 11: true, 12: true}, nil, []float32{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, out := newPruner(t)
			require.NoError(t, p.Prune(chain(), 1, func(_ int, node int64) int32 {
				if c.hit[node] {
					return 7
				}
				return Miss
			}, out))
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

// Of three layers in a line, the row of layer 2 is given what its own row and its source's of layer 1 were.
func TestSavesOfTwoLayers(t *testing.T) {
	p, out := newPruner(t)
	line := &sample.Subgraph{
		Nodes: []int64{0, 1, 2, 3}, Ptr: []int64{0, 1, 2, 3}, Row: []uint32{1, 2, 3}, Pos: []int64{0, 1, 2},
		NodesPerHop: []int64{1, 1, 1, 1}, EdgesPerHop: []int64{1, 1, 1},
	}
	require.NoError(t, p.Prune(line, 1, misses, out))
	saves := roomForSaves(out)
	require.NoError(t, p.Saves(out, one, saves))
	// Level 0: 0 is used by 0; 1 by 0 and 1; 2 by 1 and 2; 3 by 2. Level 1: 0 by 0; 1 by 0 and 1; 2 by 1.
	require.Equal(t, [][]float32{{1.5, 1, 1.5}, {1.5 + 0.5, 0.5 + 1.5}}, saves)
}

// Every layer's saves sum up to the cost of all rows of level 0 that its rows descend from: without hits all of it, and never
// more. The reference follows each row's cost up by itself.
func TestSavesSumUpToCosts(t *testing.T) {
	p, out := newPruner(t)
	cases(t, func(t *testing.T, g *sample.Subgraph, lookup Lookup) {
		require.NoError(t, p.Prune(g, g.NodesPerHop[0], lookup, out))
		cost := func(node int64) float32 { return float32(rand.New(rand.NewPCG(9, uint64(node))).IntN(2)) }
		saves := roomForSaves(out)
		require.NoError(t, p.Saves(out, cost, saves))
		total, sources := 0.0, 0
		value := make([]float64, len(out.Levels[0].Nodes))
		for i, v := range out.Levels[0].Nodes {
			value[i] = float64(cost(out.Graph.Nodes[v]))
			total += value[i]
		}
		for l, got := range saves {
			layer, level := &out.Layers[l], &out.Levels[l+1]
			sources += len(layer.Source)
			parts := make([]float64, len(got))
			for s, whole := range value {
				var users []int // once for each use
				for i := range parts {
					if s == i {
						users = append(users, i)
					}
					for _, u := range layer.Source[layer.Ptr[i]:layer.Ptr[i+1]] {
						if int(u) == s {
							users = append(users, i)
						}
					}
				}
				for _, i := range users {
					parts[i] += whole / float64(len(users))
				}
			}
			value = make([]float64, len(level.Nodes))
			gotTotal := 0.0
			for i, want := range parts {
				require.InDelta(t, want, float64(got[i]), 1e-4)
				require.GreaterOrEqual(t, got[i], float32(0))
				value[level.Computed[i]] = want
				gotTotal += float64(got[i])
			}
			// Every term is rounded a few times to 24 bits.
			require.InDelta(t, total, gotTotal, float64(1+sources)*total/(1<<23)+1e-12)
		}
	})
}

func TestSavesNeedTheirRoom(t *testing.T) {
	p, out := newPruner(t)
	require.NoError(t, p.Prune(chain(), 1, misses, out))
	require.Panics(t, func() { _ = p.Saves(out, one, nil) })
	require.Panics(t, func() { _ = p.Saves(out, one, [][]float32{make([]float32, 2)}) })
}
