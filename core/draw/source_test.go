package draw

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/store"
)

// Row numbers have 32 bits in batchRows, caches and traces. A graph of that many nodes is not made for a test.
func TestRowsBeyond32Bits(t *testing.T) {
	onDisk := Tensor{Name: "x", OnDisk: new(store.Tensor)}
	ofEdges := onDisk
	ofEdges.ByEdge = true
	for _, c := range []struct {
		nodes   int64
		tensors []Tensor
		refused bool
	}{
		{cache.MaxRows, []Tensor{onDisk}, false},
		{cache.MaxRows + 1, []Tensor{onDisk}, true},
		{cache.MaxRows + 1, []Tensor{{Name: "x"}, ofEdges}, false},
	} {
		p := Parts{NumNodes: c.nodes, Tensors: c.tensors}
		if err := p.checkRows(cache.Ranked); c.refused {
			require.ErrorIs(t, err, ErrOption)
		} else {
			require.NoError(t, err)
		}
	}
}
