package scratch_test

import (
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
