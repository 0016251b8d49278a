package cache

import (
	"fmt"

	"freshgo/core/mem"
)

// Counter counts the batches that need each row. Over the batches of K epochs sampled in advance, it gives PreSC#K
// (FGNN, section 6.3); over the batches of the evaluated epoch, the optimal static cache (its section 6.2), which no
// static policy exceeds.
type Counter struct{ vector *Vector }

// NewCounter returns a Counter without batches.
func NewCounter(budget *mem.Budget, numRows int64) (*Counter, error) {
	v, err := NewVector(budget, numRows)
	if err != nil {
		return nil, err
	}
	return &Counter{vector: v}, nil
}

// Add counts a batch, whose rows are distinct.
func (c *Counter) Add(rows []uint32) { Count(c.Counts(), rows) }

// Counts returns the number of batches that needed each row so far. It is valid until
// Hotness or Close.
func (c *Counter) Counts() []uint32 { return mem.Slice[uint32](c.vector.block) }

// Hotness ends the counting and returns the mean number of batches in an epoch
// that need each row. The caller closes it instead of the Counter.
func (c *Counter) Hotness(epochs int) *Vector {
	if epochs < 1 {
		panic(fmt.Sprintf("cache: invariant: counts of %d epochs", epochs))
	}
	v := c.vector
	c.vector = nil
	countsAsHotness(mem.Slice[uint32](v.block))
	if epochs > 1 {
		for row := range v.Hotness {
			v.Hotness[row] /= float32(epochs)
		}
	}
	return v
}

// Close frees the memory unless Hotness handed it on.
func (c *Counter) Close() {
	if c.vector != nil {
		c.vector.Close()
	}
}
