package plan

// The prologue of a plan may run while the superbatch before is executed (Superplan.Early). Slots are in use then, so
// that rows which it would read into them go to the packs of their batches; and the packs of both superbatches take
// room at the same time.

// hides is the part of a prologue, as a divisor, that is counted as saved when it runs early: nothing is in a loop that
// waits for its batches, which is not known here. Arbitrary.
const hides = 8

// mayBeEarly reports whether a prologue may run before batch first: it pays only where the plan before is long enough.
func (p *Planner) mayBeEarly(first int64) bool {
	return p.config.Early && p.previous >= 0 && first-p.previous > int64(p.config.Depth)
}

// runEarly decides whether the prologue of a method runs early: if there is room for its packs, and writing and reading
// packs in place of slots costs less than it hides.
func (w *window) runEarly(m method) bool {
	if w.earlyRoom == nil || !m.file || w.cold.readsAhead(m) { // packs of the batches ahead would need buffers as well
		return false
	}
	rows, scanned, filling := 0.0, 0.0, 0.0
	packing, limit := w.scanned(m)
	if !w.cut(m, packing, limit).fits {
		return false
	}
	for b, n := range w.cold.fills(m)[:w.current] {
		filling += float64(n)
		scanned += packing[b]
		if m.forward {
			rows += float64(w.cold.leaving[b])
		}
	}
	extra := w.packSeconds(float64(w.transfer.room.memory) + filling)
	rows += scanned + filling
	if scanned+filling == 0 || rows > float64(w.earlyRoom.total()) || w.priced && extra*hides > w.plan.Choice.Prologue {
		return false
	}
	w.plan.Choice.Seconds += extra
	w.plan.Choice.DeviceSeconds += extra
	return true
}
