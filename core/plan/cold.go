package plan

import (
	"context"
	"errors"

	"freshgo/core/cache"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
)

// coldRow is a row that is read for an access; the two highest bits of at are flags.
type coldRow struct{ row, at uint32 }

const (
	flagShift   = accessBits
	flagLeaving = 1 << flagShift
	flagFilling = 2 << flagShift
)

// cold collects the accesses of a horizon to rows that are neither cached then nor set aside by an earlier plan. Of the
// batches ahead, only first accesses are known to be such; they stay in the tables of the residency.
type cold struct {
	*horizon
	cached   *residency
	packed   func(b int) bitset.Set // positions of a batch that packs of earlier plans hold; nil: none
	here     bitset.Set             // of the current batch
	farthest uint32                 // packs hold nothing from this access on
	leave    leavers
	fillable bool // moves into slots that nothing needs before are marked
	sees     bool // whether cold rows of the batches ahead are collected
	counts   bool // and counted by batch

	// nil: nothing is kept
	records records   // by batch: its cold rows (see packCold), then the slots of those that the prologue could fill
	leavers records   // by batch: the rows that leave there
	without error     // why there are none: no memory, which is no reason to give the plan up
	passing arena     // of leave.left, until the steps are planned: what a transfer takes is no less
	buffer  []coldRow // of the widest batch
	words   []uint32  // bits of the widest batch, for three sets

	ahead    int64   // accesses of the batches ahead
	rows     []int64 // by batch of the superbatch: accesses
	packing  []int64 // of these, rows that a prologue could only set aside
	packingF []int64 // and that are not available earlier; by batch ahead too, where a method reads them
	filling  []int64 // rows that it could read into slots
	fillingF []int64 // and that are not available earlier
	leaving  []int64 // accesses whose rows are available earlier
	keys     histogram
}

// prepare makes room for the widest batch, if cold rows are collected and there is memory.
func (c *cold) prepare(w *window) {
	n := w.current
	for _, counts := range []*[]int64{&c.rows, &c.packing, &c.packingF, &c.filling, &c.fillingF, &c.leaving} {
		*counts = make([]int64, len(w.batches))
	}
	c.leave.counts = c.leaving
	c.words = make([]uint32, 3*bitWords(w.widest()))
	if w.plain() {
		return
	}
	c.records, c.leavers, c.keys = make(records, n), make(records, n), newHistogram(w.config.NumRows)
	var err error
	if c.buffer, err = alloc[coldRow](&w.memory, w.widest()); err == nil {
		c.leave.events, err = alloc[leaver](&w.memory, w.widest())
	}
	if err == nil && c.leave.wanted {
		c.leave.left, err = alloc[uint64](&c.passing, int(bitset.Words(int64(w.currentEnd()))))
	}
	if err != nil {
		c.giveUp(err)
	}
}

// fills is the number of rows by batch that the prologue of a method could read into slots.
func (c *cold) fills(m method) []int64 {
	if m.forward {
		return c.fillingF
	}
	return c.filling
}

// giveUp keeps nothing, since there is no memory.
func (c *cold) giveUp(why error) {
	c.free()
	c.records, c.without, c.leave.wanted = nil, why, false
}

// keep puts the cold rows, the slots and the leavers of a batch away. Where there is no room for them, no transfer is
// planned, or no plan is made if fewer batches may find room.
func (c *cold) keep(b int, all []coldRow, slots []uint32, leavers []leaver) (err error) {
	c.rows[b] = int64(len(all))
	for _, r := range all {
		c.keys.add(r.row)
	}
	if len(all) > 0 {
		words, rows := packCold(all, c.offsets[b], c.batches[b].Len(), c.words)
		c.records[b], err = c.storage.Put(mem.Bytes(words), mem.Bytes(rows), mem.Bytes(slots))
	}
	if err == nil && len(leavers) > 0 {
		c.leavers[b], err = c.storage.Put(mem.Bytes(leavers))
	}
	if errors.Is(err, mem.ErrBudget) && !divisible(c.horizon) {
		c.giveUp(err)
		return nil
	}
	return err
}

func (c *cold) free() {
	c.passing.release()
	c.leave.left = nil
	c.records.freeAll()
	c.leavers.freeAll()
	c.leave.ahead.free()
}

// holds reports whether a pack of an earlier plan holds the row at a position of the current batch.
func (c *cold) holds(pos uint32) bool { return c.here != nil && c.here.Has(int64(pos)) }

// mayFill reports whether a prologue may read a row of the current batch that enters: unless an earlier plan has set
// the row aside.
func (c *cold) mayFill(pos uint32) bool { return c.fillable && !c.holds(pos) }

// collect finds the cold accesses of a batch of the superbatch, when its step has been planned. filled has room for the
// slots of all its moves.
func (c *cold) collect(b int, rows Batch, slots []int32, moves []cache.Move, filled []uint32) error {
	if c.records == nil {
		return nil
	}
	base, n := c.offsets[b], 0
	filled = filled[:0]
	var kinds [4]int64 // by flags
	for i, slot := range slots {
		if slot >= 0 {
			continue
		}
		filling := uint32(0)
		if len(moves) > 0 && moves[0].Pos == int32(i) {
			if moves[0].Slot < 0 {
				filling = 1
				filled = append(filled, uint32(^moves[0].Slot))
			}
			moves = moves[1:]
		}
		if c.holds(uint32(i)) {
			continue
		}
		flags := filling << 1
		if slot == missLeft {
			flags |= 1
		}
		kinds[flags]++
		c.buffer[n] = coldRow{rows[i], base + uint32(i) | flags<<flagShift}
		n++
	}
	c.packing[b], c.packingF[b] = kinds[0]+kinds[1], kinds[0]
	c.filling[b], c.fillingF[b] = kinds[2]+kinds[3], kinds[2]
	return c.keep(b, c.buffer[:n], filled, c.leave.events)
}

// keepAhead counts the first access of the batches ahead to a row that is not cached, and reports whether it is cold. A
// marked access is one to a row that left, unless packs hold the row.
func (c *cold) keepAhead(row, access, mark uint32) bool {
	if c.records == nil || !c.sees {
		return false
	}
	if mark != 0 && access < c.farthest {
		b := c.batchOf(access)
		if held := c.packed(int(b)); held != nil && held.Has(int64(access-c.offsets[b])) {
			return false
		}
	}
	if mark == 0 && c.counts {
		c.packingF[c.batchOf(access)]++
	}
	c.ahead++
	c.keys.add(row)
	return true
}

// all calls visit with the cold rows of the window in the parts of the graph that wants holds for (see eachAhead): of
// one batch of the superbatch after another, then of the batches ahead by rising row.
func (c *cold) all(ctx context.Context, wants func(row uint32) bool, visit func(r coldRow) error) error {
	err := c.each(ctx, func(_ int, rows []coldRow, _ []uint32) error {
		for _, r := range rows {
			if wants(r.row) {
				if err := visit(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
	c.eachAhead(0, c.numRows(), wants, func(r coldRow) {
		if err == nil {
			err = visit(r)
		}
	})
	return err
}

func (c *cold) numRows() int64 { return c.cached.numRows }

// eachAhead calls visit with the cold rows of the batches ahead (see residency.eachAhead).
func (c *cold) eachAhead(from, to int64, wants func(row uint32) bool, visit func(r coldRow)) {
	c.cached.eachAhead(from, to, wants, func(row, access, left uint32) bool {
		visit(coldRow{row, access | left<<flagShift})
		return true
	})
}

// withAhead merges cold rows of the superbatch, by rising row, with the cold rows of the batches ahead from one row to
// before another. The result is at the start of memory, which has room for it and for the former behind it.
func (c *cold) withAhead(rows []coldRow, from, to int64, memory []coldRow) []coldRow {
	memory = memory[:cap(memory)]
	rest := memory[len(memory)-len(rows):]
	copy(rest, rows)
	merged := memory[:0]
	c.eachAhead(from, to, everywhere, func(r coldRow) {
		for len(rest) > 0 && rest[0].row <= r.row {
			merged, rest = append(merged, rest[0]), rest[1:]
		}
		merged = append(merged, r)
	})
	return append(merged, rest...)
}

// each calls visit with the cold rows of one batch of the superbatch after another.
func (c *cold) each(ctx context.Context, visit func(b int, rows []coldRow, slots []uint32) error) error {
	all := c.records.load(ctx, c.storage, loadsAhead(c.widest()))
	defer all.close()
	for b, r := range c.records {
		use := func(record []uint32) error {
			rows, slots := unpackCold(record, c.offsets[b], c.batches[b].Len(), c.buffer)
			return visit(b, rows, slots)
		}
		var err error
		if r != nil {
			err = takeFrom(all, use)
		} else {
			err = use(nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aheadShare is the least share, as a divisor, of the rows ahead that the superbatch itself has in a scan which reads
// them along. With fewer, the next scan serves its own window and the one after, which saves more.
const aheadShare = 2

// readsAhead reports whether the prologue of a method reads rows of the batches ahead along with the superbatch's own:
// those that no batch of the superbatch needs. Their window then reads none, so that one scan serves two windows.
func (c *cold) readsAhead(m method) bool {
	if !m.ahead {
		return false
	}
	own, ahead := int64(0), int64(0)
	for b, n := range c.packingF {
		if b < c.current {
			own += n + c.fillingF[b]
		} else {
			ahead += n
		}
	}
	return ahead > 0 && own >= ahead/aheadShare
}
