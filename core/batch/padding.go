package batch

import (
	"iter"
	"slices"

	"freshgo/core/draw"
	"freshgo/core/sample"
)

// Padding pads drawn subgraphs to an envelope (draw.Options.Pad): behind the nodes of each hop come nodes without a
// number, -1, and behind the edges of each hop come edges between such nodes, from the hop to the hop before. Nothing
// leads from them to a node of the graph, and every list keeps its order. A batch that does not fit stays as it is.
//
// Its memory is its own. A nil Padding pads nothing.
type Padding struct {
	schema *draw.Schema
	sizes  draw.Envelope
	spares []int64

	on     bool            // for the current batch
	graph  sample.Subgraph // the padded batch
	seeds  []int64         // of each type
	places []int32         // the row of each drawn node, over all types
	nodes  []span          // of each type and hop: the rows of drawn nodes, within the type
	edges  []span          // of each relation and hop: the drawn edges, within the relation
}

type span struct{ from, to int }

// NewPadding returns the Padding of a loader's batches; nil where they are not padded, or by the consumer that draws
// them.
func NewPadding(m *draw.Sampling) *Padding {
	if !m.Options.Pad || m.Options.SeedsOnly {
		return nil
	}
	s, e := m.Parts.Schema, m.Options.Envelope
	return &Padding{schema: s, sizes: e, spares: e.Spares(s)}
}

// PaddingBytes returns its memory for batches of a number of nodes and edges.
func PaddingBytes(o *draw.Options, nodes, edges int64) int64 {
	if !o.Pad || o.SeedsOnly {
		return 0
	}
	return nodes*(8+8+4) + edges*(4+8+4)
}

// fits reports whether a batch is within the envelope, with the nodes that padding needs.
func (p *Padding) fits(g *sample.Subgraph) bool {
	for i, n := range g.NodesPerHop {
		if n+p.spares[i] > p.sizes.Nodes(p.schema)[i] {
			return false
		}
	}
	for i, n := range g.EdgesPerHop {
		if n > p.sizes.Edges(p.schema)[i] {
			return false
		}
	}
	return true
}

// Pad pads a batch, whose rows are listed, if it fits.
func (p *Padding) Pad(d *Drawn) {
	if p == nil {
		return
	}
	if p.on = p.fits(d.Delivered); !p.on {
		return
	}
	d.Counters.Padded.Add(1)
	p.padNodes(d.Delivered, &d.TypeOffsets)
	p.padEdges(d.Delivered, &d.TypeOffsets)
	d.BatchRows.MoveTo(p.places)
	p.seeds = append(p.seeds[:0], d.TypeOffsets.Seeds...)
	d.Delivered = &p.graph
	d.TypeOffsets.Cut(p.schema, &p.graph)
	copy(d.TypeOffsets.Seeds, p.seeds) // nodes that pad are no inputs
}

// padNodes lists the nodes with padding. A node that pads has the number before the first one of its type: within the
// type this is -1.
func (p *Padding) padNodes(g *sample.Subgraph, c *draw.TypeOffsets) {
	s, out := p.schema, &p.graph
	out.NodesPerHop, out.Nodes = p.sizes.Nodes(s), out.Nodes[:0]
	p.places, p.nodes = p.places[:0], p.nodes[:0]
	for t := range s.NumTypes() {
		base, at, rooms := len(out.Nodes), c.Nodes[t], s.NodesPerHop(out, t)
		for hop, n := range s.NodesPerHop(g, t) {
			first := len(out.Nodes)
			p.nodes = append(p.nodes, span{first - base, first - base + int(n)})
			places := more(&p.places, n)
			for i := range places {
				places[i] = int32(first + i)
			}
			out.Nodes = append(out.Nodes, g.Nodes[at:at+n]...)
			for range rooms[hop] - n {
				out.Nodes = append(out.Nodes, s.First[t]-1)
			}
			at += n
		}
	}
}

// padEdges lists the edges with padding, between the nodes of padNodes.
func (p *Padding) padEdges(g *sample.Subgraph, c *draw.TypeOffsets) {
	s, out := p.schema, &p.graph
	out.EdgesPerHop, out.Ptr, out.Row = p.sizes.Edges(s), out.Ptr[:0], out.Row[:0]
	out.Pos, out.Weight, p.edges = out.Pos[:0], out.Weight[:0], p.edges[:0]
	base := make([]int32, s.NumTypes()+1) // the first row of each type
	for t := range s.NumTypes() {
		base[t+1] = base[t] + int32(draw.Sum(s.NodesPerHop(out, t)))
	}
	for i, r := range s.Edges {
		places, ptr := p.places[c.Nodes[r.Source]:], g.Ptr[c.Ptr[i]:c.Ptr[i+1]]
		from, first := len(out.Row), c.Edges[i]
		target := 0 // of the drawn ones
		for hop, room := range s.EdgesPerHop(out, i) {
			n, at := s.EdgesPerHop(g, i)[hop], int64(len(out.Row)-from)
			p.edges = append(p.edges, span{int(at), int(at + n)})
			targets := p.nodes[r.Target*(s.Hops+1)+hop]
			starts := more(&out.Ptr, int64(targets.to-targets.from))
			for t := range starts {
				starts[t] = at + ptr[target+t] - ptr[target]
			}
			target += len(starts)
			row := more(&out.Row, n)
			for k, local := range g.Row[first : first+n] {
				row[k] = uint32(places[local] - base[r.Source])
			}
			if len(g.Pos) > 0 {
				out.Pos = append(out.Pos, g.Pos[first:first+n]...)
			}
			if len(g.Weight) > 0 {
				out.Weight = append(out.Weight, g.Weight[first:first+n]...)
			}
			first += n
			p.padHop(g, i, hop, at+n, room-n)
		}
		out.Ptr = append(out.Ptr, int64(len(out.Row)-from))
	}
}

// padHop adds the edges that pad a hop of a relation, from the edge `at` on, and their targets. Sources and targets
// take turns, so that none has a long list. The weight is 1: a mean over weights of zero would be no number, and the
// derivatives of parameters with it.
func (p *Padding) padHop(g *sample.Subgraph, relation, hop int, at, edges int64) {
	s, out, r := p.schema, &p.graph, p.schema.Edges[relation]
	targets := s.NodesPerHop(out, r.Target)[hop] - s.NodesPerHop(g, r.Target)[hop]
	for t := range targets {
		out.Ptr = append(out.Ptr, at+edges*t/targets)
	}
	sources := p.nodes[r.Source*(s.Hops+1)+hop+1]
	spare := s.NodesPerHop(out, r.Source)[hop+1] - int64(sources.to-sources.from)
	for e := range edges {
		out.Row = append(out.Row, uint32(int64(sources.to)+e%spare))
		if len(g.Pos) > 0 {
			out.Pos = append(out.Pos, -1)
		}
		if len(g.Weight) > 0 {
			out.Weight = append(out.Weight, 1)
		}
	}
}

// more appends n elements to a list, and returns them; their values are any.
func more[T any](list *[]T, n int64) []T {
	before := len(*list)
	*list = slices.Grow(*list, int(n))[:before+int(n)]
	return (*list)[before:]
}

// pads reports whether the current batch is padded.
func (p *Padding) pads() bool { return p != nil && p.on }

// NumRows returns how many nodes of a batch have their features read.
func NumRows(d *Drawn) int64 {
	if d.Padding.pads() {
		return int64(len(d.Padding.places))
	}
	return int64(d.Cut.NumLoaded(len(d.Delivered.Nodes)))
}

// Partial reports whether rows of a batch's tensor have no row of the graph, or none that is loaded.
func Partial(d *Drawn, t *draw.Tensor) bool { return d.Padding.pads() || d.Cut.On() && !t.ByEdge }

// Runs yields the ranges of a tensor's rows that are rows of the graph, from and to, ascending, of the given number of
// rows.
func (d *Drawn) Runs(t *draw.Tensor, rows int) iter.Seq2[int, int] {
	switch {
	case d.Padding.pads() && t.ByEdge:
		return runs(d.Padding.edges[t.Type*d.Padding.schema.Hops:][:d.Padding.schema.Hops])
	case d.Padding.pads():
		return runs(d.Padding.nodes[t.Type*(d.Padding.schema.Hops+1):][:d.Padding.schema.Hops+1])
	case t.ByEdge:
		return runs([]span{{0, rows}})
	}
	if n, missed := d.BatchRows.Read(t.Type); missed {
		return runs([]span{{0, int(n)}})
	}
	return d.Cut.LoadedRuns(t.Type, rows)
}

func runs(of []span) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for _, s := range of {
			if s.from < s.to && !yield(s.from, s.to) {
				return
			}
		}
	}
}

// targets yields the ranges of the targets of a relation whose edges are edges of the graph.
func targets(d *Drawn, relation int) iter.Seq2[int, int] {
	if !d.Padding.pads() {
		return runs([]span{{0, int(d.TypeOffsets.Expanded[relation])}})
	}
	p := d.Padding
	return runs(p.nodes[p.schema.Edges[relation].Target*(p.schema.Hops+1):][:p.schema.Hops])
}
