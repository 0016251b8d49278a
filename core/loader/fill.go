package loader

import (
	"freshgo/core/batch"
	"time"

	"freshgo/core/internal/invariants"
	"freshgo/core/internal/reuse"
)

// fill turns edge positions into edge numbers and has the cache bring all rows.
func (p *preparer) fill(b *batch.Batch) error {
	if err := p.numberEdges(); err != nil {
		return err
	}
	tensors, err := p.rowTensors(b)
	if err != nil {
		return err
	}
	if invariants.Enabled {
		p.deliveries.begin(p)
	}
	if err := p.cache.fill(p, b, tensors); err != nil {
		return err
	}
	return p.finish(tensors)
}

// finish turns stored rows into those that the batch delivers, and clears those that pruning has left unread.
func (p *preparer) finish(tensors [][]byte) error {
	for i := range p.loader.rows.tables {
		t := &p.loader.rows.tables[i]
		unread := p.drawn.Cut.On() && !t.ByEdge
		if tensors[i] == nil || t.Narrow == nil && !unread {
			continue
		}
		err := p.timed(func() {
			if t.Narrow != nil {
				t.Narrow.Widen(p.wide[i])
			}
			if unread {
				p.drawn.ClearUnloaded(p.wide[i], &t.Tensor)
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
func (p *preparer) rowTensors(b *batch.Batch) ([][]byte, error) {
	l := p.loader
	tensors := make([][]byte, len(l.rows.tables))
	p.wide = reuse.Slice(p.wide, len(l.rows.tables))
	for i := range l.rows.tables {
		t := &l.rows.tables[i]
		if t.ByEdge && !p.drawn.Numbered(t.Type) {
			continue
		}
		count := int64(len(p.drawn.IDsOf(&t.Tensor)))
		var err error
		if p.wide[i], err = b.AddTensor(t.Label, t.DType, append([]int64{count}, t.RowShape...)); err != nil {
			return nil, err
		}
		tensors[i] = p.wide[i][int64(len(p.wide[i]))-count*int64(t.Width):]
	}
	return tensors, nil
}

// timed computes and counts the time as gathering.
func (p *preparer) timed(fn func()) error {
	return p.loader.draw.Compute(p.epoch.ctx, func() {
		start := time.Now()
		fn()
		p.loader.counters.Gathering.Since(start)
	})
}
