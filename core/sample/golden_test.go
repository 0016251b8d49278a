package sample

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/asm"
)

func digest(t *testing.T, arrays ...any) uint64 {
	t.Helper()
	h := fnv.New64a()
	for _, a := range arrays {
		require.NoError(t, binary.Write(h, binary.LittleEndian, a))
	}
	return h.Sum64()
}

// These numbers are a promise to users who resume or repeat a training: a change breaks their runs and needs a new
// major version.
func TestGoldenBatches(t *testing.T) {
	g := newTestGraph(3000, 7)
	tests := []struct {
		name string
		cfg  plainConfig
		key  Key
		want uint64
	}{
		{"without replacement", plainConfig{Fanouts: []int64{15, 10, 5}}, Key{1, 2, 3}, 0x83236818545f8aa8},
		{"with replacement", plainConfig{Fanouts: []int64{15, 10, 5}, Replace: true}, Key{1, 2, 3}, 0xa4ce5e87a918640d},
		{"all, then large", plainConfig{Fanouts: []int64{-1, 40}}, Key{1, 2, 3}, 0x20ea0d6d3a7c5c04},
		{"large key", plainConfig{Fanouts: []int64{15, 10, 5}}, Key{1 << 63, 1 << 62, 1 << 61}, 0x6da6f3aee2ded378},
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

func TestGoldenMethods(t *testing.T) {
	want := map[string]uint64{
		"labor":                    0x6e5c74a29febef50,
		"labor 1":                  0x64fe8f007e2cdd45,
		"labor all":                0x5d3dd5039ae5f844,
		"labor batches":            0xb9adf79f3d8861d6,
		"labor layers":             0xd0788ae3470cfb86,
		"labor weighted":           0xe07215e10ada50d3,
		"labor weighted all":       0xe6f087dfd5d75886,
		"labor weighted dependent": 0xc41b0249a175bd03,
		"walks":                    0x3b0b84040fc4beaf,
		"walks all":                0x466ce47fca500c5c,
		"walks many":               0xb05ed53d3f9b5d05,
		"weighted":                 0x6c768f6f217a278e,
		"weighted 1":               0x4a8afcdc339f229a,
		"weighted all":             0xf5e704faa19e7525,
		"weighted large":           0xade296504d662d1f,
		"weighted replace":         0xc79c53f98db800a6,
	}
	g := newWeightedGraph(3000, 7)
	defer func(have bool) { asm.Lanes = have }(asm.Lanes)
	for _, lanes := range []bool{asm.Lanes, false} { // the routines for vectors and the loops
		asm.Lanes = lanes
		for name, cfg := range methodConfigs(g.with("ram32")) {
			t.Run(fmt.Sprint(name, lanes), func(t *testing.T) {
				w := newWorker(t, g.forms()["ram32"], cfg, true, 2)
				var sub Subgraph
				require.NoError(t, w.Sample(context.Background(), Key{1, 2, 3}, g.seeds(200, 5), &sub))
				require.Equal(t, want[name], digest(t, sub.Nodes, sub.Ptr, sub.Row, sub.Pos))
			})
		}
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
