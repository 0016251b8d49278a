package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/sizing"
)

// Errors of calls.
var (
	ErrClosed  = errors.New("loader: closed")
	ErrNoEpoch = errors.New("loader: no epoch is running")
)

// Loader makes the batches of one source, an epoch at a time. Start, Next, Stop
// and Close belong to one consumer and must not run concurrently with one
// another; Sample and Stats may be called from anywhere.
type Loader struct {
	draw  draw.Sampling
	rows  fetch.Features
	alloc mem.Allocator

	cache    rowCache
	history  historyCache
	forecast *forecast  // of the history's work; nil: none has begun
	taken    draw.Share // of the epochs that start; the zero value is all batches

	counters batch.Counters
	offers   func() []sizing.Offer // what epochs would move with more memory
	onDemand onDemandWorkers
	mu       sync.Mutex // guards running, failed and closed
	running  *epoch
	failed   *guard.PanicError
	closed   bool
}

// PoolBytes returns the part of the memory in which the allocator may keep released buffers, and the part reserved for
// batches, whose unused rest it may fill with them as well.
func (l *Loader) PoolBytes() (kept, reserved int64) {
	return l.draw.Split.Pool, l.draw.Split.Batches
}

// NumBatches returns the number of batches of an epoch, over all ranks.
func (l *Loader) NumBatches() int64 { return l.draw.NumBatches() }

// Tables returns the tensors whose rows batches leave to the consumer, see draw.Options.RowsByID. Their memory is
// valid until Close.
func (l *Loader) Tables() (tables []*draw.Tensor) {
	for i := range l.rows.Tables {
		if t := &l.rows.Tables[i].Tensor; t.ByID {
			tables = append(tables, t)
		}
	}
	return tables
}

// ReadList copies a part of a neighbour list of a loader, see draw.ReadList.
func ReadList(l *Loader, relation, list int, first int64, out []int64) (there bool, err error) {
	if err := l.usable(); err != nil {
		return false, err
	}
	return draw.ReadList(&l.draw, relation, list, first, out)
}

// ListsOf returns the neighbour lists of a relation in the memory of a loader, see draw.ListsOf.
func ListsOf(l *Loader, relation int) (draw.StoredLists, error) {
	if err := l.usable(); err != nil {
		return draw.StoredLists{}, err
	}
	return draw.ListsOf(&l.draw, relation)
}

// LockLists locks the lists of ListsOf for a device until the loader is closed. It returns false, and locks none, where
// the system refuses one.
func LockLists(l *Loader) (locked bool, err error) {
	if err := l.usable(); err != nil {
		return false, err
	}
	return fetch.LockLists(&l.draw, l.alloc)
}

// Mode is the purpose of an epoch.
type Mode int

const (
	Train Mode = iota // the batches, pruned where there is a history
	Trace             // n_id and input_id only: nothing is read
	Plain             // the batches as if there were no history
)

// Start ends the running epoch, if any, and starts another, after the first firstBatch of its batches, whichever ranks
// have made them; the rest is shared as Take says. Batch.Index counts the loader's own batches.
func (l *Loader) Start(epochIndex, firstBatch int64, mode Mode) error {
	if err := l.usable(); err != nil {
		return err
	}
	l.Stop()
	e, err := newEpoch(l, epochIndex, firstBatch, mode)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.running = e
	l.mu.Unlock()
	e.begin()
	return nil
}

// Next waits for the next batch of the running epoch and gives it to the caller,
// who owns its buffers from then on. It returns io.EOF after the last one, and
// ctx's error when that comes first; the batch then waits for the next call.
// Any other error ends the epoch and is returned again until Start.
//
// With a history, BeginStep and EndStep say when the caller trains on a batch, which may be later.
func (l *Loader) Next(ctx context.Context) (*batch.Batch, error) {
	e, err := current(l)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	b, err := e.next(ctx)
	l.counters.Waiting.Since(start)
	if err == nil {
		l.counters.Batches.Add(1)
	} else if !errors.Is(err, io.EOF) {
		if p := (*guard.PanicError)(nil); errors.As(err, &p) {
			l.fail(p)
		}
		if failed := l.usable(); failed != nil {
			return nil, failed
		}
	}
	return b, err
}

// current returns the running epoch of a loader.
func current(l *Loader) (*epoch, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		return nil, ErrNoEpoch
	}
	return l.running, nil
}

// Stop ends the running epoch and frees its prepared batches. Idempotent.
func (l *Loader) Stop() {
	l.mu.Lock()
	e := l.running
	l.running = nil
	l.mu.Unlock()
	if e != nil {
		e.stop()
	}
	l.dropForecast()
}

// Settle writes the current rows of the tables that training changes into their files, and ends the running epoch: its
// batch is done with, and Start goes on after it. The loader has such tables.
func (l *Loader) Settle() error {
	if err := l.usable(); err != nil {
		return err
	}
	l.Stop()
	return l.cache.settle()
}

// Close stops the work and frees everything but batches already handed over.
// Idempotent.
func (l *Loader) Close() error {
	l.Stop()
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.onDemand.end()
	l.cache.stop()
	l.draw.Close()
	return nil
}

// Take sets the share of epochs that start after this call. A share that differs from the current one ends the running
// epoch. A history counts the share's epochs.
func (l *Loader) Take(s draw.Share) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s == l.taken {
		return nil
	}
	if len(l.draw.Options.Tables) > 0 && s.Ranks > 1 && s.Adjacent != s.Ranks {
		return fmt.Errorf("%w: one loader trains embeddings, and makes the batches of all ranks, got world_size = %d and "+
			"%d adjacent ranks", draw.ErrOption, s.Ranks, max(1, s.Adjacent))
	}
	l.Stop()
	l.taken = s
	l.history.setSpans(s.BatchesOf(l.NumBatches()))
	return nil
}

// turnsFrom returns the schedule of the loader in an epoch whose batches before first have been made, and its position.
func (l *Loader) turnsFrom(first int64) (draw.ShareSchedule, int64) {
	return l.taken.Schedule(l.NumBatches(), first)
}

// usable reports whether the loader still works.
func (l *Loader) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed:
		return ErrClosed
	}
	return nil
}

// fail records a panic of one of the loader's goroutines: nothing it made can be
// trusted any more.
func (l *Loader) fail(p *guard.PanicError) {
	l.mu.Lock()
	if l.failed == nil {
		l.failed = p
	}
	e := l.running
	l.mu.Unlock()
	if e != nil {
		e.abandon()
	}
	l.cache.abandon()
}

// PanicError is the error of Next, NewGraph, Open and the functions of package store where a goroutine of core
// panicked. It is named here for callers outside core, which cannot import its package.
type PanicError = guard.PanicError
