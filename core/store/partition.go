package store

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"unsafe"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// spillName is the file of the building directory that holds the edges between the two passes.
const spillName = "edges.spill"

// edgeSorter turns an edge list into CSC files within a budget, in time linear in the edges: count reads the targets,
// spread writes every edge to the partition of its target, emit sorts one partition after the other and appends it to
// the files. Every thread serves one segment of the edge list in count and spread and keeps its own run in each
// partition, so that a partition, read run after run, has its edges in the user's order.
type edgeSorter struct {
	fs       ssd.FS
	dir      string
	edges    edgeList
	sources  int64  // nodes that edges come from
	targets  int64  // nodes that edges go to
	relation string // for progress, " of cites", or empty
	plan     edgePlan
	budget   *mem.Budget
	progress func(stage string, done, total int64)

	sorted     bool  // targets never fall: positions are the user's edge numbers
	first      int64 // target of the first edge; negative without edges
	partitions []partition
	partOf     []uint16 // partition of each bucket
	spill      *spill
}

// partition is a range of targets with all its edges.
type partition struct {
	low, high int64 // targets
	first     int64 // position of its first edge among all
	count     int64
	runs      []run // one for each segment
}

// run is the place in the spill of the records of one segment in one partition.
type run struct{ off, count int64 }

// record is an edge between the passes.
type record[I int32 | int64, E uint32 | int64] struct {
	target uint32 // less the partition's first
	source I
	edge   E // the user's number
}

// sort passes the counted edges to out, sorted.
func (s *edgeSorter) sort(ctx context.Context, out topologySink) error {
	if s.targets == 0 { // and no edges, or count would have refused them
		return out.begin()
	}
	wideSources, wideIDs := indicesType(s.sources).Size() == 8, edgeIDType(s.edges.count).Size() == 8
	switch {
	case wideSources && wideIDs:
		return sortEdges[int64, int64](ctx, s, out)
	case wideSources:
		return sortEdges[int64, uint32](ctx, s, out)
	case wideIDs:
		return sortEdges[int32, int64](ctx, s, out)
	default:
		return sortEdges[int32, uint32](ctx, s, out)
	}
}

func sortEdges[I int32 | int64, E uint32 | int64](ctx context.Context, s *edgeSorter, out topologySink) error {
	if err := spread[I, E](ctx, s); err != nil {
		return err
	}
	return emit[I, E](ctx, s, out)
}

// stage names a step for people: in a heterogeneous graph with its relation.
func (s *edgeSorter) stage(step string) string {
	if s.edges.weights {
		return step + " weights" + s.relation
	}
	return step + " edges" + s.relation
}

// close gives the spill's memory back.
func (s *edgeSorter) close() {
	if s.spill != nil {
		_ = s.spill.close() // a failure to write has been seen at flush
		s.spill = nil
	}
}

// removeSpill removes the spill file: it is no part of the store.
func (s *edgeSorter) removeSpill() error {
	s.close()
	if s.plan.inMemory || s.targets == 0 {
		return nil
	}
	return s.fs.Remove(filepath.Join(s.dir, spillName))
}

// segment is the share of the edges that a thread reads.
func (s *edgeSorter) segment(thread int) (first, end int64) {
	share := s.edges.count / int64(s.plan.threads)
	first, end = share*int64(thread), share*int64(thread+1)
	if thread == s.plan.threads-1 {
		end = s.edges.count
	}
	return first, end
}

// count checks the targets, finds out whether they are sorted, and makes the partitions.
func (s *edgeSorter) count(ctx context.Context) error {
	threads := s.plan.threads
	block, err := s.budget.Alloc(mem.Convert, int64(threads*s.plan.buckets)*8)
	if err != nil {
		return err
	}
	defer block.Free()
	counts := mem.Slice[int64](block)
	type ends struct {
		sorted      bool
		first, last int64
	}
	segments := make([]ends, threads)
	bad := s.edges.newFirstBad()
	m := &meter{report: s.progress, stage: s.stage("counting"), total: s.edges.count}
	err = guard.Each(ctx, threads, func(ctx context.Context, thread int) error {
		reader, err := newIDReader(s.fs, s.edges.targets, s.edges.name, s.plan.scanRows, s.budget)
		if err != nil {
			return err
		}
		defer reader.close()
		mine := counts[thread*s.plan.buckets : (thread+1)*s.plan.buckets]
		at, end := s.segment(thread)
		seen := ends{sorted: true, first: -1}
		for at < min(end, bad.edge.Load()) {
			if err := ctx.Err(); err != nil {
				return err
			}
			targets, err := reader.read(at, min(s.plan.scanRows, end-at))
			if err != nil {
				return err
			}
			if seen.first < 0 {
				seen.first = targets[0]
			}
			for i, t := range targets {
				if uint64(t) >= uint64(s.targets) {
					bad.note(at+int64(i), 0, t)
					return nil
				}
				seen.sorted = seen.sorted && t >= seen.last
				seen.last = t
				mine[t>>s.plan.shift]++
			}
			at += int64(len(targets))
			m.add(int64(len(targets)))
		}
		segments[thread] = seen
		return nil
	})
	if err = cmp.Or(err, s.edges.bad(bad, 1, s.targets)); err != nil {
		return err
	}
	s.sorted, s.first = true, -1
	last := int64(0)
	for _, seg := range segments {
		if seg.first >= 0 {
			s.sorted = s.sorted && seg.sorted && seg.first >= last
			last = seg.last
		}
		if s.first < 0 {
			s.first = seg.first
		}
	}
	s.group(counts)
	return nil
}

// group joins buckets to partitions that reach the plan's target, and places their runs in the spill.
func (s *edgeSorter) group(counts []int64) {
	s.partOf = make([]uint16, s.plan.buckets)
	var current partition
	var segments []int64 // edges of the current partition by segment
	off, first := int64(0), int64(0)
	finish := func() {
		current.first = first
		for _, n := range segments {
			current.runs = append(current.runs, run{off: off, count: n})
			off += roundUp(n*s.plan.record, ssd.PageBytes)
		}
		first += current.count
		s.partitions = append(s.partitions, current)
		current = partition{low: current.high}
	}
	for b := range s.plan.buckets {
		high := min(int64(b+1)<<s.plan.shift, s.targets)
		n := int64(0)
		for t := range s.plan.threads {
			n += counts[t*s.plan.buckets+b]
		}
		if current.high > current.low && (current.count+n)*s.plan.cost+(high-current.low)*8 > s.plan.target {
			finish()
			segments = nil
		}
		if segments == nil {
			segments = make([]int64, s.plan.threads)
		}
		for t := range segments {
			segments[t] += counts[t*s.plan.buckets+b]
		}
		current.high = high
		current.count += n
		s.partOf[b] = uint16(len(s.partitions))
	}
	finish()
}

// spillBytes is the size of the spill.
func (s *edgeSorter) spillBytes() int64 {
	last := s.partitions[len(s.partitions)-1].runs
	return last[len(last)-1].off + roundUp(last[len(last)-1].count*s.plan.record, ssd.PageBytes)
}

// lane is a thread's buffer for a partition.
type lane[I int32 | int64, E uint32 | int64] struct {
	records []record[I, E]
	n       int
	base    int64 // first target of the partition
	off     int64 // in the spill, of the buffer
	left    int64 // records that the run still has room for, those in the buffer included
}

// spread writes every edge to its partition.
func spread[I int32 | int64, E uint32 | int64](ctx context.Context, s *edgeSorter) error {
	if unsafe.Sizeof(record[I, E]{}) != uintptr(s.plan.record) { // compared, not used to reach memory
		panic(fmt.Sprintf("store: records of %d bytes, planned for %d", unsafe.Sizeof(record[I, E]{}), s.plan.record))
	}
	unit := bufferRecords * s.plan.record
	lanes := int64(s.plan.threads * len(s.partitions))
	size := min(max(s.plan.work/(lanes+spareBuffers)/unit*unit, unit), maxBufferBytes/unit*unit)
	if s.plan.inMemory {
		size = cachedBufferRecords * s.plan.record
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
	if s.plan.inMemory {
		s.spill, err = newMemorySpill(s.spillBytes(), s.budget)
	} else {
		s.spill, err = newFileSpill(s.fs, filepath.Join(s.dir, spillName), s.spillBytes(), buffers[lanes:])
	}
	if err != nil {
		return err
	}
	bad := s.edges.newFirstBad()
	m := &meter{report: s.progress, stage: s.stage("partitioning"), total: s.edges.count}
	err = guard.Each(ctx, s.plan.threads, func(ctx context.Context, thread int) error {
		return spreadSegment[I, E](ctx, s, thread, buffers[thread*len(s.partitions):], bad, m)
	})
	err = cmp.Or(err, s.edges.bad(bad, s.sources, s.targets))
	// Before the buffers go, nobody may be writing from them.
	if flushed := s.spill.flush(); err == nil {
		err = flushed
	}
	return err
}

func spreadSegment[I int32 | int64, E uint32 | int64](
	ctx context.Context, s *edgeSorter, thread int, buffers [][]byte, bad *firstBad, m *meter,
) error {
	lanes := make([]lane[I, E], len(s.partitions))
	for i, p := range s.partitions {
		lanes[i] = lane[I, E]{records: mem.View[record[I, E]](buffers[i]), base: p.low, off: p.runs[thread].off,
			left: p.runs[thread].count}
	}
	reader, err := newEdgeReader(s.fs, s.edges, s.plan.scanRows, s.budget)
	if err != nil {
		return err
	}
	defer reader.close()
	at, end := s.segment(thread)
	for at < min(end, bad.edge.Load()) {
		if err := ctx.Err(); err != nil {
			return err
		}
		sources, targets, err := reader.read(at, min(s.plan.scanRows, end-at))
		if err != nil {
			return err
		}
		for i, t := range targets {
			if uint64(t) >= uint64(s.targets) || uint64(sources[i]) >= uint64(s.sources) {
				bad.note(at+int64(i), sources[i], t)
				return nil
			}
			l := &lanes[s.partOf[t>>s.plan.shift]]
			l.records[l.n] = record[I, E]{target: uint32(t - l.base), source: I(sources[i]), edge: E(at + int64(i))}
			if l.n++; l.n == len(l.records) {
				if err := l.flush(s); err != nil {
					return err
				}
			}
		}
		at += int64(len(targets))
		m.add(int64(len(targets)))
	}
	if at < end { // there is a bad edge before
		return nil
	}
	for i := range lanes {
		if err := lanes[i].flush(s); err != nil {
			return err
		}
		if lanes[i].left > 0 {
			return s.edges.changed()
		}
	}
	return nil
}

// flush writes the buffer to the run.
func (l *lane[I, E]) flush(s *edgeSorter) error {
	if int64(l.n) > l.left {
		return s.edges.changed()
	}
	if l.n == 0 {
		return nil
	}
	size := int64(unsafe.Sizeof(l.records[0])) // of a record
	// the bytes of the buffer, which is not empty
	whole := unsafe.Slice((*byte)(unsafe.Pointer(&l.records[0])), int64(len(l.records))*size)
	n := int64(l.n) * size
	if s.spill.file != nil {
		n = roundUp(n, ssd.PageBytes)
	}
	fresh, err := s.spill.write(whole[:n], l.off)
	if err != nil {
		return err
	}
	l.records = mem.View[record[I, E]](fresh[:len(whole)])
	l.off += n
	l.left -= int64(l.n)
	l.n = 0
	return nil
}
