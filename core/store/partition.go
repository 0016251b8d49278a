package store

import (
	"cmp"
	"context"
	"path/filepath"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// spillName is the file of the building directory that holds the edges between the two passes.
const spillName = "edges.spill"

// edgeSorter turns an edge list into CSC files within a budget, in time linear in the edges: count reads the targets,
// spread writes every edge to the partition of its target, emit sorts one partition after the other and appends it to
// the files. Every thread serves one segment of the edge list in count and spread and keeps its own run in each
// partition, so that a partition, read run after run, has its edges in the user's order. Edges that come sorted are
// copied instead.
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

	sorted bool  // targets never fall: positions are the user's edge numbers
	first  int64 // target of the first edge; negative without edges
	division
	rounds *division // the same edges without a spill; nil where there is none
	spill  *spill

	partitioned, emitted *meter // of all rounds
}

// division divides unsorted edges for a plan.
type division struct {
	partitions []partition
	ends       []int // of each round, in partitions
	bytes      int64 // of the records, of the largest round
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

// sort passes the counted edges to out, sorted.
func (s *edgeSorter) sort(ctx context.Context, out topologySink) error {
	if err := out.begin(); err != nil || s.targets == 0 { // and no edges, or count would have refused them
		return err
	}
	if s.sorted {
		return s.copySorted(ctx, out)
	}
	s.partitioned = &meter{report: s.progress, stage: s.stage("partitioning"), total: s.edges.count * int64(len(s.ends))}
	s.emitted = &meter{report: s.progress, stage: s.stage("sorting"), total: s.edges.count}
	from := 0
	for _, end := range s.ends {
		if err := s.spread(ctx, from, end); err != nil {
			return err
		}
		if err := s.emit(ctx, from, end, out); err != nil {
			return err
		}
		from = end
	}
	return s.removeSpill()
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
	if s.plan.inMemory {
		return nil
	}
	return s.fs.Remove(filepath.Join(s.dir, spillName))
}

// segment returns the share of the edges that a thread reads.
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
	if s.sorted {
		return nil
	}
	s.division = s.divide(s.plan, counts)
	if s.plan.again != nil {
		if d := s.divide(*s.plan.again, counts); d.bytes <= s.plan.again.round {
			s.rounds = &d
		}
	}
	if s.rounds != nil && s.readAgainBytes() <= 2*s.spillBytes() {
		s.spillNothing()
	}
	return nil
}

// divide joins buckets to partitions that reach the plan's target, and places their runs in the spill.
func (s *edgeSorter) divide(plan edgePlan, counts []int64) (d division) {
	var current partition
	segments := make([]int64, plan.threads) // edges of the current partition by segment
	first, off := int64(0), int64(0)
	finish := func() {
		current.first = first
		first += current.count
		if plan.inMemory && off+current.count*int64(plan.record.bytes)+recordSlack > plan.round && off > 0 {
			d.ends, off = append(d.ends, len(d.partitions)), 0
		}
		for i, n := range segments {
			current.runs = append(current.runs, run{off: off, count: n})
			if plan.inMemory {
				off += n * int64(plan.record.bytes)
			} else {
				off += plan.record.fileBytes(n)
			}
			segments[i] = 0
		}
		d.bytes = max(d.bytes, off+recordSlack)
		d.partitions = append(d.partitions, current)
		current = partition{low: current.high}
	}
	for b := range plan.buckets {
		high := min(int64(b+1)<<plan.shift, s.targets)
		n := int64(0)
		for t := range plan.threads {
			n += counts[t*plan.buckets+b]
		}
		if current.high > current.low && ((current.count+n)*plan.cost+(high-current.low)*8 > plan.target ||
			high-current.low > 1<<32) {
			finish()
		}
		for t := range segments {
			segments[t] += counts[t*plan.buckets+b]
		}
		current.high = high
		current.count += n
	}
	finish()
	d.ends = append(d.ends, len(d.partitions))
	return d
}

// readAgainBytes returns the bytes of the edge list that rounds read beyond its first reading.
func (s *edgeSorter) readAgainBytes() int64 {
	edge := int64(s.edges.sources.DType.Size() + s.edges.targets.DType.Size())
	return int64(len(s.rounds.ends)-1) * s.edges.count * edge
}

// spillBytes returns the disk space of the records.
func (s *edgeSorter) spillBytes() int64 {
	if s.sorted || s.plan.inMemory {
		return 0
	}
	return max(s.bytes, ssd.PageBytes)
}

// spillNothing sorts in rounds.
func (s *edgeSorter) spillNothing() {
	s.plan, s.division, s.rounds = *s.plan.again, *s.rounds, nil
}
