package window

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/scratch"
)

// recordStore keeps traces and the records of plans: in memory while less than limit is in use there, else in the
// scratch file. It is a plan.Storage, safe for concurrent use.
type recordStore struct {
	budget *mem.Budget
	pool   *scratch.Pool
	limit  int64
	most   int64        // bytes in memory if the file takes none: plans over them need as much
	held   atomic.Int64 // bytes in memory
}

// Put keeps bytes. Where the file has no room or is out of use, they are kept in memory beyond the limit.
//
// Errors: mem.ErrBudget where that would be more than most, which leaves the rest of the budget to batches.
func (r *recordStore) Put(pieces ...[]byte) (plan.Record, error) {
	record, err := r.tryPut(pieces...)
	if !errors.Is(err, scratch.ErrFull) && !errors.Is(err, scratch.ErrBroken) {
		return record, err
	}
	n, left := lengthOf(pieces), r.most-r.held.Load()
	if n > left {
		full := &mem.BudgetError{Purpose: mem.Trace, Need: n, Free: max(left, 0), Limit: r.most}
		return nil, fmt.Errorf("%w; %w", full, err)
	}
	return r.inMemory(pieces...)
}

// tryPut is Put within the limit.
func (r *recordStore) tryPut(pieces ...[]byte) (plan.Record, error) {
	n := lengthOf(pieces)
	if n <= r.limit-r.held.Load() || n == 0 { // two at a time may exceed it by one
		if record, err := r.inMemory(pieces...); err == nil || !errors.Is(err, mem.ErrBudget) {
			return record, err
		}
	}
	blob, err := r.pool.NewBlob(n)
	if err != nil {
		return nil, err
	}
	for _, piece := range pieces {
		err = errors.Join(err, blob.Write(piece))
	}
	if err = errors.Join(err, blob.Finish()); err != nil {
		blob.Close()
		return nil, err
	}
	return &inFile{blob: blob}, nil
}

func lengthOf(pieces [][]byte) (n int64) {
	for _, piece := range pieces {
		n += int64(len(piece))
	}
	return n
}

func (r *recordStore) inMemory(pieces ...[]byte) (plan.Record, error) {
	record, err := plan.Memory(r.budget).Put(pieces...)
	if err != nil {
		return nil, err
	}
	n := lengthOf(pieces)
	r.held.Add(n)
	return &inMemory{record, &r.held, n}, nil
}

// inMemory is a record in memory that is counted.
type inMemory struct {
	plan.Record
	held *atomic.Int64
	size int64
}

func (m *inMemory) Free() {
	m.held.Add(-m.size)
	m.Record.Free()
}

// lost is a record that no longer exists, or never did.
type lost struct{}

func (lost) Load(context.Context) ([]byte, func(), error) { return nil, nil, scratch.ErrBroken }

func (lost) Free() {}

// inFile is a record in the scratch file.
type inFile struct {
	blob   *scratch.Blob
	coming atomic.Pointer[plan.Coming] // a load that Fetch has begun and nobody has taken
}

// Fetch implements plan.Fetcher. One goroutine at a time calls it.
func (f *inFile) Fetch(ctx context.Context) {
	if f.coming.Load() == nil {
		f.coming.Store(plan.Begin(ctx, f.blob))
	}
}

// Load waits for the fetched data. If fetching failed, for instance without memory or after a context ended, it tries
// again.
func (f *inFile) Load(ctx context.Context) ([]byte, func(), error) {
	if c := f.coming.Swap(nil); c != nil {
		if data, release, err := c.Take(); err == nil {
			return data, release, nil
		}
	}
	return f.blob.Load(ctx)
}

func (f *inFile) Free() {
	if c := f.coming.Swap(nil); c != nil {
		c.Drop()
	}
	f.blob.Close()
}
