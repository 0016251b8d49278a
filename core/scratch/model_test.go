package scratch_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/scratch"
)

// modelPack holds the expected contents of a pack.
type modelPack struct {
	k              *scratch.Pack
	id, rows, size int
	added          int
	sealed         bool
}

type modelBlob struct {
	b       *scratch.Blob
	data    []byte
	written int
	sealed  bool
}

// play makes random calls, drawn from a string of bytes, on packs and blobs within tight bounds, and compares with a
// model.
func play(t testing.TB, moves []byte) {
	o := scratch.Options{MemoryBytes: 2 * mib, FileBytes: 4 * mib}
	r := newRig(t, kinds(t)[0], o)
	defer r.Close()
	var packs []*modelPack
	var blobs []*modelBlob
	next := 0
	draw := func(n int) int {
		if next++; next > len(moves) || n == 0 {
			return 0
		}
		return int(moves[next-1]) % n
	}
	for id := 0; next < len(moves); id++ {
		switch move := draw(16); {
		case move < 3: // a pack
			rows := []int{0, 1, 100, 128, 129, 1000, 2000}[draw(7)]
			size := []int{1, 4, 100, 508, 512, 4096, 30_000, 65_532, 70_000}[draw(9)]
			k, err := r.pool.NewPack(rows, size)
			if err != nil {
				require.ErrorIs(t, err, scratch.ErrFull)
				continue
			}
			packs = append(packs, &modelPack{k: k, id: id, rows: rows, size: size})
		case move == 3: // a blob
			size := []int{0, 1, 65_536, 65_537, 300_000}[draw(5)]
			b, err := r.pool.NewBlob(int64(size))
			if err != nil {
				require.ErrorIs(t, err, scratch.ErrFull)
				continue
			}
			blobs = append(blobs, &modelBlob{b: b, data: row(id, 0, size)})
		case move < 10 && len(packs) > 0:
			i := draw(len(packs))
			p := packs[i]
			switch {
			case move < 7 && !p.sealed:
				to := min(p.rows, p.added+[]int{1, 60, 128, 1000}[draw(4)])
				require.NoError(t, add(p.k, p.id, p.added, to, p.size))
				p.added = to
			case move == 7 || move == 8:
				require.NoError(t, p.k.Seal())
				p.sealed = true
				require.NoError(t, check(p.k, p.id, p.added, p.size))
			case move == 9:
				p.k.Close()
				packs = append(packs[:i], packs[i+1:]...)
			}
		case len(blobs) > 0:
			i := draw(len(blobs))
			b := blobs[i]
			switch {
			case move < 13 && !b.sealed:
				to := min(len(b.data), b.written+[]int{0, 1, 65_536, 100_000}[draw(4)])
				require.NoError(t, b.b.Write(b.data[b.written:to]))
				b.written = to
			case move < 15:
				require.NoError(t, b.b.Finish())
				b.sealed = true
				got, release, err := b.b.Load(context.Background())
				require.NoError(t, err)
				require.True(t, string(b.data[:b.written]) == string(got))
				release()
			default:
				b.b.Close()
				blobs = append(blobs[:i], blobs[i+1:]...)
			}
		}
		s := r.pool.Stats()
		require.LessOrEqual(t, s.MemoryPeak, o.MemoryBytes)
		require.LessOrEqual(t, s.FilePeak, o.FileBytes)
		require.Empty(t, s.Why)
	}
	for _, p := range packs {
		require.NoError(t, p.k.Seal())
		require.NoError(t, check(p.k, p.id, p.added, p.size))
	}
}

func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		random := explore.Rand(t, seed, 7)
		moves := make([]byte, 20+random.IntN(200))
		for i := range moves {
			moves[i] = byte(random.Uint32())
		}
		play(t, moves)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{0, 6, 3, 4, 0, 3, 7, 0, 3, 4, 10, 0, 3, 13, 0, 15, 0})
	f.Fuzz(func(t *testing.T, moves []byte) {
		if len(moves) < 2000 {
			play(t, moves)
		}
	})
}
