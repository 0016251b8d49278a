package draw

import (
	"context"
	"errors"
	"sync/atomic"

	"freshgo/core/graph"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Batches that are sampled at opening share their reads of neighbour lists on disk (graph.Together): hop by hop, in the
// order of the file. Each by itself, eight batches of 290,000 nodes would take two million requests.

// measuredBatch is a batch that is sampled to learn its size or its rows.
type measuredBatch struct {
	key     sample.Key
	request Request
	wanted  *graph.Wanted // the neighbours that were read for it; nil: none
}

// with returns the context of a draw of the batch, the last one or not.
func (b *measuredBatch) with(ctx context.Context, last bool) context.Context {
	if b.wanted == nil {
		return ctx
	}
	return b.wanted.With(ctx, last)
}

// forget frees what was read for the batch, and reports whether anything was.
func (b *measuredBatch) forget() bool {
	if b.wanted == nil {
		return false
	}
	b.wanted.Free()
	b.wanted = nil
	return true
}

const (
	// sharedShare is the part, as a divisor, of a trial's memory for what batches read together. Arbitrary: 18 MB serve
	// eight batches of 290,000 edges.
	sharedShare = 4
	// sharedAtOnce bounds the neighbours that are read at once, and least is where sharing is not worth it. Arbitrary.
	sharedAtOnce, leastShared = 1 << 18, 1 << 12
)

// SharesReads reports whether batches can be drawn hop by hop with a sampler, so that several share reads of neighbour
// lists.
func SharesReads(m *Sampling, by *sample.Sampler) bool {
	k := m.Options.Links
	excludes := k != nil && k.Exclude != links.ExcludeNone // and fetches lists for that
	return !excludes && by.FetchesOnce()
}

// mayShare reports whether the batches of each of some groups share their reads. The requests of all groups are then in
// memory at the same time.
func mayShare(m *Sampling, groups int) bool {
	requests := int64(groups) * measuredBatches * 3 * 8 * min(m.Options.BatchSize, m.Seeds.Count())
	return m.Parts.Store != nil && !m.Split.Neighbors && SharesReads(m, m.Sampler) && requests <= leastTrial
}

// draw draws a batch whole.
func (a *gauge) draw(ctx context.Context, b *measuredBatch) error {
	var g sample.Subgraph
	return a.worker.Draw(ctx, b.key, b.request.Request, &g)
}

// readShared reads what batches draw of neighbour lists, as far as there is memory beside other groups. draw draws one
// of them. It ignores errors: who draws the batches next meets them again.
func readShared(
	ctx context.Context, m *Sampling, groups int, batches []measuredBatch,
	draw func(context.Context, *measuredBatch) error,
) {
	free := m.Budget.Free() / sharedShare / int64(groups)
	atOnce := int(min(free/2/graph.TogetherBytes(1), sharedAtOnce))
	if atOnce < leastShared || m.Budget.Reserve(mem.Trace, graph.TogetherBytes(atOnce)) != nil {
		return
	}
	defer m.Budget.Release(mem.Trace, graph.TogetherBytes(atOnce))
	room := new(atomic.Int64)
	room.Store(free / 2)
	wanted := make([]*graph.Wanted, len(batches))
	for i := range batches {
		wanted[i] = graph.NewWanted(m.Budget, room)
		batches[i].wanted = wanted[i]
	}
	var reading graph.Together
	err := reading.ReadHops(ctx, wanted, m.Parts.Schema.Hops, atOnce, func(_ int, numbers []int) error {
		for _, i := range numbers {
			b := &batches[i]
			if err := draw(b.with(ctx, false), b); err != nil && !errors.Is(err, sample.ErrDeferred) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		forgetShared(batches)
	}
}

// forgetShared frees what was read for all batches, and reports whether anything was.
func forgetShared(batches []measuredBatch) (held bool) {
	for i := range batches {
		held = batches[i].forget() || held
	}
	return held
}
