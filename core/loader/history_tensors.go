package loader

import (
	"fmt"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/sample"
)

// levelTensors adds the level tables of a pruned batch: what the model computes, layer by layer, and where the rest is.
// See csrc/include/freshgo/history.h.
func (p *preparer) levelTensors(b *Batch) error {
	if err := p.addCounts(b, "history_counts", p.cut.Batch.Counts([]int64{p.cut.Iteration()})); err != nil {
		return err
	}
	if err := p.degreeTensors(b); err != nil {
		return err
	}
	for l := range p.cut.Batch.Tables {
		if err := p.tableTensors(b, l, &p.cut.Batch.Tables[l]); err != nil {
			return err
		}
	}
	for l := range p.cut.Batch.Tables {
		for i := range p.loader.draw.Parts.Schema.Shape().Relations {
			if err := p.layerTensors(b, l+1, i, p.cut.Batch.Layer(l+1, i)); err != nil {
				return err
			}
		}
	}
	return p.probeTensors(b)
}

// degreeTensors adds what the normalization of GCN needs, where it is known.
func (p *preparer) degreeTensors(b *Batch) error {
	degrees, loops, ok := p.cut.Batch.Degrees()
	if !ok {
		return nil
	}
	if err := p.addNarrow(b, "history_degree", degrees); err != nil {
		return err
	}
	if len(loops) == 0 {
		return nil
	}
	return p.addNarrow(b, "history_loops", loops)
}

// tableTensors adds the rows of a level; of a hidden one also what is computed, and what is kept.
func (p *preparer) tableTensors(b *Batch, l int, table *history.Table) error {
	if err := p.addNarrow(b, fmt.Sprintf("history_nodes_%d", l), table.Nodes); err != nil || l == 0 {
		return err
	}
	for _, part := range []struct {
		name   string
		values []int32
	}{{"computed", table.Computed}, {"hit", table.Hits}, {"slot", table.Slots}} {
		if err := p.addNarrow(b, fmt.Sprintf("history_%s_%d", part.name, l), part.values); err != nil {
			return err
		}
	}
	return nil
}

// probeTensors adds the rows that are compared, of a batch that was left whole.
func (p *preparer) probeTensors(b *Batch) error {
	for l, found := range p.cut.Probes() {
		for _, part := range []struct {
			name   string
			values []int64
		}{{"probe", found.Rows}, {"probe_slot", found.Slots}, {"probe_age", found.Ages}} {
			if err := p.addCounts(b, fmt.Sprintf("history_%s_%d", part.name, l+1), part.values); err != nil {
				return err
			}
		}
	}
	return nil
}

// layerTensors adds the edges of a layer along a relation.
func (p *preparer) layerTensors(b *Batch, number, relation int, layer *history.Layer) error {
	prefix := p.loader.draw.Parts.Schema.EdgeName(relation, "history_")
	name := func(part string) string { return fmt.Sprintf("%s%s_%d", prefix, part, number) }
	if err := p.addCounts(b, name("ptr"), layer.Ptr); err != nil {
		return err
	}
	index, err := p.add(b, name("edge_index"), 2, int64(len(layer.Source)))
	if err != nil {
		return err
	}
	fillEdgeIndex(index, layer.Source, layer.Ptr)
	if err := p.addNarrow(b, name("edge"), layer.Edge); err != nil {
		return err
	}
	// Only the number of its nodes counts.
	g := sample.Subgraph{Nodes: p.graph.Nodes[:layer.NumSrc], Ptr: layer.Ptr, Row: draw.Unsigned(layer.Source)}
	return p.transposeGraph(b, &g, prefix, fmt.Sprint("_", number))
}

// addNarrow appends a list as an int64 tensor.
func (p *preparer) addNarrow(b *Batch, name string, values []int32) error {
	data, err := p.add(b, name, int64(len(values)))
	if err != nil {
		return err
	}
	for i, v := range values {
		data[i] = int64(v)
	}
	return nil
}

// HistoryTensors returns the most tensors that a history adds to a batch.
func (l *Loader) HistoryTensors() int {
	if !l.history.pruner.Prunes() {
		return 0
	}
	return 3 + (7+(3+len(TransposedNames))*len(l.draw.Parts.Schema.Shape().Relations))*l.draw.Options.Hops()
}
