package asm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasLanes = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasBMI1 && cpu.X86.HasBMI2 &&
	cpu.X86.HasPOPCNT

var hasFolds = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

//go:noescape
func foldCRC512(register uint32, p unsafe.Pointer, n int, keys *[4]uint64) uint32

//go:noescape
func smallest512(ids unsafe.Pointer, n int, key uint64, k int) uint64

//go:noescape
func below512(ids unsafe.Pointer, n int, key, bound uint64, found *Found) (number, seen int)

//go:noescape
func sequence512(weights unsafe.Pointer, n int, state uint64, first int64, out unsafe.Pointer, k int) bool

//go:noescape
func visits512(visits unsafe.Pointer, n int) int
