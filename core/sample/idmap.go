package sample

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

const (
	stampSize = 4       // bytes of a stamp
	minTable  = 1 << 12 // slots of a new hash map; arbitrary
)

// idMap numbers the nodes of a batch: one pass looks an id up, and gives it the next local id where it is new.
//
// A stamp is base + local id. Each batch has a base above all stamps of earlier batches, so that what they left counts
// as absent and nothing is cleared between batches. Stamps are 32 bits wide, which halves what the stamp array takes of
// the caches against a 64-bit stamp of generation and local id; the price is a clear once 2^31 nodes have been
// numbered.
//
// Exactly one of stamps and table is used. Either gives the same numbering. It is not safe for concurrent use.
type idMap struct {
	budget *mem.Budget
	base   uint32 // stamps below are absent; at least 1, so that zeroed memory is absent
	next   uint32 // above all stamps given so far: the base of the next batch

	// stamps has one element for each node of the graph.
	stamps buffer[uint32]

	// table is a hash map with linear probing, at most half full, of the low 32 bits of an id above its stamp.
	table buffer[uint64]
	shift uint // a slot is the upper 64-shift bits of a product
	exact bool // 32 bits tell all ids of the graph apart
}

// id is a global id as stored by the graph.
type id interface{ uint32 | int64 }

func (m *idMap) init(budget *mem.Budget, numNodes int64, stamp bool) error {
	m.budget, m.next = budget, 1
	m.exact = numNodes <= math.MaxUint32
	if stamp {
		return m.stamps.grow(budget, mem.IDMap, max(numNodes, 1), 0)
	}
	if err := m.table.grow(budget, mem.IDMap, minTable, 0); err != nil {
		return err
	}
	m.setShift()
	return nil
}

func (m *idMap) setShift() { m.shift = uint(64 - bits.Len(uint(len(m.table.data)-1))) }

func (m *idMap) free() {
	m.stamps.free()
	m.table.free()
}

// begin forgets all ids.
func (m *idMap) begin() {
	if m.next > math.MaxUint32-maxLocals {
		clear(m.stamps.data)
		clear(m.table.data)
		m.next = 1
	}
	m.base = m.next
}

// reserve makes room for more ids beside the numbered ones, nodes.
func (m *idMap) reserve(nodes []int64, more int) error {
	if len(nodes)+more > maxLocals {
		return fmt.Errorf("a batch of %d nodes, and %d edges to more, expected at most %d nodes: %w",
			len(nodes), more, maxLocals, ErrTooLarge)
	}
	m.next = max(m.next, m.base+uint32(len(nodes)+more))
	if m.table.block == nil || 2*(len(nodes)+more) <= len(m.table.data) {
		return nil
	}
	old := m.table
	m.table = buffer[uint64]{}
	if err := m.table.grow(m.budget, mem.IDMap, int64(1)<<bits.Len(uint(2*(len(nodes)+more)-1)), 0); err != nil {
		m.table = old
		return err
	}
	old.free()
	m.setShift()
	m.insert(nodes, 0, len(nodes))
	return nil
}

// prefetchIDs asks for the entries of ids.
func prefetchIDs[T id](m *idMap, ids []T) {
	if m.table.block == nil {
		asm.Prefetch(m.stamps.data, ids)
		return
	}
	var slots [group]int64
	for part := range slices.Chunk(ids, group) {
		for i, v := range part {
			slots[i] = int64(uint64(v) * golden >> m.shift)
		}
		asm.Prefetch(m.table.data, slots[:len(part)])
	}
}

// number sets row[i] to the local id of ids[i], for all i in order, writes ids that are new to nodes[n], nodes[n+1],
// ... and returns the new n. The caller has reserved len(ids), and nodes has room for them. row and ids may be one
// array.
func number[T id](m *idMap, nodes []int64, n int, ids []T, row []uint32) int {
	if m.table.block == nil {
		return numberStamps(m, nodes, n, ids, row)
	}
	return numberTable(m, nodes, n, ids, row)
}

// numberStamps branches on whether an id is new although that is hard to predict: without the branch (a conditional
// move, and a node written each time) every address would wait for all stamps before it, which took 1.2 times as long.
func numberStamps[T id](m *idMap, nodes []int64, n int, ids []T, row []uint32) int {
	stamps, base := m.stamps.data, m.base
	row = row[:len(ids)]
	for i, v := range ids {
		stamp := stamps[v]
		if stamp < base {
			stamp = base + uint32(n)
			stamps[v] = stamp
			nodes[n] = int64(v)
			n++
		}
		row[i] = stamp - base
	}
	return n
}

func numberTable[T id](m *idMap, nodes []int64, n int, ids []T, row []uint32) int {
	table, base, shift, exact := m.table.data, m.base, m.shift, m.exact
	mask := uint64(len(table) - 1)
	row = row[:len(ids)]
	for i, v := range ids {
		for slot := uint64(v) * golden >> shift; ; slot = (slot + 1) & mask {
			entry := table[slot&mask]
			stamp := uint32(entry)
			if stamp < base {
				table[slot&mask] = uint64(v)<<32 | uint64(base+uint32(n))
				nodes[n], row[i] = int64(v), uint32(n)
				n++
				break
			}
			if uint32(entry>>32) == uint32(v) && (exact || nodes[stamp-base] == int64(v)) {
				row[i] = stamp - base
				break
			}
		}
	}
	return n
}

// insert gives nodes[first:end] their places as local ids. An id that is repeated, as seeds may be, is found at its
// first.
func (m *idMap) insert(nodes []int64, first, end int) {
	mask := uint64(len(m.table.data) - 1)
	for local := first; local < end; local++ {
		v, stamp := nodes[local], m.base+uint32(local)
		if m.table.block == nil {
			if m.stamps.data[v] < m.base {
				m.stamps.data[v] = stamp
			}
			continue
		}
		for slot := uint64(v) * golden >> m.shift; ; slot = (slot + 1) & mask {
			entry := m.table.data[slot]
			if uint32(entry) < m.base {
				m.table.data[slot] = uint64(v)<<32 | uint64(stamp)
				break
			}
			if uint32(entry>>32) == uint32(v) && (m.exact || nodes[uint32(entry)-m.base] == v) {
				break
			}
		}
	}
}
