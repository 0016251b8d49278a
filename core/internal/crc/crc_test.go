package crc_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/crc"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(random.Uint32())
	}
	return p
}

// Every length and alignment, from every sum before, gives what the standard library gives, with vectors and without.
func TestSums(t *testing.T) {
	all := noise(5000)
	defer func(is bool) { asm.Folds = is }(asm.Folds)
	for _, folds := range []bool{asm.Folds, false} {
		asm.Folds = folds
		require.EqualValues(t, 0xe3069283, crc.Checksum([]byte("123456789")))
		sum := uint32(1)
		for n := range len(all) - 64 {
			p := all[n%64:][:n]
			require.Equal(t, crc32.Checksum(p, castagnoli), crc.Checksum(p), "%d bytes", n)
			want := crc32.Update(sum, castagnoli, p)
			require.Equal(t, want, crc.Update(sum, p), "%d bytes after %08x", n, sum)
			sum = want
		}
		require.Equal(t, crc32.Checksum(make([]byte, 4096), castagnoli), crc.Checksum(make([]byte, 4096)))
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{512, 4096, 64 << 10, 64 << 20} {
		p := noise(n)
		for name, sum := range map[string]func([]byte) uint32{
			"crc": crc.Checksum, "hash": func(p []byte) uint32 { return crc32.Checksum(p, castagnoli) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					sum(p)
				}
			})
		}
	}
}
