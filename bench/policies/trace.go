package main

import (
	"context"
	"math/rand/v2"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// trace is the batches of an epoch.
type trace []plan.Batch

func (t trace) accesses() (n int) {
	for _, b := range t {
		n += len(b)
	}
	return n
}

// chooseSeeds draws distinct nodes, or takes all where there are fewer.
func chooseSeeds(g *graph, count int) []int64 {
	rng := rand.New(rand.NewPCG(3, 3))
	seeds := make([]int64, 0, count)
	for _, v := range rng.Perm(int(g.NumNodes()))[:min(count, int(g.NumNodes()))] {
		seeds = append(seeds, int64(v))
	}
	return seeds
}

// epoch samples an epoch with shuffled seeds.
func epoch(g *graph, s draws, number uint64) (trace, error) {
	sampler, err := sample.New(g.sampled(), sample.Config{Fanouts: [][]int64{s.Fanouts}, Replace: s.Replace})
	if err != nil {
		return nil, err
	}
	worker, err := sampler.NewWorker(mem.NewBudget(0), true, 1)
	if err != nil {
		return nil, err
	}
	defer worker.Close()
	ctx := context.Background()
	seeds := append([]int64(nil), s.Seeds...)
	if err := sample.Shuffle(ctx, seeds, 1, number); err != nil {
		return nil, err
	}
	var t trace
	var out sample.Subgraph
	for lo := 0; lo < len(seeds); lo += int(s.BatchSize) {
		batch := seeds[lo:min(lo+int(s.BatchSize), len(seeds))]
		if err := worker.Sample(ctx, sample.Key{Seed: 1, Epoch: number, Batch: uint64(len(t))}, batch, &out); err != nil {
			return nil, err
		}
		rows := make(plan.Batch, len(out.Nodes))
		for i, v := range out.Nodes {
			rows[i] = uint32(v)
		}
		t = append(t, rows)
	}
	return t, nil
}
