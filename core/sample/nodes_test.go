package sample

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// Stamps of 32 bits run out after 2^31 nodes and begin again.
func TestStampsWrapAround(t *testing.T) {
	g := newTestGraph(500, 3)
	cfg := plainConfig{Fanouts: []int64{5, 5}}
	for _, stamp := range []bool{true, false} {
		w := newWorker(t, g.forms()["ram32"], cfg, stamp, 1)
		requireWorks(t, cutWorker{w}, plainTypes(g), cfg.config())
		const last = math.MaxUint32 - maxLocals // the highest base of a batch
		for _, next := range []uint32{last, last + 1, math.MaxUint32} {
			w.nodes[0].ids.next = next
			requireWorks(t, cutWorker{w}, plainTypes(g), cfg.config())
			if next == last {
				require.Greater(t, w.nodes[0].ids.base, uint32(last-1))
			} else {
				require.EqualValues(t, 1, w.nodes[0].ids.base)
			}
			requireWorks(t, cutWorker{w}, plainTypes(g), cfg.config())
		}
	}
}

// In a graph of more than 2^32 nodes ids share the half of them that the table holds.
func TestTableTellsApartIDsThatShareTheirLowerHalf(t *testing.T) {
	const numNodes = 1 << 34
	m := idMap{}
	require.NoError(t, m.init(mem.NewBudget(0), numNodes, false))
	defer m.free()
	var ids []int64
	for low := range int64(3000) {
		for high := range int64(4) {
			ids = append(ids, high<<32+low, high<<32+low/2)
		}
	}
	nodes, row := make([]int64, len(ids)), make([]uint32, len(ids))
	for range 3 {
		m.begin()
		local, n := map[int64]uint32{}, 0
		for at := 0; at < len(ids); at += 100 {
			require.NoError(t, m.reserve(nodes[:n], 100))
			n = number(&m, nodes, n, ids[at:at+100], row[at:at+100])
		}
		for i, v := range ids {
			if _, found := local[v]; !found {
				local[v] = uint32(len(local))
				require.Equal(t, v, nodes[local[v]])
			}
			require.Equal(t, local[v], row[i])
		}
		require.Len(t, local, n)
	}
}

func TestBatchesOfOneWorkerDoNotMix(t *testing.T) {
	g := newTestGraph(3000, explore.Seed(t, 7))
	cfg := plainConfig{Fanouts: []int64{10, 10}}
	for _, stamp := range []bool{true, false} {
		w := newWorker(t, g.forms()["ram32"], cfg, stamp, 1)
		for i := range uint64(50) {
			seeds := g.seeds(1+int(i*i)%400, i)
			var sub Subgraph
			require.NoError(t, w.Sample(context.Background(), Key{Batch: i}, seeds, &sub))
			requireEqual(t, reference(g.indptr, g.wide, cfg, Key{Batch: i}, seeds), sub)
		}
	}
}
