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
	g := newTestGraph(1500, explore.Seed(t, 7))
	configs := []plainConfig{
		{Fanouts: []int64{15, 10, 5}},
		{Fanouts: []int64{10, 10, 10}, Replace: true},
		{Fanouts: []int64{1, 1, 1}},
		{Fanouts: []int64{-1, 2}},
		{Fanouts: []int64{3, -1}, Replace: true},
		{Fanouts: []int64{32, 33, 64}}, // both sides of scanLimit
		{Fanouts: []int64{700}},        // hubs exceed it
		{Fanouts: []int64{1 << 40}},    // "all", as a large number
		{Fanouts: []int64{5, 5, 5, 5}},
	}
	batches := []struct {
		name  string
		seeds []int64
	}{
		{"one hub", []int64{97}},
		{"one isolated or not", []int64{1}},
		{"none", nil},
		{"repeated", []int64{97, 5, 97, 5, 5, 1499, 0, 0}},
		{"many", g.seeds(300, 3)}, // with repetitions
	}
	for _, cfg := range configs {
		for form, graph := range g.forms() {
			for _, stamp := range []bool{true, false} {
				for _, threads := range []int{1, 2, 8} {
					t.Run(fmt.Sprintf("%v/%s/stamp=%v/threads=%d", cfg, form, stamp, threads), func(t *testing.T) {
						w := newWorker(t, graph, cfg, stamp, threads)
						for i, b := range batches {
							key := Key{Seed: explore.Seed(t, 1), Epoch: 2, Batch: uint64(i)}
							var got Subgraph
							require.NoError(t, w.Sample(context.Background(), key, b.seeds, &got), b.name)
							requireEqual(t, reference(g.indptr, g.wide, cfg, key, b.seeds), got)
						}
					})
				}
			}
		}
	}
}
