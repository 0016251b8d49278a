package asm

import "unsafe"

const (
	// VisitsLimit is the most visits that Visits sorts.
	VisitsLimit = 16
	// VisitBits is the most bits of a visited node.
	VisitBits = 42

	placeBits = 4
)

// Visits puts nodes in the order of how often each is among visits, the lower one first where equally often; the copies
// of one are together. What is below 0 is left out. An element becomes a word that Visited reads; their number is
// returned. ok is false where there are more than VisitsLimit, or no vectors: visits are then as they were.
//
// Cost: 40 ns for 12 visits. No branch depends on a visit.
func Visits(visits []int64) (n int, ok bool) {
	if !Lanes || len(visits) == 0 || len(visits) > VisitsLimit {
		return 0, false
	}
	// unsafe: the routine reads and writes len(visits) elements and keeps no address.
	return visits512(unsafe.Pointer(unsafe.SliceData(visits)), len(visits)), true
}

// Visited returns the node of a word that Visits made and how often it is there.
func Visited(word int64) (node, times int64) {
	return word >> placeBits & (1<<VisitBits - 1), VisitsLimit - word>>(placeBits+VisitBits)
}
