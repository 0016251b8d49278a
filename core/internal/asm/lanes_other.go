//go:build !amd64

package asm

import "unsafe"

const hasLanes = false

const hasFolds = false

func foldCRC512(uint32, unsafe.Pointer, int, *[4]uint64) uint32 { return 0 }

func smallest512(unsafe.Pointer, int, uint64, int) uint64 { return 0 }

func below512(unsafe.Pointer, int, uint64, uint64, *Found) (number, seen int) { return 0, 0 }

func sequence512(unsafe.Pointer, int, uint64, int64, unsafe.Pointer, int) bool { return false }

func visits512(unsafe.Pointer, int) int { return 0 }
