package asm

import (
	"math/bits"
	"unsafe"
)

// ListLimit is the longest list that fits in vector registers, in elements.
const ListLimit = 64

// Lanes reports whether the processor has vectors of 512 bits. Without them the routines for short lists return ok
// false, and the caller's loops do the work. Tests change it.
var Lanes = hasLanes

// Smallest finds the k ids with the smallest variates; the variate of u is mix((key ^ u) + golden), the step of
// splitmix64. Bit i of chosen is id i. At most ListLimit ids, 0 < k < len(ids). It compares the upper halves of
// variates: where the k-th and the next are equal there, as happens to one list in 2^32 or so, ok is false. ok is also
// false for ids of 8 bytes, and where the capacity behind the list does not fill its last 16 bytes.
//
// Cost: 15 to 20 ns up to 16 ids, which are all compared with each other at once, 100 ns for 64. No branch depends
// on a variate.
func Smallest[I int32 | int64](ids []I, key uint64, k int) (chosen uint64, ok bool) {
	if !Lanes || unsafe.Sizeof(ids[0]) != 4 || len(ids) > ListLimit || cap(ids) < (len(ids)+3)&^3 {
		return 0, false
	}
	// unsafe: the routine reads the ids of 4 bytes, rounded up to whole fours, within the capacity, and keeps no
	// address.
	chosen = smallest512(unsafe.Pointer(unsafe.SliceData(ids)), len(ids), key, k)
	return chosen, bits.OnesCount64(chosen) == k
}
