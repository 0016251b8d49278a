package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Neighbours on disk that several batches want are read together: one pass over the pages that any of them wants, in
// place of one for each. A draw first notes what it wants and fails (sample.ErrDeferred); once what the batches of a
// group want is read, it is repeated, and so finds what it wants in the next hop. Nothing but that is kept of a batch
// between two hops, eight bytes for each neighbour that no list in memory holds.

// Wanted is the neighbours on disk that the draws of one batch want. The context of a draw carries it: see With.
type Wanted struct {
	budget *mem.Budget
	room   *atomic.Int64 // bytes that are left for it and others

	mu     sync.Mutex // relations are fetched at the same time
	of     map[*IDs]*wantedOf
	asking bool // a fetch that was not answered fails with sample.ErrDeferred, else it reads
	last   bool // the draw is the one that makes the batch
}

// wantedOf holds the requests for one array: positions, which the ids there replace once they are read.
type wantedOf struct {
	answered []*mem.Block // of each fetch of a draw, in their order: the ids, each as its complement
	next     int          // the next fetch of the draw
	asked    *mem.Block   // the positions of the fetch after those; nil: none
}

// NewWanted returns the requests of a batch, at first empty. They take memory of a budget; all batches that share room
// take at most room bytes together.
func NewWanted(budget *mem.Budget, room *atomic.Int64) *Wanted {
	return &Wanted{budget: budget, room: room, of: make(map[*IDs]*wantedOf), asking: true}
}

type wantedKey struct{}

// With is the context of a draw. One that is not the last fails in the first hop that wants what was not read yet,
// unless there is no memory to note that: see Asks. The last one reads what is missing.
func (w *Wanted) With(ctx context.Context, last bool) context.Context {
	for _, of := range w.of {
		of.next = 0
	}
	w.last, w.asking = last, w.asking && !last
	return context.WithValue(ctx, wantedKey{}, w)
}

// Asks reports whether something must be read before the draw goes on.
func (w *Wanted) Asks() bool {
	if !w.asking {
		return false
	}
	for _, of := range w.of {
		if of.asked != nil {
			return true
		}
	}
	return false
}

// Free gives back the memory.
func (w *Wanted) Free() {
	for _, of := range w.of {
		for _, block := range of.answered {
			w.free(block)
		}
		if of.asked != nil {
			w.free(of.asked)
		}
	}
	w.of = nil
}

// Bytes is the memory that it takes.
func (w *Wanted) Bytes() (total int64) {
	for _, of := range w.of {
		for _, block := range of.answered {
			total += int64(len(block.Bytes()))
		}
	}
	return total
}

// fetch answers a fetch of ids at some positions, notes it and fails, or says that it is to be read now.
func (w *Wanted) fetch(ids *IDs, pos []int64, at []int32, out []int64) (done bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of[ids]
	if of == nil {
		of = new(wantedOf)
		w.of[ids] = of
	}
	if of.next < len(of.answered) {
		found := mem.Slice[int64](of.answered[of.next])
		if of.next++; len(found) != len(pos) {
			panic(fmt.Sprintf("graph: a draw of %d neighbours is repeated with %d", len(pos), len(found)))
		}
		for i, id := range found {
			if at != nil {
				i = int(at[i])
			}
			out[i] = ^id
		}
		return true, nil
	}
	if !w.asking {
		return false, nil
	}
	block, err := w.alloc(int64(len(pos)) * 8)
	if errors.Is(err, mem.ErrBudget) {
		w.asking = false // so that what is answered is what a draw wants first
		return false, nil
	}
	if err != nil {
		return false, err
	}
	copy(mem.Slice[int64](block), pos)
	of.asked = block
	return false, sample.ErrDeferred
}

// alloc takes n bytes, or fails with mem.ErrBudget.
func (w *Wanted) alloc(n int64) (*mem.Block, error) {
	if w.room.Add(-n) < 0 {
		w.room.Add(n)
		return nil, mem.ErrBudget
	}
	block, err := w.budget.Alloc(mem.Trace, n)
	if err != nil {
		w.room.Add(n)
	}
	return block, err
}

func (w *Wanted) free(block *mem.Block) {
	w.room.Add(int64(len(block.Bytes())))
	block.Free()
}

// Together reads what batches want. It belongs to one goroutine.
type Together struct {
	scratch Scratch
	first   []int64 // of each of the wants that are read, its first place among all
	wants   [][]int64
}

// TogetherBytes returns the memory of a Together that reads up to atOnce ids at a time.
func TogetherBytes(atOnce int) int64 { return int64(atOnce) * (24 + 8 + 4) }

// Read reads the ids that the batches request, about atOnce at a time, in the order of the file.
func (t *Together) Read(ctx context.Context, batches []*Wanted, atOnce int) error {
	asked := make(map[*IDs][]*wantedOf)
	for _, w := range batches {
		for ids, of := range w.of {
			if of.asked != nil {
				asked[ids] = append(asked[ids], of)
			}
		}
	}
	for ids, wants := range asked {
		if err := t.read(ctx, ids, wants, atOnce); err != nil {
			return err
		}
	}
	return nil
}

// read reads one array.
func (t *Together) read(ctx context.Context, ids *IDs, wants []*wantedOf, atOnce int) error {
	t.first, t.wants = append(t.first[:0], 0), t.wants[:0]
	total := int64(0)
	for _, of := range wants {
		positions := mem.Slice[int64](of.asked)
		t.wants = append(t.wants, positions)
		total += int64(len(positions))
		t.first = append(t.first, total)
	}
	if total > math.MaxInt32 {
		return fmt.Errorf("graph: a batch reads %d neighbours, expected at most %d", total, math.MaxInt32)
	}
	rows := ids.disk.layout.NumRows
	passes := (total + int64(atOnce) - 1) / int64(atOnce)
	each := (rows + passes - 1) / passes
	s := &t.scratch
	for lo := int64(0); lo < rows; lo += each {
		for i, positions := range t.wants {
			for k, p := range positions { // ids are negative, and so in no range
				if p < lo || p >= lo+each {
					continue
				}
				s.pos, s.at = append(s.pos, p), append(s.at, int32(t.first[i])+int32(k))
				if len(s.pos) < atOnce {
					continue
				}
				if err := t.flush(ctx, ids); err != nil {
					return err
				}
			}
		}
		if err := t.flush(ctx, ids); err != nil {
			return err
		}
	}
	for _, of := range wants {
		of.answered, of.asked = append(of.answered, of.asked), nil
	}
	return nil
}

// flush reads the ids at the positions that were collected, and forgets these.
func (t *Together) flush(ctx context.Context, ids *IDs) error {
	s := &t.scratch
	err := ids.readEach(ctx, &s.Merger, s.pos, func(i int32, id int64) {
		at := int64(s.at[i])
		of := sort.Search(len(t.wants)-1, func(i int) bool { return t.first[i+1] > at })
		t.wants[of][at-t.first[of]] = ^id
	})
	s.pos, s.at = s.pos[:0], s.at[:0]
	return err
}
