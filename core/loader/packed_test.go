package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/packed"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// TestNeighborsArePacked: neighbours held whole are packed where the memory is short and the sampler reads them so.
// Edge numbers always are. Batches are the same.
func TestNeighborsArePacked(t *testing.T) {
	const nodes, edges = 6000, 400_000
	d := newDataset(nodes, edges)
	s := d.store(t, ssd.OS)
	numbers := packed.Bytes(edges, packed.Width(edges))
	short, plain32 := packed.Bytes(edges, packed.Width(nodes))+numbers, 4*edges+numbers
	for name, sampler := range map[string]sample.Named{"uniform": nil, "labor": &sample.Labor{BatchDependency: 1}} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Fanouts, o.Sampler = []int64{3, 2}, sampler
			want := epochOf(t, open(t, d.graph(t), o), 0)
			seen := map[int64]bool{}
			o.Memory = 1000
			for o.Memory = leastMemory(t, draw.OpenStore(s), o); o.Memory < 64<<20; o.Memory += o.Memory / 2 {
				l := open(t, draw.OpenStore(s), o)
				requireSame(t, want, epochOf(t, l, 0))
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
				if l.draw.Split.Neighbors && l.draw.Split.EdgeIDs {
					held := l.draw.Budget.Live()[mem.NeighborCache]
					require.Contains(t, []int64{short, plain32}, held)
					require.False(t, held == short && seen[plain32], "packed with more memory than unpacked")
					seen[held] = true
				}
			}
			require.Equal(t, map[int64]bool{short: sampler == nil, plain32: true}, map[int64]bool{
				short: seen[short], plain32: seen[plain32],
			})
		})
	}
}
