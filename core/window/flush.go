package window

import (
	"cmp"

	"freshgo/core/fetch"
)

// Flush writes the current rows of the tables into their files, in the turn of a batch. Turn and plan go on. The
// packs of later batches are read for it and take no more rows; changed rows that were in them are away from now on, so
// that batches bring them from the file.
func Flush(w *Batch, f *fetch.Filler) error {
	w.inspector.cache.idleGate.enter()
	defer w.inspector.cache.idleGate.leave()
	all := w.inspector.cache.trained
	waiting, own := func() error { return returnWaiting(w) }, func() error { return returnOwn(w, f) }
	var failed error
	err := f.Timed(func() {
		for _, step := range []func() error{waiting, all.returnSlots, all.flush, own, all.flush} {
			if failed = step(); failed != nil {
				return
			}
		}
	})
	return cmp.Or(failed, err)
}

// returnWaiting returns the rows that wait for later batches.
func returnWaiting(w *Batch) error {
	s := w.super
	for k := w.number + 1 - s.first; k < int64(len(s.packs)); k++ {
		for _, packs := range s.packsFor(s.first + k) {
			err := w.inspector.cache.trained.returnPacked(packs, s.spans[k], func(int32) bool { return true })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// returnOwn returns copies of the batch's rows, which are away until Commit. No run has a record of them.
func returnOwn(w *Batch, f *fetch.Filler) error {
	for i := range w.inspector.cache.trained.tables {
		t, failed := &w.inspector.cache.trained.tables[i], error(nil)
		t.eachOwn(f, func(row uint32, record []byte) {
			if failed == nil {
				t.back.Take(t.local(row))
				failed = t.lose(t.back.Add(t.local(row), record))
			}
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}
