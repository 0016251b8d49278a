package fetch

import (
	"time"

	"freshgo/core/batch"
	"freshgo/core/internal/invariants"
	"freshgo/core/internal/reuse"
)

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
	return f.finish(tensors)
}

// finish turns stored rows into those that the batch delivers, and clears those that pruning has left unread.
func (f *Filler) finish(tensors [][]byte) error {
	for i := range f.Features.Tables {
		t := &f.Features.Tables[i]
		unread := f.Drawn.Cut.On() && !t.ByEdge
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

// rowTensors appends the tensors of the graph to the batch, and returns where their rows are to be put as they are
// stored: at the end of each, from where finish spreads those of fewer bytes. It is nil for tensors that the batch goes
// without.
func (f *Filler) rowTensors(b *batch.Batch) ([][]byte, error) {
	tensors := make([][]byte, len(f.Features.Tables))
	f.wide = reuse.Slice(f.wide, len(f.Features.Tables))
	for i := range f.Features.Tables {
		t := &f.Features.Tables[i]
		if t.ByEdge && !f.Drawn.Numbered(t.Type) {
			continue
		}
		count := int64(len(f.Drawn.IDsOf(&t.Tensor)))
		var err error
		if f.wide[i], err = b.AddTensor(t.Label, t.DType, append([]int64{count}, t.RowShape...)); err != nil {
			return nil, err
		}
		tensors[i] = f.wide[i][int64(len(f.wide[i]))-count*int64(t.Width):]
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
