package draw

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Times that edges are drawn by, as in PyG: either some node types have a tensor of the name that
// Options.TimeAttr gives, and the time of an edge is the time of its source; or some relations have.
// Types and relations without times are drawn regardless of time. Trees are numbered over the seeds
// of a batch, type by type.

// timeTensors returns the tensor of each node type or of each relation that has times, and nil of
// the others.
func timeTensors(m *Sampling) (nodes, edges []*Tensor) {
	types := m.Parts.Schema
	nodes, edges = make([]*Tensor, types.NumTypes()), make([]*Tensor, len(types.Relations))
	for i := range m.Parts.Tensors {
		switch t := &m.Parts.Tensors[i]; {
		case m.Options.TimeAttr == "" || t.Name != m.Options.TimeAttr:
		case t.ByEdge:
			edges[t.Type] = t
		default:
			nodes[t.Type] = t
		}
	}
	return nodes, edges
}

// checkTimes checks what depends on the tensors of the source.
func checkTimes(m *Sampling) error {
	s := m.Parts.Schema
	name := m.Options.TimeAttr
	if name == "" {
		return checkTreeNames(m)
	}
	if k := m.Options.Links; k != nil {
		if _, err := m.Parts.LinkedRelation(k); err != nil {
			return err
		}
	}
	nodes, edges := timeTensors(m)
	var found [2]*Tensor // of nodes, of edges
	for kind, tensors := range [][]*Tensor{nodes, edges} {
		for _, t := range tensors {
			if t == nil {
				continue
			}
			if err := t.checkTime(); err != nil {
				return s.ofType(t, err)
			}
			found[kind] = t
		}
	}
	switch {
	case found[0] != nil && found[1] != nil:
		return fmt.Errorf("%w: time_attr %q names tensors of nodes (%s) and of edges (%s), expected tensors of one kind",
			ErrOption, name, s.typeLabel(found[0]), s.typeLabel(found[1]))
	case found[0] == nil && found[1] == nil:
		return noTimes(m, name)
	}
	if k := m.Options.Links; k != nil {
		t, own := cmp.Or(edges[k.Relation], found[0], found[1]), edges[k.Relation] != nil
		if err := m.Options.validateLinkTimes(&m.Parts, t, own); err != nil {
			return err
		}
	}
	for _, r := range s.Runs {
		if m.Options.SeedTimes == nil && nodes[r.Type] == nil && r.From < r.To {
			return s.NoSeedTimes(r.Type, name)
		}
	}
	return checkTreeNames(m)
}

// noTimes returns the error that no tensor has the name of the times.
func noTimes(m *Sampling, name string) error {
	s := m.Parts.Schema
	var nodes, edges []string
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; t.ByEdge {
			edges = append(edges, s.fullName(t))
		} else {
			nodes = append(nodes, s.fullName(t))
		}
	}
	return fmt.Errorf("%w: time_attr %q is no tensor of the graph, the edge tensors are %q and the node tensors are %q",
		ErrOption, name, edges, nodes)
}

// NoSeedTimes returns the error that the seeds of a type have no times.
func (s *Schema) NoSeedTimes(typ int, name string) error {
	return namingOf(s).within(fmt.Sprintf("node type %q", s.TypeNames[typ]), fmt.Errorf(
		"%w: time_attr %q has no times of input nodes, so input_time must give a time for each input node",
		ErrOption, name))
}

// timed returns the tensor that has the times of a relation's edges, or nil.
func timed(m *Sampling, relation int, nodes, edges []*Tensor) *Tensor {
	s := m.Parts.Schema
	if t := edges[relation]; t != nil {
		return t
	}
	return nodes[s.Relations[relation].Source]
}

// sizeTimes counts the times that edges are drawn by.
func sizeTimes(m *Sampling, g *sizing.Graph) {
	s := m.Parts.Schema
	nodes, edges := timeTensors(m)
	for typ, t := range nodes {
		if t == nil || !isSource(s, typ) {
			continue
		}
		n := t.timeSpan().Bytes(t.NumRows)
		g.Weights, g.TimesOfNodes = g.Weights+n, true
		if m.Parts.ordered() {
			g.UserWeights = max(g.UserWeights, n)
		}
		for _, r := range s.Relations {
			if r.Source == typ {
				g.LongLists += sample.LongListsBytes(r.Indptr)
				g.TimesInOrder += graph.TimesBytes(r.NumEdges)
			}
		}
	}
	for i, t := range edges {
		if t != nil {
			g.Weights += graph.TimesBytes(s.Relations[i].NumEdges)
			g.UserWeights = max(g.UserWeights, t.Bytes())
		}
	}
}

// isSource reports whether a node type is the source of a relation.
func isSource(s *Schema, typ int) bool {
	return slices.ContainsFunc(s.Relations, func(r Relation) bool { return r.Source == typ })
}

// FindTimeSpans finds the ranges of the times of nodes, by which they take four or eight bytes each in memory. It reads
// times of eight bytes, in memory that is counted with the offsets.
func FindTimeSpans(ctx context.Context, m *Sampling) error {
	if m.Options.TimeAttr == "" {
		return nil
	}
	nodes, _ := timeTensors(m)
	for typ, t := range nodes {
		if t == nil || !isSource(m.Parts.Schema, typ) {
			continue
		}
		column := t.column()
		of, err := graph.FindSpan(ctx, &column, mem.NewBudget(0))
		if err != nil {
			return m.Parts.Schema.ofType(t, err)
		}
		t.times = &of
	}
	return nil
}

// timeSpan returns the range of a tensor's times, as far as it is known.
func (t *Tensor) timeSpan() graph.TimeSpan {
	if t.times != nil {
		return *t.times
	}
	return graph.SpanOf(t.Stored)
}

// openTimes makes the times of edges, of all relations that have any, and of seeds ready, where the topology is open.
func openTimes(ctx context.Context, m *Sampling) ([]*sample.Temporal, error) {
	if m.Options.TimeAttr == "" {
		return nil, nil
	}
	s := m.Parts.Schema
	nodes, edges := timeTensors(m)
	if m.seedTimes = m.Options.SeedTimes; m.seedTimes == nil {
		if err := allocSeedTimes(m); err != nil {
			return nil, err
		}
	}
	out := make([]*sample.Temporal, len(s.Relations))
	for typ, t := range nodes {
		if t == nil {
			continue
		}
		if err := openTimesOfNodes(ctx, m, typ, t, out); err != nil {
			return nil, s.ofType(t, err)
		}
	}
	for i, t := range edges {
		if t == nil {
			continue
		}
		var err error
		if out[i], err = openTimesOfEdges(ctx, m, i, t); err != nil {
			return nil, s.ofType(t, err)
		}
	}
	return out, nil
}

// openTimesOfEdges opens the times of a relation: of its edges, and of links that are its edges.
func openTimesOfEdges(ctx context.Context, m *Sampling, i int, t *Tensor) (*sample.Temporal, error) {
	s := m.Parts.Schema
	rows, err := m.Graph.Times(ctx, t.column(), m.Split.Weights, nil, 0)
	if err != nil {
		return nil, err
	}
	defer rows.Free()
	if of := m.Options.Links; of != nil && of.Relation == i && m.Options.SeedTimes == nil {
		scratch := new(graph.Scratch)
		read := func(ctx context.Context, ids, out []int64) error { return rows.Read(ctx, scratch, ids, out) }
		if err := readSeedTimes(ctx, m, read, SeedRun{To: m.Seeds.Count()}, 0); err != nil {
			return nil, err
		}
	}
	times, err := m.Graph.TimesByEdge(ctx, rows, &s.Relations[i].Lists)
	if err != nil {
		return nil, err
	}
	return m.Options.temporal(times), nil
}

// openTimesOfNodes opens the times of a node type: of its seeds, and of edges whose sources it has.
func openTimesOfNodes(ctx context.Context, m *Sampling, typ int, t *Tensor, out []*sample.Temporal) error {
	s := m.Parts.Schema
	order, err := orderOf(ctx, m, t)
	if err != nil {
		return err
	}
	var times *sample.TimesByNode
	held := isSource(s, typ) && (m.Split.Weights || m.Parts.Store == nil)
	if held {
		var free func()
		times, free, err = m.Graph.HoldTimesByNode(ctx, t.column(), t.timeSpan(), order, t.First)
		if err == nil && m.Split.TimesInOrder {
			defer free()
		}
	} else {
		times, err = m.Graph.TimesByNode(ctx, t.column(), order, t.First)
	}
	if err != nil {
		return err
	}
	for _, r := range s.Runs {
		if r.Type != typ || m.Options.SeedTimes != nil {
			continue
		}
		if err := readSeedTimes(ctx, m, times.Read, r, s.First[typ]); err != nil {
			return err
		}
	}
	for i := range s.Relations {
		r := &s.Relations[i]
		if r.Source != typ {
			continue
		}
		of := &sample.Times{Nodes: times}
		switch {
		case !held || r.Indptr == nil:
		case m.Split.TimesInOrder:
			of, err = m.Graph.TimesInOrder(ctx, times, &r.Lists)
		case m.Split.LongLists:
			of.Long, err = m.Graph.LongLists(ctx, &r.Lists, times)
		}
		if err != nil {
			return err
		}
		out[i] = m.Options.temporal(of)
	}
	return nil
}

// orderOf returns the row of each node of a tensor's type, counted over all types, or nil.
func orderOf(ctx context.Context, m *Sampling, t *Tensor) ([]uint32, error) {
	if err := NewTopology(m).OpenOrder(ctx); err != nil || m.Order == nil {
		return nil, err
	}
	return m.Order[t.First : t.First+t.NumRows], nil
}

// temporal returns the temporal draws of edges with these times.
func (o *Options) temporal(times *sample.Times) *sample.Temporal {
	return &sample.Temporal{Times: times, Last: o.TemporalLast, Window: o.TimeWindow}
}

// timesOnDisk returns the loader's times as if they stayed on disk.
func timesOnDisk(m *Sampling) []*sample.Temporal {
	if m.Options.TimeAttr == "" {
		return nil
	}
	s := m.Parts.Schema
	nodes, edges := timeTensors(m)
	out := make([]*sample.Temporal, len(s.Relations))
	for i := range out {
		if timed(m, i, nodes, edges) != nil {
			out[i] = m.Options.temporal(graph.StayTimes(edges[i] == nil))
		}
	}
	return out
}

// checkTime says why a tensor holds no times.
func (t *Tensor) checkTime() error {
	if one := t.Width == t.Stored.Size(); !one || !t.DType.IsInteger() || t.DType == manifest.DType_UINT64 {
		return fmt.Errorf("%w: time_attr %q holds %s for each node or edge, expected one integer that int64 holds",
			ErrOption, t.Name, t.row())
	}
	return nil
}

// seedTimesBytes returns the memory of the times of seeds, the user's or the loader's.
func seedTimesBytes(m *Sampling) int64 {
	if m.Options.TimeAttr == "" {
		return 0
	}
	return m.Seeds.Count() * 8
}

// madeTimesBytes returns the memory of the times of n seeds that the loader finds.
func madeTimesBytes(m *Sampling, n int64) int64 {
	if m.Options.TimeAttr == "" || m.Options.SeedTimes != nil {
		return 0
	}
	return 8 * n
}

// allocSeedTimes makes room for the time of each seed.
func allocSeedTimes(m *Sampling) error {
	// Counted with the offsets, see Topology.OpenIndptr.
	block, err := mem.NewBudget(0).Alloc(mem.Topology, max(1, m.Seeds.Count())*8)
	if err != nil {
		return err
	}
	m.OnClose(block.Free)
	m.seedTimes = mem.Slice[int64](block)[:m.Seeds.Count()]
	return nil
}

// readSeedTimes sets the time of each seed of a run to the time of the node, whose type begins at firstNode; or, for
// links, which then are all edges, to the time of the edge.
func readSeedTimes(
	ctx context.Context, m *Sampling, read func(ctx context.Context, ids, out []int64) error, run SeedRun, firstNode int64,
) error {
	buffer := make([]int64, graph.ScanIDs)
	for first := run.From; first < run.To; first += graph.ScanIDs {
		out := m.seedTimes[first:min(first+graph.ScanIDs, run.To)]
		nodes := buffer[:len(out)]
		for i := range nodes {
			nodes[i] = first + int64(i)
			if m.Options.Seeds != nil {
				nodes[i] = m.Options.Seeds[nodes[i]]
			}
			nodes[i] -= firstNode
		}
		if err := read(ctx, nodes, out); err != nil {
			return err
		}
	}
	return nil
}
