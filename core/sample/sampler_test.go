package sample

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// Every way of drawing a batch gives what the reference gives, batch after batch from the same Worker.
func TestSampleEqualsReference(t *testing.T) {
	plain := []Config{
		{Fanouts: [][]int64{{15, 10, 5}}},
		{Fanouts: [][]int64{{10, 10, 10}}, Replace: true},
		{Fanouts: [][]int64{{1, 1, 1}}},
		{Fanouts: [][]int64{{-1, 2}}},
		{Fanouts: [][]int64{{3, -1}}, Replace: true},
		{Fanouts: [][]int64{{32, 33, 64}}}, // both sides of scanLimit
		{Fanouts: [][]int64{{700}}},        // hubs exceed it
		{Fanouts: [][]int64{{1 << 40}}},    // "all", as a large number
		{Fanouts: [][]int64{{5, 5, 5, 5}}},
	}
	configs := map[string][]Config{
		"no types": plain,
		"one type": plain[:3],
		"several types": {
			{Fanouts: fanouts([]int64{15, 10, 5}, nil)},
			{Fanouts: fanouts([]int64{4, 4, 4}, nil), Replace: true},
			{Fanouts: fanouts([]int64{-1, 2}, map[int][]int64{1: {0, 3}, 4: {5, 0}, 5: {0, 0}})},
			{Fanouts: fanouts([]int64{0, 0}, map[int][]int64{1: {2, 2}, 2: {40, 33}})},
			{Fanouts: fanouts([]int64{1}, nil)},
			{Fanouts: fanouts([]int64{1 << 40}, nil)},
			{Fanouts: fanouts([]int64{}, nil)},
		},
	}
	for name, g := range testForms(1500, explore.Seed(t, 7)) {
		batches := map[string][][]int64{
			"one hub": {{97}}, "one isolated or not": {{1}}, "none": {nil}, "repeated": {{97, 5, 97, 5, 5, 1499, 0, 0}},
			"many": g.someSeeds(300, 3), // with repetitions
		}
		if len(g.nodes) > 1 {
			batches = map[string][][]int64{
				"one type": {{97, 3}, nil, nil, nil, nil}, "another": {nil, nil, {7}, nil, nil},
				"apart": {nil, nil, nil, nil, {1, 2}}, "none": make([][]int64, 5),
				"repeated": {{97, 5, 97, 5}, {97, 97, 1}, nil, nil, {0, 0}}, "many": g.someSeeds(150, 3),
			}
		}
		for c, cfg := range configs[name] {
			wants := map[string]cutBatch{}
			key := func(batch string) Key { return Key{Seed: explore.Seed(t, 1), Epoch: 2, Batch: uint64(len(batch))} }
			for batch, seeds := range batches {
				wants[batch] = g.reference(cfg, key(batch), seeds, nil, nil)
			}
			for form := range 3 {
				for _, threads := range []int{1, 2, 8} {
					for _, stamp := range []bool{true, false} {
						variant := fmt.Sprintf("%s/%d/form=%d/stamp=%v/threads=%d", name, c, form, stamp, threads)
						explore.Run(t, variant, func(t *testing.T) {
							w := newTypesWorker(t, g.form(form), cfg, stamp, threads)
							for batch, seeds := range batches {
								var got cutBatch
								require.NoError(t, w.Sample(context.Background(), key(batch), seeds, &got), batch)
								requireCutEqual(t, wants[batch], got)
							}
						})
					}
				}
			}
		}
	}
}
