package sample

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func digest(t *testing.T, arrays ...any) uint64 {
	t.Helper()
	h := fnv.New64a()
	for _, a := range arrays {
		require.NoError(t, binary.Write(h, binary.LittleEndian, a))
	}
	return h.Sum64()
}

// These numbers are a promise to users who resume or repeat a training: a change breaks their runs and needs a new major version.
func TestGoldenBatches(t *testing.T) {
	g := newTestGraph(3000, 7)
	tests := []struct {
		name string
		cfg  Config
		key  Key
		want uint64
	}{
		{"without replacement", Config{Fanouts: []int64{15, 10, 5}}, Key{1, 2, 3}, 0x83236818545f8aa8},
		{"with replacement", Config{Fanouts: []int64{15, 10, 5}, Replace: true}, Key{1, 2, 3}, 0xa4ce5e87a918640d},
		{"all, then large", Config{Fanouts: []int64{-1, 40}}, Key{1, 2, 3}, 0x20ea0d6d3a7c5c04},
		{"large key", Config{Fanouts: []int64{15, 10, 5}}, Key{1 << 63, 1 << 62, 1 << 61}, 0x6da6f3aee2ded378},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorker(t, g.forms()["ram32"], tt.cfg, true, 2)
			var sub Subgraph
			require.NoError(t, w.Sample(context.Background(), tt.key, g.seeds(200, 5), &sub))
			require.Equal(t, tt.want, digest(t, sub.Nodes, sub.Ptr, sub.Row, sub.Pos))
		})
	}
}

func TestGoldenShuffle(t *testing.T) {
	ids := make([]int64, 10000)
	for i := range ids {
		ids[i] = int64(i)
	}
	require.NoError(t, Shuffle(context.Background(), ids, 1, 2))
	require.Equal(t, uint64(0xf13cd8fe40279d79), digest(t, ids))
	slices.Sort(ids)
	for i, v := range ids {
		require.EqualValues(t, i, v)
	}
}
