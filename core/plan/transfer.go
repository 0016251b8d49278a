package plan

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// method is a way to transfer cold rows.
type method struct {
	page    bool // rows of a page that later batches want are taken along
	scan    bool // a prologue reads the superbatch's rows in the order of the file
	file    bool // and sets them aside in the scratch file too, not in memory only
	forward bool // rows at hand that are needed again are set aside
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
}

// auto is the transfer that is chosen plan by plan.
const auto = "auto"

func (m method) String() string {
	name := "random"
	switch {
	case m.page:
		name = "page-once"
	case m.file:
		name = "pack"
	case m.scan:
		name = "scan"
	}
	switch {
	case !m.forward:
		return name
	case name == "random":
		return "forward"
	}
	return name + "+forward"
}

// Transfers lists the values of Config.Transfer.
func Transfers() []string {
	names := []string{auto}
	for _, m := range methods {
		names = append(names, m.String())
	}
	return names
}

// transfer is what is fixed about transfers.
type transfer struct {
	config     *Config
	forced     *method // nil: the cheapest
	methods    []method
	room       room
	pages      int  // the table whose pages rows share, or -1
	priced     bool // costs can be told
	regionBits uint // of row numbers within a region (see sample)
}

// room is how many rows fit into packs.
type room struct{ memory, file int64 }

func (r room) total() int64 { return r.memory + r.file }

func newTransfer(c *Config) transfer {
	record := int64(c.RowBytes + recordBytes)
	t := transfer{config: c, room: room{c.PackMemory / record, c.PackFile / record}, pages: -1}
	t.priced = len(c.Tables) > 0 && c.Device.PageSeconds > 0
	perPage := 1
	for i, l := range c.Tables {
		if n := rowsPerPage(l); n > 1 && (t.pages < 0 || l.RowBytes > c.Tables[t.pages].RowBytes) {
			t.pages = i
		}
		perPage = max(perPage, rowsPerPage(l))
	}
	for regionPages*perPage>>t.regionBits > 1 {
		t.regionBits++
	}
	for _, m := range methods {
		if m.String() == c.Transfer {
			t.forced = &m
		}
		switch {
		case m.page && t.pages < 0, m.file && t.room.file == 0, (m.page || m.forward) && t.room.total() == 0:
			continue
		}
		t.methods = append(t.methods, m)
	}
	return t
}

func rowsPerPage(l ssd.Layout) int {
	if l.RowsPerPage > 0 {
		return l.RowsPerPage
	}
	return ssd.PageBytes / max(l.RowBytes, 1)
}

// considers tells whether some method that may be chosen, or is weighed against the forced one, is as asked.
func (t *transfer) considers(is func(method) bool) bool {
	return t.forced != nil && is(*t.forced) || t.priced && slices.ContainsFunc(t.methods, is)
}

// plain tells whether each batch reads its own rows and nothing else is weighed.
func (t *transfer) plain() bool { return t.forced != nil && *t.forced == method{} && !t.priced }

// sharesPages tells whether a method can take rows of a page along.
func (w *window) sharesPages(m method) bool { return m.page && w.pages >= 0 && w.room.total() > 0 }

// window is the transfer of one plan.
type window struct {
	*transfer
	*horizon
	plan      *Superplan
	budget    *mem.Budget
	memory    arena
	delivered bitset // accesses that packs of earlier plans hold
	backlog   int64  // bytes of those packs that lie in the file and are read by this superbatch
	room      room   // what earlier plans have left of it

	leave     leavers
	fillable  bool   // moves into slots that nothing needs before are marked
	aheadCold bitset // accesses of what is ahead, counted from its first: to rows that are not cached when the superbatch ends
	leaving   bitset // accesses whose rows are at hand earlier: those of leave
	filling   bitset // accesses whose rows a prologue could read into their slots

	leavingTo []int64 // by batch: accesses in leaving
	cold      []int64 // by batch: rows to read
	packing   []int64 // by batch: of those, not in filling
	packingF  []int64 // and not in leaving either
	coldRows  int64   // of the superbatch
}

func (p *Planner) window(h *horizon, s *Superplan) (*window, error) {
	w := &window{
		transfer: &p.transfer, horizon: h, plan: s, budget: p.budget,
		memory:  arena{budget: p.budget, purpose: mem.Trace},
		room:    p.packed.room(p.transfer.room, s.First, p.config.Depth),
		backlog: p.packed.fileBytes(s.First, s.First+int64(h.current)),
	}
	w.leave = leavers{
		cold:   w.noteCold,
		wanted: w.considers(func(m method) bool { return m.forward }) && w.room.total() > 0,
		depth:  uint32(p.config.Depth),
		events: list[leaver]{budget: p.budget, purpose: mem.Trace},
	}
	w.fillable = w.considers(func(m method) bool { return m.scan })
	err := w.bits(&w.delivered, h.accesses())
	if err == nil && w.considers(func(m method) bool { return m.page || m.forward }) && w.room.total() > 0 {
		err = w.bits(&w.aheadCold, h.accesses()-h.currentEnd())
	}
	if err == nil {
		p.packed.mark(s.First, h, w.delivered)
	}
	return w, err
}

// noteCold learns of the first access after a row has left the cache, or the first of all to one that is not cached.
func (w *window) noteCold(access uint32) {
	if end := uint32(w.currentEnd()); w.aheadCold != nil && access >= end {
		w.aheadCold.set(access - end)
	}
}

// mayFill tells whether a row that enters could be read by a prologue: it is, unless an earlier plan has set it aside.
func (w *window) mayFill(access uint32) bool { return w.fillable && !w.delivered.has(access) }

func (w *window) bits(set *bitset, n int) error {
	words, err := alloc[uint64](&w.memory, bitsetWords(n))
	*set = words
	return err
}

func (w *window) release() {
	w.memory.release()
	w.leave.events.release()
}

// eachCold calls visit for every access to a row that is neither cached then nor set aside by an earlier plan, in order. Of what is ahead, only first
// accesses are known to be.
func (w *window) eachCold(visit func(b int, a, row uint32)) {
	for b := range w.plan.Steps {
		base, rows := w.offsets[b], w.batches[b]
		for i, slot := range w.plan.Steps[b].Slots {
			if a := base + uint32(i); slot < 0 && !w.delivered.has(a) {
				visit(b, a, rows[i])
			}
		}
	}
	b := w.current
	for i, word := range w.aheadCold {
		for ; word != 0; word &= word - 1 {
			a := uint32(w.currentEnd() + i<<6 + bits.TrailingZeros64(word))
			for w.offsets[b+1] <= a {
				b++
			}
			if !w.delivered.has(a) {
				visit(b, a, w.batches[b][a-w.offsets[b]])
			}
		}
	}
}

// classify turns what the steps say into sets of accesses, and counts them by batch. Slots of marked moves become plain.
func (w *window) classify() error {
	if w.plain() {
		w.eachCold(func(int, uint32, uint32) { w.coldRows++ })
		return nil
	}
	if err := w.bits(&w.leaving, w.accesses()); err != nil {
		return err
	}
	if err := w.bits(&w.filling, w.currentEnd()); err != nil {
		return err
	}
	n := len(w.batches)
	w.leavingTo, w.cold, w.packing, w.packingF = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for _, e := range w.leave.events.items {
		if !w.delivered.has(e.access) {
			w.leaving.set(e.access)
			w.leavingTo[w.batchOf(e.access)]++
		}
	}
	for b := range w.plan.Steps {
		for i, m := range w.plan.Steps[b].In {
			if m.Slot < 0 {
				w.plan.Steps[b].In[i].Slot = ^m.Slot
				if a := w.offsets[b] + uint32(m.Pos); !w.delivered.has(a) {
					w.filling.set(a)
				}
			}
		}
	}
	w.eachCold(func(b int, a, _ uint32) {
		w.cold[b]++
		if b < w.current && !w.filling.has(a) {
			w.packing[b]++
			if !w.leaving.has(a) {
				w.packingF[b]++
			}
		}
	})
	for _, c := range w.cold[:w.current] {
		w.coldRows += c
	}
	return nil
}

// finish chooses the method and writes what it needs into the plan.
func (w *window) finish(ctx context.Context) error {
	if err := w.classify(); err != nil {
		return err
	}
	chosen := method{}
	if w.forced != nil {
		chosen = *w.forced
	}
	w.plan.Choice = Choice{Chosen: chosen.String(), Forced: w.forced != nil, Why: "forced", ColdRows: w.coldRows}
	if w.plain() {
		return nil
	}
	if w.priced {
		switch cheapest, why, err := w.choose(); {
		case err != nil:
			return err
		case w.forced == nil:
			chosen = cheapest
			w.took(chosen, why)
		default:
			w.took(chosen, "forced")
		}
	} else if w.forced == nil {
		w.plan.Choice.Why = "the device is not known"
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	err := w.build(chosen)
	if errors.Is(err, mem.ErrBudget) && chosen != (method{}) {
		w.took(method{}, fmt.Sprintf("there is no memory to plan %s", chosen))
		err = w.build(method{})
	}
	return err
}

// took records the method of the plan, and what it is predicted to cost.
func (w *window) took(m method, why string) {
	c := &w.plan.Choice
	c.Chosen, c.Why = m.String(), why
	for _, o := range c.Options {
		if o.Name == c.Chosen {
			c.Seconds, c.Prologue, c.Requests, c.BytesRead = o.Seconds-o.AheadSeconds, o.prologue, o.requests, o.bytesTable
		}
	}
}

// cuts says up to which batch a method sets rows aside, nearest first: those at hand (leaving), and those that it reads early. Room is counted as
// though all packs of a plan were open from its start.
type cuts struct {
	leaving, early uint32
	fits           bool // nothing was left out
}

// cut finds how far the room goes. early is by batch what would be read early, of which limit rows find room; whatever is set aside takes of total.
func (w *window) cut(m method, early []float64, limit int64) cuts {
	c := cuts{leaving: uint32(len(w.batches)), early: uint32(len(w.batches)), fits: true}
	used := 0.0
	open := true
	for b := range w.batches {
		leaving := 0.0
		if m.forward {
			leaving = float64(w.leavingTo[b])
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

// scanned is the number of rows by batch that a scan would set aside, and how many find room.
func (w *window) scanned(m method) (early []float64, limit int64) {
	rows := w.packing
	if m.forward {
		rows = w.packingF
	}
	early = make([]float64, len(rows))
	for b, n := range rows {
		early[b] = float64(n)
	}
	if m.file {
		return early, w.room.total()
	}
	return early, w.room.memory
}
