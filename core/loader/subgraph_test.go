package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// subgraphOptions are run in all places by TestSamplersAgreeEverywhere.
func subgraphOptions() map[string]func(o *draw.Options) {
	return map[string]func(o *draw.Options){
		"bidirectional": func(o *draw.Options) { o.Subgraph = sample.Bidirectional },
		"induced":       func(o *draw.Options) { o.Subgraph = sample.Induced },
	}
}

// Rows of edge tensors belong to the edges' numbers, and every batch has the same tensors.
func TestTensorsOfSubgraphs(t *testing.T) {
	d := newDataset(500, 6000)
	for name, change := range subgraphOptions() {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Transpose = true
			change(&o)
			for _, b := range epochOf(t, open(t, d.graph(t), o), 0) {
				require.NotContains(t, b.arrays, "num_sampled_nodes")
				require.NotContains(t, b.arrays, "num_sampled_edges")
				require.Equal(t, b.shapes["n_id"][0]+1, b.shapes["ptr"][0])
				require.Equal(t, b.shapes["edge_index"][1:], b.shapes["e_id"])
				ids, edges := mem.View[int64](b.arrays["n_id"]), mem.View[int64](b.arrays["edge_index"])
				numbers := mem.View[int64](b.arrays["e_id"])
				for i, e := range numbers {
					source, target := ids[edges[i]], ids[edges[len(numbers)+i]]
					forward := source == d.sources[e] && target == d.targets[e]
					reverse := o.Subgraph == sample.Bidirectional && target == d.sources[e] && source == d.targets[e]
					require.True(t, forward || reverse, "edge %d from %d to %d", e, source, target)
				}
			}
		})
	}
}
