package cache

import (
	"fmt"
	"math"
	"sync/atomic"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// Rows is the memory of a cache: for every slot one row of each of several tables. A node is cached in all tables or in
// none, so one lookup serves all of them. A Policy decides which row each slot holds.
//
// It has no lock: different slots may be read and written concurrently.
type Rows struct {
	tables [][]byte
	widths []int
	blocks []*mem.Block

	closing   atomic.Bool
	populated chan struct{} // closed when Populate has ended; nil: it was not called
}

// RowsBytes returns the memory of the rows of a cache, without the policy's tables.
func RowsBytes(capacity int64, widths []int) int64 {
	var total int64
	for _, w := range widths {
		total += capacity * int64(w)
	}
	return total
}

// NewRows makes room for capacity rows of tables with these row widths in bytes.
// It returns mem.ErrBudget when the budget has no room.
func NewRows(budget *mem.Budget, capacity int64, widths []int) (*Rows, error) {
	if capacity < 0 || capacity > math.MaxInt32 {
		return nil, fmt.Errorf("cache: capacity must be within [0, %d] rows, got %d: %w",
			math.MaxInt32, capacity, ErrCapacity)
	}
	c := &Rows{widths: widths}
	for _, w := range widths {
		block, err := budget.Alloc(mem.FeatureCache, capacity*int64(w))
		if err != nil {
			c.Close()
			return nil, err
		}
		c.blocks = append(c.blocks, block)
		c.tables = append(c.tables, block.Bytes())
	}
	return c, nil
}

// Row returns the memory of one slot of a table.
func (c *Rows) Row(table int, slot int64) []byte {
	w := int64(c.widths[table])
	return c.tables[table][slot*w : (slot+1)*w : (slot+1)*w]
}

// Table returns the memory of all slots of a table, one after the other.
func (c *Rows) Table(table int) []byte { return c.tables[table] }

// populatedBytes is the memory that is populated at a time: some milliseconds, which Close waits for.
const populatedBytes = 4 << 20

// Populate has the system give the slots their memory in the background. Else whoever writes a slot first waits for
// that, and what reads rows in the order of the file is one thread. It is called once.
func (c *Rows) Populate() {
	c.populated = make(chan struct{})
	guard.Go(func() {
		defer close(c.populated)
		for _, b := range c.blocks {
			for data := b.Bytes(); len(data) >= populatedBytes; data = data[populatedBytes:] {
				if c.closing.Load() || !mem.Populate(data[:populatedBytes]) {
					return
				}
			}
		}
	}, func(*guard.PanicError) {}) // slots are then slower
}

// Close frees the memory. No other call may be running or follow.
func (c *Rows) Close() {
	c.closing.Store(true)
	if c.populated != nil {
		<-c.populated
	}
	for _, b := range c.blocks {
		b.Free()
	}
	c.blocks, c.tables = nil, nil
}
