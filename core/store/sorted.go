package store

import (
	"context"
	"sort"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// sortedCopy passes edges that come sorted by target to out, as they come. Threads take turns to pass pieces on, and
// read the next ones meanwhile.
type sortedCopy struct {
	*edgeSorter
	out   topologySink
	size  int64     // edges of a piece
	probe *idReader // of single targets
	meter *meter

	// Guarded by the turn.
	ended   int64   // targets whose ends are known
	lastEnd int64   // of these, the end of the last
	ends    []int64 // of these, what has not been passed on
}

// copySorted passes edges that come sorted to out. Their numbers are their positions.
func (s *edgeSorter) copySorted(ctx context.Context, out topologySink) error {
	probe, err := newIDReader(s.fs, s.edges.targets, s.edges.name, 1, s.budget)
	if err != nil {
		return err
	}
	defer probe.close()
	threads := int64(s.plan.threads)
	c := &sortedCopy{edgeSorter: s, out: out, probe: probe, ends: make([]int64, 0, wordsBytes/8),
		meter: &meter{report: s.progress, stage: s.stage("sorting"), total: s.edges.count}}
	// Half of the work, which leaves enough for the probe.
	c.size = max(min(s.plan.scanRows, s.plan.work/2/(threads*(s.plan.source+s.plan.number))), 1)
	turns := make([]chan struct{}, threads)
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	turns[0] <- struct{}{}
	err = guard.Each(ctx, int(threads), func(ctx context.Context, thread int) error {
		return c.run(ctx, thread, turns[thread], turns[(thread+1)%len(turns)])
	})
	if err != nil {
		return err
	}
	piece := sortedPiece{first: s.edges.count}
	for c.ended < s.targets {
		if err := c.end(&piece, s.edges.count); err != nil {
			return err
		}
	}
	return c.flush(&piece)
}

// sortedPiece is successive edges.
type sortedPiece struct {
	first, count     int64
	targets          []int64
	indices, edgeIDs []byte // as they are stored
	passed           int64  // edges that were passed on
}

// run copies every piece of a thread's.
func (c *sortedCopy) run(ctx context.Context, thread int, turn <-chan struct{}, next chan<- struct{}) error {
	source, number := c.plan.source, c.plan.number
	block, err := c.budget.Alloc(mem.Convert, c.size*(source+number))
	if err != nil {
		return err
	}
	defer block.Free()
	reader, err := newEdgeReader(c.fs, c.edges, c.plan.scanRows, c.budget)
	if err != nil {
		return err
	}
	defer reader.close()
	for at := int64(thread) * c.size; at < c.edges.count; at += int64(c.plan.threads) * c.size {
		p := sortedPiece{first: at, count: min(c.size, c.edges.count-at)}
		var sources []int64
		if sources, p.targets, err = reader.read(at, p.count); err != nil {
			return err
		}
		p.indices, p.edgeIDs = block.Bytes()[:p.count*source], block.Bytes()[c.size*source:][:p.count*number]
		bad := -1
		for i, v := range sources {
			if (uint64(v) >= uint64(c.sources) || uint64(p.targets[i]) >= uint64(c.targets)) && bad < 0 {
				bad = i
			}
			putNumber(p.indices, int64(i), source, uint64(v))
		}
		if number > 0 {
			for i := range p.count {
				putNumber(p.edgeIDs, i, number, uint64(at+i))
			}
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
		if bad >= 0 { // the first of all, as it is this piece's turn
			return c.edges.outOfRange(at+int64(bad), sources[bad], p.targets[bad], c.sources, c.edgeSorter.targets)
		}
		if err := c.pass(&p); err != nil {
			return err
		}
		next <- struct{}{}
		c.meter.add(p.count)
	}
	return nil
}

// pass passes on a piece and where the edges of its targets end.
func (c *sortedCopy) pass(p *sortedPiece) error {
	i := int64(0)
	for i < p.count && p.targets[i] == c.ended-1 {
		i++
	}
	for i < p.count {
		t := p.targets[i]
		if t < c.ended || p.first+i != c.lastEnd {
			return c.edges.changed()
		}
		for c.ended < t {
			if err := c.end(p, p.first+i); err != nil {
				return err
			}
		}
		for i < p.count && p.targets[i] == t {
			i++
		}
		last := p.first + i
		if i == p.count {
			var err error
			if last, err = c.endOf(t, last); err != nil {
				return err
			}
		}
		if err := c.end(p, last); err != nil {
			return err
		}
	}
	if c.lastEnd < p.first+p.count {
		return c.edges.changed()
	}
	return c.flush(p)
}

// end notes where the edges of the next target end.
func (c *sortedCopy) end(p *sortedPiece, at int64) error {
	c.ends = append(c.ends, at)
	c.ended++
	c.lastEnd = at
	if len(c.ends) < cap(c.ends) {
		return nil
	}
	return c.flush(p)
}

// flush passes on what is known of a piece.
func (c *sortedCopy) flush(p *sortedPiece) error {
	from, to := p.passed, min(c.lastEnd-p.first, p.count)
	p.passed = to
	err := c.out.take(c.ends, p.indices[from*c.plan.source:to*c.plan.source],
		p.edgeIDs[from*c.plan.number:to*c.plan.number])
	c.ends = c.ends[:0]
	return err
}

// endOf returns where the edges of a target end that go beyond a piece.
func (c *sortedCopy) endOf(target, from int64) (int64, error) {
	var failed error
	n := sort.Search(int(c.edges.count-from), func(i int) bool {
		if failed != nil {
			return true
		}
		t, err := c.probe.read(from+int64(i), 1)
		if err != nil {
			failed = err
			return true
		}
		return t[0] > target
	})
	return from + int64(n), failed
}
