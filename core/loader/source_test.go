package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/store"
)

// Row numbers have 32 bits in batchRows, caches and traces. A graph of that many nodes is not made for a test.
func TestRowsBeyond32Bits(t *testing.T) {
	onDisk := tensor{name: "x", onDisk: new(store.Tensor)}
	ofEdges := onDisk
	ofEdges.byEdge = true
	for _, c := range []struct {
		nodes   int64
		tensors []tensor
		refused bool
	}{
		{cache.MaxRows, []tensor{onDisk}, false},
		{cache.MaxRows + 1, []tensor{onDisk}, true},
		{cache.MaxRows + 1, []tensor{{name: "x"}, ofEdges}, false},
	} {
		p := parts{numNodes: c.nodes, tensors: c.tensors}
		if err := p.checkRows("degree"); c.refused {
			require.ErrorIs(t, err, ErrOption)
		} else {
			require.NoError(t, err)
		}
	}
}
