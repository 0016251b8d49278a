package scratch_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/scratch"
)

const mib = 1 << 20

// Packs give back what was put in, in memory and in the file, with rows of any length and chunks that come out even or
// not.
func TestPacksGiveBackWhatWasPutIn(t *testing.T) {
	for _, kind := range kinds(t) {
		for name, o := range map[string]scratch.Options{
			"memory": {MemoryBytes: 64 * mib},
			"file":   {MemoryBytes: mib, FileBytes: 64 * mib},
		} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				r := newRig(t, kind, o)
				defer r.Close()
				if o.FileBytes > 0 {
					r.fill(o)
				}
				for i, c := range []struct{ rows, added, rowBytes int }{
					{5000, 5000, 508}, {5000, 4096, 508}, {5000, 1, 508}, {5000, 0, 508}, {3, 3, 8 * 1024}, {700, 700, 1},
					{127, 127, 512}, {128, 128, 512}, {128, 127, 512}, {40, 40, 40_000}, {40, 40, 64<<10 - 4},
					{128 * 1024, 128 * 1024, 4},
				} {
					k, err := r.pool.NewPack(c.rows, c.rowBytes)
					require.NoError(t, err)
					require.NoError(t, add(k, i, 0, c.added, c.rowBytes))
					require.NoError(t, k.Seal())
					require.NoError(t, k.Seal(), "again")
					require.NoError(t, check(k, i, c.added, c.rowBytes))
					require.NoError(t, check(k, i, c.added, c.rowBytes), "again")
					k.Close()
					k.Close()
				}
			})
		}
	}
}

// Rows that are shorter than those of the pack come back as its first bytes, whichever way they were put in.
func TestShortRows(t *testing.T) {
	for _, o := range []scratch.Options{{MemoryBytes: 64 * mib}, inFile} {
		const count, rowBytes, width = 1000, 256, 100
		r := newRig(t, kinds(t)[0], o)
		if o.FileBytes > 0 {
			r.fill(o)
		}
		k, err := r.pool.NewPack(2*count, rowBytes)
		require.NoError(t, err)
		var table []byte
		var pos, from []int32
		for i := range int32(count) {
			require.NoError(t, k.Add(i, row(1, int(i), width)))
			table = append(table, row(1, count+int(i), width)...)
			pos, from = append(pos, count+i), append(from, i)
		}
		require.NoError(t, k.AddRows(pos, table, width, from))
		require.NoError(t, k.Seal())
		var mu sync.Mutex
		seen := map[int32]bool{}
		require.NoError(t, k.Read(context.Background(), func(pos scratch.Positions, rows []byte) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range pos.Len() {
				at := pos.At(i)
				if seen[at] || string(rows[i*rowBytes:][:width]) != string(row(1, int(at), width)) {
					return errWrong
				}
				seen[at] = true
			}
			return nil
		}))
		require.Len(t, seen, 2*count)
		r.Close()
	}
}
