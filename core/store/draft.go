package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// Draft is a converted store that has not been published. It can be read as any store, so that hotness can be computed
// from it, and Relayout finishes it without a second copy. It holds the path that it will have against other
// conversions. It ends with Relayout or Discard.
type Draft struct {
	store     *Store
	site      *site
	overwrite bool
	ended     atomic.Bool // set by the first of Relayout and Discard, which alone has the site from then on
}

// ConvertDraft is Convert without the publication. order is the order of the relayout to come, so that an order that
// the graph or the budget does not allow is refused before anything is written.
func ConvertDraft(ctx context.Context, fs ssd.FS, in Input, path, order string, opts ConvertOptions) (*Draft, error) {
	return convertDraft(ctx, fs, in, path, order, opts, mem.NewBudget(opts.Memory))
}

func convertDraft(
	ctx context.Context, fs ssd.FS, in Input, path, order string, opts ConvertOptions, budget *mem.Budget,
) (*Draft, error) {
	s, m, err := build(ctx, fs, in, path, opts, budget, func(g *graph) (int64, error) {
		src := g.outline()
		outlook := &relayouter{src: src, first: src.firstNodes(), opts: RelayoutOptions{Order: order}, inPlace: true}
		if err := checkOrder(order, outlook.numNodes()); err != nil {
			return 0, err
		}
		if err := outlook.makePlan(budget.Limit()); err != nil {
			return 0, err
		}
		return storedBytes(outlook.newArrays()...) + outlook.passingBytes(), nil
	})
	if s == nil {
		return nil, err
	}
	draft := newStore(fs, s.dir, m)
	draft.draft = true
	if err == nil {
		err = draft.check()
	}
	if err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return &Draft{store: draft, site: s, overwrite: opts.Overwrite}, nil
}

// outline returns the store that a graph will be, as far as its shapes tell.
func (g *graph) outline() *Store {
	array := func(name string, dtype manifest.DType, shape []int64, rows int64) Array {
		rowBytes, _ := rowBytesOf(dtype, shape) // checked with the source
		a := Array{File: name + dataSuffix, DType: dtype, RowShape: shape, Rows: rows, Layout: LayoutFor(rowBytes, rows)}
		a.Bytes, _ = fileBytes(a.Layout) // likewise
		return a
	}
	tensors := func(prefix string, sources []NamedSource) (all []Tensor) {
		for i, t := range sources {
			dtype, shape := t.stored()
			all = append(all, Tensor{Name: t.Name, Array: array(tensorFile(prefix, i, t.Name), dtype, shape, t.rows())})
		}
		return all
	}
	s := &Store{attachments: tensors(attachedPrefix, g.attachments)}
	for _, p := range g.nodes {
		s.nodeTypes = append(s.nodeTypes,
			NodeType{Name: p.name, Count: p.count, file: p.file, Tensors: tensors(p.file+"node", p.tensors)})
	}
	for _, p := range g.edges {
		sources, targets, edges := g.nodes[p.from].count, g.nodes[p.to].count, p.edges.count
		indptr := array(p.file+"indptr", manifest.DType_INT64, nil, targets+1)
		indices := array(p.file+"indices", indicesType(sources), nil, edges)
		e := EdgeType{
			Source: p.source, Relation: p.relation, Target: p.target, file: p.file, Tensors: tensors(p.file+"edge", p.tensors),
			Topology: Topology{
				NumSources: sources, NumNodes: targets, NumEdges: edges, Indptr: &indptr, Indices: &indices,
			},
		}
		if p.weights != nil {
			e.Weights = &Weights{
				Of:    p.weights.Name,
				Array: array(p.file+"weights", weightsType(p.weights.DType), nil, edges),
				Sums:  array(p.file+"weight_sums", manifest.DType_FLOAT64, nil, weightSums(edges)),
			}
		}
		s.edgeTypes = append(s.edgeTypes, e)
	}
	return s
}

// Store returns the store to read from. It is closed when the draft ends.
func (d *Draft) Store() *Store { return d.store }

// Relayout puts the rows of the node tensors in another order, in place, and publishes the store. See the function
// Relayout for its cost. Topology, edge tensors and splits are not moved, and a tensor is removed as soon as it is
// rewritten, so that disk space is needed for the order, for one tensor and for its spill, if it has one. The Overwrite
// option of the conversion applies. The draft ends with the call, also on an error.
func (d *Draft) Relayout(ctx context.Context, opts RelayoutOptions) error {
	return d.relayout(ctx, opts, mem.NewBudget(opts.Memory))
}

func (d *Draft) relayout(ctx context.Context, opts RelayoutOptions, budget *mem.Budget) error {
	if d.ended.Swap(true) {
		return fmt.Errorf("store: %s: %w", d.site.path, ErrClosed)
	}
	r, err := newRelayouter(d.store, opts, budget, true)
	if err != nil {
		return d.end(err)
	}
	r.dir = d.site.dir
	var m *manifest.Manifest
	if err = r.takeSpace(); err == nil {
		m, err = r.write(ctx)
	}
	_ = d.store.Close() // never fails
	return d.site.conclude(ctx, m, err, d.overwrite)
}

// Discard removes the store. After Relayout or Discard it does nothing.
func (d *Draft) Discard() error {
	if d.ended.Swap(true) {
		return nil
	}
	return d.end(nil)
}

func (d *Draft) end(err error) error {
	_ = d.store.Close() // never fails
	return errors.Join(err, d.site.discard())
}
