package asm

import "unsafe"

// Found is variates and the places of their ids.
type Found struct {
	Keys    [ListLimit]uint64
	Offsets [ListLimit]int64
}

// Below finds ids of a list with variates, as of Smallest, below bound, in the order of the list. It goes on as long as
// there is room for eight more, by whole eights, and returns their number and how many ids it has looked at. It looks
// at none of 8 bytes.
//
// Cost: 1 ns for an id.
func Below[I int32 | int64](ids []I, key, bound uint64, found *Found) (number, seen int) {
	if !Lanes || unsafe.Sizeof(ids[0]) != 4 {
		return 0, 0
	}
	// unsafe: the routine reads at most len(ids) ids of 4 bytes, writes to found alone, and keeps no address.
	return below512(unsafe.Pointer(unsafe.SliceData(ids)), len(ids), key, bound, found)
}
