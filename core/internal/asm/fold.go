package asm

import (
	"math/bits"
	"unsafe"
)

// FoldBytes is the unit of FoldCRC.
const FoldBytes = 256

// Folds reports whether the processor folds a CRC in vectors. Tests change it.
var Folds = hasFolds

// FoldCRC returns the register of CRC32C after p, a positive multiple of FoldBytes, from the register before it: the
// complement of the sum that crc32 of the standard library returns. ok is false where the processor has no routine.
//
// Cost: 32 bytes a ns from the second-level cache, and 20 ns; beyond the caches, the rate of the memory. (Gopal et al.,
// Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009.)
func FoldCRC(register uint32, p []byte) (after uint32, ok bool) {
	if !Folds || len(p) == 0 || len(p)%FoldBytes != 0 {
		return 0, false
	}
	// unsafe: the routine reads len(p) bytes and keeps no address.
	return foldCRC512(register, unsafe.Pointer(unsafe.SliceData(p)), len(p), &foldKeys), true
}

// foldKeys are the constants by which 128 bits are multiplied, a half each, when they are moved on by 256 and by 64
// bytes.
var foldKeys = [4]uint64{
	foldKey(256*8 + 32), foldKey(256*8 - 32),
	foldKey(64*8 + 32), foldKey(64*8 - 32),
}

// foldKey is x^n modulo the polynomial of Castagnoli, its bits in reverse as all of this is.
func foldKey(n int) uint64 {
	const polynomial = 0x1EDC6F41
	key := uint32(1)
	for range n {
		over := key >> 31
		key = key<<1 ^ over*polynomial
	}
	return uint64(bits.Reverse32(key)) << 1
}
