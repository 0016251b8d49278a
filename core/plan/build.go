package plan

import (
	"slices"

	"freshgo/core/cache"
	"freshgo/core/ssd"
)

// builder writes a method into the plan.
type builder struct {
	*window
	method
	cuts cuts
}

// build writes a method into the plan. Where there is no memory for what it needs, the plan is left as it was.
func (w *window) build(m method) error {
	b := builder{window: w, method: m}
	err := b.all()
	if err != nil {
		for i := range w.plan.Steps {
			w.plan.Steps[i].Extra, w.plan.Steps[i].Forward = nil, nil
		}
		w.plan.Prologue = Prologue{}
		return err
	}
	w.plan.Packs = b.packs()
	return nil
}

// all changes what residency has planned last of all, after everything that can fail.
func (b *builder) all() error {
	switch {
	case b.sharesPages(b.method):
		if err := b.buildPages(); err != nil {
			return err
		}
	case b.scan:
		early, limit := b.scanned(b.method)
		b.cuts = b.cut(b.method, early, limit)
	default:
		b.cuts = b.cut(b.method, nil, 0)
	}
	if b.forward {
		if err := b.buildForward(); err != nil {
			return err
		}
	}
	if b.scan {
		return b.buildScan()
	}
	return nil
}

// buildPages gives the steps what they read for later batches.
func (b *builder) buildPages() error {
	s := &sample{window: b.window, rows: b.cold.sorted(func(_ int, r coldRow) (coldRow, bool) { return r, true }),
		scale: 1}
	var err error
	if s.batch, err = alloc[uint32](b.horizon.memory, len(s.rows)); err != nil {
		return err
	}
	for i, c := range s.rows {
		s.batch[i] = b.batchOf(c.at & accessMask)
	}
	early := make([]float64, len(b.batches))
	all := cuts{leaving: uint32(len(b.batches)), early: uint32(len(b.batches))}
	s.leaders(b.method, all, func(i int, _ uint32) { early[s.batch[i]]++ })
	b.cuts = b.cut(b.method, early, b.room.total())
	counts := make([]int, b.current)
	s.leaders(b.method, b.cuts, func(_ int, leader uint32) { counts[leader]++ })
	for i, n := range counts {
		extra, err := alloc[Extra](&b.plan.memory, n)
		if err != nil {
			return err
		}
		b.plan.Steps[i].Extra = extra[:0]
	}
	s.leaders(b.method, b.cuts, func(i int, leader uint32) {
		step := &b.plan.Steps[leader]
		step.Extra = append(step.Extra, b.extra(s.rows[i]))
	})
	return nil
}

// extra sets a row aside for the access that it is cold for.
func (b *builder) extra(c coldRow) Extra {
	return Extra{Row: c.row, Dest: b.dest(c.at & accessMask)}
}

// buildScan makes the prologue. Rows that it fills become hits of their batches and enter no more.
func (b *builder) buildScan() error {
	p := &b.plan.Prologue
	slotPages := int64(max(b.config.SlotBytes/ssd.PageBytes, 1))
	p.HolePages = ssd.DefaultHole
	if b.priced {
		p.HolePages = scanPrice(b.config.Device, slotPages).hole(slotPages)
	}
	batch, in := -1, []cache.Move(nil)
	s := b.cold.sorted(func(of int, r coldRow) (coldRow, bool) {
		a := r.at & accessMask
		switch {
		case of >= b.current || b.forward && r.at&flagLeaving != 0 && uint32(of) < b.cuts.leaving:
			return r, false
		case r.at&flagFilling == 0:
			return coldRow{r.row, a}, uint32(of) < b.cuts.early
		}
		if of != batch {
			batch, in = of, b.plan.Steps[of].In
		}
		for pos := int32(a - b.offsets[of]); in[0].Pos < pos; {
			in = in[1:]
		}
		return coldRow{r.row, flagFilling | uint32(in[0].Slot)}, true
	})
	var fills, packs int
	for _, c := range s {
		if c.at&flagFilling != 0 {
			fills++
		} else {
			packs++
		}
	}
	var err error
	if p.Fill, err = alloc[Fill](&b.plan.memory, fills); err != nil {
		return err
	}
	if p.Pack, err = alloc[Extra](&b.plan.memory, packs); err != nil {
		return err
	}
	for i := range b.plan.Steps {
		step := &b.plan.Steps[i]
		step.In = slices.DeleteFunc(step.In, func(m cache.Move) bool {
			if !b.fills(uint32(i), m.Pos) {
				return false
			}
			step.Slots[m.Pos] = m.Slot
			return true
		})
	}
	p.Fill, p.Pack = p.Fill[:0], p.Pack[:0]
	for _, r := range s {
		if r.at&flagFilling != 0 {
			p.Fill = append(p.Fill, Fill{Row: r.row, Slot: int32(r.at &^ flagFilling)})
		} else {
			p.Pack = append(p.Pack, b.extra(r))
		}
	}
	return nil
}

// fills tells whether the prologue reads the row of a move into its slot.
func (b *builder) fills(batch uint32, pos int32) bool {
	a := b.offsets[batch] + uint32(pos)
	return b.scan && b.filling.has(a) && !b.atHand(batch, a)
}

func (b *builder) atHand(batch, a uint32) bool {
	return b.forward && batch < b.cuts.leaving && b.leaving.has(a)
}

// buildForward gives the steps what they set aside. What leaves a slot that the prologue fills is set aside before.
func (b *builder) buildForward() error {
	p := &b.plan.Prologue
	steps := b.plan.Steps
	counts, before := make([]int, len(steps)), 0
	b.eachLeaver(func(i int, _ leaver, early bool) {
		if early {
			before++
		} else {
			counts[i]++
		}
	})
	var err error
	if p.Forward, err = alloc[Forward](&b.plan.memory, before); err != nil {
		return err
	}
	p.Forward = p.Forward[:0]
	for i, n := range counts {
		if steps[i].Forward, err = alloc[Forward](&b.plan.memory, n); err != nil {
			return err
		}
		steps[i].Forward = steps[i].Forward[:0]
	}
	b.eachLeaver(func(i int, e leaver, early bool) {
		f := Forward{From: e.from, Dest: b.dest(e.access)}
		if early {
			p.Forward = append(p.Forward, f)
		} else {
			steps[i].Forward = append(steps[i].Forward, f)
		}
	})
	return nil
}

// eachLeaver calls visit for every row that is set aside, with its step, and whether the prologue must do it.
func (b *builder) eachLeaver(visit func(step int, e leaver, early bool)) {
	filled := make(bitset, bitsetWords(int(b.config.Capacity)))
	events := b.leave.events.items
	begin := 0
	for i := range b.plan.Steps {
		mine := events[begin:b.leave.ends[i]]
		begin = b.leave.ends[i]
		b.eachFilled(i, filled.set)
		for _, e := range mine {
			if b.atHand(b.batchOf(e.access), e.access) {
				visit(i, e, e.from >= 0 && filled.has(uint32(e.from)))
			}
		}
		b.eachFilled(i, filled.clear)
	}
}

// eachFilled calls visit for the slots that the prologue fills for a step.
func (b *builder) eachFilled(step int, visit func(slot uint32)) {
	if !b.scan {
		return
	}
	for _, m := range b.plan.Steps[step].In {
		if b.fills(uint32(step), m.Pos) {
			visit(uint32(m.Slot))
		}
	}
}

// packs lists the packs.
func (b *builder) packs() (sizes []PackSize) {
	rows := make([]int32, len(b.batches))
	b.plan.eachDest(func(d Dest) { rows[d.Batch]++ })
	for dest, n := range rows {
		if n > 0 {
			sizes = append(sizes, PackSize{Dest: int32(dest), Rows: n})
		}
	}
	return sizes
}

// eachDest calls visit for every row that is put into a pack.
func (s *Superplan) eachDest(visit func(Dest)) {
	for _, f := range s.Prologue.Forward {
		visit(f.Dest)
	}
	for _, e := range s.Prologue.Pack {
		visit(e.Dest)
	}
	for i := range s.Steps {
		for _, f := range s.Steps[i].Forward {
			visit(f.Dest)
		}
		for _, e := range s.Steps[i].Extra {
			visit(e.Dest)
		}
	}
}
