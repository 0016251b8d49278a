package loader

import (
	"cmp"
	"context"
	"fmt"

	"freshgo/core/graph"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Times that edges are drawn by, as in PyG: either some node types have a tensor of the name that
// Options.TimeAttr gives, and the time of an edge is the time of its source; or some relations have.
// Types and relations without times are drawn regardless of time. Trees are numbered over the seeds
// of a batch, type by type.

// timeTensors returns the tensor of each node type or of each relation that has times, and nil of
// the others; or nothing without times.
func (m *sampling) timeTensors() (nodes, edges []*tensor) {
	if m.options.TimeAttr == "" {
		return nil, nil
	}
	types := m.parts.types
	nodes, edges = make([]*tensor, types.types()), make([]*tensor, len(types.relations))
	for i := range m.parts.tensors {
		switch t := &m.parts.tensors[i]; {
		case t.name != m.options.TimeAttr:
		case t.byEdge:
			edges[t.typ] = t
		default:
			nodes[t.typ] = t
		}
	}
	return nodes, edges
}

// checkTimes checks what depends on the tensors of the source.
func (s *schema) checkTimes(m *sampling) error {
	name := m.options.TimeAttr
	if name == "" {
		return m.checkTreeNames()
	}
	if k := m.options.Links; k != nil {
		if _, err := m.parts.linked(k); err != nil {
			return err
		}
	}
	nodes, edges := m.timeTensors()
	var found [2]*tensor // of nodes, of edges
	for kind, tensors := range [][]*tensor{nodes, edges} {
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
		return fmt.Errorf("%w: time_attr %q names tensors of nodes (%s) and of edges (%s), expected those of one kind",
			ErrOption, name, s.typeLabel(found[0]), s.typeLabel(found[1]))
	case found[0] == nil && found[1] == nil:
		return s.noTimes(m, name)
	}
	if k := m.options.Links; k != nil {
		t, own := cmp.Or(edges[k.Relation], found[0], found[1]), edges[k.Relation] != nil
		if err := m.options.validateLinkTimes(&m.parts, t, own); err != nil {
			return err
		}
	}
	for _, r := range s.runs {
		if m.options.SeedTimes == nil && nodes[r.typ] == nil && r.from < r.to {
			return s.noSeedTimes(r.typ, name)
		}
	}
	return m.checkTreeNames()
}

// noTimes returns the error that no tensor has the name of the times.
func (s *schema) noTimes(m *sampling, name string) error {
	var nodes, edges []string
	for i := range m.parts.tensors {
		if t := &m.parts.tensors[i]; t.byEdge {
			edges = append(edges, s.fullName(t))
		} else {
			nodes = append(nodes, s.fullName(t))
		}
	}
	if s.unnamed() {
		return fmt.Errorf("%w: time_attr %q is no tensor of the graph, the edge tensors are %q and the node tensors %q",
			ErrOption, name, edges, nodes)
	}
	return fmt.Errorf("%w: time_attr %q is no tensor of any type, the tensors are %q",
		ErrOption, name, append(nodes, edges...))
}

// noSeedTimes returns the error that the seeds of a type have no times.
func (s *schema) noSeedTimes(typ int, name string) error {
	if s.unnamed() {
		return fmt.Errorf("%w: time_attr %q has times of edges, so input_time must give a time for each input node",
			ErrOption, name)
	}
	return fmt.Errorf("%w: node type %q has no time_attr %q of its own, so input_time must give a time for "+
		"each input node",
		ErrOption, s.names[typ], name)
}

// timed is the tensor that has the times of a relation's edges, or nil.
func (s *schema) timed(relation int, nodes, edges []*tensor) *tensor {
	if t := edges[relation]; t != nil {
		return t
	}
	return nodes[s.relations[relation].source]
}

// sizeTimes returns the memory of the times of all relations, and of the largest of the tensors that they come from.
func (s *schema) sizeTimes(m *sampling) (times, largest int64) {
	nodes, edges := m.timeTensors()
	if nodes == nil {
		return 0, 0
	}
	for i := range s.relations {
		if t := s.timed(i, nodes, edges); t != nil {
			times, largest = times+graph.TimesBytes(s.relations[i].numEdges), max(largest, t.bytes())
		}
	}
	return times, largest
}

// openTimes makes the times of edges, of all relations that have any, and of seeds ready, where the topology is open.
func (s *schema) openTimes(ctx context.Context, m *sampling) ([]*sample.Temporal, error) {
	nodes, edges := m.timeTensors()
	if nodes == nil {
		return nil, nil
	}
	if m.seedTimes = m.options.SeedTimes; m.seedTimes == nil {
		if err := m.allocSeedTimes(); err != nil {
			return nil, err
		}
	}
	out := make([]*sample.Temporal, len(s.relations))
	for typ, t := range nodes {
		if t == nil {
			continue
		}
		if err := s.openTimesOfNodes(ctx, m, typ, t, out); err != nil {
			return nil, s.ofType(t, err)
		}
	}
	for i, t := range edges {
		if t == nil {
			continue
		}
		var err error
		if out[i], err = s.openTimesOfEdges(ctx, m, i, t); err != nil {
			return nil, s.ofType(t, err)
		}
	}
	return out, nil
}

// openTimesOfEdges makes ready what has the times of a relation: its edges, and links that are these.
func (s *schema) openTimesOfEdges(ctx context.Context, m *sampling, i int, t *tensor) (*sample.Temporal, error) {
	rows, err := m.graph.Times(ctx, t.column(), m.split.Weights, nil, 0)
	if err != nil {
		return nil, err
	}
	defer rows.Free()
	if k := m.options.Links; k != nil && k.Relation == i && m.options.SeedTimes == nil {
		if err := m.readSeedTimes(ctx, rows, seedRun{to: m.seeds.count()}, 0); err != nil {
			return nil, err
		}
	}
	return s.temporal(ctx, m, i, rows, &s.relations[i].EdgeIDs)
}

// openTimesOfNodes makes ready what has the times of a node type: its seeds, and the edges that begin at it.
func (s *schema) openTimesOfNodes(ctx context.Context, m *sampling, typ int, t *tensor, out []*sample.Temporal) error {
	order, err := m.orderOf(ctx, t)
	if err != nil {
		return err
	}
	rows, err := m.graph.Times(ctx, t.column(), m.split.Weights, order, t.first)
	if err != nil {
		return err
	}
	defer rows.Free()
	for _, r := range s.runs {
		if r.typ != typ || m.options.SeedTimes != nil {
			continue
		}
		if err := m.readSeedTimes(ctx, rows, r, s.first[typ]); err != nil {
			return err
		}
	}
	for i := range s.relations {
		if s.relations[i].source != typ {
			continue
		}
		if out[i], err = s.temporal(ctx, m, i, rows, &s.relations[i].Neighbors); err != nil {
			return err
		}
	}
	return nil
}

// orderOf is the row of each node of a tensor's type, counted over all types, or nil.
func (m *sampling) orderOf(ctx context.Context, t *tensor) ([]uint32, error) {
	if m.parts.store == nil {
		return nil, nil
	}
	if err := m.openOrder(ctx); err != nil || m.order == nil {
		return nil, err
	}
	return m.order[t.first : t.first+t.numRows], nil
}

// temporal returns the temporal draws of a relation; ids has the rows of its times.
func (s *schema) temporal(
	ctx context.Context, m *sampling, relation int, rows *graph.TimeRows, ids *graph.IDs,
) (*sample.Temporal, error) {
	times, err := m.graph.TimesOf(ctx, rows, &s.relations[relation].Lists, ids)
	if err != nil {
		return nil, err
	}
	return m.options.temporal(times), nil
}

// temporal returns the temporal draws of edges with these times.
func (o *Options) temporal(times *sample.Times) *sample.Temporal {
	return &sample.Temporal{Times: times, Last: o.TemporalLast, Window: o.TimeWindow}
}

// timesOnDisk returns the loader's times as if they stayed on disk.
func (s *schema) timesOnDisk(m *sampling) []*sample.Temporal {
	nodes, edges := m.timeTensors()
	if nodes == nil {
		return nil
	}
	out := make([]*sample.Temporal, len(s.relations))
	for i := range out {
		if s.timed(i, nodes, edges) != nil {
			out[i] = m.options.temporal(graph.StayTimes())
		}
	}
	return out
}

// checkTime says why a tensor holds no times.
func (t *tensor) checkTime() error {
	if one := t.width == t.stored().Size(); !one || !t.dtype.IsInteger() || t.dtype == manifest.DType_UINT64 {
		return fmt.Errorf("%w: time_attr %q holds %s %v for each node or edge, expected one integer that int64 holds",
			ErrOption, t.name, t.dtype.Label(), t.rowShape)
	}
	return nil
}

// seedTimesBytes returns the memory of the times of seeds, the user's or the loader's.
func (m *sampling) seedTimesBytes() int64 {
	if m.options.TimeAttr == "" {
		return 0
	}
	return m.seeds.count() * 8
}

// allocSeedTimes makes room for the time of each seed.
func (m *sampling) allocSeedTimes() error {
	// Counted with indptr, see openIndptr.
	block, err := mem.NewBudget(0).Alloc(mem.Topology, max(1, m.seeds.count())*8)
	if err != nil {
		return err
	}
	m.onClose(block.Free)
	m.seedTimes = mem.Slice[int64](block)[:m.seeds.count()]
	return nil
}

// readSeedTimes makes the time of each seed of a run that of the node, whose type begins with this
// node; of links, which then are every edge, that of the edge.
func (m *sampling) readSeedTimes(ctx context.Context, rows *graph.TimeRows, run seedRun, firstNode int64) error {
	buffer, scratch := make([]int64, graph.ScanIDs), new(graph.Scratch)
	for first := run.from; first < run.to; first += graph.ScanIDs {
		out := m.seedTimes[first:min(first+graph.ScanIDs, run.to)]
		nodes := buffer[:len(out)]
		for i := range nodes {
			nodes[i] = first + int64(i)
			if m.options.Seeds != nil {
				nodes[i] = m.options.Seeds[nodes[i]]
			}
			nodes[i] -= firstNode
		}
		if err := rows.Read(ctx, scratch, nodes, out); err != nil {
			return err
		}
	}
	return nil
}
