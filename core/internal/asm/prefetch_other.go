//go:build !amd64 && !arm64

package asm

import "unsafe"

func prefetch64(unsafe.Pointer, uintptr, unsafe.Pointer, int) {}
func prefetch32(unsafe.Pointer, uintptr, unsafe.Pointer, int) {}

// PrefetchRange does nothing here.
func PrefetchRange(unsafe.Pointer, int) {}
