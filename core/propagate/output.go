package propagate

import (
	"fmt"
	"math"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/store"
)

// output is one tensor to be made: of a node type, some columns for each edge type that leads to it.
type output struct {
	typ    int // node type
	target *store.NodeType
	name   string
	hop    int
	of     string // tensor that is aggregated
	kind   string // the reduction
	rows   int64
	dtype  manifest.DType
	own    *column // the node's own row, or nil
	parts  []part
	next   *column // the next hop's input, which is this output; nil: none
}

// moved reports whether the rows of targets are stored in another order than the nodes.
func (o *output) moved() bool { return o.target.Order != nil }

// rowBytes returns the size of a row of the output.
func (o *output) rowBytes() int { return (int(o.ownColumns()) + o.columns()) * o.dtype.Size() }

// resultRowBytes returns the size of the sums for a row.
func (o *output) resultRowBytes() int64 { return int64(o.columns() * o.dtype.Size()) }

// rowsPerStep returns the number of rows that the writer takes at a time; it also takes multiples.
func (o *output) rowsPerStep() int64 { return int64(store.AddedRowsPerStep(o.rowBytes())) }

// part is the columns of an output along one edge type.
type part struct {
	place   int // of the edge type
	edges   *store.EdgeType
	sources *store.NodeType
	rows    *column
	weights *store.Tensor // nil: edges are not weighted
	first   int           // column among the columns of all parts
}

// column is some columns of an array.
type column struct {
	array  *store.Array    // nil: it is still to be made, with rows of rowBytes and numbers of a type
	offset int             // byte of a row
	count  int             // numbers
	narrow *store.Narrowed // how they are stored in fewer bytes; nil: as they are

	rowBytes int
	made     manifest.DType
}

// dtype returns the type of the numbers.
func (c *column) dtype() manifest.DType {
	switch {
	case c.array == nil:
		return c.made
	case c.narrow != nil:
		return manifest.DType_FLOAT32
	}
	return c.array.DType
}

// decode turns some numbers of a stored row into float64.
func (c *column) decode(row []byte, lo, hi int, numbers []float64) {
	if c.narrow != nil {
		c.narrow.Decode(row, lo, hi, numbers)
		return
	}
	size := c.array.DType.Size()
	store.DecodeFloats(c.array.DType, row[c.offset+lo*size:c.offset+hi*size], numbers)
}

// maxRows is the most rows of sources, which have numbers of 32 bits.
const maxRows = math.MaxUint32

// outputs returns the tensors that the options ask for, in the order of their computation.
func (r *runner) outputs() ([]output, error) {
	o := &r.options
	if err := o.check(); err != nil {
		return nil, err
	}
	nodes, edges := r.store.NodeTypes(), r.store.EdgeTypes()
	chosen, err := r.chosen(nodes, edges)
	if err != nil {
		return nil, err
	}
	if o.Hops > 1 && r.store.Heterogeneous() {
		return nil, invalid("hops must be 1 in a heterogeneous graph, got %d", o.Hops)
	}
	weighted := false
	var all []output
	for typ := range nodes {
		out := output{typ: typ, target: &nodes[typ], name: o.Name, hop: 1, of: o.Tensor, kind: o.Reduce,
			rows: nodes[typ].Count}
		for _, place := range chosen {
			e := &edges[place]
			if e.Target != nodes[typ].Name {
				continue
			}
			p, err := r.part(nodes, edges, place)
			if err != nil {
				return nil, err
			}
			weighted = weighted || p.weights != nil
			out.parts = append(out.parts, p)
		}
		if len(out.parts) == 0 {
			continue
		}
		if own := find(nodes[typ].Tensors, o.Tensor); own != nil && o.Reduce != GCN {
			if out.own, err = columnOf(&nodes[typ], own); err != nil {
				return nil, err
			}
		}
		all = append(all, out)
	}
	if o.WeightAttr != "" && !weighted {
		return nil, invalid("none of the edge types has the tensor %q: weight_attr names an edge-level tensor", o.WeightAttr)
	}
	all = later(all, o.Hops)
	for i := range all {
		if err := r.settle(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// later adds the hops after the first of a homogeneous graph.
func later(all []output, hops int) []output {
	for hop := 2; hop <= hops; hop++ {
		next := all[len(all)-1]
		next.hop, next.own, next.parts = hop, nil, slices.Clone(next.parts)
		next.name = fmt.Sprintf("%s%d", all[0].name, hop)
		next.parts[0].rows = &column{count: next.parts[0].rows.count} // its array is made by the hop before
		all = append(all, next)
	}
	for i := range all[:max(len(all)-1, 0)] {
		if hops > 1 {
			all[i].next = all[i+1].parts[0].rows
		}
	}
	return all
}

// chosen returns the places of the edge types that are used.
func (r *runner) chosen(nodes []store.NodeType, edges []store.EdgeType) ([]int, error) {
	o := &r.options
	if o.Relations == nil {
		var all []int
		for i := range edges {
			if find(nodeType(nodes, edges[i].Source).Tensors, o.Tensor) != nil {
				all = append(all, i)
			}
		}
		if len(all) == 0 {
			return nil, invalid("no node type at which edges begin has the tensor %q", o.Tensor)
		}
		return all, nil
	}
	if len(o.Relations) == 0 {
		return nil, invalid("relations names no edge type, expected at least one")
	}
	for i, place := range o.Relations {
		if place < 0 || place >= len(edges) || slices.Contains(o.Relations[:i], place) {
			return nil, invalid("relations[%d] is %d, expected each edge type, 0 to %d, once at most", i, place, len(edges)-1)
		}
	}
	return slices.Sorted(slices.Values(o.Relations)), nil
}

// part returns the contribution of an edge type.
func (r *runner) part(nodes []store.NodeType, edges []store.EdgeType, place int) (part, error) {
	e := &edges[place]
	p := part{place: place, edges: e, sources: nodeType(nodes, e.Source)}
	t := find(p.sources.Tensors, r.options.Tensor)
	switch {
	case t == nil:
		return p, invalid("the sources of %s have no tensor %q", e, r.options.Tensor)
	case r.options.Reduce == GCN && e.Source != e.Target:
		return p, invalid("reduce='gcn' adds self-loops, so an edge type must lead within one node type, got %s: "+
			"choose others by relations=", e)
	case p.sources.Count > maxRows:
		return p, invalid("%d nodes, expected at most %d", p.sources.Count, int64(maxRows))
	}
	p.weights = find(e.Tensors, r.options.WeightAttr)
	if w := p.weights; w != nil {
		for _, d := range w.RowShape {
			if d != 1 {
				return p, invalid("weight_attr has rows of shape %v along %s, expected one number for each edge", w.RowShape, e)
			}
		}
		if !w.DType.IsFloat() && !w.DType.IsInteger() {
			return p, invalid("weight_attr is %s along %s, expected numbers", w.DType.Label(), e)
		}
	}
	var err error
	p.rows, err = columnOf(p.sources, t)
	return p, err
}

// columnOf returns all columns of a tensor.
func columnOf(of *store.NodeType, t *store.Tensor) (*column, error) {
	if t.Aggregate != nil {
		return nil, invalid("%q was computed by propagate itself: hops aggregates again", t.Name)
	}
	dtype, shape := t.Values()
	if !dtype.IsFloat() || len(shape) != 1 {
		label := t.Name
		if of.Name != "" {
			label = of.Name + "." + label
		}
		return nil, invalid("%q is %s with rows of shape %v, expected floats of shape [num_nodes, columns]", label,
			dtype.Label(), shape)
	}
	return &column{array: &t.Array, count: int(shape[0]), narrow: t.Narrow}, nil
}

// settle chooses the dtype and the places of the columns, and checks name and size.
func (r *runner) settle(out *output) error {
	if err := r.adding.CheckName(out.typ, out.name, r.options.Overwrite); err != nil {
		return err
	}
	add := func(c *column) {
		if c.array != nil {
			out.dtype = wider(out.dtype, c.dtype())
		}
	}
	if out.own != nil {
		add(out.own)
	}
	columns := 0
	for i := range out.parts {
		p := &out.parts[i]
		p.first = columns
		columns += p.rows.count
		add(p.rows)
	}
	if out.hop > 1 { // of the type of the hop before
		first, _ := columnOf(out.parts[0].sources, find(out.parts[0].sources.Tensors, out.of))
		out.dtype = first.dtype()
	}
	n := (out.ownColumns() + int64(columns)) * int64(out.dtype.Size())
	if n > 1<<28 {
		return invalid("rows of %d bytes, expected at most %d: choose fewer relations", n, 1<<28)
	}
	if out.next != nil {
		out.next.rowBytes, out.next.made = int(n), out.dtype
	}
	return nil
}

// wider returns the smaller of the types that hold all numbers of both.
func wider(a, b manifest.DType) manifest.DType {
	if a == manifest.DType_UNSPECIFIED || a == b {
		return b
	}
	if a.Size() == 2 && b.Size() == 2 { // float16 and bfloat16
		return manifest.DType_FLOAT32
	}
	if a.Size() > b.Size() {
		return a
	}
	return b
}

func (o *output) ownColumns() int64 {
	if o.own == nil {
		return 0
	}
	return int64(o.own.count)
}

// columns returns the number of columns of all parts together.
func (o *output) columns() int {
	last := &o.parts[len(o.parts)-1]
	return last.first + last.rows.count
}

// description returns the entry of the output in the manifest.
func (o *output) description() *manifest.Aggregate {
	d := &manifest.Aggregate{Tensor: o.of, Reduce: o.kind, Hop: int64(o.hop), OwnColumns: o.ownColumns()}
	for _, p := range o.parts {
		of := &manifest.AggregatePart{
			Source: p.edges.Source, Relation: p.edges.Relation, Target: p.edges.Target, Columns: int64(p.rows.count),
		}
		if p.weights != nil {
			of.WeightsOf = p.weights.Name
		}
		d.Parts = append(d.Parts, of)
	}
	return d
}

func find(tensors []store.Tensor, name string) *store.Tensor {
	i := slices.IndexFunc(tensors, func(t store.Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &tensors[i]
}

func nodeType(nodes []store.NodeType, name string) *store.NodeType {
	return &nodes[slices.IndexFunc(nodes, func(t store.NodeType) bool { return t.Name == name })]
}
