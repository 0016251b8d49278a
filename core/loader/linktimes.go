package loader

import (
	"context"
	"fmt"
	"freshgo/core/graph"
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

// validateLinkTimes checks what links, which may be every edge, have to do with times: those of t, which is the links' own where that is of edges.
func (o *Options) validateLinkTimes(p *parts, t *tensor, own bool) error {
	k := o.Links
	numLinks := int64(len(k.Sources))
	if k.Sources == nil {
		of, err := p.linked(k)
		if err != nil {
			return err
		}
		numLinks = of.numEdges
	}
	switch {
	case o.SeedTimes != nil && int64(len(o.SeedTimes)) != numLinks:
		return fmt.Errorf("%w: edge_label_time has %d times, expected one for each of %d links", ErrOption, len(o.SeedTimes), numLinks)
	case t == nil || o.SeedTimes != nil:
		return nil
	case !t.byEdge:
		return fmt.Errorf("%w: time_attr %q has times of nodes, so edge_label_time must give a time for each link", ErrOption, t.name)
	case !own:
		return fmt.Errorf("%w: edge type %s has no time_attr %q of its own, so edge_label_time must give a time for each link", ErrOption, p.types.relations[k.Relation].name, t.name)
	case k.Sources != nil:
		return fmt.Errorf("%w: time_attr %q needs edge_label_time, a time for each link: only without edge_label_index, where every edge is a link, it is that of the edge", ErrOption, t.name)
	}
	return nil
}

// timesNames are the tensors of times that batches of links, or of seeds where there are none, bring in place of SeedTimeName.
func (p *parts) timesNames(o *LinkOptions) []string {
	switch {
	case o == nil:
		return []string{SeedTimeName}
	case p.types.unnamed() && o.Triplets:
		return []string{SeedTimeName}
	case p.types.unnamed():
		return []string{LinkTimeName}
	case !o.Triplets:
		return []string{p.types.edgeName(o.Relation, LinkTimeName)}
	}
	r := &p.types.relations[o.Relation]
	if r.source == r.target {
		return []string{p.types.nodeName(r.source, SeedTimeName)}
	}
	return []string{p.types.nodeName(r.source, SeedTimeName), p.types.nodeName(r.target, SeedTimeName)} // as PyG
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

// plant makes the ends, of which so many are sources, the seeds, each in a tree of its own, and gives them the times of their links, which r.Times has.
func (k *links) plant(r *request, numSources int) {
	n := int64(len(r.inputs))
	r.Seeds = r.Seeds[:0]
	for end, v := range r.ends {
		if end < numSources {
			v += k.firstSource
		} else {
			v += k.firstTarget
		}
		r.Seeds = append(r.Seeds, v)
	}
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
	if k.apart() { // those of each type count from 0
		for i := range r.ends[numSources:] {
			r.ends[numSources+i] -= int64(numSources)
		}
	}
}

// endTimes is when nodes came about that can be an end of a negative: of one type the same, nil where they have no times.
type endTimes struct{ sources, targets *sample.NodeTimes }

// openBorn makes the times of nodes ready for negatives, of either type that has any.
func (l *Loader) openBorn(ctx context.Context, budget *mem.Budget) (err error) {
	k := l.links
	if l.options.TimeAttr == "" || k.options.Negatives == 0 {
		return nil
	}
	nodes, _ := l.timeTensors()
	ofSources, ofTargets := nodes[k.source], nodes[k.target]
	if ofTargets != nil {
		if k.born.targets, err = l.bornOf(ctx, budget, ofTargets, k.targets); err != nil {
			return err
		}
	}
	switch {
	case k.options.Triplets || ofSources == nil: // which have the sources of links
	case ofSources == ofTargets:
		k.born.sources = k.born.targets
	default:
		k.born.sources, err = l.bornOf(ctx, budget, ofSources, k.sources)
	}
	return err
}

// bornOf is the times of so many nodes, which are all of a type.
func (l *Loader) bornOf(ctx context.Context, budget *mem.Budget, t *tensor, count int64) (*sample.NodeTimes, error) {
	order, err := l.orderOf(ctx, t)
	if err != nil {
		return nil, err
	}
	reader := graph.Opened{Store: l.parts.store, Budget: mem.NewBudget(0)}
	defer reader.Close()
	rows, err := reader.Times(ctx, t.column(), true, order, t.first)
	if err != nil {
		return nil, err
	}
	defer rows.Free()
	staging, err := budget.Alloc(mem.Staging, 8*max(1, count))
	if err != nil {
		return nil, err
	}
	defer staging.Free()
	times := mem.Slice[int64](staging)[:count]
	rows.NodeTimes(times)
	block, err := l.links.alloc(budget, sample.NodeTimesBytes(count))
	if err != nil {
		return nil, err
	}
	return sample.NewNodeTimes(times, block)
}

// checkEarliest says whether the earliest link can have negatives.
func (l *Loader) checkEarliest(ctx context.Context) error {
	if l.links == nil || l.links.negatives == nil || !l.links.negatives.Timed() {
		return nil
	}
	return l.links.negatives.Earliest(ctx, l.sampler.Relation(l.links.options.Relation), slices.Min(l.seedTimes))
}

// drawNegatives draws those of a batch, with times of nodes from what was there at the times of their links.
func (k *links) drawNegatives(ctx context.Context, edges *sample.Relation, key sample.Key, r *request, sources, targets []int64) error {
	if !k.negatives.Timed() {
		return k.negatives.Draw(ctx, edges, key, sources, targets)
	}
	r.times = slices.Grow(r.times[:0], len(targets))[:len(targets)]
	for j := range r.times {
		r.times[j] = r.Times[j%len(r.inputs)]
	}
	return k.negatives.DrawUpTo(ctx, edges, key, r.times, sources, targets)
}

// linksOfTrees makes trees, the tensor of these, say with which link of n each goes: in a graph with types too, where those of the first type come
// before those of the second, for either has a multiple of n or, of pairs, as many as the other.
func (k *links) linksOfTrees(trees []int64, n int64) {
	for i, tree := range trees {
		trees[i] = k.options.linkOf(tree, n)
	}
}

// addTimes appends the times of links, or of seeds in a graph without types.
func (p *preparer) addTimes(b *Batch) error {
	parts := &p.loader.parts
	if !parts.timed {
		return nil
	}
	for _, name := range parts.timesNames(parts.links) {
		times, err := p.add(b, name, parts.links.numTimes(b.NumSeeds))
		if err != nil {
			return err
		}
		for i := range times {
			times[i] = p.loader.seedTimes[p.request.inputs[i%len(p.request.inputs)]]
		}
	}
	return nil
}
