package store

import (
	"cmp"
	"context"
	"path/filepath"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// lane is a thread's buffer for a partition: blocks of records.
type lane struct {
	buffer []byte
	block  int   // where the block begins that is filled
	at     int   // where the next record comes
	room   int64 // records that the block still takes
	filled int64 // records in the buffer
	base   int64 // first target of the partition
	off    int64 // in the spill, of the buffer
	left   int64 // records that the run still has room for, those in the buffer included
}

// spreader writes the edges of a round to their partitions.
type spreader struct {
	*edgeSorter
	from, end int      // partitions of the round
	partOf    []uint16 // partition of each bucket, less the first of the round; others have no lane
	perBlock  int64    // records of a block, and its size
	block     int
	bad       *firstBad
}

// spread writes every edge of the partitions from and up to end to its partition.
func (s *edgeSorter) spread(ctx context.Context, from, end int) error {
	w := &spreader{edgeSorter: s, from: from, end: end, perBlock: s.plan.record.perBlock(), block: blockBytes,
		bad: s.edges.newFirstBad(), partOf: make([]uint16, s.plan.buckets)}
	part := 0
	for b := range w.partOf {
		for int64(b)<<s.plan.shift >= s.partitions[part].high {
			part++
		}
		w.partOf[b] = uint16(part - from)
	}
	lanes := int64(s.plan.threads * (end - from))
	size := min(max(s.plan.work/(lanes+spareBuffers)/blockBytes, 1), maxBufferBytes/blockBytes) * blockBytes
	if s.plan.inMemory {
		size = s.plan.cachedBuffer()
		w.perBlock, w.block = cachedBufferRecords, int(size)
	}
	block, err := s.budget.Alloc(mem.Convert, (lanes+spareBuffers)*size)
	if err != nil {
		return err
	}
	defer block.Free()
	var buffers [][]byte
	for i := range lanes + spareBuffers {
		buffers = append(buffers, block.Bytes()[i*size:(i+1)*size:(i+1)*size])
	}
	if s.spill != nil {
		// in memory, of the round before
	} else if s.plan.inMemory {
		s.spill, err = newMemorySpill(s.bytes, s.budget)
	} else {
		s.spill, err = newFileSpill(s.fs, filepath.Join(s.dir, spillName), s.spillBytes(), buffers[lanes:])
	}
	if err != nil {
		return err
	}
	err = guard.Each(ctx, s.plan.threads, func(ctx context.Context, thread int) error {
		return w.fill(ctx, thread, buffers[thread*(end-from):])
	})
	err = cmp.Or(err, s.edges.bad(w.bad, s.sources, s.targets))
	// Before the buffers go, nobody may be writing from them.
	if flushed := s.spill.flush(); err == nil {
		err = flushed
	}
	return err
}

// fill writes the edges of a thread's segment.
func (w *spreader) fill(ctx context.Context, thread int, buffers [][]byte) error {
	lanes := make([]lane, w.end-w.from)
	for i, p := range w.partitions[w.from:w.end] {
		lanes[i] = lane{buffer: buffers[i], room: w.perBlock, base: p.low, off: p.runs[thread].off,
			left: p.runs[thread].count}
	}
	reader, err := newEdgeReader(w.fs, w.edges, w.plan.scanRows, w.budget)
	if err != nil {
		return err
	}
	defer reader.close()
	form := w.plan.record
	at, end := w.segment(thread)
	for at < min(end, w.bad.edge.Load()) {
		if err := ctx.Err(); err != nil {
			return err
		}
		sources, targets, err := reader.read(at, min(w.plan.scanRows, end-at))
		if err != nil {
			return err
		}
		for i, t := range targets {
			if uint64(t) >= uint64(w.targets) || uint64(sources[i]) >= uint64(w.sources) {
				w.bad.note(at+int64(i), sources[i], t)
				return nil
			}
			part := int(w.partOf[t>>w.plan.shift])
			if part >= len(lanes) {
				continue
			}
			l := &lanes[part]
			form.put(l.buffer[l.at:], uint64(t-l.base), uint64(sources[i]), uint64(at+int64(i)))
			l.at += form.bytes
			l.filled++
			if l.room--; l.room == 0 {
				if err := w.nextBlock(l); err != nil {
					return err
				}
			}
		}
		at += int64(len(targets))
		w.partitioned.add(int64(len(targets)))
	}
	if at < end { // there is a bad edge before
		return nil
	}
	for i := range lanes {
		if err := w.flush(&lanes[i]); err != nil {
			return err
		}
		if lanes[i].left > 0 {
			return w.edges.changed()
		}
	}
	return nil
}

// nextBlock goes on behind a full block.
func (w *spreader) nextBlock(l *lane) error {
	l.block += w.block
	l.at, l.room = l.block, w.perBlock
	if l.block+w.block > len(l.buffer) {
		return w.flush(l)
	}
	return nil
}

// flush writes the buffer to the run.
func (w *spreader) flush(l *lane) error {
	if l.filled > l.left {
		return w.edges.changed()
	}
	if l.filled == 0 {
		return nil
	}
	n := l.filled * int64(w.plan.record.bytes)
	if !w.plan.inMemory {
		n = w.plan.record.fileBytes(l.filled)
	}
	fresh, err := w.spill.write(l.buffer[:n], l.off)
	if err != nil {
		return err
	}
	l.buffer = fresh[:len(l.buffer)]
	l.off += n
	l.left -= l.filled
	l.block, l.at, l.room, l.filled = 0, 0, w.perBlock, 0
	return nil
}
