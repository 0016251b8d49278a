package main

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"freshgo/core/mem"
)

// newGraph returns a graph of about the given number of edges, in huge pages: in-degrees follow a power law with
// exponent 2.5, sources are drawn with density proportional to rank^-1/2 and ranks are scattered over the ids.
func newGraph(budget *mem.Budget, nodes, edges int64) ([]int64, []int32, error) {
	block, err := budget.Alloc(mem.Topology, 8*(nodes+1))
	if err != nil {
		return nil, nil, err
	}
	indptr := mem.Slice[int64](block)
	rng := rand.New(rand.NewPCG(1, 2))
	// The mean of max(1, x^(-2/3)) for uniform x, 3, is stretched to the wished one.
	stretch := float64(edges) / float64(nodes) / 3
	for v := range nodes {
		deg := stretch * math.Pow(1-rng.Float64(), -2./3)
		indptr[v+1] = indptr[v] + min(int64(deg+rng.Float64()), nodes/10)
	}
	if block, err = budget.Alloc(mem.Topology, 4*indptr[nodes]); err != nil {
		return nil, nil, err
	}
	indices := mem.Slice[int32](block)
	for i := range indices {
		x := rng.Float64()
		rank := uint64(float64(nodes) * x * x)
		hi, _ := bits.Mul64(rank*0x9e3779b97f4a7c15, uint64(nodes)) // not one to one, which does no harm
		indices[i] = int32(hi)
	}
	return indptr, indices, nil
}
