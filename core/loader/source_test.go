package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/store"
)

// Row numbers have 32 bits in batchRows, caches and traces. A graph of that many nodes is not made for a test.
func TestRowsBeyond32Bits(t *testing.T) {
	onDisk := draw.Tensor{Name: "x", OnDisk: new(store.Tensor)}
	ofEdges := onDisk
	ofEdges.ByEdge = true
	for _, c := range []struct {
		nodes   int64
		tensors []draw.Tensor
		refused bool
	}{
		{cache.MaxRows, []draw.Tensor{onDisk}, false},
		{cache.MaxRows + 1, []draw.Tensor{onDisk}, true},
		{cache.MaxRows + 1, []draw.Tensor{{Name: "x"}, ofEdges}, false},
	} {
		p := draw.Parts{NumNodes: c.nodes, Tensors: c.tensors}
		if err := p.CheckRows(cache.Ranked); c.refused {
			require.ErrorIs(t, err, draw.ErrOption)
		} else {
			require.NoError(t, err)
		}
	}
}
