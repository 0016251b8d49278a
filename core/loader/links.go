package loader

import (
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

// What core/links needs of a loader: which relation links are of, what is read of the graph, and the names of tensors.

// LinkTimeName is the tensor with the time of each link and negative that pairs bring in place of SeedTimeName.
const LinkTimeName = "edge_label_time"

// linked is the relation that links are of.
func (p *parts) linked(o *links.Options) (of links.Relation, err error) {
	s := p.types
	for _, i := range []int{o.Relation, o.Reverse} {
		switch {
		case i >= 0 && i < len(s.relations):
		case s.unnamed():
			return of, fmt.Errorf("%w: links of relation %d, the graph has no types", ErrOption, i)
		default:
			return of, fmt.Errorf("%w: links of relation %d, the graph has %d", ErrOption, i, len(s.relations))
		}
	}
	r, back := &s.relations[o.Relation], &s.relations[o.Reverse]
	if o.Exclude == links.ExcludeBoth && (back.source != r.target || back.target != r.source) {
		return of, fmt.Errorf("%w: the reverse of links of %s must lead from type %q to %q, %s does not", ErrOption,
			r.name, s.names[r.target], s.names[r.source], back.name)
	}
	of = links.Relation{
		Source: r.source, Target: r.target, NumSources: s.count(r.source), NumTargets: s.count(r.target),
		FirstSource: s.first[r.source], FirstTarget: s.first[r.target],
		NumNodes: p.numNodes, NumEdges: r.numEdges, NumRelations: len(s.relations),
	}
	if !s.unnamed() {
		of.Name = r.name
		of.OfSource = fmt.Sprintf(" of type %q", s.names[r.source])
		of.OfTarget = fmt.Sprintf(" of type %q", s.names[r.target])
	}
	return of, nil
}

func (o *Options) validateLinks(p *parts) error {
	k := o.Links
	if k == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...))
	}
	of, err := p.linked(k)
	if err != nil {
		return err
	}
	switch err := k.Check(&of); {
	case o.Seeds != nil:
		return refuse("seeds and links cannot be used together")
	case o.History != nil:
		return refuse("a history keeps embeddings of the nodes that an output layer gives, which links have none of: " +
			"history cannot be used with links")
	case err != nil:
		return fmt.Errorf("%w: %w", ErrOption, err)
	case k.Exclude != links.ExcludeNone && (o.Labor != nil || o.walk()):
		return refuse("seed edges can be excluded from even draws and draws by weight, not from LABOR and random walks")
	case k.Exclude != links.ExcludeNone && o.Subgraph != sample.Directional:
		return refuse("seed edges can be excluded from what is drawn, not from edges that subgraph_type adds: " +
			"take \"directional\"")
	case k.Strict && k.Negatives == 0:
		return refuse("strict negatives without negatives")
	}
	if err := k.CheckEnds(&of); errors.Is(err, sample.ErrSeed) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	var names []string
	for _, name := range k.Names() {
		names = append(names, p.linkName(name))
	}
	for _, t := range p.tensors {
		if slices.Contains(names, t.label) {
			return refuse("the graph has a tensor %q, which is what a batch calls its links: rename the tensor", t.name)
		}
	}
	return nil
}

// validateLinkTimes checks what links, which may be every edge, have to do with times: those of t, which is the links'
// own where that is of edges.
func (o *Options) validateLinkTimes(p *parts, t *tensor, own bool) error {
	k := o.Links
	of, err := p.linked(k)
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
	case !t.byEdge:
		return fmt.Errorf("%w: 'edge_label_time' is not set: time_attr %q has times of nodes, "+
			"so it must give a time for each link", ErrOption, t.name)
	case !own:
		return fmt.Errorf("%w: edge type %s has no time_attr %q of its own, "+
			"so edge_label_time must give a time for each link",
			ErrOption, of.Name, t.name)
	case k.Sources != nil:
		return fmt.Errorf("%w: time_attr %q needs edge_label_time, a time for each link: only without edge_label_index, "+
			"where every edge is a link, it is that of the edge", ErrOption, t.name)
	}
	return nil
}

// linkName returns the name of a tensor of links in batches.
func (p *parts) linkName(n links.Name) string {
	r := &p.types.relations[p.links.Relation]
	switch n.End {
	case links.OfSources:
		return p.types.nodeName(r.source, n.Name)
	case links.OfTargets:
		return p.types.nodeName(r.target, n.Name)
	}
	return p.types.edgeName(p.links.Relation, n.Name)
}

// timesNames are the tensors of times that batches of links bring in place of SeedTimeName.
func (p *parts) timesNames() (names []string) {
	of, _ := p.linked(p.links) // its error was looked at
	for _, name := range p.links.TimeNames(&of, LinkTimeName, SeedTimeName) {
		names = append(names, p.linkName(name))
	}
	return names
}

// openSeeds prepares the seeds or links. Like indptr the tables of links are counted apart from the budget
// until the size of the working set is known.
func (m *sampling) openSeeds(ctx context.Context) error {
	if err := m.openRequester(ctx); err != nil {
		return err
	}
	weights, count := m.options.SeedWeights, m.seeds.count()
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

func (m *sampling) openRequester(ctx context.Context) error {
	o := m.options.Links
	if o == nil {
		m.seeds = newInputNodes(m.options.Seeds, m.parts.numNodes)
		return nil
	}
	of, err := m.parts.linked(o)
	if err != nil {
		return err
	}
	g := &linkGraph{of: m, graph: graph.Opened{Store: m.parts.store, Budget: mem.NewBudget(0)}}
	defer g.close()
	k, err := links.Open(ctx, mem.NewBudget(0), o, of, m.options.disjoint(), g)
	if errors.Is(err, sample.ErrConfig) {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	if err != nil {
		return err
	}
	m.seeds = linkRequester{k}
	m.onClose(k.Close)
	return nil
}

// linkGraph is the graph for links, which read it once, before the loader has divided its memory: it is links.Graph.
type linkGraph struct {
	of    *sampling
	graph graph.Opened
}

func (g *linkGraph) close() {
	g.graph.Close()
	if g.graph.Engine != nil {
		g.graph.Engine.Close()
	}
}

func (g *linkGraph) HasTimes(typ int) bool {
	nodes, _ := g.of.timeTensors()
	return nodes != nil && nodes[typ] != nil
}

func (g *linkGraph) NodeTimes(ctx context.Context, typ int, times []int64) error {
	nodes, _ := g.of.timeTensors()
	t := nodes[typ]
	order, err := g.of.orderOf(ctx, t)
	if err != nil {
		return err
	}
	rows, err := g.graph.Times(ctx, t.column(), true, order, t.first)
	if err != nil {
		return err
	}
	defer rows.Free()
	rows.NodeTimes(times)
	return nil
}

// linked is the relation that links are of.
func (g *linkGraph) linked() *relation {
	return &g.of.parts.types.relations[g.of.options.Links.Relation]
}

func (g *linkGraph) Edges(ctx context.Context) (links.Edges, error) {
	l, r := g.of, g.linked()
	lists := graph.Lists{Indptr: r.Indptr}
	if r.csc != nil {
		lists.Neighbors = graph.InMemory(unsigned(r.csc.Indices32), r.csc.Indices64, l.parts.types.count(r.source))
		return lists.Edges(g.graph.Budget), nil
	}
	split := sizing.Reading()
	engine, err := l.newEngine(&split, g.graph.Budget)
	if err != nil {
		return nil, err
	}
	g.graph.Engine, g.graph.Slot, g.graph.Checksums = engine, split.Slot, l.options.Checksums
	of, limit := r.onDisk, l.parts.types.count(r.source)
	if lists.Neighbors, err = g.graph.IDs(ctx, of.Indices, false, limit, nil, of.LoadIndices); err != nil {
		return nil, err
	}
	return lists.Edges(g.graph.Budget), nil
}

func (g *linkGraph) Numbers(ctx context.Context) (number func(int64) (int64, error), free func(), err error) {
	r, free := g.linked(), func() {}
	ids := graph.InMemory(nil, nil, r.numEdges) // each number is the position
	switch {
	case r.csc != nil:
		ids = graph.InMemory(r.csc.EdgeIDs32, r.csc.EdgeIDs64, r.numEdges)
	case r.onDisk.EdgeIDs != nil:
		block, err := r.onDisk.LoadEdgeIDs(ctx, g.graph.Budget, mem.Staging)
		if err != nil {
			return nil, nil, err
		}
		ids.Hold(block, r.onDisk.EdgeIDs)
		free = block.Free
	}
	one := make([]int64, 1)
	return func(pos int64) (int64, error) {
		one[0] = pos
		err := ids.Gather(ctx, nil, sample.Drawn{Pos: one}, one)
		return one[0], err
	}, free, nil
}

// linkRequester is the requester of links.
type linkRequester struct{ *links.Links }

func (k linkRequester) count() int64 { return int64(len(k.Sources)) }

func (k linkRequester) bytes() int64 { return k.Bytes() }

// open reports whether the earliest link can have negatives.
func (k linkRequester) open(ctx context.Context, m *sampling) error {
	if len(m.seedTimes) == 0 {
		return nil
	}
	return k.Earliest(ctx, m.sampler.Relation(k.Options.Relation), slices.Min(m.seedTimes))
}

func (k linkRequester) request(ctx context.Context, m *sampling, key sample.Key, r *request) (err error) {
	edges := m.sampler.Relation(k.Options.Relation)
	run := func() { err = k.Request(ctx, edges, key, r.inputs, &r.Request, &r.places) }
	if m.split.Neighbors || !k.Strict() {
		if stopped := m.compute(ctx, run); stopped != nil {
			return stopped
		}
		return err
	}
	run() // mostly waits for the disk, which takes no thread
	return err
}

func (k linkRequester) idsOfType(*preparer, *Batch, int) error { return nil }

// idsOfBatch adds the places of the links in the user's list of them.
func (k linkRequester) idsOfBatch(p *preparer, b *Batch) error {
	return p.addCounts(b, p.loader.parts.types.edgeName(k.Options.Relation, "input_id"), p.request.inputs)
}

// ofType adds the links in whose trees the nodes are.
func (k linkRequester) ofType(p *preparer, b *Batch, typ int) error {
	if !p.loader.parts.disjoint {
		return nil
	}
	trees, err := p.addTrees(b, typ)
	if err == nil {
		k.LinksOfTrees(trees, b.NumSeeds)
	}
	return err
}

// ofBatch adds the times of the links, and where their ends are among the nodes.
func (k linkRequester) ofBatch(p *preparer, b *Batch) error {
	parts, inputs := &p.loader.parts, p.request.inputs
	if parts.timed {
		for _, name := range parts.timesNames() {
			times, err := p.add(b, name, k.Options.NumTimes(b.NumSeeds))
			if err != nil {
				return err
			}
			for i := range times {
				times[i] = p.of.times[inputs[i%len(inputs)]]
			}
		}
	}
	for _, t := range k.Tensors(&p.request.places, b.NumSeeds) {
		places, err := p.add(b, parts.linkName(t.Name), t.Shape...)
		if err != nil {
			return err
		}
		copy(places, t.Places)
	}
	return nil
}
