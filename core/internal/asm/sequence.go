package asm

import "unsafe"

// SequenceLimit is the most weights that Sequence draws from.
const SequenceLimit = 16

// Sequence draws len(out) > 0 edges in proportion to weights, none of them negative, one after the other among those
// that are left, as core/sample's drawShort says, from the stream of splitmix64 at state, and writes first + offset of
// each to out. It has no answer for more than SequenceLimit weights or weights of 8 bytes; where no more weights than
// are wanted are above 0; where what is left has to be measured anew; and where fewer weights than fill the last 16
// bytes lie behind the list, up to its capacity. Then out may be overwritten.
//
// Cost: 10 ns and 5 ns for each draw. No branch depends on a draw.
func Sequence[W float32 | float64](weights []W, state uint64, first int64, out []int64) bool {
	n := len(weights)
	if !Lanes || unsafe.Sizeof(weights[0]) != 4 || n > SequenceLimit || cap(weights) < (n+3)&^3 {
		return false
	}
	// unsafe: the routine reads the weights of 4 bytes, rounded up to whole fours, within the capacity, writes len(out)
	// elements and keeps no address.
	return sequence512(unsafe.Pointer(unsafe.SliceData(weights)), n, state, first, unsafe.Pointer(unsafe.SliceData(out)),
		len(out))
}
