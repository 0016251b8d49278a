// Package crc computes CRC32C, as hash/crc32 does with the polynomial of Castagnoli, in vectors of 512 bits where the
// processor has them. The sums are the same.
//
// Whoever keeps rows on a disk calls it: core/store, core/scratch. Of what lies in the caches it takes 40 bytes a
// nanosecond, five times as many as hash/crc32.
package crc

import (
	"hash/crc32"

	"freshgo/core/internal/asm"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// least is from how many bytes on folding pays. Arbitrary.
const least = 4 * asm.FoldBytes

// Checksum returns the sum of p.
func Checksum(p []byte) uint32 { return Update(0, p) }

// Update returns the sum of what sum is of, with p behind it.
func Update(sum uint32, p []byte) uint32 {
	if len(p) >= least {
		folded := len(p) / asm.FoldBytes * asm.FoldBytes
		if register, ok := asm.FoldCRC(^sum, p[:folded]); ok {
			sum, p = ^register, p[folded:]
		}
	}
	return crc32.Update(sum, castagnoli, p)
}
