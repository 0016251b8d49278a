package plan

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// method is a way to transfer cold rows.
type method struct {
	page    bool // rows of a page that later batches need are read along
	scan    bool // a prologue reads the superbatch's rows in the order of the file
	file    bool // and sets them aside in the scratch file too, not in memory only
	forward bool // available rows that are needed again are set aside
	ahead   bool // the prologue reads rows of the batches ahead too, see readsAhead
}

// methods in the order in which they are preferred where they cost the same: the simplest first.
var methods = []method{
	{},
	{forward: true},
	{page: true},
	{page: true, forward: true},
	{scan: true},
	{scan: true, forward: true},
	{scan: true, file: true},
	{scan: true, file: true, forward: true},
	{scan: true, file: true, forward: true, ahead: true},
}

// auto is the transfer that is chosen plan by plan.
const auto = "auto"

func (m method) String() string {
	var names []string
	switch {
	case m.page:
		names = append(names, "page-once")
	case m.file:
		names = append(names, "pack")
	case m.scan:
		names = append(names, "scan")
	}
	if m.forward {
		names = append(names, "forward")
	}
	if m.ahead {
		names = append(names, "ahead")
	}
	if names == nil {
		return "random"
	}
	return strings.Join(names, "+")
}

// Transfers lists the values of Config.Transfer.
func Transfers() []string {
	names := []string{auto}
	for _, m := range methods {
		names = append(names, m.String())
	}
	return names
}

// transfer holds the settings of transfers that no plan changes.
type transfer struct {
	config  *Config
	forced  *method // nil: the cheapest
	methods []method
	room    room
	// the tables whose rows share pages: of those with the same rows, the widest that has several on a page
	pages      []int
	priced     bool // costs can be estimated
	load       Load // the weights of costs
	regionBits uint // of row numbers within a region (see sample)
	fineBits   uint // and within the smallest one
}

// room is the number of rows that fit into packs.
type room struct{ memory, file int64 }

func (r room) total() int64 { return r.memory + r.file }

// inFile returns how many of a number of rows are in packs in the file: the nearest packs are in memory.
func (r room) inFile(rows float64) float64 { return max(0, rows-float64(r.memory)) }

func newTransfer(c *Config) transfer {
	record := c.recordBytes()
	t := transfer{config: c, room: room{c.PackMemory / record, c.PackFile / record}}
	t.priced = len(c.Tables) > 0 && c.Device.PageSeconds > 0
	fewest, most := ssd.PageBytes, 1 // on a page
	for i, l := range c.Tables {
		if rowsPerPage(l) > 1 {
			t.share(i)
		}
		fewest, most = min(fewest, max(rowsPerPage(l), 1)), max(most, rowsPerPage(l))
	}
	t.regionBits, t.fineBits = uint(bits.Len(uint(regionPages*most-1))), uint(bits.Len(uint(finePages*fewest-1)))
	for _, m := range methods {
		if m.String() == c.Transfer {
			t.forced = &m
		}
		switch {
		case m.page && len(t.pages) == 0, m.file && t.room.file == 0, (m.page || m.forward) && t.room.total() == 0,
			c.Forwarding && !m.forward && t.room.total() > 0:
			continue
		}
		t.methods = append(t.methods, m)
	}
	return t
}

// share takes a table up among those whose pages rows share.
func (t *transfer) share(table int) {
	c := t.config
	for k, other := range t.pages {
		if c.First != nil && (c.First[other] != c.First[table] || c.Tables[other].NumRows != c.Tables[table].NumRows) {
			continue
		}
		if c.Tables[table].RowBytes > c.Tables[other].RowBytes {
			t.pages[k] = table
		}
		return
	}
	t.pages = append(t.pages, table)
}

func rowsPerPage(l ssd.Layout) int {
	if l.RowsPerPage > 0 {
		return l.RowsPerPage
	}
	return ssd.PageBytes / max(l.RowBytes, 1)
}

// considers reports whether is holds for some method that may be chosen, or is weighed against the forced one.
func (t *transfer) considers(is func(method) bool) bool {
	return t.forced != nil && is(*t.forced) || t.priced && slices.ContainsFunc(t.methods, is)
}

// plain reports whether each batch reads its own rows and nothing else is weighed.
func (t *transfer) plain() bool { return t.forced != nil && *t.forced == method{} && !t.priced }

// sharesPages reports whether a method can take rows of a page along.
func (w *window) sharesPages(m method) bool { return m.page && len(w.pages) > 0 && w.room.total() > 0 }

// window is the transfer of one plan.
type window struct {
	*transfer
	*horizon
	plan      *Superplan
	memory    arena
	backlog   int64 // bytes of earlier plans' packs in the file that this superbatch reads
	room      room  // room that earlier plans have left
	earlyRoom *room // room while the previous superbatch is executed; nil: none is

	held   positionSets // by batch ahead: what the plan sets aside
	missed int64        // accesses of the superbatch to rows that are not cached
	cold   cold
}

func (p *Planner) window(h *horizon, s *Superplan) *window {
	inFlight := s.First - int64(p.config.Depth) // batches that may still be executed
	w := &window{
		transfer: &p.transfer, horizon: h, plan: s,
		memory:  arena{budget: p.budget},
		held:    make(positionSets, len(h.batches)-h.current),
		room:    p.packed.room(p.transfer.room, inFlight),
		backlog: p.packed.fileBytes(s.First, s.First+int64(h.current)),
	}
	if p.mayBeEarly(s.First) {
		left := p.packed.room(p.transfer.room, p.previous)
		w.earlyRoom = &left
	}
	p.packed.forget(inFlight)
	c := &w.cold
	c.horizon, c.cached, c.passing.budget = h, p.cached, p.budget
	c.leave = leavers{
		wanted: w.considers(func(m method) bool { return m.forward }) && w.room.total() > 0,
		depth:  uint32(p.config.Depth), horizon: h, budget: p.budget, ahead: make(positionSets, len(h.batches)-h.current),
	}
	c.fillable = w.considers(func(m method) bool { return m.scan })
	c.sees = w.considers(func(m method) bool { return m.page || m.forward }) && w.room.total() > 0
	c.counts = w.considers(func(m method) bool { return m.ahead })
	c.packed = func(b int) bitset.Set { return p.packed.held(s.First+int64(b), h.batches[b].Len()) }
	for b := range h.batches {
		if c.packed(b) != nil {
			c.farthest = h.offsets[b+1]
		}
	}
	c.prepare(w)
	return w
}

func (w *window) release() {
	w.memory.release()
	w.cold.free()
	w.held.free()
}

// finish chooses the method and writes it into the plan. Without memory for it, every batch reads its own rows, or no
// plan is made if fewer batches may find room.
func (w *window) finish(ctx context.Context) error {
	chosen := method{}
	if w.forced != nil {
		chosen = *w.forced
	}
	w.plan.Choice = Choice{Chosen: chosen.String(), Forced: w.forced != nil, Why: "forced"}
	w.floor(&w.plan.Choice)
	if w.plain() {
		w.plan.Choice.ColdRows = w.missed
		return nil
	}
	err := w.cold.without
	for _, n := range w.cold.rows[:w.current] {
		w.plan.Choice.ColdRows += n
	}
	switch {
	case err != nil:
	case w.priced:
		var cheapest method
		var why string
		if cheapest, why, err = w.choose(ctx); err != nil {
			break
		}
		if w.forced == nil {
			chosen = cheapest
		} else {
			why = "forced"
		}
		w.took(chosen, why)
	case w.forced == nil:
		w.plan.Choice.Why = "the device is not known"
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if err == nil {
		w.plan.Early = w.runEarly(chosen)
		err = w.build(ctx, chosen)
	}
	if errors.Is(err, mem.ErrBudget) && !divisible(w.horizon) {
		w.plan.Early = false
		what := "the transfer"
		if chosen != (method{}) {
			what = chosen.String()
		}
		w.took(method{}, fmt.Sprintf("there is no memory to plan %s: %v", what, err))
		return nil
	}
	return err
}

// took records the method of the plan, and its predicted cost.
func (w *window) took(m method, why string) {
	c := &w.plan.Choice
	c.Chosen, c.Why = m.String(), why
	for _, o := range c.Options {
		if o.Name == c.Chosen {
			c.DeviceSeconds, c.ProcessorSeconds = o.Seconds-o.AheadSeconds, o.ProcessorSeconds-o.processorAhead
			c.Seconds = w.load.busy(c.DeviceSeconds, c.ProcessorSeconds)
			c.Prologue, c.Requests, c.BytesRead = o.prologue, o.requests, o.bytesTable
		}
	}
}

// cuts gives the batch up to which a method sets rows aside, nearest first: rows that are available (leaving), and rows
// that it reads early. Room is counted as if all packs of a plan were open from its start.
type cuts struct {
	leaving, early uint32
	fits           bool // nothing was left out
}

// cut finds the batch up to which there is room. early has the rows by batch that would be read early, and limit bounds
// the room for them; rows that are set aside take from total.
func (w *window) cut(m method, early []float64, limit int64) cuts {
	c := cuts{leaving: uint32(len(w.batches)), early: uint32(len(w.batches)), fits: true}
	used := 0.0
	open := true
	for b := range w.batches {
		leaving := 0.0
		if m.forward {
			leaving = float64(w.cold.leaving[b])
		}
		if open && early != nil && early[b] > 0 {
			if used+leaving+early[b] <= float64(limit) {
				used += leaving + early[b]
				continue
			}
			open, c.early, c.fits = false, uint32(b), false
		}
		if used+leaving > float64(w.room.total()) {
			if open {
				c.early = uint32(b)
			}
			c.leaving, c.fits = uint32(b), false
			break
		}
		used += leaving
	}
	return c
}

// scanned returns the number of rows by batch that a scan would set aside, and the number that find room.
func (w *window) scanned(m method) (early []float64, limit int64) {
	rows := w.cold.packing
	if m.forward {
		rows = w.cold.packingF
	}
	early = make([]float64, len(rows))
	if !w.cold.readsAhead(m) {
		rows = rows[:w.current]
	}
	for b, n := range rows {
		early[b] = float64(n)
		if w.plan.Early {
			early[b] += float64(w.cold.fills(m)[b])
		}
	}
	if m.file {
		return early, w.room.total()
	}
	return early, w.room.memory
}
