package loader

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"freshgo/core/manifest"
	"freshgo/core/sample"
)

// Times where nodes and edges have types, as in PyG: either some types of nodes have a tensor of the name that Options.TimeAttr gives, and the time of
// an edge is that of its source; or some relations have. What has none is drawn whatever the time. Trees are numbered over the seeds of a batch, those
// of the first type before those of the second.

// timeTensors returns the tensor of each node type or of each relation that has times, and nil of the others; or nothing without times.
func (l *Loader) timeTensors() (nodes, edges []*tensor) {
	if l.options.TimeAttr == "" {
		return nil, nil
	}
	types := l.parts.types
	nodes, edges = make([]*tensor, types.types()), make([]*tensor, len(types.relations))
	for i := range l.parts.tensors {
		switch t := &l.parts.tensors[i]; {
		case t.name != l.options.TimeAttr:
		case t.byEdge:
			edges[t.typ] = t
		default:
			nodes[t.typ] = t
		}
	}
	return nodes, edges
}

// checkTimes is Loader.checkTimes of a graph with types.
func (s *schema) checkTimes(l *Loader) error {
	name := l.options.TimeAttr
	if name == "" {
		return l.checkTreeNames()
	}
	if k := l.options.Links; k != nil {
		if _, err := l.parts.linked(k); err != nil {
			return err
		}
	}
	nodes, edges := l.timeTensors()
	var found [2]*tensor // of nodes, of edges
	for kind, tensors := range [][]*tensor{nodes, edges} {
		for _, t := range tensors {
			if t == nil {
				continue
			}
			if err := t.checkTime(); err != nil {
				return fmt.Errorf("%s: %w", s.typeLabel(t), err)
			}
			found[kind] = t
		}
	}
	switch {
	case found[0] != nil && found[1] != nil:
		return fmt.Errorf("%w: time_attr %q names tensors of nodes (%s) and of edges (%s), expected those of one kind",
			ErrOption, name, s.typeLabel(found[0]), s.typeLabel(found[1]))
	case found[0] == nil && found[1] == nil:
		var known []string
		for i := range l.parts.tensors {
			t := &l.parts.tensors[i]
			known = append(known, s.typeOf(t)+"."+t.name)
		}
		return fmt.Errorf("%w: time_attr %q is no tensor of any type, the tensors are %q", ErrOption, name, known)
	}
	if k := l.options.Links; k != nil {
		t, own := cmp.Or(edges[k.Relation], found[0], found[1]), edges[k.Relation] != nil
		if err := l.options.validateLinkTimes(&l.parts, t, own); err != nil {
			return err
		}
	}
	for _, r := range s.runs {
		if l.options.SeedTimes == nil && nodes[r.typ] == nil && r.from < r.to {
			return fmt.Errorf("%w: node type %q has no time_attr %q of its own, so input_time must give a time for each input node", ErrOption, s.names[r.typ], name)
		}
	}
	return l.checkTreeNames()
}

// typeLabel is typeOf for messages.
func (s *schema) typeLabel(t *tensor) string {
	if t.byEdge {
		return "edge type " + s.typeOf(t)
	}
	return fmt.Sprintf("node type %q", s.typeOf(t))
}

// describe is a tensor in messages.
func (s *schema) describe(t *tensor) string {
	if s.unnamed() {
		return strconv.Quote(t.name)
	}
	return fmt.Sprintf("%q of %s", t.name, s.typeOf(t))
}

// ofRelation tells of an error which edge type it is of, where they have names.
func (s *schema) ofRelation(relation int, err error) error {
	if s.unnamed() {
		return err
	}
	return fmt.Errorf("edge type %s: %w", s.relations[relation].name, err)
}

// typeOf is the type that a tensor belongs to.
func (s *schema) typeOf(t *tensor) string {
	if t.byEdge {
		return s.relations[t.typ].name
	}
	return s.names[t.typ]
}

// timed is the tensor that has the times of a relation's edges, or nil.
func (s *schema) timed(relation int, nodes, edges []*tensor) *tensor {
	if t := edges[relation]; t != nil {
		return t
	}
	return nodes[s.relations[relation].source]
}

// sizeTimes is what the times of all relations take in memory, and the largest of the tensors that they come from.
func (s *schema) sizeTimes(l *Loader) (times, largest int64) {
	nodes, edges := l.timeTensors()
	if nodes == nil {
		return 0, 0
	}
	for i := range s.relations {
		if t := s.timed(i, nodes, edges); t != nil {
			times, largest = times+timesBytes(s.relations[i].numEdges), max(largest, t.bytes())
		}
	}
	return times, largest
}

// openTimes makes the times of edges, of all relations that have any, and of seeds ready, where the topology is open.
func (s *schema) openTimes(ctx context.Context, l *Loader) ([]*sample.Temporal, error) {
	nodes, edges := l.timeTensors()
	if nodes == nil {
		return nil, nil
	}
	if l.seedTimes = l.options.SeedTimes; l.seedTimes == nil {
		if err := l.allocSeedTimes(); err != nil {
			return nil, err
		}
	}
	out := make([]*sample.Temporal, len(s.relations))
	for typ, t := range nodes {
		if t == nil {
			continue
		}
		if err := s.openTimesOfNodes(ctx, l, typ, t, out); err != nil {
			return nil, fmt.Errorf("node type %q: %w", s.names[typ], err)
		}
	}
	for i, t := range edges {
		if t == nil {
			continue
		}
		var err error
		if out[i], err = s.openTimesOfEdges(ctx, l, i, t); err != nil {
			return nil, fmt.Errorf("edge type %s: %w", s.relations[i].name, err)
		}
	}
	return out, nil
}

// openTimesOfEdges makes ready what has the times of a relation: its edges, and links that are these.
func (s *schema) openTimesOfEdges(ctx context.Context, l *Loader, i int, t *tensor) (*sample.Temporal, error) {
	rows, err := l.openTimeRows(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	defer rows.free()
	if k := l.options.Links; k != nil && k.Relation == i && l.options.SeedTimes == nil {
		if err := l.readSeedTimes(ctx, rows, seedRun{to: l.numSeeds()}, 0); err != nil {
			return nil, err
		}
	}
	return s.temporal(ctx, l, i, rows, &s.relations[i].edgeIDs)
}

// openTimesOfNodes makes ready what has the times of a node type: its seeds, and the edges that begin at it.
func (s *schema) openTimesOfNodes(ctx context.Context, l *Loader, typ int, t *tensor, out []*sample.Temporal) error {
	rows, err := l.openTimeRows(ctx, t, nil)
	if err != nil {
		return err
	}
	defer rows.free()
	for _, r := range s.runs {
		if r.typ != typ || l.options.SeedTimes != nil {
			continue
		}
		if err := l.readSeedTimes(ctx, rows, r, s.first[typ]); err != nil {
			return err
		}
	}
	for i := range s.relations {
		if s.relations[i].source != typ {
			continue
		}
		held := *rows // freed once for all
		held.free = func() {}
		if out[i], err = s.temporal(ctx, l, i, &held, &s.relations[i].neighbors); err != nil {
			return err
		}
	}
	return nil
}

// temporal is how a relation draws by times that ids says the rows of.
func (s *schema) temporal(ctx context.Context, l *Loader, relation int, rows *timeRows, ids *idArray) (*sample.Temporal, error) {
	r := &s.relations[relation]
	times, err := l.timesOf(ctx, rows, r.indptr, ids, r.numEdges)
	if err != nil {
		return nil, err
	}
	return l.options.temporal(times), nil
}

// temporal is how edges of these times are drawn.
func (o *Options) temporal(times *sample.Times) *sample.Temporal {
	return &sample.Temporal{Times: times, Last: o.TemporalLast, Window: o.TimeWindow}
}

// timesOnDisk are those of the loader as if they stayed on disk.
func (s *schema) timesOnDisk(l *Loader) []*sample.Temporal {
	nodes, edges := l.timeTensors()
	if nodes == nil {
		return nil
	}
	out := make([]*sample.Temporal, len(s.relations))
	for i := range out {
		if s.timed(i, nodes, edges) != nil {
			out[i] = l.options.temporal(&sample.Times{Source: &diskTimes{}})
		}
	}
	return out
}

// treesOfType adds the trees of the nodes of one type, and the times of its seeds; of links these are of others, see addTimes.
func (p *preparer) treesOfType(b *Batch, typ int) error {
	parts, c := &p.loader.parts, &p.sections
	if !parts.disjoint {
		return nil
	}
	of := p.batch.Tree[c.nodes[typ]:c.nodes[typ+1]]
	trees, err := p.add(b, parts.types.nodeName(typ, TreeName), int64(len(of)))
	if err != nil {
		return err
	}
	for i, tree := range of {
		trees[i] = int64(tree)
	}
	if k := p.loader.links; k != nil {
		k.linksOfTrees(trees, b.NumSeeds)
		return nil
	}
	if !parts.timed {
		return nil
	}
	data, err := p.addTensor(b, parts.types.nodeName(typ, SeedTimeName), manifest.DType_INT64, []int64{c.seeds[typ]})
	if err != nil {
		return err
	}
	times := int64s(data)
	parts.types.inputsOf(typ, p.request.inputs, func(i int, at, _ int64) { times[i] = p.loader.seedTimes[at] })
	return nil
}
