package links

import (
	"context"
	"slices"

	"freshgo/core/internal/reuse"
	"freshgo/core/sample"
)

// Places holds the tensors of a batch of links, beside its sample.Request.
type Places struct {
	// Ends are the positions in n_id of the ends of links and negatives: of pairs all sources, then all targets; of
	// triplets the sources and the targets of links, then the targets of negatives.
	Ends []int64

	sources   []int64 // of the negatives of triplets
	positions []int64 // of links that are edges: scratch
	local     []int32 // by node: scratch
	times     []int64 // of negatives: scratch
}

// Request fills r and p for a batch of links, whose negatives key draws. r.Times are the times of the links, if they
// have any. edges, the relation's, tell strict negatives from edges, and the ends of links that are all its edges.
//
// In trees, with times or without, every end of a link or negative is a seed of its own, in the order of the ends
// (PyG's edge_sample): of pairs all sources, links before negatives, then all targets; of triplets the sources of
// links, their targets, then the targets of negatives, one for each link after the other. Negative j goes with link j
// modulo the number of links and has its time.
func (k *Links) Request(
	ctx context.Context, edges *sample.Relation, key sample.Key, links []int64, r *sample.Request, p *Places,
) error {
	n, negatives := len(links), 0
	if k.negatives != nil {
		negatives = int(k.Options.NumNegatives(int64(n)))
	}
	p.Ends = reuse.Slice(p.Ends, 2*(n+negatives))[:k.Options.NumEnds(int64(n))]
	sources, targets := p.Ends[:n], p.Ends[len(p.Ends)-n-negatives:]
	if k.every != nil {
		if err := k.every.ends(ctx, edges, links, &p.positions, sources, targets[:n]); err != nil {
			return err
		}
	} else {
		for i, link := range links {
			sources[i], targets[i] = k.Sources[link], k.Targets[link]
		}
	}
	k.exclude(sources, targets[:n], r)
	if negatives > 0 {
		drawn := p.Ends[n : n+negatives]
		if k.Options.Triplets {
			p.sources = reuse.Slice(p.sources, negatives)
			for j := range p.sources {
				if p.sources[j] = sources[j/(negatives/n)]; k.disjoint {
					p.sources[j] = sources[j%n]
				}
			}
			drawn = p.sources
		}
		if err := k.draw(ctx, edges, key, r.Times, p, drawn, targets[n:]); err != nil {
			return err
		}
	}
	if numSources := len(p.Ends) - len(targets); k.disjoint {
		k.separate(n, r, p, numSources)
	} else {
		k.number(r, p, numSources)
	}
	return nil
}

// exclude lists what links with these ends keep out of their batch, of the relations that it is of.
func (k *Links) exclude(sources, targets []int64, r *sample.Request) {
	if k.Options.Exclude == ExcludeNone {
		return
	}
	if r.Exclude == nil {
		r.Exclude = make([][]sample.Link, k.of.NumRelations)
	}
	own, back := &r.Exclude[k.Options.Relation], &r.Exclude[k.Options.Reverse]
	*own, *back = (*own)[:0], (*back)[:0]
	for i, source := range sources {
		target := targets[i]
		*own = append(*own, sample.Link{Source: source, Target: target})
		if k.Options.Exclude == ExcludeBoth {
			*back = append(*back, sample.Link{Source: target, Target: source})
		}
	}
	*own = sample.SortLinks(*own)
	if back != own {
		*back = sample.SortLinks(*back)
	}
}

// draw draws negatives. Where nodes have times, it draws from the nodes that were there at the times of the links.
func (k *Links) draw(
	ctx context.Context, edges *sample.Relation, key sample.Key, times []int64, p *Places, sources, targets []int64,
) error {
	if !k.timed() {
		return k.negatives.Draw(ctx, edges, key, sources, targets)
	}
	p.times = reuse.Slice(p.times, len(targets))
	for j := range p.times {
		p.times[j] = times[j%len(times)]
	}
	return k.negatives.DrawUpTo(ctx, edges, key, p.times, sources, targets)
}

// global makes ends, ids within their types, global numbers.
func (k *Links) global(p *Places, numSources int) {
	for i := range p.Ends[:numSources] {
		p.Ends[i] += k.of.FirstSource
	}
	for i := range p.Ends[numSources:] {
		p.Ends[numSources+i] += k.of.FirstTarget
	}
}

// separate makes the ends the seeds, each in a tree of its own, and gives them the times of their n links. The first
// numSources ends are sources.
func (k *Links) separate(n int, r *sample.Request, p *Places, numSources int) {
	k.global(p, numSources)
	r.Seeds = append(r.Seeds[:0], p.Ends...)
	links := int64(n)
	if times := r.Times; len(times) > 0 {
		r.Times = slices.Grow(times, len(p.Ends))[:len(p.Ends)]
		for end := int64(len(p.Ends)) - 1; end >= links; end-- { // the first n ends have the places and times of their links
			r.Times[end] = r.Times[k.Options.LinkOf(end, links)]
		}
	}
	for end := range p.Ends {
		p.Ends[end] = int64(end)
	}
	if k.Options.Triplets && k.Options.Negatives > 1 { // by link, those of each n apart
		each := int64(k.Options.Negatives)
		for i := range p.Ends[2*n:] {
			p.Ends[2*n+i] = 2*links + int64(i)%each*links + int64(i)/each
		}
	}
	if k.of.Apart() { // nodes of each type count from 0
		for i := range p.Ends[numSources:] {
			p.Ends[numSources+i] -= int64(numSources)
		}
	}
}

// number makes the seeds the nodes at the ends, each once and ascending, as torch.unique gives them, and the ends their
// places among the seeds of their type.
func (k *Links) number(r *sample.Request, p *Places, numSources int) {
	k.global(p, numSources)
	p.unique(r, k.of.NumNodes)
	if !k.of.Apart() {
		return
	}
	later, first := p.Ends[numSources:], k.of.FirstTarget
	if k.of.FirstSource > k.of.FirstTarget {
		later, first = p.Ends[:numSources], k.of.FirstSource
	}
	before, _ := slices.BinarySearch(r.Seeds, first) // seeds of the other type
	for i := range later {
		later[i] -= int64(before)
	}
}

// manyEnds is the ratio of nodes to ends above which ends are numbered by sorting. Arbitrary: 64 bytes of scratch for
// an end.
const manyEnds = 16

// unique makes the seeds the ends, each once and ascending, and the ends their places.
func (p *Places) unique(r *sample.Request, numNodes int64) {
	r.Seeds = r.Seeds[:0]
	if numNodes > manyEnds*int64(len(p.Ends)) {
		r.Seeds = append(r.Seeds, p.Ends...)
		slices.Sort(r.Seeds)
		r.Seeds = slices.Compact(r.Seeds)
		for i, v := range p.Ends {
			at, _ := slices.BinarySearch(r.Seeds, v)
			p.Ends[i] = int64(at)
		}
		return
	}
	p.local = reuse.Zeros(p.local, int(numNodes))
	for _, v := range p.Ends {
		p.local[v] = 1
	}
	for v, present := range p.local {
		if present != 0 {
			p.local[v] = int32(len(r.Seeds))
			r.Seeds = append(r.Seeds, int64(v))
		}
	}
	for i, v := range p.Ends {
		p.Ends[i] = int64(p.local[v])
	}
}
