package draw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The inputs of core/links: the relation of the links, the data of their graph, and the names of tensors.

// LinkTimeName is the tensor with the time of each link and negative that pairs have in place of SeedTimeName.
const LinkTimeName = "edge_label_time"

// LinkedRelation returns the relation of the links.
func (p *Parts) LinkedRelation(o *links.Options) (of links.Relation, err error) {
	s := p.Schema
	for _, i := range []int{o.Relation, o.Reverse} {
		if i < 0 || i >= len(s.Relations) {
			return of, fmt.Errorf("%w: links are of edge type %d, expected 0 to %d", ErrOption, i, len(s.Relations)-1)
		}
	}
	r, back := &s.Relations[o.Relation], &s.Relations[o.Reverse]
	if o.Exclude == links.ExcludeBoth && (back.Source != r.Target || back.Target != r.Source) {
		return of, fmt.Errorf("%w: the reverse of links of %s must lead from type %q to %q, %s does not", ErrOption,
			r.name, s.TypeNames[r.Target], s.TypeNames[r.Source], back.name)
	}
	of = links.Relation{
		Source: r.Source, Target: r.Target, NumSources: s.NumNodes(r.Source), NumTargets: s.NumNodes(r.Target),
		FirstSource: s.First[r.Source], FirstTarget: s.First[r.Target],
		NumNodes: p.NumNodes, NumEdges: r.NumEdges, NumRelations: len(s.Relations),
	}
	named := namingOf(s).label
	of.Name = named(r.name)
	of.OfSource = named(fmt.Sprintf(" of type %q", s.TypeNames[r.Source]))
	of.OfTarget = named(fmt.Sprintf(" of type %q", s.TypeNames[r.Target]))
	return of, nil
}

func (o *Options) validateLinks(p *Parts) error {
	k := o.Links
	if k == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...))
	}
	of, err := p.LinkedRelation(k)
	if err != nil {
		return err
	}
	if r := &p.Schema.Relations[k.Relation]; k.Sources == nil && r.withoutNumbers() {
		return r.noNumbers("pass the links as edge_label_index")
	}
	switch err := k.Check(&of); {
	case o.Seeds != nil:
		return refuse("seeds and links cannot be used together")
	case err != nil:
		return fmt.Errorf("%w: %w", ErrOption, err)
	case k.Strict && k.Negatives == 0:
		return refuse("strict negatives need negatives, expected at least 1 for each link, got 0")
	}
	if err := k.CheckEnds(&of); errors.Is(err, sample.ErrSeed) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	var names []string
	for _, name := range k.Names() {
		names = append(names, p.LinkName(name))
	}
	for _, t := range p.Tensors {
		if slices.Contains(names, t.Label) {
			return refuse("the graph has a tensor %q, a name that batches use for their links: rename the tensor", t.Name)
		}
	}
	return nil
}

// validateLinkTimes validates times for links, which may be all edges: of t, which holds the links' own times if it is
// an edge tensor of their relation.
func (o *Options) validateLinkTimes(p *Parts, t *Tensor, own bool) error {
	k := o.Links
	of, err := p.LinkedRelation(k)
	if err != nil {
		return err
	}
	numLinks := of.NumEdges
	if k.Sources != nil {
		numLinks = int64(len(k.Sources))
	}
	switch {
	case o.SeedTimes != nil && int64(len(o.SeedTimes)) != numLinks:
		return fmt.Errorf("%w: edge_label_time has %d times, expected one for each of %d links",
			ErrOption, len(o.SeedTimes), numLinks)
	case t == nil || o.SeedTimes != nil:
		return nil
	case !t.ByEdge:
		return fmt.Errorf("%w: 'edge_label_time' is not set: time_attr %q has times of nodes, "+
			"so it must give a time for each link", ErrOption, t.Name)
	case !own:
		return fmt.Errorf("%w: edge type %s has no time_attr %q of its own, "+
			"so edge_label_time must give a time for each link",
			ErrOption, of.Name, t.Name)
	case k.Sources != nil:
		return fmt.Errorf("%w: time_attr %q needs edge_label_time, a time for each link: links have the times of edges "+
			"only without edge_label_index, where every edge is a link", ErrOption, t.Name)
	}
	return nil
}

// LinkName returns the name of a tensor of links in batches.
func (p *Parts) LinkName(n links.Name) string {
	r := &p.Schema.Relations[p.Links.Relation]
	switch n.End {
	case links.OfSources:
		return p.Schema.NodeName(r.Source, n.Name)
	case links.OfTargets:
		return p.Schema.NodeName(r.Target, n.Name)
	}
	return p.Schema.EdgeName(p.Links.Relation, n.Name)
}

// TimesNames returns the tensors of times that batches of links have in place of SeedTimeName.
func (p *Parts) TimesNames() (names []string) {
	of, _ := p.LinkedRelation(p.Links) // its error was looked at
	for _, name := range p.Links.TimeNames(&of, LinkTimeName, SeedTimeName) {
		names = append(names, p.LinkName(name))
	}
	return names
}

// OpenSeeds prepares the seeds or links. Like indptr the tables of links are counted apart from the budget
// until the size of the working set is known.
func (m *Sampling) OpenSeeds(ctx context.Context) error {
	if err := openRequester(ctx, m); err != nil {
		return err
	}
	weights, count := m.Options.SeedWeights, m.Seeds.Count()
	if weights == nil {
		return nil
	}
	if int64(len(weights)) != count {
		return fmt.Errorf("%w: input_weight has %d numbers, expected one for each of %d inputs", ErrOption, len(weights),
			count)
	}
	m.seedSums = slices.Clone(weights)
	if err := sample.RunningSums(m.seedSums); err != nil {
		return fmt.Errorf("%w: input_weight: %w", ErrOption, err)
	}
	return nil
}

// openRequester finds the nodes or links that batches are drawn for.
func openRequester(ctx context.Context, m *Sampling) error {
	o := m.Options.Links
	if o == nil {
		m.Seeds = NewInputNodes(m.Options.Seeds, m.Parts.NumNodes)
		return nil
	}
	of, err := m.Parts.LinkedRelation(o)
	if err != nil {
		return err
	}
	g := &linkGraph{of: m, graph: graph.Opened{Store: m.Parts.Store, Budget: mem.NewBudget(0)}, stop: func() {}}
	defer g.close()
	var from links.Graph = g
	if m.Parts.Store != nil {
		from = storedLinkGraph{g}
	}
	k, err := links.Open(ctx, mem.NewBudget(0), o, of, m.Options.Trees(), from)
	if errors.Is(err, sample.ErrConfig) {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	if err != nil {
		return err
	}
	m.Seeds = LinkRequester{k}
	m.OnClose(k.Close)
	return nil
}

// linkGraph is the graph for links, which read it once, before the loader has divided its memory: it is links.Graph.
type linkGraph struct {
	of    *Sampling
	graph graph.Opened
	stop  func() // ends the engine
}

// storedLinkGraph is a linkGraph of a store. Edges starts its engine.
type storedLinkGraph struct{ *linkGraph }

func (g *linkGraph) close() {
	g.graph.Close()
	g.stop()
}

func (g *linkGraph) HasTimes(typ int) bool {
	nodes, _ := timeTensors(g.of)
	return nodes[typ] != nil
}

func (g *linkGraph) NodeTimes(ctx context.Context, typ int, times []int64) error {
	nodes, _ := timeTensors(g.of)
	t := nodes[typ]
	order, err := orderOf(ctx, g.of, t)
	if err != nil {
		return err
	}
	rows, err := g.graph.Times(ctx, t.column(), true, order, t.First)
	if err != nil {
		return err
	}
	defer rows.Free()
	rows.NodeTimes(times)
	return nil
}

// linked returns the relation of the links.
func (g *linkGraph) linked() *Relation {
	return &g.of.Parts.Schema.Relations[g.of.Options.Links.Relation]
}

func (g *linkGraph) Edges(context.Context) (links.Edges, error) {
	return g.linked().Lists.Edges(g.graph.Budget), nil
}

func (g *linkGraph) Numbers(ctx context.Context) (number func(int64) (int64, error), free func(), err error) {
	return numbersBy(ctx, g.linked().EdgeIDs), func() {}, nil
}

// numbersBy returns the number of the edge at a position.
func numbersBy(ctx context.Context, ids graph.IDs) func(pos int64) (int64, error) {
	one := make([]int64, 1)
	return func(pos int64) (int64, error) {
		one[0] = pos
		err := ids.Gather(ctx, nil, sample.Drawn{Pos: one}, one)
		return one[0], err
	}
}

func (g storedLinkGraph) Edges(ctx context.Context) (links.Edges, error) {
	l, r := g.of, g.linked()
	lists := r.Lists
	split := sizing.Reading()
	engine, err := l.newEngine(&split, g.graph.Budget)
	if err != nil {
		return nil, err
	}
	g.graph.Engine, g.graph.Slot, g.graph.Checksums = engine, split.Slot, l.Options.Checksums
	g.stop = func() { engine.Close() }
	of, limit := r.OnDisk, l.Parts.Schema.NumNodes(r.Source)
	if lists.Neighbors, err = g.graph.IDs(ctx, of.Indices, false, limit, nil, of.LoadIndices); err != nil {
		return nil, err
	}
	return lists.Edges(g.graph.Budget), nil
}

func (g storedLinkGraph) Numbers(ctx context.Context) (number func(int64) (int64, error), free func(), err error) {
	r, free := g.linked(), func() {}
	ids := r.EdgeIDs
	if r.OnDisk.EdgeIDs != nil { // else each number is the position
		block, err := r.OnDisk.LoadEdgeIDs(ctx, g.graph.Budget, mem.Staging)
		if err != nil {
			return nil, nil, err
		}
		ids.Hold(block, r.OnDisk.EdgeIDs)
		free = block.Free
	}
	return numbersBy(ctx, ids), free, nil
}

// LinkRequester is the requester of links.
type LinkRequester struct{ *links.Links }

func (k LinkRequester) Count() int64 { return int64(len(k.Sources)) }

func (k LinkRequester) bytes() int64 { return k.Bytes() }

// open reports whether the earliest link can have negatives.
func (k LinkRequester) open(ctx context.Context, m *Sampling) error {
	if len(m.seedTimes) == 0 {
		return nil
	}
	return k.Earliest(ctx, m.Sampler.Relation(k.Options.Relation), slices.Min(m.seedTimes))
}

func (k LinkRequester) Request(ctx context.Context, m *Sampling, key sample.Key, r *Request) (err error) {
	edges := m.Sampler.Relation(k.Options.Relation)
	run := m.Compute
	if k.Strict() {
		run = m.drawing
	}
	stopped := run(ctx, func() { err = k.Links.Request(ctx, edges, key, r.Inputs, &r.Request, &r.Places) })
	return cmp.Or(stopped, err)
}

func (k LinkRequester) Linked() *links.Links { return k.Links }
