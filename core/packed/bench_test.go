package packed

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkPut(b *testing.B) {
	n := int64(1 << 18)
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = rand.Uint32() >> 5
	}
	a := Of(make([]byte, Bytes(n, 27)), n, 27)
	b.SetBytes(4 * n)
	for b.Loop() {
		p := a.Packer(0)
		Put(&p, ids)
		p.End()
	}
}

func BenchmarkLoad(b *testing.B) {
	n := int64(1 << 24) // arbitrary: far beyond the caches
	at := make([]int64, 4096)
	out := make([]uint32, len(at))
	b.Run("array", func(b *testing.B) {
		ids := make([]uint32, n)
		for i := range ids {
			ids[i] = uint32(i)
		}
		for b.Loop() {
			for i := range at {
				at[i] = rand.Int64N(n)
			}
			for i, p := range at {
				out[i] = ids[p]
			}
		}
	})
	b.Run("packed", func(b *testing.B) {
		a := Of(make([]byte, Bytes(n, 27)), n, 27)
		for i := range a.words {
			a.words[i] = uint32(i)
		}
		for b.Loop() {
			for i := range at {
				at[i] = rand.Int64N(n)
			}
			Load(a, at, out)
		}
	})
	b.Run("none", func(b *testing.B) {
		for b.Loop() {
			for i := range at {
				at[i] = rand.Int64N(n)
			}
		}
	})
}
