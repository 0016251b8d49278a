package window

import (
	"slices"

	"freshgo/core/embed"
	"freshgo/core/fetch"
	"freshgo/core/internal/bitset"
)

// The ranks of a host train the rows of a step of several batches together. These batches are handed over one after
// another, and committed as if nothing had been trained. Then PutRows writes the trained rows to their living copies,
// in the turn of the last batch of the step: to its tensor, to slots, or among the rows that go back to their table.
// From there later batches take them, whatever their packs have (bringAway).

// stepSlots tracks the slots that may hold rows of the committed batches of a step.
type stepSlots struct {
	slots []int32
	all   bool // a prologue has filled others since the step began
}

// add adds the slots of a batch that was committed. The last batch of a step ends it.
func (s *stepSlots) add(f *fetch.Filler, endsStep bool) {
	if endsStep {
		s.slots, s.all = s.slots[:0], false
		return
	}
	for _, slot := range f.Step.Slots {
		if slot >= 0 {
			s.slots = append(s.slots, slot)
		}
	}
	for _, in := range f.Step.In {
		s.slots = append(s.slots, in.Slot)
	}
}

// putRows is rows of a table and their records, and which of them were written.
type putRows struct {
	*trainedTable
	rows    []int64 // ascending
	records []byte
	written bitset.Set
}

func (p *putRows) record(k int) []byte { return p.records[k*p.Width:][:p.Width] }

// write copies the record of a row of the graph, if it is among the rows, and marks it as changed.
func (p *putRows) write(row uint32, to func() []byte) {
	if !p.Has(row) {
		return
	}
	if k, found := slices.BinarySearch(p.rows, int64(p.local(row))); found {
		dst := to()
		copy(dst, p.record(k))
		embed.Mark(dst, p.local(row))
		p.back.Take(p.local(row)) // away since a Flush
		p.written.Add(int64(k))
	}
}

// PutRows writes rows of the table at a place among the tables of the options, in the turn of a batch. The rows ascend.
// Each is in a batch of its step.
func PutRows(w *Batch, f *fetch.Filler, place int, rows []int64, records []byte) error {
	all := w.inspector.cache.trained
	w.inspector.cache.idleGate.enter()
	defer w.inspector.cache.idleGate.leave()
	table := f.Sampling.Options.Tables[place].Table
	at := slices.IndexFunc(all.tables, func(t trainedTable) bool { return t.Trained == table })
	if at < 0 {
		return nil // no batch has nodes of its type
	}
	p := putRows{&all.tables[at], rows, records, bitset.New(int64(len(rows)))}
	var failed error
	err := f.Timed(func() {
		p.toTensor(f)
		p.toSlots(f, &all.step)
		failed = p.lose(p.toTable())
	})
	if failed != nil {
		return failed
	}
	return err
}

// toTensor writes the rows of the batch itself, which Commit takes from there.
func (p *putRows) toTensor(f *fetch.Filler) {
	p.eachOwn(f, func(row uint32, record []byte) { p.write(row, func() []byte { return record }) })
}

// toSlots writes the rows that the batches of the step have left in slots.
func (p *putRows) toSlots(f *fetch.Filler, step *stepSlots) {
	write := func(slot int32, row uint32) { p.write(row, func() []byte { return f.Features.SlotRow(p.Table, slot) }) }
	if step.all {
		f.Features.Resident.All(write)
		return
	}
	for _, slot := range step.slots {
		if row := f.Features.Resident.Rows[slot]; row != fetch.Vacant {
			write(slot, row)
		}
	}
}

// toTable returns the rows that are neither in the batch nor in slots.
func (p *putRows) toTable() error {
	spilled := false
	for k, row := range p.rows {
		switch row := uint32(row); {
		case p.written.Has(int64(k)):
		case p.back.Away(row) && p.back.Replace(row, p.record(k)):
			p.written.Add(int64(k))
		default:
			spilled = spilled || p.back.Spilled(row)
		}
	}
	if spilled { // a run may have an older record
		if err := p.back.Flush(); err != nil {
			return err
		}
	}
	for k, row := range p.rows {
		if p.written.Has(int64(k)) {
			continue
		}
		p.back.Take(uint32(row))
		if err := p.back.Add(uint32(row), p.record(k)); err != nil {
			return err
		}
	}
	return nil
}
