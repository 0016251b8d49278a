package store

import (
	"encoding/binary"
	"fmt"
	"slices"

	"freshgo/core/internal/crc"
	"freshgo/core/manifest"
)

// Tensors of nodes that were computed from others (core/propagate): aggregates of the rows of a node's in-neighbours.
// The manifest identifies the inputs of each by checksums of the checksums of their arrays, so that a tensor whose
// inputs have changed is recognised without reading anything.

// Aggregate describes the computation of a tensor of nodes.
type Aggregate struct {
	Tensor string          `json:"tensor"`      // that was aggregated, in whatever node type the edges come from
	Reduce string          `json:"reduce"`      // "mean", "sum" or "gcn"
	Hop    int             `json:"hop"`         // how often
	Own    int64           `json:"own_columns"` // the first columns are the node's own row of Tensor; 0: none
	Parts  []AggregatePart `json:"parts"`
	Stale  string          `json:"stale"` // what differs between its inputs and what the store holds; empty: nothing
}

// AggregatePart is the columns that came along one edge type, after those of the parts before it.
type AggregatePart struct {
	Source    string `json:"source"`
	Relation  string `json:"relation"`
	Target    string `json:"target"`
	Columns   int64  `json:"columns"`
	WeightsOf string `json:"weights_of"` // the edge tensor that weighed the edges; empty: none
}

// aggregate validates how a tensor of node type typ was computed, and finds out whether it still is of what the store
// holds. Aggregates name edge types, so all types have been checked before.
func (c *checker) aggregate(s *Store, typ int, t *Tensor, a *manifest.Aggregate) {
	c.label = nodeLabel(s.nodeTypes[typ].Name)
	own := a.GetOwnColumns()
	out := &Aggregate{Tensor: a.GetTensor(), Reduce: a.GetReduce(), Hop: int(a.GetHop()), Own: own}
	if len(t.RowShape) != 1 || !t.DType.IsFloat() || own < 0 || a.GetHop() < 1 || len(a.GetParts()) == 0 {
		c.fail("the aggregate %q is malformed", t.Name)
		return
	}
	columns := own
	for _, p := range a.GetParts() {
		columns += p.GetColumns()
		known := p.GetTarget() == s.nodeTypes[typ].Name && edgePlace(s.manifest, p) >= 0
		if p.GetColumns() < 1 || columns > t.RowShape[0] || !known {
			c.fail("the aggregate %q has %d columns along %s", t.Name, p.GetColumns(),
				edgeTypeName(p.GetSource(), p.GetRelation(), p.GetTarget()))
			return
		}
		out.Parts = append(out.Parts, AggregatePart{
			Source: p.GetSource(), Relation: p.GetRelation(), Target: p.GetTarget(), Columns: p.GetColumns(),
			WeightsOf: p.GetWeightsOf(),
		})
	}
	if columns != t.RowShape[0] {
		c.fail("the aggregate %q has %d columns, expected %d", t.Name, t.RowShape[0], columns)
		return
	}
	out.Stale = staleness(s.manifest, typ, a)
	t.Aggregate = out
}

// edgePlace returns the place of the edge type that a part names, or -1.
func edgePlace(m *manifest.Manifest, p *manifest.AggregatePart) int {
	return slices.IndexFunc(m.GetEdgeTypes(), func(e *manifest.EdgeType) bool {
		return e.GetSource() == p.GetSource() && e.GetRelation() == p.GetRelation() && e.GetTarget() == p.GetTarget()
	})
}

// stamp notes what an aggregate of node type typ is computed from: what the manifest names now.
func stamp(m *manifest.Manifest, typ int, a *manifest.Aggregate) {
	if a.OwnColumns > 0 {
		a.Own = tensorMark(m.NodeTypes[typ].GetTensors(), a.Tensor)
	}
	for _, p := range a.Parts {
		p.Features, p.Topology, p.Weights = marks(m, a, p)
	}
}

// marks returns the checksums of what a part is computed from.
func marks(
	m *manifest.Manifest, a *manifest.Aggregate, p *manifest.AggregatePart,
) (features, topology, weights uint32) {
	for _, node := range m.GetNodeTypes() {
		if node.GetName() == p.GetSource() {
			features = tensorMark(node.GetTensors(), a.GetTensor())
		}
	}
	place := edgePlace(m, p)
	if place < 0 {
		return features, 0, 0
	}
	edge := m.GetEdgeTypes()[place]
	topology = mark(edge.GetIndptr(), edge.GetIndices())
	if p.GetWeightsOf() != "" {
		weights = mark(edge.GetEdgeIds()) ^ tensorMark(edge.GetTensors(), p.GetWeightsOf())
	}
	return features, topology, weights
}

// tensorMark returns the checksum of a tensor's checksums, 0 where there is none of this name. Scales that the manifest
// holds are as much of it as what they multiply.
func tensorMark(tensors []*manifest.Tensor, name string) uint32 {
	for _, t := range tensors {
		if t.GetName() == name {
			scales, _ := binary.Append(nil, binary.LittleEndian, t.GetNarrow().GetColumns()) // never fails: of fixed size
			return max(crc.Update(mark(t.GetData()), scales), 1)
		}
	}
	return 0
}

// mark returns the checksum of the checksums and the shapes of arrays, never 0.
func mark(arrays ...*manifest.Array) uint32 {
	var words []uint64
	for _, a := range arrays {
		words = append(words, uint64(a.GetCrcFileCrc()), uint64(a.GetDtype()), uint64(a.GetRows()))
		for _, d := range a.GetRowShape() {
			words = append(words, uint64(d))
		}
	}
	sum := uint32(0)
	for _, w := range words {
		sum = crc.Update(sum, binary.LittleEndian.AppendUint64(nil, w))
	}
	return max(sum, 1)
}

// staleness names the inputs of an aggregate of node type typ that differ from the arrays of the store, or is empty.
func staleness(m *manifest.Manifest, typ int, a *manifest.Aggregate) string {
	if a.GetOwnColumns() > 0 && a.GetOwn() != tensorMark(m.GetNodeTypes()[typ].GetTensors(), a.GetTensor()) {
		return fmt.Sprintf("other rows of %q", a.GetTensor())
	}
	for _, p := range a.GetParts() {
		edges := ""
		if p.GetRelation() != "" {
			edges = " of " + edgeTypeName(p.GetSource(), p.GetRelation(), p.GetTarget())
		}
		switch features, topology, weights := marks(m, a, p); {
		case features != p.GetFeatures():
			return fmt.Sprintf("other rows of %q", nodeLabel(p.GetSource())+a.GetTensor())
		case topology != p.GetTopology():
			return "other edges" + edges
		case weights != p.GetWeights():
			return fmt.Sprintf("other weights %q%s", p.GetWeightsOf(), edges)
		}
	}
	return ""
}

// restamp notes for the aggregates that were of what the store before held that they are of what m names, whose arrays
// hold the same in another order.
func restamp(before, m *manifest.Manifest) {
	for typ, node := range m.GetNodeTypes() {
		for i, t := range node.GetTensors() {
			was := before.GetNodeTypes()[typ].GetTensors()[i].GetAggregate()
			if was != nil && staleness(before, typ, was) == "" {
				stamp(m, typ, t.Aggregate)
			}
		}
	}
}
