package cache

import (
	"fmt"
	"math"
	"unsafe"

	"freshgo/core/mem"
)

// miss marks a node whose row is not cached.
const miss = -1

// slotBytes is the cost of the address table per node.
const slotBytes = 4

// Rows is the mechanism: for every cached node one row of each of several
// tables, found by direct addressing (Ginex, section 4.2: an address table with
// an entry for every node, -1 for a miss). A node is cached in all tables or in
// none, so one look-up serves all of them.
//
// Fill happens before the first Resolve; after that Rows is read-only and may
// be used by any number of goroutines. A hash table instead of the address
// table was rejected: it costs more than four bytes per node at the cache
// ratios of interest (above 10 %) and a second dependent load per look-up.
type Rows struct {
	slots  []int32
	tables [][]byte
	widths []int
	held   int64
	limit  int64
	blocks []*mem.Block
}

// RowsBytes is what a cache of capacity rows costs in all: the address table
// and, per row, the widths of all tables.
func RowsBytes(numNodes, capacity int64, widths []int) int64 {
	if capacity == 0 {
		return 0
	}
	total := numNodes * slotBytes
	for _, w := range widths {
		total += capacity * int64(w)
	}
	return total
}

// Capacity is the largest number of rows whose cost is at most nBytes.
func Capacity(nBytes, numNodes int64, widths []int) int64 {
	var row int64
	for _, w := range widths {
		row += int64(w)
	}
	room := nBytes - numNodes*slotBytes
	if row == 0 || room < row {
		return 0
	}
	return min(room/row, numNodes, math.MaxInt32)
}

// NewRows makes an empty cache for capacity rows of tables with these row
// widths in bytes. It returns mem.ErrBudget when the budget has no room.
func NewRows(budget *mem.Budget, numNodes, capacity int64, widths []int) (*Rows, error) {
	if capacity < 0 || capacity > min(numNodes, math.MaxInt32) {
		return nil, fmt.Errorf("cache: capacity must be within [0, %d] rows, got %d", min(numNodes, math.MaxInt32), capacity)
	}
	c := &Rows{widths: widths, limit: capacity}
	block, err := c.alloc(budget, numNodes*slotBytes)
	if err != nil {
		return nil, err
	}
	c.slots = mem.Slice[int32](block)
	for i := range c.slots {
		c.slots[i] = miss
	}
	for _, w := range widths {
		block, err := c.alloc(budget, capacity*int64(w))
		if err != nil {
			c.Close()
			return nil, err
		}
		c.tables = append(c.tables, block.Bytes())
	}
	return c, nil
}

func (c *Rows) alloc(budget *mem.Budget, nBytes int64) (*mem.Block, error) {
	block, err := budget.Alloc(mem.FeatureCache, nBytes)
	if err == nil {
		c.blocks = append(c.blocks, block)
	}
	return block, err
}

// Admit gives ids[i] the slot first+i and returns first; the caller then writes
// the rows through Row. The ids must not be cached yet, and there must be room.
func (c *Rows) Admit(ids []int64) (first int64) {
	first = c.held
	if first+int64(len(ids)) > c.limit {
		panic(fmt.Sprintf("cache: invariant: %d rows admitted into %d free slots", len(ids), c.limit-first))
	}
	for i, id := range ids {
		c.slots[id] = int32(first + int64(i))
	}
	c.held += int64(len(ids))
	return first
}

// Resolve writes the slot of every id, or -1 where its row is not cached, and
// returns how many are cached.
func (c *Rows) Resolve(ids []int64, slots []int32) (hits int) {
	slots = slots[:len(ids)]
	for i, id := range ids {
		s := c.slots[id]
		slots[i] = s
		if s >= 0 {
			hits++
		}
	}
	return hits
}

// Row is the memory of one cached row of a table.
func (c *Rows) Row(table int, slot int64) []byte {
	w := int64(c.widths[table])
	return c.tables[table][slot*w : (slot+1)*w : (slot+1)*w]
}

// Table is the memory of all cached rows of a table, slot after slot.
func (c *Rows) Table(table int) []byte { return c.tables[table] }

// Len is the number of cached rows.
func (c *Rows) Len() int64 { return c.held }

// Close frees the memory. No other call may be running or follow.
func (c *Rows) Close() {
	for _, b := range c.blocks {
		b.Free()
	}
	c.blocks, c.slots, c.tables = nil, nil, nil
}

// asFloats views counts as floats of the same width; both are four bytes wide
// and equally aligned, which is all that the conversion needs.
func asFloats(counts []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(counts))), len(counts))
}
