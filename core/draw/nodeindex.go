package draw

import (
	"math/bits"

	"freshgo/core/internal/reuse"
)

// nodeIndex maps each node of a batch to the index of its first occurrence. A batch of trees may repeat most of its
// nodes, so the memory is one table of 8 bytes a slot, cleared from batch to batch.
type nodeIndex struct {
	slots []uint64 // node above index + 1, with linear probing, at most half full; 0: empty
	shift int      // a slot is the upper 64-shift bits of a product
}

// begin forgets all nodes and makes room for the given number.
func (f *nodeIndex) begin(nodes int) {
	if nodes == 0 {
		return
	}
	size := 1 << bits.Len(uint(2*nodes-1))
	f.slots = reuse.Zeros(f.slots, size)
	f.shift = 64 - bits.Len(uint(size-1))
}

// NodeIndexBytes returns the memory of a nodeIndex for a number of nodes.
func NodeIndexBytes(nodes int64) int64 { return 8 << bits.Len64(uint64(2*nodes)) }

// add returns the index that was given for a node before, or remembers this one. Nodes are below 2^32 and indices below
// 2^31.
func (f *nodeIndex) add(node int64, index int32) (first int32, found bool) {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	mask := uint64(len(f.slots) - 1)
	for slot := uint64(node) * golden >> f.shift; ; slot = (slot + 1) & mask {
		switch entry := f.slots[slot&mask]; {
		case entry == 0:
			f.slots[slot&mask] = uint64(node)<<32 | uint64(index+1)
			return index, false
		case int64(entry>>32) == node:
			return int32(uint32(entry)) - 1, true
		}
	}
}
