package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/loader"
	"freshgo/csrc"
)

// typeTensors returns the number of tensors of a batch that are not the user's: for each node type n_id, input_id,
// counts, places of rows, trees and times; for each edge type edge_index, e_id, ptr, counts, edge_weight and the
// tensors of the edges grouped by source.
func typeTensors(nodes, edges int) int {
	return 6*nodes + (5+len(batch.TransposedNames))*edges
}

// loaderHandle is an open loader. core's loaders serve one consumer at a time; the handle makes calls from several
// threads take turns, and lets those that change the epoch go before one that waits for a batch.
type loaderHandle struct {
	loader     *loader.Loader
	source     *shared
	maxTensors int
	buffers    csrc.Allocator
	pool       int64         // the bytes that it lets the pool of buffers keep
	reserved   int64         // and of that which its batches leave unused
	turn       chan struct{} // holds one token; whoever has taken it may call the loader
	step       chan struct{} // holds another one, for the calls of training steps, which wait for no batch

	mu       sync.Mutex // guards what follows
	waits    context.Context
	cancel   context.CancelFunc // ends the calls that wait for a batch
	progress progress           // of what the loader does ahead of the batches
}

func (*loaderHandle) kind() string { return "loader" }

// sampledHandle is a batch that nobody has taken.
type sampledHandle struct {
	batch      *batch.Batch
	maxTensors int
}

func (*sampledHandle) kind() string { return "sampled batch" }

// openLoader opens a loader over a source that the caller has begun to use; the loader drops it. Report gets the
// progress of the opening.
func openLoader(
	ctx context.Context, from opened, o draw.Options, buffers csrc.Allocator, report report,
) (*loaderHandle, error) {
	h := &loaderHandle{source: from.shared, buffers: buffers, turn: make(chan struct{}, 1), step: make(chan struct{}, 1)}
	o.Progress = func(stage string, done, total int64) {
		report(stage, done, total)
		h.mu.Lock()
		h.progress = progress{stage, done, total}
		h.mu.Unlock()
	}
	l, err := loader.Open(ctx, from.source, o, buffers)
	if err != nil {
		from.drop()
		return nil, err
	}
	h.loader = l
	h.maxTensors = from.numTensors + l.HistoryTensors() + linkTensors(&o) + typeTensors(0, len(o.Metapaths)) +
		len(o.Tables)
	if o.Packed {
		h.maxTensors += batch.PackTensors
	}
	if o.SeedsOnly {
		h.maxTensors++ // the key
	}
	h.pool, h.reserved = l.PoolBytes()
	buffers.GrowPool(h.pool, h.reserved)
	h.waits, h.cancel = context.WithCancel(context.Background())
	h.turn <- struct{}{}
	h.step <- struct{}{}
	return h, nil
}

func linkTensors(o *draw.Options) int {
	if o.Links == nil {
		return 0
	}
	return links.MaxTensors
}

// tables returns the tables whose rows batches leave to the caller, in the loader's memory.
func (h *loaderHandle) tables() (*batch.Batch, error) {
	var b batch.Batch
	for _, t := range h.loader.Tables() {
		buffer, err := csrc.Lent(t.Memory)
		if err != nil {
			b.Release()
			return nil, err
		}
		shape := append([]int64{t.NumRows}, t.RowShape...)
		b.Arrays = append(b.Arrays, batch.Array{Name: t.Label, DType: t.DType, Shape: shape, Buffer: buffer})
	}
	return &b, nil
}

// next waits for the next batch, at most timeoutMS (negative: for ever).
func (h *loaderHandle) next(timeoutMS int32) (b *batch.Batch, err error) {
	err = h.within(h.turn, timeoutMS, func(ctx context.Context) error {
		b, err = h.loader.Next(ctx)
		return err
	})
	if errors.Is(err, io.EOF) {
		err = errEnd
	}
	return b, err
}

// within runs fn in turn, which may use the loader and returns when ctx ends: after timeoutMS (negative: never). It
// fails with loader.ErrNoEpoch where another thread ends the epoch meanwhile.
func (h *loaderHandle) within(turn chan struct{}, timeoutMS int32, fn func(ctx context.Context) error) error {
	h.mu.Lock()
	waits := h.waits
	h.mu.Unlock()
	ctx, cancel := waits, context.CancelFunc(func() {})
	if timeoutMS >= 0 {
		ctx, cancel = context.WithTimeout(waits, time.Duration(timeoutMS)*time.Millisecond)
	}
	defer cancel()

	err := context.Cause(waits)
	if err == nil {
		if err = take(ctx, turn); err == nil {
			err = fn(ctx)
			turn <- struct{}{}
		}
	}
	switch {
	case waits.Err() != nil && errors.Is(err, context.Canceled):
		return loader.ErrNoEpoch
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return errTimeout
	}
	return err
}

// take waits for a turn. A free one is taken even if ctx has ended, so that a call without a timeout returns a batch
// that is ready.
func take(ctx context.Context, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	default:
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alone ends the calls that wait for a batch and runs fn, during which no other call reaches the loader.
func (h *loaderHandle) alone(fn func() error) error {
	h.mu.Lock()
	h.cancel()
	h.mu.Unlock()
	<-h.turn
	<-h.step
	defer func() { h.turn <- struct{}{}; h.step <- struct{}{} }()
	h.mu.Lock()
	h.waits, h.cancel = context.WithCancel(context.Background())
	h.mu.Unlock()
	return fn()
}

// close frees the loader; batches that were handed over live on.
func (h *loaderHandle) close() error {
	err := h.alone(h.loader.Close)
	h.mu.Lock()
	h.cancel()
	h.mu.Unlock()
	h.buffers.GrowPool(-h.pool, -h.reserved)
	h.source.drop()
	return err
}

// exported makes tensors of a batch. They hold its buffers from then on; with an error nobody does.
func exported(b *batch.Batch, versioned bool) ([]csrc.Tensor, error) {
	defer b.Release() // the batch's references; each tensor has its own
	tensors := make([]csrc.Tensor, 0, len(b.Arrays))
	for _, a := range b.Arrays {
		t, err := a.Buffer.(*csrc.Buffer).Tensor(a.Name, dtypes[a.DType], a.Shape, versioned)
		if err != nil {
			for _, made := range tensors {
				made.Delete()
			}
			return nil, err
		}
		tensors = append(tensors, t)
	}
	return tensors, nil
}
