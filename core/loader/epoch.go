package loader

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// epoch is one pass over the seeds. Preparers, one per batch in flight, take
// batches in order and deliver each into the slot of its index; the consumer
// takes them from there in order.
//
//	ask ──► preparer: sampler ─► ticket ─► sample ─► gate ─► tensors ─► rows ──► slot ──► next
//
// A preparer takes its ticket while it holds a sampling worker, so that the
// oldest batch always has one and the gate's order cannot starve it.
type epoch struct {
	loader *Loader
	key    sample.Key // of batch 0
	inputs []int64    // their positions in the user's seeds; nil: the identity
	blocks []*mem.Block
	first  int64
	count  int64
	trace  bool

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	gate   *gate
	ask    chan struct{} // a token for each batch that may be begun
	ticket atomic.Int64  // the next batch to begin
	slots  []chan result // by index modulo their number

	yielded int64 // batches handed over; the consumer's
	asked   bool  // whether the next batch's token has been given; the consumer's
	err     error // what ended the epoch; the consumer's
}

// result is a finished batch or why there is none.
type result struct {
	batch *Batch
	err   error
}

func (l *Loader) newEpoch(index, first int64, trace bool) (*epoch, error) {
	count := l.NumBatches()
	if index < 0 || first < 0 || first > count {
		return nil, fmt.Errorf("%w: epoch must be at least 0 and the first batch within [0, %d], got epoch %d, batch %d", ErrOption, count, index, first)
	}
	e := &epoch{
		loader: l, first: first, count: count, trace: trace, yielded: first,
		key: sample.Key{Seed: l.options.Seed, Epoch: uint64(index)},
	}
	if err := e.order(); err != nil {
		e.free()
		return nil, err
	}
	inFlight := max(l.split.prefetch, 1)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.gate = newGate(l.budget, l.split.batches, first)
	if l.options.Memory == 0 {
		e.gate.limit = 0
	}
	e.ask = make(chan struct{}, inFlight)
	e.slots = make([]chan result, inFlight)
	for i := range e.slots {
		e.slots[i] = make(chan result, 1)
	}
	e.ticket.Store(first)
	return e, nil
}

// order makes the permutation of this epoch.
func (e *epoch) order() error {
	l := e.loader
	if !l.options.Shuffle {
		return nil
	}
	block, err := l.budget.Alloc(mem.Trace, l.numSeeds()*8)
	if err != nil {
		return err
	}
	e.blocks = append(e.blocks, block)
	e.inputs = mem.Slice[int64](block)
	for i := range e.inputs {
		e.inputs[i] = int64(i)
	}
	return sample.Shuffle(context.Background(), e.inputs, e.key.Seed, e.key.Epoch)
}

// batchSeeds writes the seeds of batch i and their positions in the user's list.
func (e *epoch) batchSeeds(i int64, seeds, inputs []int64) ([]int64, []int64) {
	l := e.loader
	lo := i * l.options.BatchSize
	hi := min(lo+l.options.BatchSize, l.numSeeds())
	seeds, inputs = seeds[:0], inputs[:0]
	for p := lo; p < hi; p++ {
		input := p
		if e.inputs != nil {
			input = e.inputs[p]
		}
		inputs = append(inputs, input)
		if l.options.Seeds != nil {
			input = l.options.Seeds[input]
		}
		seeds = append(seeds, input)
	}
	return seeds, inputs
}

func (e *epoch) begin() {
	for range e.loader.split.prefetch {
		e.ask <- struct{}{}
	}
	for range e.slots {
		e.done.Add(1)
		guard.Go(func() {
			defer e.done.Done()
			e.prepareAll()
		}, e.loader.fail)
	}
}

// prepareAll is the life of a preparer.
func (e *epoch) prepareAll() {
	p := &preparer{epoch: e, loader: e.loader}
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.ask:
		}
		i, batch, err := p.prepare()
		if i >= e.count || e.ctx.Err() != nil {
			if batch != nil {
				batch.Release()
			}
			return
		}
		e.slots[i%int64(len(e.slots))] <- result{batch, err}
		if err != nil {
			return
		}
	}
}

// next is Loader.Next.
func (e *epoch) next(ctx context.Context) (*Batch, error) {
	if e.err != nil {
		return nil, e.err
	}
	if e.yielded == e.count {
		e.err = io.EOF
		return nil, io.EOF
	}
	if e.loader.split.prefetch == 0 && !e.asked {
		e.asked = true
		e.ask <- struct{}{}
	}
	e.gate.want(e.yielded)
	select {
	case r := <-e.slots[e.yielded%int64(len(e.slots))]:
		if r.err != nil {
			e.err = r.err
			e.stop()
			return nil, r.err
		}
		e.yielded++
		e.asked = false
		e.gate.handOver(r.batch.bytes)
		if e.loader.split.prefetch > 0 {
			e.ask <- struct{}{}
		}
		return r.batch, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.ctx.Done():
		return nil, errStopped
	}
}

// abandon makes everybody return, without waiting for them.
func (e *epoch) abandon() {
	e.cancel()
	e.gate.shutdown()
}

// stop ends the work, waits for the preparers and frees what they made.
func (e *epoch) stop() {
	e.abandon()
	e.done.Wait()
	for _, slot := range e.slots {
		select {
		case r := <-slot:
			if r.batch != nil {
				r.batch.Release()
			}
		default:
		}
	}
	e.gate.drain()
	e.free()
}

func (e *epoch) free() {
	for _, b := range e.blocks {
		b.Free()
	}
	e.blocks, e.inputs = nil, nil
}
