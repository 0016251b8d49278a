package store

import (
	"context"
	"sort"
	"sync/atomic"
	"unsafe"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// sink takes the bytes of an array, in order.
type sink interface{ write(p []byte) error }

// topologySink takes the sorted edges.
type topologySink interface {
	// begin comes first.
	begin() error
	// take takes where the edges of the next targets end, and these edges: sources and numbers by position, as they are
	// stored. The edges of the last of the targets may come over several calls, the later ones without ends.
	take(ends []int64, indices, edgeIDs []byte) error
}

// topologySinks take the sorted edges as arrays. edgeIDs is nil when the edges came sorted.
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

// emit sorts every partition and writes them in order. Workers sort at the same time and take turns to write.
func emit[I int32 | int64, E uint32 | int64](ctx context.Context, s *edgeSorter, out topologySink) error {
	if err := out.begin(); err != nil {
		return err
	}
	m := &meter{report: s.progress, stage: s.stage("sorting"), total: s.edges.count}
	var next atomic.Int64 // the next partition that nobody has taken
	turns := make([]chan struct{}, len(s.partitions)+1)
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[0])
	return guard.Each(ctx, min(s.plan.workers, len(s.partitions)), func(ctx context.Context, _ int) error {
		block, err := s.budget.Alloc(mem.Convert, s.plan.workerBytes())
		if err != nil {
			return err
		}
		defer block.Free()
		for {
			k := int(next.Add(1) - 1)
			if k >= len(s.partitions) {
				return nil
			}
			p := &s.partitions[k]
			w := emitter[I, E]{ctx: ctx, sorter: s, out: out, partition: p, turn: turns[k]}
			w.carve(block.Bytes())
			if err := w.run(); err != nil {
				return err
			}
			close(turns[k+1])
			m.add(p.count)
		}
	})
}

// emitter sorts one partition. One that is too large for its memory, which is a bucket with a hub, is read several
// times: once to count, then once for each window of targets whose edges fit. A single target that does not fit needs
// no sorting and streams through.
type emitter[I int32 | int64, E uint32 | int64] struct {
	ctx       context.Context
	sorter    *edgeSorter
	out       topologySink
	partition *partition
	turn      <-chan struct{} // closed when all partitions before are written

	// ends[t] is the position of the next edge of target low+t; when all are placed, where they end.
	ends    []int64
	buffer  []byte // for records from a file
	indices []I
	edgeIDs []E
	whole   [][]record[I, E] // all runs, when they are in memory
}

// carve divides a worker's memory.
func (w *emitter[I, E]) carve(memory []byte) {
	p, plan := w.partition, w.sorter.plan
	take := func(n int64) []byte {
		piece := memory[:n]
		memory = memory[roundUp(n, ssd.PageBytes):]
		return piece
	}
	w.ends = mem.View[int64](take((p.high - p.low) * 8))
	clear(w.ends)
	// Rounding the piece above has used one page of the slack at most.
	room := (int64(len(memory)) - plan.slack() + ssd.PageBytes) / plan.cost
	if room >= p.count {
		room = p.count
	} else {
		room = room / bufferRecords * bufferRecords
	}
	var index I
	var id E
	w.indices = mem.View[I](take(room * int64(unsafe.Sizeof(index)))) // a size, nothing is reached by it
	w.edgeIDs = mem.View[E](take(room * int64(unsafe.Sizeof(id))))    // likewise
	w.buffer = memory[:min(int64(len(memory)), room*plan.record+int64(len(p.runs))*ssd.PageBytes)]
}

func (w *emitter[I, E]) run() error {
	p := w.partition
	if err := w.load(); err != nil {
		return err
	}
	err := w.each(func(records []record[I, E]) error {
		for i := range records {
			if int(records[i].target) >= len(w.ends) {
				return w.damaged()
			}
			w.ends[records[i].target]++
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
			func(i int) bool { return w.end(low+1+i)-first > int64(len(w.indices)) })
		if w.end(high-1)-first > int64(len(w.indices)) {
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
func (w *emitter[I, E]) end(target int) int64 {
	if target+1 < len(w.ends) {
		return w.ends[target+1]
	}
	return w.partition.first + w.partition.count
}

// window places the edges of targets low to high, which fit, and writes them.
func (w *emitter[I, E]) window(low, high int) error {
	first := w.ends[low]
	n := w.end(high-1) - first
	err := w.each(func(records []record[I, E]) error {
		for i := range records {
			r := &records[i]
			if t := int(r.target); t >= low && t < high {
				at := w.ends[t] - first
				w.ends[t]++
				if uint64(at) >= uint64(n) {
					return w.damaged()
				}
				w.indices[at], w.edgeIDs[at] = r.source, r.edge
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.write(w.ends[low:high], n)
}

// stream writes the edges of one target as they come.
func (w *emitter[I, E]) stream(target int) error {
	w.ends[target] = w.end(target)
	ends, n := w.ends[target:target+1], int64(0)
	err := w.each(func(records []record[I, E]) error {
		for i := range records {
			if int(records[i].target) != target {
				continue
			}
			w.indices[n], w.edgeIDs[n] = records[i].source, records[i].edge
			if n++; n == int64(len(w.indices)) {
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

// write passes on where the edges of some targets end, and the first n placed edges, when it is this partition's turn.
func (w *emitter[I, E]) write(ends []int64, n int64) error {
	if err := w.myTurn(); err != nil {
		return err
	}
	return w.out.take(ends, mem.Bytes(w.indices[:n]), mem.Bytes(w.edgeIDs[:n]))
}

func (w *emitter[I, E]) myTurn() error {
	select {
	case <-w.turn:
		return w.ctx.Err()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// load gets all records into memory where they fit.
func (w *emitter[I, E]) load() error {
	s := w.sorter
	if !s.plan.inMemory && int64(len(w.indices)) < w.partition.count {
		return nil
	}
	buffer := w.buffer
	for _, r := range w.partition.runs {
		n := r.count * s.plan.record
		data, err := s.spill.read(buffer, r.off, n)
		if err != nil {
			return err
		}
		w.whole = append(w.whole, mem.View[record[I, E]](data))
		if !s.plan.inMemory {
			buffer = buffer[roundUp(n, ssd.PageBytes):]
		}
	}
	return nil
}

// each visits all records of the partition in the user's order.
func (w *emitter[I, E]) each(visit func([]record[I, E]) error) error {
	if w.whole != nil {
		for _, records := range w.whole {
			if err := visit(records); err != nil {
				return err
			}
		}
		return w.ctx.Err()
	}
	s := w.sorter
	step := int64(len(w.indices)) * s.plan.record // whole pages, see carve
	for _, r := range w.partition.runs {
		for at, size := int64(0), r.count*s.plan.record; at < size; at += step {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			data, err := s.spill.read(w.buffer, r.off+at, min(step, size-at))
			if err != nil {
				return err
			}
			if err := visit(mem.View[record[I, E]](data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// damaged is the error for records that are not those that were written.
func (w *emitter[I, E]) damaged() error {
	return &CorruptError{Path: w.sorter.dir, Off: w.partition.runs[0].off,
		Reason: "an edge came back from " + spillName + " changed"}
}
