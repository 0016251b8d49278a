package history

import (
	"encoding/binary"

	"freshgo/core/internal/asm"
)

// table maps nodes to slots, with width bytes per node: 0 is none, 1 a mark, slot+2 a slot. It is zeroed memory with 3
// spare bytes, so that an element is one unaligned read of 32 bits.
type table struct {
	data  []byte
	width int64
	mask  uint32
}

const (
	absent = -2 // no slot
	marked = -1 // no slot, but the node has been seen in the update that runs
)

func tableBytes(numNodes int64, width int) int64 { return numNodes*int64(width) + 3 }

func newTable(data []byte, width int) table {
	return table{data: data, width: int64(width), mask: uint32(1<<(8*width) - 1)}
}

// get returns the slot, or absent or marked, which are negative.
func (t *table) get(node int64) int32 {
	if t.data == nil { // of a layer that is not kept
		return absent
	}
	return int32(binary.LittleEndian.Uint32(t.data[node*t.width:])&t.mask) - 2
}

// prefetch prefetches the entries of at most lookupChunk nodes.
func (t *table) prefetch(nodes []int64) {
	var at [lookupChunk]int64
	for k, node := range nodes {
		at[k] = node * t.width
	}
	asm.Prefetch(t.data, at[:len(nodes)])
}

func (t *table) set(node int64, slot int32) {
	at := t.data[node*t.width:]
	binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)&^t.mask|uint32(slot+2))
}
