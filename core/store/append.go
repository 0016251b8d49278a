package store

import (
	"context"
	"slices"
	"strings"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
)

// Growth lists the nodes and edges that Append adds to a store, by type. Types that are not named get nothing.
type Growth struct {
	// Nodes come after those that are there: the first new node of a type of n nodes has the id n. NumNodes is how many
	// are new; -1: as many as Tensors have rows. Splits hold ids of old and new nodes, or a bool for each new node.
	Nodes []NodeInput
	// Edges come after those that are there, in the order of EdgeIndex. WeightsOf is not looked at.
	Edges []EdgeInput
	// Attachments of the store, with further rows.
	Attachments []NamedSource
}

// Append writes a store at path that is src with further nodes and edges. File for file it is the store that Convert
// would write of all of them, the old ones first. If the rows of nodes are in an order of their own, the rows of new
// nodes come last. Every tensor of a type that grows needs rows for the new nodes or edges, of its type and shape, and
// they are stored in its form. A computed tensor is left out if its inputs grow.
//
// New edges are sorted as by Convert, and then merged with the edges of the store, which are read once, in order. Files
// that do not grow are shared as by Update. The store appears as by Convert, complete or not at all.
func Append(ctx context.Context, src *Store, path string, more Growth, opts ConvertOptions) error {
	return appendTo(ctx, src, path, more, opts, mem.NewBudget(opts.Memory))
}

// appendTo is Append with the budget given.
func appendTo(
	ctx context.Context, src *Store, path string, more Growth, opts ConvertOptions, budget *mem.Budget,
) error {
	s, err := newSuccessor(src, opts, budget)
	if err != nil {
		return err
	}
	g := &grower{successor: s, anew: map[string]bool{}}
	if err := (growthCheck{g}).check(more); err != nil {
		return err
	}
	edges, err := g.planEdges()
	if err != nil {
		return err
	}
	if err := g.choosePlan("append", func(chunk int) int64 { return max(edges, g.bytes(chunk)) }); err != nil {
		return err
	}
	return g.run(ctx, path, opts.Overwrite, g.futures(), g.write)
}

// grower is one run of Append.
type grower struct {
	*successor
	plans []edgeGrowth    // of each edge type
	anew  map[string]bool // files of the source that are not shared, for their arrays grow
}

// newNodes returns the number of new nodes of a type.
func (g *grower) newNodes(typ int) int64 { return g.graph.nodes[typ].count - g.graph.nodes[typ].before }

// growthCheck prepares a grower for what Append is given.
type growthCheck struct{ grower *grower }

// check finds the types that grow, compares what is given with what they have, and removes computed tensors that would
// be stale.
func (c growthCheck) check(more Growth) error {
	for at, t := range more.Nodes {
		if slices.ContainsFunc(more.Nodes[:at], func(n NodeInput) bool { return n.Name == t.Name }) {
			return invalid("the node type %q is given twice", t.Name)
		}
		if err := c.checkNodes(t); err != nil {
			return err
		}
	}
	for i := range c.grower.graph.edges {
		e := &c.grower.src.edgeTypes[i]
		c.grower.graph.edges[i] = edgePart{source: e.Source, relation: e.Relation, target: e.Target,
			from: c.grower.src.nodeTypeNumber(e.Source), to: c.grower.src.nodeTypeNumber(e.Target), file: e.file,
			label: edgeLabel(e.Source, e.Relation, e.Target)}
	}
	for at, t := range more.Edges {
		if slices.ContainsFunc(more.Edges[:at], func(e EdgeInput) bool {
			return e.Source == t.Source && e.Relation == t.Relation && e.Target == t.Target
		}) {
			return invalid("the edge type %s is given twice", edgeTypeName(t.Source, t.Relation, t.Target))
		}
		if err := c.checkEdges(t); err != nil {
			return err
		}
	}
	if err := c.checkAttachments(more.Attachments); err != nil {
		return err
	}
	c.dropStale()
	c.markGrown()
	return checkNodeCount(c.grower.graph.nodes)
}

func (c growthCheck) checkNodes(t NodeInput) error {
	i := c.grower.src.nodeTypeNumber(t.Name)
	if i < 0 {
		_, err := c.grower.src.NodeType(t.Name)
		return err
	}
	part, err := t.check(c.grower.fs)
	if err != nil {
		return err
	}
	stored := &c.grower.src.nodeTypes[i]
	added := max(part.count, 0)
	part.before, part.count, part.file = stored.Count, stored.Count+added, stored.file
	if stored.Order != nil && part.count > maxOrdered {
		return invalid("%s%d nodes, expected at most %d where rows are stored in another order", part.label, part.count,
			int64(maxOrdered))
	}
	part.tensors, err = matchTensors(stored.Tensors, part.tensors, part.label, added, "nodes")
	c.grower.graph.nodes[i] = part
	return err
}

func (c growthCheck) checkEdges(t EdgeInput) error {
	stored, err := c.grower.src.EdgeType(t.Source, t.Relation, t.Target)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(c.grower.src.edgeTypes, func(e EdgeType) bool { return e.Indptr == stored.Indptr })
	t.WeightsOf, t.Unnumbered = "", stored.Unnumbered
	part, err := t.check(c.grower.fs)
	if err != nil {
		return err
	}
	if part.edges.count > maxCount-stored.NumEdges {
		return invalid("%s%d edges, expected at most %d", part.label, part.edges.count+stored.NumEdges, int64(maxCount))
	}
	before := &c.grower.graph.edges[i]
	part.from, part.to, part.file = before.from, before.to, before.file
	if part.tensors, err = matchTensors(stored.Tensors, part.tensors, part.label, part.edges.count, "edges"); err != nil {
		return err
	}
	if stored.Weights != nil && part.edges.count > 0 {
		if err := part.checkWeightsOf(stored.Weights.Of); err != nil {
			return err
		}
	}
	*before = part
	return nil
}

// matchTensors puts new rows in the order of the tensors of a type, none of which may be missing, and gives them the
// form in which they are stored.
func matchTensors(have []Tensor, given []NamedSource, label string, rows int64, what string) ([]NamedSource, error) {
	var names []string
	var matched []NamedSource
	for i := range have {
		t := &have[i]
		if t.Aggregate != nil {
			continue
		}
		names = append(names, t.Name)
		at := slices.IndexFunc(given, func(s NamedSource) bool { return s.Name == t.Name })
		if at < 0 {
			if rows > 0 {
				return nil, invalid("%s has no new rows, expected %d, one for each of the new %s", label+t.Name, rows, what)
			}
			continue
		}
		source := given[at]
		if err := source.matches(t, label); err != nil {
			return nil, err
		}
		if t.Narrow != nil {
			source.Narrow = t.Narrow.Form
		}
		matched = append(matched, source)
	}
	for _, s := range given {
		if !slices.Contains(names, s.Name) {
			return nil, invalid("%s is not in the store, which has %q: a tensor is added by an update", label+s.Name, names)
		}
	}
	return matched, nil
}

// matches returns an error if rows cannot follow the rows of a tensor.
func (s NamedSource) matches(t *Tensor, label string) error {
	dtype, shape := t.Values()
	if !slices.Equal(s.Shape[1:], shape) {
		return invalid("%s has rows of shape %v, expected %v as in the store", label+s.Name, s.Shape[1:], shape)
	}
	if t.Narrow == nil {
		if s.DType != dtype {
			return invalid("%s holds %s, expected %s as in the store", label+s.Name, s.DType.Label(), dtype.Label())
		}
		return nil
	}
	if t.Narrow.Form == narrow.Int8Columns && s.rows() > 0 {
		return invalid("%s is stored as %s, with scales that depend on all rows: leave it out by an update, or convert "+
			"everything", label+s.Name, t.Narrow.Form)
	}
	s.Narrow = t.Narrow.Form
	return s.checkNarrow(label + s.Name)
}

func (c growthCheck) checkAttachments(given []NamedSource) (err error) {
	if c.grower.graph.attachments, err = checkTensors(c.grower.fs, given, attachmentLabel); err != nil {
		return err
	}
	for _, s := range c.grower.graph.attachments {
		at := slices.IndexFunc(c.grower.src.attachments, func(t Tensor) bool { return t.Name == s.Name })
		if at < 0 {
			return invalid("the store has no attachment %q: an attachment is added by an update", s.Name)
		}
		if err := s.matches(&c.grower.src.attachments[at], attachmentLabel); err != nil {
			return err
		}
	}
	return nil
}

// dropStale leaves out tensors that were computed from what grows, and computed tensors of nodes that get more.
func (c growthCheck) dropStale() {
	for i, node := range c.grower.m.NodeTypes {
		node.Tensors = slices.DeleteFunc(node.Tensors, func(t *manifest.Tensor) bool {
			return t.GetAggregate() != nil && (c.grower.newNodes(i) > 0 ||
				slices.ContainsFunc(t.GetAggregate().GetParts(), func(p *manifest.AggregatePart) bool {
					at := edgePlace(c.grower.m, p)
					return c.grower.graph.edges[at].edges.count > 0 || c.grower.newNodes(c.grower.graph.edges[at].from) > 0
				}))
		})
	}
}

// markGrown notes whose files are written anew.
func (c growthCheck) markGrown() {
	mark := func(arrays ...*Array) {
		for _, a := range arrays {
			if a != nil {
				c.grower.anew[a.File] = true
			}
		}
	}
	for i := range c.grower.graph.nodes {
		part, stored := &c.grower.graph.nodes[i], &c.grower.src.nodeTypes[i]
		if c.grower.newNodes(i) > 0 {
			mark(stored.Order)
			mark(arraysOf(stored.Tensors)...)
		}
		for _, split := range part.splits {
			if j := slices.IndexFunc(stored.Splits, func(t Tensor) bool { return t.Name == split.Name }); j >= 0 {
				mark(&stored.Splits[j].Array)
			}
		}
	}
	for i := range c.grower.graph.edges {
		part, stored := &c.grower.graph.edges[i], &c.grower.src.edgeTypes[i]
		p := edgeGrowth{grower: c.grower, part: part, stored: stored}
		p.targets = c.grower.newNodes(part.to) > 0
		p.merged = part.edges.count > 0 || indicesType(c.grower.graph.nodes[part.from].count) != stored.Indices.DType
		c.grower.plans = append(c.grower.plans, p)
		if p.targets || p.merged {
			mark(stored.Indptr)
		}
		if p.merged {
			mark(stored.Indices, stored.EdgeIDs)
		}
		if part.edges.count > 0 {
			mark(stored.Weights.arrays()...)
			mark(arraysOf(stored.Tensors)...)
		}
	}
	for _, s := range c.grower.graph.attachments {
		mark(&attachmentNamed(c.grower.src, s.Name).Array)
	}
}

// attachmentNamed returns an attachment that the store has.
func attachmentNamed(s *Store, name string) *Tensor {
	return &s.attachments[slices.IndexFunc(s.attachments, func(t Tensor) bool { return t.Name == name })]
}

// bytes returns the memory of the largest step, but for the edges.
func (g *grower) bytes(chunk int) int64 {
	most := tensorsBytes(g.graph.attachments, chunk)
	for i := range g.graph.nodes {
		most = max(most, g.graph.nodes[i].bytes(chunk))
	}
	for i := range g.graph.edges {
		most = max(most, tensorsBytes(g.graph.edges[i].tensors, chunk))
	}
	for _, a := range g.src.arrays() {
		if g.anew[a.File] {
			most = max(most, a.rowStreamBytes(int64(chunk))+arrayWriterBytes(chunk))
		}
	}
	return most
}

// futures returns the arrays that are written, as they will be. Where edges are numbered their numbers are not yet
// known.
func (g *grower) futures() (all []*Array) {
	add := func(a *Array, more int64) {
		if a != nil && g.anew[a.File] {
			grown := *a
			grown.Rows += more
			grown.Layout.NumRows = grown.Rows
			grown.Bytes, _ = fileBytes(grown.Layout) // no overflow: the rows exist
			all = append(all, &grown)
		}
	}
	for i := range g.src.nodeTypes {
		t, n := &g.src.nodeTypes[i], g.newNodes(i)
		add(t.Order, n)
		for j := range t.Tensors {
			add(&t.Tensors[j].Array, n)
		}
	}
	for i, p := range g.plans {
		n := p.part.edges.count
		add(p.stored.Indptr, g.newNodes(p.part.to))
		add(p.stored.Indices, n)
		add(p.stored.EdgeIDs, n)
		for _, a := range p.stored.Weights.arrays() {
			add(a, n)
		}
		for j := range g.src.edgeTypes[i].Tensors {
			add(&p.stored.Tensors[j].Array, n)
		}
	}
	for _, s := range g.graph.attachments {
		add(&attachmentNamed(g.src, s.Name).Array, s.rows())
	}
	return all
}

// String says in a line what is added.
func (g *grower) String() string {
	var parts []string
	for i := range g.graph.nodes {
		if n := g.newNodes(i); n > 0 {
			parts = append(parts, strings.TrimSpace(counted(n, "node")+" "+g.src.nodeTypes[i].Name))
		}
	}
	for i := range g.graph.edges {
		if n := g.graph.edges[i].edges.count; n > 0 {
			name := ""
			if g.src.Heterogeneous() {
				name = " " + g.src.edgeTypes[i].String()
			}
			parts = append(parts, counted(n, "edge")+name)
		}
	}
	return strings.Join(parts, ", ")
}
