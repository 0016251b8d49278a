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
		return fitOpened(m, "the times of input nodes", madeTimesBytes(m, m.Seeds.Count()))
	}
	of, err := m.Parts.LinkedRelation(o)
	if err != nil {
		return err
	}
	if err := fitOpened(m, "links", linksBytes(m, o, &of)); err != nil {
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

// storedLinkGraph is a linkGraph of a store. What reads edges starts its engine.
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

func (g *linkGraph) Numbers(context.Context) (sample.Edges, error) {
	return numbersBy(&g.linked().EdgeIDs, g.graph.Budget), nil
}

// edgeNumbers yields the numbers of edges by position.
type edgeNumbers struct {
	ids    *graph.IDs
	budget *mem.Budget
}

// Scan implements sample.Edges.
func (n edgeNumbers) Scan(ctx context.Context, visit func(first int64, ids []int64) error) error {
	return n.ids.Scan(ctx, n.budget, visit)
}

// numbersBy returns the numbers of edges, or nil where each is its position.
func numbersBy(ids *graph.IDs, budget *mem.Budget) sample.Edges {
	if ids.Identity() {
		return nil
	}
	return edgeNumbers{ids, budget}
}

func (g storedLinkGraph) Edges(ctx context.Context) (links.Edges, error) {
	r := g.linked()
	lists, of := r.Lists, r.OnDisk
	err := g.start()
	if err != nil {
		return nil, err
	}
	limit := g.of.Parts.Schema.NumNodes(r.Source)
	if lists.Neighbors, err = g.graph.IDs(ctx, of.Indices, limit); err != nil {
		return nil, err
	}
	return lists.Edges(g.graph.Budget), nil
}

// start starts the engine, once.
func (g storedLinkGraph) start() error {
	if g.graph.Engine != nil {
		return nil
	}
	l, split := g.of, sizing.Reading()
	engine, err := l.newEngine(&split, g.graph.Budget)
	if err != nil {
		return err
	}
	g.graph.Engine, g.graph.Slot, g.graph.Checksums = engine, split.Slot, l.Options.Checksums
	g.stop = func() { engine.Close() }
	return nil
}

func (g storedLinkGraph) Numbers(ctx context.Context) (sample.Edges, error) {
	r := g.linked()
	of := r.OnDisk
	if of.EdgeIDs == nil { // each number is the position
		return nil, nil
	}
	if err := g.start(); err != nil {
		return nil, err
	}
	ids, err := g.graph.IDs(ctx, of.EdgeIDs, r.NumEdges)
	return edgeNumbers{&ids, g.graph.Budget}, err
}

// LinkRequester is the requester of links.
type LinkRequester struct{ *links.Links }

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
	if k.Reads() {
		run = m.drawing
	}
	stopped := run(ctx, func() { err = k.Links.Request(ctx, edges, key, r.Inputs, &r.Request, &r.Places) })
	return cmp.Or(stopped, err)
}

func (k LinkRequester) Linked() *links.Links { return k.Links }

// RequestReads returns how often the request of a batch reads neighbour lists, at most of a pair of negatives that are
// strict, whose draw ends at the second proposal on average.
func RequestReads(m *Sampling) (n int) {
	k := m.Seeds.Linked()
	if k == nil {
		return 0
	}
	if k.Options.Sources == nil {
		n++
	}
	if k.Strict() {
		n += 2
	}
	return n
}
