package plan

import (
	"context"
	"errors"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// Errors of this package wrap one of these, mem.ErrBudget, or a context error.
var (
	ErrConfig = errors.New("invalid plan configuration")
	ErrBatch  = errors.New("invalid batch")
	ErrReset  = errors.New("the planner must be reset after a plan that failed")
)

// Batch is the rows of a batch, distinct, in the order of its tensor.
type Batch []uint32

// Config describes the cache, the tables and the device to plan for.
type Config struct {
	NumRows   int64 // rows of the graph, below 2^32
	Capacity  int64 // rows that the cache holds
	CarryOver bool  // false: the cache is forgotten at the start of each superbatch, as in Ginex

	// Transfer is one of Transfers. The rest says what transfers cost and may be left out where it is "random" or
	// "forward": then nothing is predicted.
	Transfer   string
	Tables     []ssd.Layout // of each cached table
	First      []int64      // by table: its first row among the rows of the graph; nil: every table has all rows
	RowBytes   int          // of a row in all tables together
	Device     ssd.Device
	PackMemory int64 // bytes that packs may take in memory
	PackFile   int64 // and in the scratch file
	// batches in flight: a pack is complete when its batch is read only if the last row was added more than Depth
	// batches earlier
	Depth     int
	SlotBytes int // of an engine buffer: the longest request

	// Forwarding says that rows change while they are available: a row that is needed again is set aside, for what the
	// tables have is old.
	Forwarding bool

	// Early lets prologues run while the superbatch before is executed, where that is worth it (Superplan.Early).
	Early bool

	// Storage keeps the inputs of a plan, and the plan. Nil: in memory of the budget, in proportion to accesses (see
	// SuperbatchBytes); else a plan takes memory for a batch at a time (see StoredBytes).
	Storage Storage
}

// Superplan is the plan of one superbatch. It is read-only and may be shared; it ends with Release.
type Superplan struct {
	First    int64 // number of its first batch in the stream
	Prologue Prologue
	Packs    []PackSize // by rising Dest; memory before file in this order
	Choice   Choice
	// Early means that the prologue may run while the superbatch before is executed: it fills no slots, nothing is set
	// aside before it, and there is room for its packs.
	Early bool

	index   *index
	steps   records // by batch, see packStep
	deltas  []delta // by batch: changes by the transfer; nil: none
	leavers records // by batch: rows that may be set aside, see leaver; nil: none
}

// Lost returns the plan of n batches without a plan: their steps are empty.
func Lost(first int64, n int) *Superplan {
	s := &Superplan{
		First: first, Choice: Choice{Chosen: method{}.String(), Why: "the plan is lost"},
		index: &index{offsets: make([]uint32, n+1)},
	}
	for range n {
		s.steps = append(s.steps, nothing{})
	}
	return s
}

// Len is the number of its batches.
func (s *Superplan) Len() int { return len(s.steps) }

// Release gives the plan's room back. It is called once, after its last use, by any goroutine.
func (s *Superplan) Release() {
	s.steps.freeAll()
	s.leavers.freeAll()
	for i := range s.deltas {
		s.deltas[i].free()
	}
	s.Prologue.free()
	*s = Superplan{First: s.First, Choice: s.Choice}
}

// Step is one batch. In this order: the rows that its packs hold and its other misses (Slots) come into its tensor, and
// what Extra names is read along; hits are copied out of their slots; Forward is copied to packs; In is copied to its
// slots.
type Step struct {
	cache.Step
	Forward []Forward
	Extra   []Extra
}

func (s *Step) empty() {
	s.Slots, s.In, s.Forward, s.Extra = s.Slots[:0], s.In[:0], s.Forward[:0], s.Extra[:0]
}

// MoveTo changes the step to a batch with more rows: the row at each position moves to now[position], of rows in all.
// Positions keep their order.
func (s *Step) MoveTo(now []int32, rows int) {
	planned := len(s.Slots)
	s.Slots = slices.Grow(s.Slots, max(0, rows-planned))[:rows]
	for pos, next := planned-1, rows-1; next >= 0; next-- {
		if pos >= 0 && int(now[pos]) == next {
			s.Slots[next] = s.Slots[pos]
			pos--
		} else {
			s.Slots[next] = cache.Miss
		}
	}
	for i := range s.In {
		s.In[i].Pos = now[s.In[i].Pos]
	}
	for i := range s.Forward {
		if f := &s.Forward[i]; f.From < 0 {
			f.From = ^now[^f.From]
		}
	}
}

// delta lists the changes of the transfer to a step: which of the marked moves the prologue makes and which of the
// leavers are set aside (words of bits), and rows that are read along.
type delta struct {
	record                 Record // nil: there are none of these
	filled, forward, extra int
	all                    bool // all leavers are set aside, without a bit for each
}

func (d *delta) free() {
	if d.record != nil {
		d.record.Free()
		d.record = nil
	}
}

// Fetch begins to load the step of batch i, where that takes time.
func (s *Superplan) Fetch(ctx context.Context, i int) {
	Fetch(ctx, s.steps[i])
	if s.deltas != nil {
		Fetch(ctx, s.deltas[i].record)
		if s.deltas[i].all || s.deltas[i].forward > 0 {
			Fetch(ctx, s.leavers[i])
		}
	}
}

// Step loads the step of batch i of the superbatch into own, whose memory it reuses. After an error, which is the
// storage's, the step is empty.
func (s *Superplan) Step(ctx context.Context, i int, own *Step) error {
	n := int(s.index.offsets[i+1] - s.index.offsets[i])
	own.empty()
	err := loaded(ctx, s.steps[i], func(record []uint32) error {
		unpackStep(record, n, &own.Step)
		return nil
	})
	if err == nil && s.deltas != nil && s.deltas[i].record != nil {
		d := &s.deltas[i]
		err = loaded(ctx, d.record, func(data []byte) error {
			words := set32(mem.View[uint32](data[:4*(d.filled+d.forward)]))
			for _, e := range mem.View[coldRow](data[4*len(words):]) {
				own.Extra = append(own.Extra, Extra{e.row, s.index.dest(e.at)})
			}
			own.fill(words[:d.filled])
			if d.forward == 0 {
				return nil
			}
			return loaded(ctx, s.leavers[i], func(leave []leaver) error {
				for k := range words[d.filled:].all() {
					own.Forward = append(own.Forward, Forward{leave[k].from, s.index.dest(leave[k].access)})
				}
				return nil
			})
		})
	}
	if err == nil && s.deltas != nil && s.deltas[i].all {
		err = loaded(ctx, s.leavers[i], func(leave []leaver) error {
			for _, e := range leave {
				own.Forward = append(own.Forward, Forward{e.from, s.index.dest(e.access)})
			}
			return nil
		})
	}
	if err != nil {
		own.empty()
		return err
	}
	for k, m := range own.In {
		if m.Slot < 0 { // marked: the prologue could have made it
			own.In[k].Slot = ^m.Slot
		}
	}
	return nil
}

// fill turns rows that the prologue has read into their slots into hits: they do not enter again.
func (s *Step) fill(filled set32) {
	if len(filled) == 0 {
		return
	}
	kept, marked := s.In[:0], 0
	for _, m := range s.In {
		if m.Slot < 0 {
			k := marked
			marked++
			if k/32 < len(filled) && filled.has(k) {
				s.Slots[m.Pos] = ^m.Slot
				continue
			}
		}
		kept = append(kept, m)
	}
	s.In = kept
}

// Dest is a place in the pack of a later batch.
type Dest struct {
	Batch int32 // relative to the plan's First; it may be ahead of the superbatch
	Pos   int32 // position in that batch
}

// Forward copies an available row to the pack of the batch that needs it next.
type Forward struct {
	From int32 // a slot, or ^position in this batch where negative
	Dest
}

// Extra is a row that is read for a later batch.
type Extra struct {
	Row uint32
	Dest
}

// Fill is a row that is read into its slot before the superbatch begins.
type Fill struct {
	Row  uint32
	Slot int32
}

// Prologue is the work between the last step of the superbatch before and the first step: the rows that Forwards yields
// are set aside, then the rows that ReadAhead yields are read in the order of the file.
type Prologue struct {
	HolePages int // unwanted pages that are cheaper to read through than to skip

	pieces   records // cold rows in the order of the file
	forwards records // all from slots
}

// Empty reports whether nothing is read or set aside.
func (p *Prologue) Empty() bool { return len(p.pieces)+len(p.forwards) == 0 }

func (p *Prologue) free() {
	p.pieces.freeAll()
	p.forwards.freeAll()
}

// Forwards yields the rows that leave slots which the prologue fills.
func (s *Superplan) Forwards(ctx context.Context, yield func([]Forward)) error {
	for _, r := range s.Prologue.forwards {
		err := loaded(ctx, r, func(forwards []Forward) error {
			yield(forwards)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadAhead calls read with up to most rows at a time, in the order of the file: fills go to slots and packs to packs,
// both rising by row. A row may occur several times in packs. The slices are valid during the call.
func (s *Superplan) ReadAhead(ctx context.Context, most int, read func(fills []Fill, packs []Extra) error) error {
	var fills []Fill
	var packs []Extra
	for _, r := range s.Prologue.pieces {
		err := loaded(ctx, r, func(rows []coldRow) error {
			for len(rows) > 0 {
				part := rows[:min(most, len(rows))]
				rows = rows[len(part):]
				fills, packs = fills[:0], packs[:0]
				for _, c := range part {
					if c.at&flagFilling != 0 {
						fills = append(fills, Fill{Row: c.row, Slot: int32(c.at &^ flagFilling)})
					} else {
						packs = append(packs, Extra{Row: c.row, Dest: s.index.dest(c.at)})
					}
				}
				if err := read(fills, packs); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PackSize is the number of rows that a plan puts into the pack of a batch.
type PackSize struct {
	Dest int32 // batch, relative to First
	Rows int32
}

// posBytes is the size of a row's position, which the pack of each table stores with the row.
const posBytes = 4

// recordBytes returns the size of a row in packs.
func (c *Config) recordBytes() int64 {
	return int64(c.RowBytes) + posBytes*int64(max(len(c.Tables), 1))
}
