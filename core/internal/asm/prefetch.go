// Package asm holds the loops that need instructions the compiler does not emit: software prefetch, and vectors of 512
// bits for what the samplers do with one list. On processors without a routine prefetch does nothing, and the others
// say that they have no answer: the caller's loop, which gives the same, does the work.
//
// Go assembly cannot live in a package that uses cgo, and an assembly call is not inlined (about 2 ns), so the routines
// take arrays of indices. core/sample and core/rows call it.
package asm

import "unsafe"

// Prefetch asks the processor to bring the cache line of the first byte of s[idx[i]] close, for every i. It neither
// reads nor writes s: an index outside of s is harmless and has no effect. On processors without a routine it does
// nothing.
//
// Cost: under 1 ns for an index while fewer lines are on their way than the core can track (10 to 50), then as long as
// the memory needs.
func Prefetch[E any, I int64 | int32 | uint32](s []E, idx []I) {
	if len(idx) == 0 || len(s) == 0 { // an address that is not mapped costs a walk of the page tables
		return
	}
	var e E
	// unsafe: the addresses are only handed to prefetch instructions, which never fault.
	base, first := unsafe.Pointer(unsafe.SliceData(s)), unsafe.Pointer(unsafe.SliceData(idx))
	if unsafe.Sizeof(idx[0]) == 8 {
		prefetch64(base, unsafe.Sizeof(e), first, len(idx))
	} else {
		prefetch32(base, unsafe.Sizeof(e), first, len(idx))
	}
}
