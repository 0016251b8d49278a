package loader

import (
	"iter"
	"slices"
	"sync"
	"time"

	"freshgo/core/internal/reuse"
	"freshgo/core/plan"
	"freshgo/core/scratch"
)

// batchPacks is the packs that one superbatch fills for one batch: one for each column of the cache, nil where there
// was no room. A nil batchPacks has none.
type batchPacks struct {
	columns []*scratch.Pack
	widths  []int        // of their rows
	zeros   []byte       // as long as the widest
	mu      sync.RWMutex // held for reading while a row is added
	sealed  bool
}

// add leaves a row for the batch. It does nothing when the batch has begun to read, for then the batch reads the row
// itself, or when the pack fails, which says so when it is read.
func (p *batchPacks) add(column int, pos int32, row []byte) {
	if p.beginAdding(column) {
		defer p.mu.RUnlock()
		_ = p.columns[column].Add(pos, row, p.zeros[:p.widths[column]-len(row)]) // a pack that fails is not read
	}
}

// addAll is add for several rows, which are as they are yielded.
func (p *batchPacks) addAll(column int, rows iter.Seq2[int32, []byte]) {
	if !p.beginAdding(column) {
		return
	}
	defer p.mu.RUnlock()
	width := p.widths[column]
	var fields [2][]byte
	_ = p.columns[column].AddAll(func(yield func(int32, [][]byte) bool) { // a pack that fails is not read
		for pos, row := range rows {
			fields = [2][]byte{row, p.zeros[:width-len(row)]}
			if !yield(pos, fields[:]) {
				return
			}
		}
	})
}

// beginAdding says whether a pack still takes rows; if so, mu is held for reading.
func (p *batchPacks) beginAdding(column int) bool {
	if p == nil || p.columns[column] == nil {
		return false
	}
	p.mu.RLock()
	if p.sealed {
		p.mu.RUnlock()
		return false
	}
	return true
}

// empty says whether there is no pack.
func (p *batchPacks) empty() bool {
	return p == nil || !slices.ContainsFunc(p.columns, func(k *scratch.Pack) bool { return k != nil })
}

// seal ends the adding of rows.
func (p *batchPacks) seal() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
}

func (p *batchPacks) close() {
	if p == nil {
		return
	}
	p.seal()
	for i, k := range p.columns {
		if k != nil {
			k.Close()
			p.columns[i] = nil
		}
	}
}

// setAside copies the rows of a step that leave to their packs.
func (p *preparer) setAside(tensors [][]byte) {
	l, leave := p.loader, p.step.Forward
	if len(leave) == 0 {
		return
	}
	start := time.Now()
	among(l.movers, len(leave), func(lo, hi int) {
		for leave := leave[lo:hi]; len(leave) > 0; {
			n := 1 // those of one pack come one after the other: a plan evicts what is needed farthest from now first
			for n < len(leave) && leave[n].Batch == leave[0].Batch {
				n++
			}
			for _, t := range l.onDisk {
				p.super.packs[leave[0].Batch].addAll(t.cached, p.leaving(t, tensors[t.index], leave[:n]))
			}
			leave = leave[n:]
		}
	})
	l.planned.timeline.add(spanPacking, p.number, start)
}

// leaving yields those rows that a table has, from slots or from the batch's tensor.
func (p *preparer) leaving(t *table, tensor []byte, leave []plan.Forward) iter.Seq2[int32, []byte] {
	return func(yield func(int32, []byte) bool) {
		base := p.base(t)
		for _, f := range leave {
			if !p.forwards(t, f) {
				continue
			}
			row := tensor
			if f.From >= 0 {
				row = p.loader.slotRow(t, f.From)
			} else {
				row = row[int(p.roster.tensorRow(^f.From)-base)*t.width:][:t.width]
			}
			if !yield(f.Pos, row) {
				return
			}
		}
	}
}

// readPacks copies what the packs of a planned batch hold into its tensors. A pack that fails has
// not brought its rows, which are then read from the store.
func (p *preparer) readPacks(tensors [][]byte) error {
	if p.super == nil || len(p.loader.onDisk) == 0 {
		return nil
	}
	l, k, rows := p.loader, &p.lookup, len(p.roster.rows)
	k.delivered = reuse.Slice(k.delivered, len(l.columns)*rows)
	clear(k.delivered)
	for _, packs := range p.super.packsFor(p.number) {
		for column, pack := range packs.columns {
			if pack == nil {
				continue
			}
			delivered := k.deliveredTo(column, rows)
			err := pack.Seal()
			if err == nil {
				err = pack.Read(p.epoch.ctx, func(pos int32, row []byte) error {
					if delivered[pos] { // by the plan before; one that came to be after a failure did not count on that
						return nil
					}
					// Different positions of a batch: no two calls write the same.
					to := p.roster.tensorRow(pos)
					if t := l.tableOf(column, p.roster.rows[pos]); t != nil && to >= 0 {
						p.deliver(t, tensors[t.index], to-p.base(t), row)
						delivered[pos] = true
					}
					return nil
				})
			}
			if p.epoch.ctx.Err() != nil {
				return errStopped
			}
			if err != nil {
				l.counters.packErrors.Add(1)
			}
		}
	}
	return nil
}
