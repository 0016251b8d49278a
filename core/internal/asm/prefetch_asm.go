//go:build amd64 || arm64

package asm

import "unsafe"

// prefetch64 prefetches base + size*idx[i] for n indices of 8 bytes.
//
//go:noescape
func prefetch64(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)

// prefetch32 is prefetch64 for unsigned indices of 4 bytes.
//
//go:noescape
func prefetch32(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)

// PrefetchRange asks for every cache line of the n bytes at p. Like Prefetch it neither reads nor faults.
//
//go:noescape
func PrefetchRange(p unsafe.Pointer, n int)
