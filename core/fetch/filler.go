// Package fetch brings the rows of batches into their tensors: from memory, from the slots of a cache, and from disk.
//
// Features are the tensors of the graph, with the slots of the cache. A Filler serves one preparer. For one batch after
// the other it finds edge numbers, looks up the rows, reads the cold ones, copies rows out of slots and into them
// (rows.go), and widens rows of fewer bytes. A Source decides how: AllInMemory, Uncached, Fixed, Online
// (sources.go), or the execution of a plan (core/window). Sources that change with each batch do so in the order of the
// batches (Turns).
package fetch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/internal/invariants"
	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
)

// Source brings the rows of tables on disk: a cache, or the execution of its plan.
type Source interface {
	// Fill brings the rows of batch i into its tensors, and lets the batch change the cache.
	Fill(f *Filler, i int64, tensors [][]byte) error
}

// Turns are the turns of an epoch's batches at shared state, in their order.
type Turns struct {
	Ctx    context.Context
	Cache  *Turnstile
	Policy *Turnstile // of an online cache
}

// Filler brings the rows of one batch after the other into their tensors. Its scratch is its own.
type Filler struct {
	Sampling   *draw.Sampling
	Features   *Features
	Counters   *batch.Counters
	Drawn      *batch.Drawn
	Source     Source
	Turns      Turns
	Scratch    graph.Scratch
	Lookup     Lookup
	deliveries deliveries // with the tag invariants
	wide       [][]byte   // the tensors of the batch that the graph has rows for
	// Constant leaves out the tables that training changes: the batch is in no epoch.
	Constant bool
	Step     plan.Step // where the rows of the batch are, and what moves after it

	// Of a batch whose rows training changes, until Forget: the stored rows of all tables, and their memory. Tables that
	// training changes have them in the batch, whose tensors the consumer may drop earlier. Other tables on disk have
	// copies of the rows that stay: the consumer may write to its tensors, and Fill widens narrow rows.
	Tensors [][]byte
	kept    []mem.Buffer // of tables that training changes
	copies  []mem.Buffer // of the other tables
}

// Forget drops the rows of a batch that training has changed.
func (f *Filler) Forget() {
	for _, buffers := range [][]mem.Buffer{f.kept, f.copies} {
		for _, buffer := range buffers {
			buffer.Release()
		}
	}
	f.kept, f.copies, f.Tensors = f.kept[:0], f.copies[:0], nil
}

// Keep returns the memory of the tables' rows once more. The caller releases it.
func (f *Filler) Keep() (kept []mem.Buffer) {
	for _, buffer := range f.kept {
		kept = append(kept, buffer.Retain())
	}
	return kept
}

// Fill turns edge positions into edge numbers and has the cache bring all rows.
func (f *Filler) Fill(b *batch.Batch) error {
	if err := f.numberEdges(); err != nil {
		return err
	}
	tensors, err := f.rowTensors(b)
	if err != nil {
		return err
	}
	if invariants.Enabled {
		f.deliveries.begin(f)
	}
	if err := f.Source.Fill(f, b.Index, tensors); err != nil {
		return err
	}
	if err := f.finish(tensors); err != nil || !f.Drawn.Parts.Packed {
		return err
	}
	var failed error
	err = f.Sampling.Compute(f.Turns.Ctx, func() { failed = b.Pack() })
	return cmp.Or(err, failed)
}

// finish widens stored rows to the rows that the batch delivers, and clears rows that pruning has left unread, or that
// pad the batch.
func (f *Filler) finish(tensors [][]byte) error {
	for i := range f.Features.Tables {
		t := &f.Features.Tables[i]
		unread := batch.Partial(f.Drawn, &t.Tensor)
		if tensors[i] == nil || t.Narrow == nil && !unread {
			continue
		}
		err := f.Timed(func() {
			if t.Narrow != nil {
				t.Narrow.Widen(f.wide[i])
			}
			if unread {
				f.Drawn.ClearUnloaded(f.wide[i], &t.Tensor)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rowTensors appends the tensors of the graph to the batch, and returns the destinations of their stored rows: at the
// end of each tensor, from where finish widens narrow ones. It is nil for tensors that the batch omits.
func (f *Filler) rowTensors(b *batch.Batch) ([][]byte, error) {
	tensors := make([][]byte, len(f.Features.Tables))
	f.Tensors = tensors
	if len(f.Features.Trained) > 0 {
		f.Tensors = make([][]byte, len(tensors))
	}
	f.wide = reuse.Slice(f.wide, len(f.Features.Tables))
	for i := range f.Features.Tables {
		t := &f.Features.Tables[i]
		if t.ByID || t.ByEdge && !f.Drawn.Numbered(t.Type) || f.Constant && t.Trained != nil {
			continue
		}
		count, add := int64(len(f.Drawn.IDsOf(&t.Tensor))), b.AddTensor
		if !batch.Packs(&t.Tensor) {
			add = b.AddApart
		}
		var err error
		if f.wide[i], err = add(t.Label, t.DType, append([]int64{count}, t.RowShape...)); err != nil {
			return nil, err
		}
		tensors[i] = f.wide[i][int64(len(f.wide[i]))-count*int64(t.Width):]
		f.Tensors[i] = tensors[i]
		switch {
		case t.Trained != nil:
			f.kept = append(f.kept, b.Arrays[len(b.Arrays)-1].Buffer.Retain())
		case len(f.Features.Trained) > 0 && !f.Constant && t.Disk != nil && !t.ByEdge && !t.unused:
			copies, err := b.Acquire(count * int64(t.Width))
			if err != nil {
				return nil, err
			}
			f.copies, f.Tensors[i] = append(f.copies, copies), copies.Bytes()
		}
	}
	return tensors, nil
}

// Timed computes and counts the time as gathering.
func (f *Filler) Timed(fn func()) error {
	return f.Sampling.Compute(f.Turns.Ctx, func() {
		start := time.Now()
		fn()
		f.Counters.Gathering.Since(start)
	})
}

// numberEdges replaces positions in the arrays of neighbours by the user's edge numbers.
func (f *Filler) numberEdges() error {
	s := f.Sampling.Parts.Schema
	for i := range s.Edges {
		if !f.Drawn.Numbered(i) {
			continue
		}
		for drawn := range f.Drawn.Positions(i) {
			if err := f.replacePositions(&s.Relations[i].EdgeIDs, drawn); err != nil {
				return s.OfRelation(i, fmt.Errorf("numbering edges: %w", err))
			}
		}
	}
	return nil
}

// replacePositions replaces positions by the edge numbers of an array.
func (f *Filler) replacePositions(edgeIDs *graph.IDs, d sample.Drawn) error {
	if edgeIDs.OnDisk() {
		start := time.Now()
		defer f.Counters.Reading.Since(start)
		return edgeIDs.Gather(f.Turns.Ctx, &f.Scratch, d, d.Pos)
	}
	return f.Sampling.Compute(f.Turns.Ctx, func() {
		// In memory nothing can fail, and nothing waits.
		_ = edgeIDs.Gather(context.Background(), nil, d, d.Pos)
	})
}
