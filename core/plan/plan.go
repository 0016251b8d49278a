package plan

import (
	"errors"

	"freshgo/core/cache"
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

	// Transfer is one of Transfers. The rest says what transfers cost and may be left out where it is "random" or
	// "forward": then nothing is predicted.
	Transfer   string
	Tables     []ssd.Layout // of each cached table
	First      []int64      // of each table, its first row among those of the graph; nil: every table has all rows
	RowBytes   int          // of a row in all tables together
	Device     ssd.Device
	PackMemory int64 // bytes that packs may take in memory
	PackFile   int64 // and in the scratch file
	// batches in flight: a pack is complete when its batch is read only if the last row was added more than Depth batches
	// earlier
	Depth     int
	SlotBytes int // of an engine buffer: the longest request
}

// Superplan is the plan of one superbatch. It is read-only and may be shared; its slices end with Release.
type Superplan struct {
	First    int64 // number of its first batch in the stream
	Steps    []Step
	Prologue Prologue
	Packs    []PackSize // by rising Dest; memory before file in this order
	Choice   Choice

	memory arena
	spare  *spare
}

// Release gives the plan's memory back. It is called once, after its last use, by any goroutine.
func (s *Superplan) Release() {
	s.spare.give(s.memory)
	*s = Superplan{First: s.First, Choice: s.Choice}
}

// Step is one batch. In this order: the rows that its packs hold and its other misses (Slots) come into its tensor, and
// what Extra names is read along; hits are copied out of their slots; Forward is copied to packs; In is copied to its
// slots.
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

// Prologue is what happens after the last step of the superbatch before, and before the first step: Forward, then the
// rows of Fill and Pack are read together in the order of the file. Both rise by row; a row may occur in Pack several
// times.
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

// posBytes is what a row takes in the pack of each table besides its bytes there: its position.
const posBytes = 4

// recordBytes is what a row takes in packs.
func (c *Config) recordBytes() int64 {
	return int64(c.RowBytes) + posBytes*int64(max(len(c.Tables), 1))
}
