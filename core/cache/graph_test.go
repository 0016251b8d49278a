package cache

import (
	"context"
	"math/rand/v2"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// graph is an Adjacency in memory. It gives its edges in pieces of a few, so that
// lists are cut anywhere.
type graph struct {
	indptr  []int64
	sources []int64
	piece   int
}

func (g *graph) NumNodes() int64        { return int64(len(g.indptr)) - 1 }
func (g *graph) Indptr() *offsets.Table { return offsets.Of(g.indptr) }

func (g *graph) Scan(ctx context.Context, visit func(int64, []int64) error) error {
	for lo := 0; lo < len(g.sources); lo += g.piece {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := slices.Clone(g.sources[lo:min(lo+g.piece, len(g.sources))])
		if err := visit(int64(lo), part); err != nil {
			return err
		}
		for i := range part {
			part[i] = -1 // it was only valid during the call
		}
	}
	return nil
}

// newGraph sorts edges by target, keeping their order, as conversion does.
func newGraph(numNodes int, edges [][2]int64, piece int) *graph {
	g := &graph{indptr: make([]int64, numNodes+1), sources: make([]int64, len(edges)), piece: piece}
	for _, e := range edges {
		g.indptr[e[1]+1]++
	}
	for v := range numNodes {
		g.indptr[v+1] += g.indptr[v]
	}
	at := slices.Clone(g.indptr)
	for _, e := range edges {
		g.sources[at[e[1]]] = e[0]
		at[e[1]]++
	}
	return g
}

func (g *graph) sourcesOf(v int64) []int64 { return g.sources[g.indptr[v]:g.indptr[v+1]] }

// rmat is R-MAT with the parameters of Graph500: both degrees follow power laws.
func rmat(rng *rand.Rand, scale, edges int) *graph {
	list := make([][2]int64, edges)
	for i := range list {
		for range scale {
			bit := int64(0)
			switch r := rng.Float64(); {
			case r < 0.57:
			case r < 0.76:
				bit = 1
			case r < 0.95:
				bit = 2
			default:
				bit = 3
			}
			list[i][0] = list[i][0]<<1 | bit&1
			list[i][1] = list[i][1]<<1 | bit>>1
		}
	}
	return newGraph(1<<scale, list, 1000)
}

// communities is symmetric: four of five edges stay within a community of size
// nodes, and degrees are skewed a little.
func communities(rng *rand.Rand, numNodes, pairs, size int) *graph {
	list := make([][2]int64, 0, 2*pairs)
	groups := numNodes / size
	skewed := func(n int) int { f := rng.Float64(); return int(f * f * float64(n)) }
	for range pairs {
		a := skewed(numNodes)
		b := skewed(numNodes)
		if rng.IntN(5) > 0 {
			b = min(skewed(numNodes/groups)*groups+a%groups, numNodes-1)
		}
		list = append(list, [2]int64{int64(a), int64(b)}, [2]int64{int64(b), int64(a)})
	}
	return newGraph(numNodes, list, 1000)
}

// drawn holds the parameters of draws in a graph with one relation.
type drawn struct {
	Seeds     []int64
	BatchSize int64
	Fanouts   []int64
	Replace   bool
	Weights   Weights
}

// expected is Expected of a graph with one relation.
func expected(ctx context.Context, budget *mem.Budget, g Adjacency, s drawn) (*Vector, error) {
	all := Relation{Edges: g, NumSources: g.NumNodes(), Fanouts: s.Fanouts, Weights: s.Weights}
	of := Sampling{Seeds: s.Seeds, BatchSize: s.BatchSize, Replace: s.Replace}
	return Expected(ctx, budget, g.NumNodes(), []Relation{all}, of)
}
