package window

import (
	"cmp"
	"slices"

	"freshgo/core/fetch"
	"freshgo/core/internal/bitset"
	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
)

// Where the cache is smaller than the batches in flight (trained.inTurn), most rows of a batch are in the next one as
// well: 84 % in batches of 57 % of gowalla's nodes. Such rows go from tensor to tensor. A committed batch leaves its
// rows in its tensor; the next batch takes its own from there in its turn, and returns the rest to the tables.

// inHand is rows whose living copies are in the tensor of a batch: of the batch committed last, until the next one has
// taken its rows; then the taken rows in the tensor of that one, until its Commit. It has the memory of the tensor, so
// that rows are not lost with a batch that no consumer takes. It belongs to the batch whose turn it is.
type inHand struct {
	tables []handRows
	kept   []mem.Buffer
}

// handRows is the rows of a table in a tensor.
type handRows struct {
	tensor []byte
	rows   []uint64 // the row of the table, and in the lower half its row of the tensor
}

func handRow(row uint32, at int32) uint64 { return uint64(row)<<32 | uint64(uint32(at)) }

// record returns the record of a row.
func (h *handRows) record(row uint64, width int) []byte {
	return h.tensor[int(uint32(row))*width:][:width]
}

// drop forgets the rows, whose living copies are elsewhere. Without any it writes nothing: where batches do not read in
// their turns, others look for rows in hand at the same time.
func (h *inHand) drop() {
	if h.tables == nil {
		return
	}
	for _, buffer := range h.kept {
		buffer.Release()
	}
	h.tables, h.kept = nil, nil
}

// keep leaves rows of a batch in its tensor.
func (a *trained) keep(f *fetch.Filler, tables []handRows) {
	a.hand.drop()
	a.hand = inHand{tables, f.Keep()}
}

// returnHand returns the rows in hand to their tables, but for those with a mark in taken.
func (a *trained) returnHand(taken []bitset.Set) error {
	defer a.hand.drop()
	for i := range a.hand.tables {
		t, of := &a.tables[i], &a.hand.tables[i]
		for k, row := range of.rows {
			if taken != nil && taken[i].Has(int64(k)) {
				continue
			}
			if err := t.lose(t.back.Add(uint32(row>>32), of.record(row, t.Width))); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveInHand leaves the cold rows of a batch that neither stay in slots nor are in packs in its tensor.
func (w *Batch) leaveInHand(f *fetch.Filler, tensors [][]byte, staying bitset.Set) {
	all := w.inspector.cache.trained
	tables := make([]handRows, len(all.tables))
	for i := range all.tables {
		t := &all.tables[i]
		base, rows := f.Drawn.FirstRow(t.Type), make([]uint64, 0, len(f.ColdOf(t.Table)))
		for _, pos := range f.ColdOf(t.Table) {
			if !staying.Has(int64(pos)) {
				rows = append(rows, handRow(t.local(f.Drawn.BatchRows.Rows[pos]), f.Drawn.BatchRows.TensorRow(pos)-base))
			}
		}
		slices.Sort(rows)
		tables[i] = handRows{tensors[t.Index], rows}
	}
	all.keep(f, tables)
}

// takeFromHand copies the batch's rows that are in hand. The copies in hand live until keepTaken.
func (w *Batch) takeFromHand(f *fetch.Filler, tensors [][]byte) {
	all := w.inspector.cache.trained
	w.taken = reuse.Slice(w.taken, len(all.hand.tables))
	w.got = reuse.Slice(w.got, len(all.hand.tables))
	for i := range all.hand.tables {
		t, of := &all.tables[i], &all.hand.tables[i]
		base, dst := f.Drawn.FirstRow(t.Type), tensors[t.Index]
		delivered := f.Lookup.DeliveredTo(t.Column, len(f.Drawn.BatchRows.Rows))
		w.taken[i] = reuse.Slice(w.taken[i], int(bitset.Words(int64(len(of.rows)))))
		clear(w.taken[i])
		w.got[i] = w.got[i][:0]
		for _, pos := range f.ColdOf(t.Table) {
			row := t.local(f.Drawn.BatchRows.Rows[pos])
			k, found := slices.BinarySearchFunc(of.rows, row, func(have uint64, row uint32) int {
				return cmp.Compare(uint32(have>>32), row)
			})
			if !found {
				continue
			}
			at := f.Drawn.BatchRows.TensorRow(pos) - base
			f.Deliver(t.Table, dst, at, of.record(of.rows[k], t.Width))
			delivered[pos] = true
			w.taken[i].Add(int64(k))
			w.got[i] = append(w.got[i], handRow(row, at))
		}
		f.Counters.TableRowsLate.Add(int64(len(w.got[i])))
	}
}

// keepTaken returns the rows in hand that the batch did not take. The others live in its own tensor from now on.
func (w *Batch) keepTaken(f *fetch.Filler, tensors [][]byte) error {
	all := w.inspector.cache.trained
	if len(all.hand.tables) == 0 {
		return nil
	}
	if err := all.returnHand(w.taken); err != nil {
		return err
	}
	tables := make([]handRows, len(all.tables))
	for i := range all.tables {
		tables[i] = handRows{tensors[all.tables[i].Index], w.got[i]}
	}
	all.keep(f, tables)
	return nil
}
