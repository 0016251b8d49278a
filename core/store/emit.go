package store

import (
	"context"
	"encoding/binary"
	"sort"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// sink takes the bytes of an array, in order.
type sink interface{ write(p []byte) error }

// rowSink appends rows to an array.
type rowSink struct{ *arrayWriter }

func (s rowSink) write(p []byte) error { return s.writeRows(p) }

// topologySink takes the sorted edges.
type topologySink interface {
	// begin comes first.
	begin() error
	// take takes where the edges of the next targets end, and these edges: sources and numbers by position, as they are
	// stored. The edges of the last of the targets may come over several calls, the later ones without ends.
	take(ends []int64, indices, edgeIDs []byte) error
}

// topologySinks take the sorted edges as arrays. edgeIDs is nil where positions are the numbers.
type topologySinks struct{ indptr, indices, edgeIDs sink }

// begin writes where the edges of the first target begin; each target then adds where its edges end.
func (s topologySinks) begin() error {
	var zero [8]byte
	return s.indptr.write(zero[:])
}

func (s topologySinks) take(ends []int64, indices, edgeIDs []byte) error {
	if err := s.indptr.write(mem.Bytes(ends)); err != nil {
		return err
	}
	if err := s.indices.write(indices); err != nil || s.edgeIDs == nil {
		return err
	}
	return s.edgeIDs.write(edgeIDs)
}

// emit sorts the partitions from and up to end and writes them in order. Workers sort at the same time and take turns
// to write.
func (s *edgeSorter) emit(ctx context.Context, from, end int, out topologySink) error {
	partitions := s.partitions[from:end]
	work := guard.NewPieces(int64(len(partitions)), 1)
	turns := make([]chan struct{}, len(partitions)+1) // each writer closes the next one's
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[0])
	return guard.Each(ctx, min(s.plan.workers, len(partitions)), func(ctx context.Context, _ int) error {
		block, err := s.budget.Alloc(mem.Convert, s.plan.workerBytes())
		if err != nil {
			return err
		}
		defer block.Free()
		for k := range work.Each() {
			p := &partitions[k]
			w := emitter{ctx: ctx, sorter: s, form: s.plan.record, out: out, partition: p, turn: turns[k]}
			w.carve(block.Bytes())
			if err := w.run(); err != nil {
				return err
			}
			close(turns[k+1])
			s.emitted.add(p.count)
		}
		return nil
	})
}

// emitter sorts one partition. One that is too large for its memory, which is a bucket with a hub, is read several
// times: once to count, then once for each window of targets whose edges fit. A single target that does not fit needs
// no sorting and streams through.
type emitter struct {
	ctx       context.Context
	sorter    *edgeSorter
	form      recordForm
	out       topologySink
	partition *partition
	turn      <-chan struct{} // closed when all partitions before are written

	// ends[t] is the position of the next edge of target low+t; when all are placed, where they end.
	ends    []int64
	room    int64  // edges that indices and edgeIDs hold
	buffer  []byte // for records from a file
	indices []byte
	edgeIDs []byte
	whole   [][]byte // all records, each piece with its slack, when they are in memory
}

// carve divides a worker's memory.
func (w *emitter) carve(memory []byte) {
	p, plan := w.partition, &w.sorter.plan
	take := func(n int64) []byte {
		piece := memory[:n]
		memory = memory[roundUp(n, ssd.PageBytes):]
		return piece
	}
	w.ends = mem.View[int64](take((p.high - p.low) * 8))
	clear(w.ends)
	// Rounding the piece above has used one page of the slack at most.
	w.room = (int64(len(memory)) - plan.slack() + ssd.PageBytes) / plan.cost
	if w.room >= p.count {
		w.room = p.count
	} else {
		w.room = w.room / w.form.perBlock() * w.form.perBlock()
	}
	w.indices = take(w.room * plan.source)
	w.edgeIDs = take(w.room * plan.number)
	w.buffer = memory[:min(int64(len(memory)), w.room*int64(w.form.bytes+1)+int64(len(p.runs))*ssd.PageBytes)]
}

func (w *emitter) run() error {
	p := w.partition
	if err := w.load(); err != nil {
		return err
	}
	err := w.each(func(records []byte) error {
		for size := w.form.bytes; len(records) > recordSlack; records = records[size:] {
			t := w.form.target(records)
			if t >= uint64(len(w.ends)) {
				return w.damaged()
			}
			w.ends[t]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	at := p.first
	for t, n := range w.ends {
		w.ends[t] = at
		at += n
	}
	if at != p.first+p.count {
		return w.damaged()
	}
	for low := 0; low < len(w.ends); {
		first := w.ends[low]
		high := low + 1 + sort.Search(len(w.ends)-low-1,
			func(i int) bool { return w.end(low+1+i)-first > w.room })
		if w.end(high-1)-first > w.room {
			err = w.stream(low)
		} else {
			err = w.window(low, high)
		}
		if err != nil {
			return err
		}
		low = high
	}
	return nil
}

// end returns the end of a target's edges. It is valid until the edges of the next target are placed.
func (w *emitter) end(target int) int64 {
	if target+1 < len(w.ends) {
		return w.ends[target+1]
	}
	return w.partition.first + w.partition.count
}

// window places the edges of targets low to high, which fit, and writes them.
func (w *emitter) window(low, high int) error {
	first := w.ends[low]
	n := w.end(high-1) - first
	var err error
	switch plan := &w.sorter.plan; {
	case plan.source == 4 && plan.number == 8:
		err = w.each(place[int32, int64](w, low, high, first, n))
	case plan.source == 4:
		err = w.each(place[int32, uint32](w, low, high, first, n))
	case plan.number == 8:
		err = w.each(place[int64, int64](w, low, high, first, n))
	default:
		err = w.each(place[int64, uint32](w, low, high, first, n))
	}
	if err != nil {
		return err
	}
	return w.write(w.ends[low:high], n)
}

// place returns a visitor that puts the n edges of targets low to high, whose positions begin with first, in their
// places.
func place[I int32 | int64, E uint32 | int64](w *emitter, low, high int, first, n int64) func(records []byte) error {
	form, ends, count := w.form, w.ends[low:high], uint64(high-low)
	indices, five := mem.View[I](w.indices)[:n], w.sorter.plan.number == 5
	var edgeIDs []E
	if !five {
		edgeIDs = mem.View[E](w.edgeIDs)
	}
	numbered := len(edgeIDs) > 0
	return func(records []byte) error {
		for size := form.bytes; len(records) > recordSlack; records = records[size:] {
			t := form.target(records) - uint64(low) // wraps where it is lower
			if t >= count {
				continue
			}
			at := ends[t] - first
			ends[t]++
			if uint64(at) >= uint64(n) {
				return w.damaged()
			}
			indices[at] = I(form.source(records))
			if five {
				putUint40(w.edgeIDs[at*5:], form.number(records))
			} else if numbered {
				edgeIDs[at] = E(form.number(records))
			}
		}
		return nil
	}
}

// stream writes the edges of one target as they come.
func (w *emitter) stream(target int) error {
	w.ends[target] = w.end(target)
	ends, n := w.ends[target:target+1], int64(0)
	err := w.each(func(records []byte) error {
		for size := w.form.bytes; len(records) > recordSlack; records = records[size:] {
			if int(w.form.target(records)) != target {
				continue
			}
			plan := &w.sorter.plan
			putNumber(w.indices, n, plan.source, w.form.source(records))
			if plan.number > 0 {
				putNumber(w.edgeIDs, n, plan.number, w.form.number(records))
			}
			if n++; n == w.room {
				if err := w.write(ends, n); err != nil {
					return err
				}
				ends, n = nil, 0
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.write(ends, n)
}

// putNumber writes a number of 4, 5 or 8 bytes at a place of an array.
func putNumber(array []byte, at, size int64, v uint64) {
	switch size {
	case 4:
		binary.LittleEndian.PutUint32(array[at*4:], uint32(v))
	case 5:
		putUint40(array[at*5:], v)
	default:
		binary.LittleEndian.PutUint64(array[at*8:], v)
	}
}

// write passes on where the edges of some targets end, and the first n placed edges, when it is this partition's turn.
func (w *emitter) write(ends []int64, n int64) error {
	if err := w.myTurn(); err != nil {
		return err
	}
	plan := &w.sorter.plan
	return w.out.take(ends, w.indices[:n*plan.source], w.edgeIDs[:n*plan.number])
}

func (w *emitter) myTurn() error {
	select {
	case <-w.turn:
		return w.ctx.Err()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// load gets all records into memory where they fit.
func (w *emitter) load() error {
	s := w.sorter
	if !s.plan.inMemory && w.room < w.partition.count {
		return nil
	}
	keep := func(records []byte) error {
		w.whole = append(w.whole, records)
		return nil
	}
	buffer := w.buffer
	for _, r := range w.partition.runs {
		if s.plan.inMemory {
			records, err := s.spill.read(nil, r.off, r.count*int64(w.form.bytes)+recordSlack)
			if err != nil {
				return err
			}
			_ = keep(records) // never fails
			continue
		}
		n := w.form.fileBytes(r.count)
		data, err := s.spill.read(buffer, r.off, n)
		if err != nil {
			return err
		}
		_ = w.form.eachBlock(data, r.count, keep) // likewise
		buffer = buffer[n:]
	}
	return nil
}

// each visits all records of the partition in the user's order.
func (w *emitter) each(visit func(records []byte) error) error {
	if w.whole != nil {
		for _, records := range w.whole {
			if err := visit(records); err != nil {
				return err
			}
		}
		return w.ctx.Err()
	}
	s := w.sorter
	for _, r := range w.partition.runs {
		for off, left := r.off, r.count; left > 0; left -= w.room { // room is of whole blocks, see carve
			if err := w.ctx.Err(); err != nil {
				return err
			}
			n := min(left, w.room)
			data, err := s.spill.read(w.buffer, off, w.form.fileBytes(n))
			if err != nil {
				return err
			}
			if err := w.form.eachBlock(data, n, visit); err != nil {
				return err
			}
			off += int64(len(data))
		}
	}
	return nil
}

// damaged returns the error for records that differ from the ones written.
func (w *emitter) damaged() error {
	return &CorruptError{Path: w.sorter.dir, Off: w.partition.runs[0].off,
		Reason: "an edge came back from " + spillName + " changed"}
}
