package loader

import (
	"context"
	"fmt"
	"freshgo/core/graph"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// Links of a graph with types: pairs of one relation, whose ends are nodes of its two types. Links and negatives have ids within these; seeds of both types
// together are a batch's, each once and ascending, and the places of ends are those in n_id of their type. What is excluded of a relation is told to the
// sampler by relation. A homogeneous graph is the case of one type and one relation.

// linked is what links are of: a homogeneous graph, or a relation.
type linked struct {
	source, target           int    // types
	sources, targets         int64  // nodes that can be an end
	firstSource, firstTarget int64  // global numbers of the first of them
	numEdges                 int64  // that links can be
	name                     string // of the relation; empty: a homogeneous graph
	ofSource, ofTarget       string // the types, for messages
}

// apart says whether the ends are of different types.
func (e *linked) apart() bool { return e.source != e.target }

// linked finds what links are of.
func (p *parts) linked(o *LinkOptions) (linked, error) {
	s := p.types
	if s.unnamed() {
		if o.Relation != 0 || o.Reverse != 0 {
			return linked{}, fmt.Errorf("%w: links of relation %d, the graph has no types", ErrOption, max(o.Relation, o.Reverse))
		}
		return linked{sources: p.numNodes, targets: p.numNodes, numEdges: p.numEdges}, nil
	}
	for _, i := range []int{o.Relation, o.Reverse} {
		if i < 0 || i >= len(s.relations) {
			return linked{}, fmt.Errorf("%w: links of relation %d, the graph has %d", ErrOption, i, len(s.relations))
		}
	}
	r, back := &s.relations[o.Relation], &s.relations[o.Reverse]
	if o.Exclude == ExcludeBoth && (back.source != r.target || back.target != r.source) {
		return linked{}, fmt.Errorf("%w: the reverse of links of %s must lead from type %q to %q, %s does not", ErrOption,
			r.name, s.names[r.target], s.names[r.source], back.name)
	}
	of := func(typ int) string { return fmt.Sprintf(" of type %q", s.names[typ]) }
	return linked{
		source: r.source, target: r.target, sources: s.count(r.source), targets: s.count(r.target), numEdges: r.numEdges,
		firstSource: s.first[r.source], firstTarget: s.first[r.target], name: r.name, ofSource: of(r.source), ofTarget: of(r.target),
	}, nil
}

// pairNames are the names of the tensors of pairs: the second is what the user's labels become.
func (p *parts) pairNames(o *LinkOptions) []string {
	names := []string{linkPairs, "edge_label"}
	if !p.types.unnamed() {
		for i, name := range names {
			names[i] = edgeName(o.Relation, name)
		}
	}
	return names
}

// tripletNames are those of triplets.
func (p *parts) tripletNames(o *LinkOptions) []string {
	names := slices.Clone(linkTriplets[:])
	if !p.types.unnamed() {
		r := &p.types.relations[o.Relation]
		for i, typ := range []int{r.source, r.target, r.target} {
			names[i] = nodeName(typ, names[i])
		}
	}
	return names
}

// exclude lists what the links of a request keep out of its batch, of the relations that it is of.
func (k *links) exclude(r *request) {
	if k.options.Exclude == ExcludeNone {
		return
	}
	if r.Exclude == nil {
		r.Exclude = make([][]sample.Link, len(k.types.relations))
	}
	own, back := &r.Exclude[k.options.Relation], &r.Exclude[k.options.Reverse]
	*own, *back = (*own)[:0], (*back)[:0]
	for _, input := range r.inputs {
		source, target := k.Sources[input], k.Targets[input]
		*own = append(*own, sample.Link{Source: source, Target: target})
		if k.options.Exclude == ExcludeBoth {
			*back = append(*back, sample.Link{Source: target, Target: source})
		}
	}
	*own = sample.SortLinks(*own)
	if back != own {
		*back = sample.SortLinks(*back)
	}
}

// number makes the seeds those at the ends, and the ends, which are ids within their types, places among the seeds of these.
func (k *links) number(r *request, numSources int) {
	sources, targets := r.ends[:numSources], r.ends[numSources:]
	for i := range sources {
		sources[i] += k.firstSource
	}
	for i := range targets {
		targets[i] += k.firstTarget
	}
	r.number(k.numNodes)
	if !k.apart() {
		return
	}
	later, first := targets, k.firstTarget
	if k.firstSource > k.firstTarget {
		later, first = sources, k.firstSource
	}
	before, _ := slices.BinarySearch(r.Seeds, first) // seeds of the other type
	for i := range later {
		later[i] -= int64(before)
	}
}

// linkEdges is the edges that links are of, in a loader that reads them once.
func (l *Loader) linkEdges(ctx context.Context, o *LinkOptions) (*graph.Edges, error) {
	l.parts.types = l.parts.types.again() // what is opened is this loader's own
	if err := l.parts.types.openTopology(ctx, l); err != nil {
		return nil, err
	}
	r := &l.parts.types.relations[o.Relation]
	return r.Edges(l.budget), nil
}

// linkNumbers is the numbers of these edges, in memory until free.
func (l *Loader) linkNumbers(ctx context.Context, o *LinkOptions) (ids *graph.IDs, free func(), err error) {
	var array *store.Array // nil: of a graph in memory, or each number is the position
	var load graph.LoadFunc
	r := &l.parts.types.relations[o.Relation]
	ids = &r.EdgeIDs
	if r.onDisk != nil {
		array, load = r.onDisk.EdgeIDs, r.onDisk.LoadEdgeIDs
	}
	if array == nil {
		return ids, func() {}, nil
	}
	block, err := load(ctx, l.budget, mem.Staging)
	if err != nil {
		return nil, nil, err
	}
	ids = new(graph.IDs)
	ids.Hold(block, array)
	return ids, block.Free, nil
}
