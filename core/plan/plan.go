package plan

import (
	"errors"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// Errors of this package wrap one of these, or mem.ErrBudget, or the error of a context.
var (
	ErrConfig = errors.New("invalid plan configuration")
	ErrBatch  = errors.New("invalid batch")
	ErrReset  = errors.New("the planner must be reset after a plan that failed")
)

// Batch is the rows of a batch, distinct, in the order of its tensor.
type Batch []uint32

// Config says what to plan for.
type Config struct {
	NumRows   int64 // rows of the graph, below 2^32
	Capacity  int64 // rows that the cache holds
	CarryOver bool  // false: the cache is forgotten at the start of each superbatch, as in Ginex

	// Transfer is one of Transfers. The rest says what transfers cost and may be left out where it is "random" or "forward": then nothing is
	// predicted.
	Transfer   string
	Tables     []ssd.Layout // of each cached table
	RowBytes   int          // of a row in all tables together
	Device     ssd.Device
	PackMemory int64 // bytes that packs may take in memory
	PackFile   int64 // and in the scratch file
	Depth      int   // batches in flight: a pack is complete when its batch is read only if the last row was added more than Depth batches earlier
	SlotBytes  int   // of an engine buffer: the longest request
}

// Superplan is the plan of one superbatch. It is read-only and may be shared; its slices lie outside the Go heap and die with Release.
type Superplan struct {
	First    int64 // number of its first batch in the stream
	Steps    []Step
	Prologue Prologue
	Packs    []PackSize // by rising Dest; memory before file in this order
	Choice   Choice

	memory arena
}

// Release frees the plan. It is called once, after its last use.
func (s *Superplan) Release() {
	s.memory.release()
	*s = Superplan{First: s.First, Choice: s.Choice}
}

// Step is one batch. In this order: the rows that its packs hold and its other misses (Slots) come into its tensor, and what Extra names is
// read along; hits are copied out of their slots; Forward is copied to packs; In is copied to its slots.
type Step struct {
	cache.Step
	Forward []Forward
	Extra   []Extra
}

// Dest is a place in the pack of a later batch.
type Dest struct {
	Batch int32 // relative to the plan's First; it may lie in what is ahead
	Pos   int32 // position in that batch
}

// Forward copies a row that is at hand to the pack of the batch that needs it next.
type Forward struct {
	From int32 // a slot, or ^position in this batch where negative
	Dest
}

// Extra is a row that is read for a later batch.
type Extra struct {
	Row uint32
	Dest
}

// Fill is a row that is read into its slot before the superbatch begins.
type Fill struct {
	Row  uint32
	Slot int32
}

// Prologue is what happens after the last step of the superbatch before, and before the first step: Forward, then the rows of Fill and Pack are
// read together in the order of the file. Both rise by row; a row may occur in Pack several times.
type Prologue struct {
	Fill      []Fill
	Pack      []Extra
	Forward   []Forward // all from slots
	HolePages int       // unwanted pages that are cheaper to read through than to skip
}

// PackSize is how many rows a plan puts into the pack of a batch.
type PackSize struct {
	Dest int32 // batch, relative to First
	Rows int32
}

// recordBytes is what a row takes in a pack besides its bytes: its position.
const recordBytes = 4

// arena is memory that is freed as a whole.
type arena struct {
	budget  *mem.Budget
	purpose mem.Purpose
	blocks  []*mem.Block
	free    []byte // rest of the last shared block
}

// chunkBytes is the size of the blocks that small slices share. Those above a quarter of it get a block of their own, so that at most a
// quarter of a shared block is left over.
const chunkBytes = 64 << 10

// alloc returns memory for n elements of T, which must contain no pointers, zeroed.
func alloc[T any](a *arena, n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	nBytes := int64(n) * size[T]()
	if nBytes > chunkBytes/4 {
		block, err := a.add(nBytes)
		if err != nil {
			return nil, err
		}
		return mem.Slice[T](block), nil
	}
	rounded := (nBytes + 7) &^ 7
	if int64(len(a.free)) < rounded {
		block, err := a.add(chunkBytes)
		if err != nil {
			return nil, err
		}
		a.free = block.Bytes()
	}
	part := a.free[:nBytes:nBytes]
	a.free = a.free[rounded:]
	return mem.View[T](part), nil
}

func (a *arena) add(nBytes int64) (*mem.Block, error) {
	block, err := a.budget.Alloc(a.purpose, nBytes)
	if err == nil {
		a.blocks = append(a.blocks, block)
	}
	return block, err
}

func (a *arena) release() {
	for _, b := range a.blocks {
		b.Free()
	}
	a.blocks, a.free = nil, nil
}
