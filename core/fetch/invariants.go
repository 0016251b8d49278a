package fetch

import (
	"fmt"
	"sync/atomic"
)

// deliveries counts the writes of each row of a batch's tensors of tables on disk: from the cache, a pack or the store.
type deliveries struct{ written map[*Table][]atomic.Int32 }

// begin forgets the batch before.
func (d *deliveries) begin(f *Filler) {
	d.written = map[*Table][]atomic.Int32{}
	for _, t := range f.Features.OnDisk {
		d.written[t] = make([]atomic.Int32, f.Drawn.TypeOffsets.Rows[t.Type+1]-f.Drawn.TypeOffsets.Rows[t.Type])
	}
}

// add counts a row of a table's tensor.
func (d *deliveries) add(t *Table, row int32) { d.written[t][row].Add(1) }

// check panics unless each row was written once and, in a batch that is pruned or padded, the others never.
func (d *deliveries) check(f *Filler) {
	for t, written := range d.written {
		if f.Constant && t.Trained != nil {
			continue
		}
		want := make([]int32, len(written))
		for from, to := range f.Drawn.Runs(&t.Tensor, len(written)) {
			for row := from; row < to; row++ {
				want[row] = 1
			}
		}
		for row := range written {
			if n := written[row].Load(); n != want[row] {
				panic(fmt.Sprintf("loader: row %d of %q was written %d times, not %d", row, t.Label, n, want[row]))
			}
		}
	}
}
