package plan

import (
	"context"
	"fmt"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// Loads start before they are needed. On a busy disk a load waits behind other requests, so loading one record after
// another would take longer than the plan. Small loads wait for requests, and mostLoads of them are in flight; large
// ones wait for bytes, and as many are in flight as have aheadBytes, at least leastLoads. All arbitrary.
const (
	mostLoads, leastLoads = 8, 2
	aheadBytes            = 16 << 20
)

// loadsAhead returns the number of loads under way where the widest batch has this many rows.
func loadsAhead(widest int) int {
	return min(max(aheadBytes/max(widest*loadedBytes, 1), leastLoads), mostLoads)
}

// loads loads records in a known order, a few of them ahead. It belongs to one goroutine.
type loads struct {
	ctx     context.Context
	cancel  context.CancelFunc
	records []loadable // in the order in which they are taken
	pending []*Coming
	next    int // the first whose load has not begun
	taken   int
	depth   int
}

// loadRows loads the rows of the batches from one to before another.
func (h *horizon) loadRows(ctx context.Context, from, to int) *loads {
	var rows []loadable
	for b := from; b < to; b++ {
		rows = append(rows, asBytes{h, b})
	}
	return newLoads(ctx, h.storage, rows, loadsAhead(h.widest()))
}

// asBytes is the rows of a batch.
type asBytes struct {
	*horizon
	batch int
}

func (b asBytes) Load(ctx context.Context) ([]byte, func(), error) {
	rows, release, err := b.batches[b.batch].Load(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("plan: the rows of batch %d: %w", b.batch, err)
	}
	return mem.Bytes(rows), release, nil
}

// load loads the records that there are, up to depth at a time ahead of their turn.
func (r records) load(ctx context.Context, storage Storage, depth int) *loads {
	var all []loadable
	for _, record := range r {
		if record != nil {
			all = append(all, record)
		}
	}
	return newLoads(ctx, storage, all, depth)
}

// takeFrom calls use with the values of the next load.
func takeFrom[T any](l *loads, use func(values []T) error) error {
	data, release, err := l.take()
	return during(data, release, err, use)
}

// loadable is a record, or the rows of a batch, as bytes.
type loadable interface {
	Load(ctx context.Context) (data []byte, release func(), err error)
}

// Coming is a load under way. Who began it takes it or drops it, once.
type Coming struct {
	over    chan struct{}
	data    []byte
	release func()
	err     error
}

// Begin begins to load a record.
func Begin(ctx context.Context, r loadable) *Coming {
	c := &Coming{over: make(chan struct{})}
	guard.Go(func() {
		defer close(c.over)
		c.err = guard.Run(func() (err error) {
			c.data, c.release, err = r.Load(ctx)
			return err
		})
	}, func(*guard.PanicError) {}) // Run returns the panic
	return c
}

// Take waits for the load and returns its data, valid until release is called.
func (c *Coming) Take() (data []byte, release func(), err error) {
	<-c.over
	return c.data, c.release, c.err
}

// Drop waits for the load and frees its data.
func (c *Coming) Drop() {
	if _, release, err := c.Take(); err == nil {
		release()
	}
}

// newLoads returns loads of records, up to depth of them ahead of their turn if the storage is a file. The caller takes
// them in order and closes.
func newLoads(ctx context.Context, storage Storage, records []loadable, depth int) *loads {
	l := &loads{records: records, depth: depth}
	if _, inMemory := storage.(memory); inMemory {
		l.depth = 0
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// take returns the next, until release is called.
func (l *loads) take() (data []byte, release func(), err error) {
	if l.depth == 0 {
		l.taken++
		return l.records[l.taken-1].Load(l.ctx)
	}
	for ; l.next < len(l.records) && l.next < l.taken+l.depth; l.next++ {
		l.pending = append(l.pending, Begin(l.ctx, l.records[l.next]))
	}
	one := l.pending[0]
	l.pending = l.pending[1:]
	l.taken++
	return one.Take()
}

// close frees loads that were not taken. Idempotent.
func (l *loads) close() {
	l.cancel()
	for _, one := range l.pending {
		one.Drop()
	}
	l.pending = nil
}
