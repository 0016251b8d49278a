package plan

import (
	"context"
	"fmt"

	"freshgo/core/mem"
)

// Storage keeps the inputs of a plan, a record for each batch and stage, so that memory holds a few batches at a time
// and not the whole window: see Config.Storage. One goroutine puts at a time; any may load records.
type Storage interface {
	// Put stores the bytes of the pieces, one after the other. Plan returns its error.
	Put(pieces ...[]byte) (Record, error)
}

// Record is bytes that were put into a Storage.
type Record interface {
	// Load returns the bytes, aligned for numbers of four bytes, until release is called, once.
	Load(ctx context.Context) (data []byte, release func(), err error)
	// Free gives their room back. It is called once, after the last release.
	Free()
}

// Fetcher is a Record whose load can start early. A load after that, once, waits only for the rest.
type Fetcher interface{ Fetch(ctx context.Context) }

// Fetch starts loading a record, if it is a Fetcher. A nil record is ignored.
func Fetch(ctx context.Context, r Record) {
	if f, ok := r.(Fetcher); ok {
		f.Fetch(ctx)
	}
}

// Memory returns a storage that keeps everything in memory.
func Memory(budget *mem.Budget) Storage { return memory{budget} }

type memory struct{ budget *mem.Budget }

func (m memory) Put(pieces ...[]byte) (Record, error) {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	block, err := m.budget.Alloc(mem.Trace, int64(n))
	if err != nil {
		return nil, err
	}
	to := block.Bytes()
	for _, p := range pieces {
		to = to[copy(to, p):]
	}
	return held{block}, nil
}

type held struct{ block *mem.Block }

func (h held) Load(context.Context) ([]byte, func(), error) { return h.block.Bytes(), func() {}, nil }

func (h held) Free() { h.block.Free() }

// nothing is an empty record.
type nothing struct{}

func (nothing) Load(context.Context) ([]byte, func(), error) { return nil, func() {}, nil }

func (nothing) Free() {}

// Rows is a batch of a window: its rows are loaded when the planner comes to it.
type Rows interface {
	Len() int // the number of rows
	Load(ctx context.Context) (rows Batch, release func(), err error)
}

// Len makes a Batch one whose rows are in memory.
func (b Batch) Len() int { return len(b) }

// Load returns the batch itself.
func (b Batch) Load(context.Context) (Batch, func(), error) { return b, func() {}, nil }

// InMemory returns batches whose rows are in memory.
func InMemory(batches []Batch) []Rows {
	rows := make([]Rows, len(batches))
	for i, b := range batches {
		rows[i] = b
	}
	return rows
}

// loaded calls use with the values of a record.
func loaded[T any](ctx context.Context, r Record, use func(values []T) error) error {
	data, release, err := r.Load(ctx)
	return during(data, release, err, use)
}

// during calls use with the data of a load, if it succeeded, and releases the data.
func during[T any](data []byte, release func(), err error, use func(values []T) error) error {
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	defer release()
	return use(mem.View[T](data))
}

// records is a record for each batch, or nil.
type records []Record

// free frees the record of batch b.
func (r records) free(b int) {
	if r[b] != nil {
		r[b].Free()
		r[b] = nil
	}
}

func (r records) freeAll() {
	for b := range r {
		r.free(b)
	}
}
