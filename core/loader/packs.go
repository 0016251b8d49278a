package loader

import (
	"iter"
	"slices"
	"sync"

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
