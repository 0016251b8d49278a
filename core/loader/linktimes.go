package loader

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Links in trees, with times or without: every end of a link or negative is a seed of its own, in the order of the ends (PyG's
// edge_sample): of pairs all sources, links before negatives, then all targets; of triplets the sources of links, their
// targets, then the targets of negatives, one for each link after the other. Negative j goes with link j modulo the number of
// links and has its time. TreeName says of a node with which link its tree goes, so that the trees of a link's ends are one
// to whoever pools by it.

// LinkTimeName is the tensor with the time of each link and negative that pairs bring in place of SeedTimeName.
const LinkTimeName = "edge_label_time"

// validateLinkTimes checks what links, which may be every edge, have to do with times. numLinks are those of the options.
func (o *Options) validateLinkTimes(p *parts, t *tensor) error {
	k := o.Links
	numLinks := int64(len(k.Sources))
	if k.Sources == nil {
		numLinks = p.numEdges
	}
	switch {
	case o.SeedTimes != nil && int64(len(o.SeedTimes)) != numLinks:
		return fmt.Errorf("%w: edge_label_time has %d times, expected one for each of %d links", ErrOption, len(o.SeedTimes), numLinks)
	case t == nil || o.SeedTimes != nil:
		return nil
	case !t.byEdge:
		return fmt.Errorf("%w: time_attr %q has times of nodes, so edge_label_time must give a time for each link", ErrOption, t.name)
	case k.Sources != nil:
		return fmt.Errorf("%w: time_attr %q needs edge_label_time, a time for each link: only without edge_label_index, where every edge is a link, it is that of the edge", ErrOption, t.name)
	}
	return nil
}

// timesName is the tensor of times that batches bring.
func (o *Options) timesName() string {
	if o.Links != nil && !o.Links.Triplets {
		return LinkTimeName
	}
	return SeedTimeName
}

// numTimes is how many times a batch of so many seeds or links brings.
func (o *LinkOptions) numTimes(seeds int64) int64 {
	if o == nil || o.Triplets {
		return seeds
	}
	return seeds + o.numNegatives(seeds)
}

// linkOf is the link, of n in a batch, with which an end goes.
func (o *LinkOptions) linkOf(end, n int64) int64 {
	if !o.Triplets {
		end %= n + o.numNegatives(n)
	}
	return end % n
}

// plant makes the ends the seeds, each in a tree of its own, and gives them the times of their links, which r.Times has.
func (k *links) plant(r *request) {
	n := int64(len(r.inputs))
	r.Seeds = append(r.Seeds[:0], r.ends...)
	times := r.Times
	if len(times) > 0 {
		r.Times = slices.Grow(times, len(r.ends))[:len(r.ends)]
		for end := int64(len(r.ends)) - 1; end >= n; end-- { // the first n ends have the places and the times of their links
			r.Times[end] = r.Times[k.options.linkOf(end, n)]
		}
	}
	for end := range r.ends {
		r.ends[end] = int64(end)
	}
	if k.options.Triplets && k.options.Negatives > 1 { // by link, those of each n apart
		each := int64(k.options.Negatives)
		for i := range r.ends[2*n:] {
			r.ends[2*n+int64(i)] = 2*n + int64(i)%each*n + int64(i)/each
		}
	}
}

// openBorn makes the times of nodes ready for negatives, where nodes have times.
func (l *Loader) openBorn(ctx context.Context, budget *mem.Budget) error {
	t, err := l.timeTensor()
	if err != nil || t == nil || t.byEdge || l.options.Links.Negatives == 0 {
		return err
	}
	reader := &Loader{options: l.options, parts: l.parts, budget: mem.NewBudget(0)}
	defer reader.undo()
	rows, free, err := reader.allRows(ctx, t)
	if err != nil {
		return err
	}
	defer free()
	var order []uint32
	if l.parts.store != nil {
		if order, err = reader.rowsOfNodes(ctx); err != nil {
			return err
		}
	}
	staging, err := budget.Alloc(mem.Staging, 8*max(1, l.parts.numNodes))
	if err != nil {
		return err
	}
	defer staging.Free()
	times := mem.Slice[int64](staging)[:l.parts.numNodes]
	if order == nil {
		gatherTimes(t.dtype, rows, nil, nil, times)
	} else {
		for v := range times {
			times[v] = int64(v)
		}
		gatherTimes(t.dtype, rows, order, times, times)
	}
	block, err := l.links.alloc(budget, sample.NodeTimesBytes(l.parts.numNodes))
	if err != nil {
		return err
	}
	l.links.born, err = sample.NewNodeTimes(times, block)
	return err
}

// checkEarliest says whether the earliest link can have negatives.
func (l *Loader) checkEarliest(ctx context.Context) error {
	if l.links == nil || l.links.born == nil {
		return nil
	}
	return l.links.negatives.Earliest(ctx, l.sampler.(plainSampler).Sampler, slices.Min(l.seedTimes))
}

// drawNegatives draws those of a batch, with times of nodes from what was there at the times of their links.
func (k *links) drawNegatives(ctx context.Context, s *sample.Sampler, key sample.Key, r *request, sources, targets []int64) error {
	if k.born == nil {
		return k.negatives.Draw(ctx, s, key, sources, targets)
	}
	r.times = slices.Grow(r.times[:0], len(targets))[:len(targets)]
	for j := range r.times {
		r.times[j] = r.Times[j%len(r.inputs)]
	}
	return k.negatives.DrawUpTo(ctx, s, key, r.times, sources, targets)
}
