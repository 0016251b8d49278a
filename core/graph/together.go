package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// Neighbours on disk that several batches request are read together: one pass over the pages that any of them needs, in
// place of one for each. A draw first notes its requests and fails (sample.ErrDeferred); once the requests of a group
// of batches are read, it is repeated, and so finds its neighbours in the next hop. Between two hops a batch keeps only
// them: four bytes and a bit for each neighbour that no list in memory holds, which bounds the group.

// Wanted is the neighbours on disk that the draws of one batch want. The context of a draw carries it: see With.
type Wanted struct {
	budget *mem.Budget
	room   *atomic.Int64 // bytes that are left for it and others

	mu     sync.Mutex // relations are fetched at the same time
	of     map[*IDs]*wantedOf
	asking bool // a fetch that was not answered fails with sample.ErrDeferred, else it reads
	full   bool // a fetch found no memory for its request
	last   bool // the draw is the one that makes the batch
}

// wantedOf holds the requests for one array.
type wantedOf struct {
	answered []*request // of each fetch of a draw, in their order
	next     int        // the next fetch of the draw
	asked    *request   // of the fetch after those; nil: none
}

// NewWanted returns the requests of a batch, at first empty. They take memory of a budget; all batches that share room
// take at most room bytes together.
func NewWanted(budget *mem.Budget, room *atomic.Int64) *Wanted {
	return &Wanted{budget: budget, room: room, of: make(map[*IDs]*wantedOf), asking: true}
}

type wantedKey struct{}

// With returns the context of a draw. One that is not the last fails in the first hop that wants what was not read yet,
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

// Full reports whether a fetch found no memory for its request.
func (w *Wanted) Full() bool { return w.full }

// Free gives back the memory.
func (w *Wanted) Free() {
	for _, of := range w.of {
		for _, r := range of.answered {
			w.free(r.block)
		}
		if of.asked != nil {
			w.free(of.asked.block)
		}
	}
	w.of = nil
}

// Bytes returns the memory that it takes.
func (w *Wanted) Bytes() (total int64) {
	for _, of := range w.of {
		for _, r := range of.answered {
			total += int64(len(r.block.Bytes()))
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
		r := of.answered[of.next]
		if of.next++; r.n != len(pos) {
			panic(fmt.Sprintf("graph: a draw of %d neighbours is repeated with %d", r.n, len(pos)))
		}
		if r.wide {
			answer(numbers[int64](r), at, out)
		} else {
			answer(numbers[uint32](r), at, out)
		}
		return true, nil
	}
	if !w.asking {
		return false, nil
	}
	r := &request{n: len(pos), wide: ids.wideRequests()}
	r.block, err = w.alloc(RequestBytes(int64(r.n), r.wide))
	if errors.Is(err, mem.ErrBudget) {
		w.asking, w.full = false, true // so that what is answered is what a draw wants first
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if r.wide {
		note(r, numbers[int64](r), pos)
	} else {
		note(r, numbers[uint32](r), pos)
	}
	of.asked = r
	return false, sample.ErrDeferred
}

// request is a fetch of a draw: its positions, which the ids there replace one by one as they are read, and a bit for
// each that tells whether it is still a position.
type request struct {
	block *mem.Block // the numbers, then the bits
	n     int
	wide  bool // numbers take eight bytes, not four
}

// narrowest is the bound of positions and ids that take four bytes in a request.
const narrowest = 1 << 32

// wideRequests reports whether positions or ids of the array take eight bytes in a request.
func (a *IDs) wideRequests() bool { return WideRequests(a.limit, a.disk.layout.NumRows) }

// WideRequests reports whether requests for an array with ids below limit take eight bytes for each, not four.
func WideRequests(limit, rows int64) bool { return max(limit, rows) > narrowest }

// RequestBytes returns the memory of a request for n neighbours.
func RequestBytes(n int64, wide bool) int64 {
	width := int64(4)
	if wide {
		width = 8
	}
	return (n*width+7)/8*8 + (n+63)/64*8
}

func numbers[T uint32 | int64](r *request) []T { return mem.View[T](r.block.Bytes())[:r.n] }

// positions returns the bits, by number.
func (r *request) positions() []uint64 {
	data := r.block.Bytes()
	return mem.View[uint64](data[len(data)-(r.n+63)/64*8:])
}

func note[T uint32 | int64](r *request, numbers []T, pos []int64) {
	for i, p := range pos {
		numbers[i] = T(p)
	}
	unread := r.positions()
	for i := range unread {
		unread[i] = math.MaxUint64
	}
}

// answer writes ids to out, each to the place that at gives it, or in order where at is nil.
func answer[T uint32 | int64](ids []T, at []int32, out []int64) {
	for i, id := range ids {
		if at != nil {
			i = int(at[i])
		}
		out[i] = int64(id)
	}
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
	merger ssd.Merger
	pos    []int64 // positions that are read next,
	of, at []int32 // the request of each, and its place there
	ids    *IDs
	wants  []*request // for ids
}

// TogetherBytes returns the memory of a Together that reads up to atOnce ids at a time.
func TogetherBytes(atOnce int) int64 { return int64(atOnce) * (24 + 8 + 4 + 4) }

// ReadHops reads the ids that batches request hop by hop, until none asks. ask draws the batches of the
// given numbers as far as they go; it may free the requests of others.
func (t *Together) ReadHops(
	ctx context.Context, batches []*Wanted, hops, atOnce int, ask func(hop int, numbers []int) error,
) error {
	asking := make([]int, len(batches))
	for i := range asking {
		asking[i] = i
	}
	for hop := range hops {
		if err := ask(hop, asking); err != nil {
			return err
		}
		asking = slices.DeleteFunc(asking, func(i int) bool { return !batches[i].Asks() })
		if len(asking) == 0 {
			break
		}
		if err := t.Read(ctx, batches, atOnce); err != nil {
			return err
		}
	}
	return nil
}

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
		t.ids, t.wants = ids, t.wants[:0]
		for _, of := range wants {
			t.wants = append(t.wants, of.asked)
		}
		var err error
		if ids.wideRequests() {
			err = readRequests[int64](ctx, t, atOnce)
		} else {
			err = readRequests[uint32](ctx, t, atOnce)
		}
		if err != nil {
			return err
		}
		for _, of := range wants {
			of.answered, of.asked = append(of.answered, of.asked), nil
		}
	}
	return nil
}

// partBits is the logarithm of the most parts of an array whose requests are counted, so that as many parts are read
// at once as have atOnce requests: a counter for each 260,000 neighbours of 8e8, 32 KiB in all. With more passes than
// parts a part is read in several, and some of its pages with it.
const partBits = 12

// readRequests reads the requests for one array.
func readRequests[T uint32 | int64](ctx context.Context, t *Together, atOnce int) error {
	shift := max(0, bits.Len64(uint64(t.ids.disk.layout.NumRows))-partBits)
	var counts [1 << partBits]int64
	total := int64(0)
	for _, r := range t.wants {
		total += int64(r.n)
		for _, p := range numbers[T](r) {
			counts[uint64(p)>>shift]++
		}
	}
	if most := int(min(total, int64(atOnce)+63)); cap(t.pos) < most { // up to 64 of a request at a time
		t.pos, t.of, t.at = make([]int64, 0, most), make([]int32, 0, most), make([]int32, 0, most)
	}
	for first := 0; first < len(counts); {
		end, n := first+1, counts[first]
		for end < len(counts) && n+counts[end] <= int64(atOnce) {
			n += counts[end]
			end++
		}
		if n > 0 {
			if err := readPart[T](ctx, t, uint64(first)<<shift, uint64(end-first)<<shift, atOnce); err != nil {
				return err
			}
		}
		first = end
	}
	return nil
}

// readPart reads the requests for size positions from first on.
func readPart[T uint32 | int64](ctx context.Context, t *Together, first, size uint64, atOnce int) error {
	for i, r := range t.wants {
		all, unread := numbers[T](r), r.positions()
		for from := 0; from < len(all); from += 64 {
			left := unread[from/64]
			if left == 0 {
				continue
			}
			for k, p := range all[from:min(from+64, len(all))] {
				if uint64(p)-first < size && left>>k&1 != 0 {
					t.pos, t.of, t.at = append(t.pos, int64(p)), append(t.of, int32(i)), append(t.at, int32(from+k))
					left &^= 1 << k
				}
			}
			unread[from/64] = left
			if len(t.pos) < atOnce {
				continue
			}
			if err := flush[T](ctx, t); err != nil {
				return err
			}
		}
	}
	return flush[T](ctx, t)
}

// flush reads the ids at the positions that were collected, and forgets these.
func flush[T uint32 | int64](ctx context.Context, t *Together) error {
	err := t.ids.readEach(ctx, &t.merger, t.pos, func(i int32, id int64) {
		numbers[T](t.wants[t.of[i]])[t.at[i]] = T(id)
	})
	t.pos, t.of, t.at = t.pos[:0], t.of[:0], t.at[:0]
	return err
}
