package store

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// edgeGrowth is the work of Append on an edge type.
type edgeGrowth struct {
	grower  *grower
	part    *edgePart
	stored  *EdgeType
	targets bool // there are new ones
	merged  bool // edges come, or the ids of sources need more bytes

	plan, weights edgePlan // of new edges
}

// planEdges plans the sorting of new edges beside the readers of the old ones. Where memory is too small for that it
// returns how much would do.
func (g *grower) planEdges() (need int64, err error) {
	limit := g.budget.Limit()
	fit := func(edges edgeList, sources, targets, beside int64) (edgePlan, error) {
		memory := limit
		if limit > 0 {
			memory = max(limit-beside, 1)
		}
		plan, err := planEdges(edges, sources, targets, memory, runtime.NumCPU())
		var short *mem.BudgetError
		if errors.As(err, &short) {
			need = max(need, short.Need+beside)
			return plan, nil
		}
		return plan, err
	}
	for i := range g.plans {
		p := &g.plans[i]
		if !p.merged && !p.targets {
			continue
		}
		sources, targets := g.graph.nodes[p.part.from].count, g.graph.nodes[p.part.to].count
		if p.plan, err = fit(p.edges(), sources, targets, p.besideEdges()); err != nil {
			return 0, err
		}
		if p.part.weights == nil {
			continue
		}
		beside := p.besideWeights(targets)
		if p.weights, err = fit(p.part.weightEdges(), weightLimit(p.part.weights.DType), targets, beside); err != nil {
			return 0, err
		}
	}
	return need, nil
}

// edges returns the new edges, possibly none.
func (p *edgeGrowth) edges() edgeList {
	if p.part.edges.count > 0 {
		return p.part.edges
	}
	none := Dense(manifest.DType_INT64, []int64{0}, nil)
	none.Strides = denseStrides(none.Shape, none.DType)
	return edgeList{name: p.part.label + edgesName, sources: none, targets: none, unnumbered: p.stored.Unnumbered,
		numbers: manifest.DType_UINT32}
}

// besideEdges returns the memory of merging edges beside that of sorting them.
func (p *edgeGrowth) besideEdges() int64 {
	bytes := wordsMemory(p.stored.Indptr) + columnReaderBytes(p.stored.Indices)
	if p.stored.EdgeIDs != nil {
		bytes += columnReaderBytes(p.stored.EdgeIDs)
	}
	return bytes
}

// besideWeights returns the memory beside the merge of weights.
func (p *edgeGrowth) besideWeights(targets int64) int64 {
	return weightsBeside(targets) + wordsMemory(p.stored.Indptr) + columnReaderBytes(&p.stored.Weights.Array)
}

// write writes what grows of an edge type.
func (p *edgeGrowth) write(ctx context.Context, edge *manifest.EdgeType) error {
	g := p.grower
	edge.Count = p.stored.NumEdges + p.part.edges.count
	for _, t := range p.part.tensors {
		if p.part.edges.count == 0 {
			break
		}
		visit := visitRows(anyValue)
		if p.part.weights != nil && t.Name == p.part.weights.Name {
			visit = weightCheck(p.part.weights, p.part.label)
		}
		at := slices.IndexFunc(p.stored.Tensors, func(have Tensor) bool { return have.Name == t.Name })
		if err := g.growTensor(ctx, p.part.label, &p.stored.Tensors[at], edge.Tensors[at], t, visit); err != nil {
			return err
		}
	}
	if !p.targets && !p.merged {
		return nil
	}
	if err := p.writeTopology(ctx, edge); err != nil || p.part.weights == nil {
		return err
	}
	return p.writeWeights(ctx, edge)
}

// sorter sorts new edges, or their weights.
func (p *edgeGrowth) sorter(edges edgeList, sources int64, plan edgePlan) *edgeSorter {
	g := p.grower
	return &edgeSorter{
		fs: g.fs, dir: g.site.dir, edges: edges, sources: sources, targets: g.graph.nodes[p.part.to].count,
		plan: plan, budget: g.budget, progress: g.progress, relation: relationWords(p.part),
	}
}

// writeTopology merges new edges with those that are stored.
func (p *edgeGrowth) writeTopology(ctx context.Context, edge *manifest.EdgeType) error {
	g := p.grower
	s := p.sorter(p.edges(), g.graph.nodes[p.part.from].count, p.plan)
	defer s.close()
	if err := s.count(ctx); err != nil {
		return err
	}
	numbered, err := p.numbered(ctx, s, g.budget)
	if err != nil {
		return err
	}
	numbers, dtype := int64(0), cmp.Or(p.part.numbers, edgeIDType(edge.Count))
	if p.stored.EdgeIDs == nil && numbered {
		made := columnOf("", dtype, edge.Count)
		numbers = storedBytes(&made)
	}
	if err := checkSorting(g.fs, g.site.dir, numbers, 0, s); err != nil {
		return err
	}
	var writers []*arrayWriter
	defer func() {
		for _, w := range writers {
			w.abort()
		}
	}()
	open := func(file string, dtype manifest.DType) *arrayWriter {
		var w *arrayWriter
		if err == nil {
			w, err = newArrayWriter(g.fs, g.site.dir, file, dtype, nil, s.plan.chunk, g.budget)
		}
		if err == nil {
			writers = append(writers, w)
		}
		return w
	}
	indptr := open(g.fileOf(p.stored.Indptr), manifest.DType_INT64)
	if err != nil {
		return err
	}
	m, err := newMerger(ctx, p.stored, indptr, g.budget)
	if err != nil {
		return err
	}
	defer m.close()
	column := func(from *Array, file string, dtype manifest.DType) *mergedColumn {
		out := open(file, dtype)
		var c *mergedColumn
		if err == nil {
			c, err = m.newColumn(ctx, from, rowSink{out}, dtype, g.budget)
		}
		return c
	}
	if p.merged {
		c := column(p.stored.Indices, g.fileOf(p.stored.Indices), indicesType(s.sources))
		if err != nil {
			return err
		}
		c.meter = &meter{report: g.progress, stage: s.stage("merging"), total: p.stored.NumEdges}
	}
	if p.merged && numbered {
		file := p.part.file + edgeIDsName
		if p.stored.EdgeIDs != nil {
			file = g.fileOf(p.stored.EdgeIDs)
		} else if g.names[file+dataSuffix] {
			file = g.fileFor(p.part.file, edgeIDsName)
		}
		c := column(p.stored.EdgeIDs, file, dtype)
		if err != nil {
			return err
		}
		c.given, c.base = s.edges.numbers, p.stored.NumEdges
	}
	if err := s.sort(ctx, m); err != nil {
		return err
	}
	if err := m.end(); err != nil {
		return err
	}
	for i, in := range []**manifest.Array{&edge.Indptr, &edge.Indices, &edge.EdgeIds}[:len(writers)] {
		rows := edge.Count
		if i == 0 {
			rows = s.targets + 1
		}
		if *in, err = writers[i].finish(rows); err != nil {
			return err
		}
	}
	return nil
}

// numbered reports whether the numbers of edges are written. They are not where they are not known, nor where positions
// stay the numbers: the new edges are sorted, and none of their targets comes before one that has edges.
func (p *edgeGrowth) numbered(ctx context.Context, s *edgeSorter, budget *mem.Budget) (bool, error) {
	if p.stored.EdgeIDs != nil || p.stored.Unnumbered || !s.sorted {
		return !p.stored.Unnumbered, nil
	}
	if s.first < 0 || s.first >= p.stored.NumNodes {
		return false, nil
	}
	end := make([]int64, 1)
	if err := p.stored.Indptr.ReadRows(ctx, s.first+1, mem.Bytes(end), budget); err != nil {
		return false, err
	}
	return end[0] != p.stored.NumEdges, nil
}

// writeWeights merges the weights of new edges with those that are stored, and sums them. The topology is written.
func (p *edgeGrowth) writeWeights(ctx context.Context, edge *manifest.EdgeType) error {
	g := p.grower
	dtype := p.part.weights.DType
	s := p.sorter(p.part.weightEdges(), weightLimit(dtype), p.weights)
	defer s.close()
	if err := s.count(ctx); err != nil {
		return err
	}
	if err := checkSorting(g.fs, g.site.dir, 0, 0, s); err != nil {
		return err
	}
	out, err := g.newWeightSink(ctx, p.part, s.plan.chunk, edge)
	if err != nil {
		return err
	}
	defer out.abort()
	m, err := newMerger(ctx, p.stored, nowhere{}, g.budget)
	if err != nil {
		return err
	}
	defer m.close()
	column, err := m.newColumn(ctx, &p.stored.Weights.Array, out, weightsType(dtype), g.budget)
	if err != nil {
		return err
	}
	column.meter = &meter{report: g.progress, stage: s.stage("merging"), total: p.stored.NumEdges}
	if err := s.sort(ctx, m); err != nil {
		return err
	}
	if err := m.end(); err != nil {
		return err
	}
	edge.Weights, edge.WeightSums, err = out.finish(edge.Count)
	return err
}
