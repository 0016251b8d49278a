package loader

import (
	"fmt"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/sample"
)

// levelTensors adds the level tables of a pruned batch: what the model computes, layer by layer, and where the rest is.
// See csrc/include/freshgo/history.h.
func (d *drawnBatch) levelTensors(b *Batch) error {
	if err := b.addCounts("history_counts", d.cut.Batch.Counts([]int64{d.cut.Iteration()})); err != nil {
		return err
	}
	if err := d.degreeTensors(b); err != nil {
		return err
	}
	for l := range d.cut.Batch.Tables {
		if err := d.tableTensors(b, l, &d.cut.Batch.Tables[l]); err != nil {
			return err
		}
	}
	for l := range d.cut.Batch.Tables {
		for i := range d.loader.draw.Parts.Schema.Shape().Relations {
			if err := d.layerTensors(b, l+1, i, d.cut.Batch.Layer(l+1, i)); err != nil {
				return err
			}
		}
	}
	return d.probeTensors(b)
}

// degreeTensors adds what the normalization of GCN needs, where it is known.
func (d *drawnBatch) degreeTensors(b *Batch) error {
	degrees, loops, ok := d.cut.Batch.Degrees()
	if !ok {
		return nil
	}
	if err := b.addNarrow("history_degree", degrees); err != nil {
		return err
	}
	if len(loops) == 0 {
		return nil
	}
	return b.addNarrow("history_loops", loops)
}

// tableTensors adds the rows of a level; of a hidden one also what is computed, and what is kept.
func (d *drawnBatch) tableTensors(b *Batch, l int, table *history.Table) error {
	if err := b.addNarrow(fmt.Sprintf("history_nodes_%d", l), table.Nodes); err != nil || l == 0 {
		return err
	}
	for _, part := range []struct {
		name   string
		values []int32
	}{{"computed", table.Computed}, {"hit", table.Hits}, {"slot", table.Slots}} {
		if err := b.addNarrow(fmt.Sprintf("history_%s_%d", part.name, l), part.values); err != nil {
			return err
		}
	}
	return nil
}

// probeTensors adds the rows that are compared, of a batch that was left whole.
func (d *drawnBatch) probeTensors(b *Batch) error {
	for l, found := range d.cut.Probes() {
		for _, part := range []struct {
			name   string
			values []int64
		}{{"probe", found.Rows}, {"probe_slot", found.Slots}, {"probe_age", found.Ages}} {
			if err := b.addCounts(fmt.Sprintf("history_%s_%d", part.name, l+1), part.values); err != nil {
				return err
			}
		}
	}
	return nil
}

// layerTensors adds the edges of a layer along a relation.
func (d *drawnBatch) layerTensors(b *Batch, number, relation int, layer *history.Layer) error {
	prefix := d.loader.draw.Parts.Schema.EdgeName(relation, "history_")
	name := func(part string) string { return fmt.Sprintf("%s%s_%d", prefix, part, number) }
	if err := b.addCounts(name("ptr"), layer.Ptr); err != nil {
		return err
	}
	index, err := b.add(name("edge_index"), 2, int64(len(layer.Source)))
	if err != nil {
		return err
	}
	fillEdgeIndex(index, layer.Source, layer.Ptr)
	if err := b.addNarrow(name("edge"), layer.Edge); err != nil {
		return err
	}
	// Only the number of its nodes counts.
	g := sample.Subgraph{Nodes: d.graph.Nodes[:layer.NumSrc], Ptr: layer.Ptr, Row: draw.Unsigned(layer.Source)}
	return d.transposeGraph(b, &g, prefix, fmt.Sprint("_", number))
}

// HistoryTensors returns the most tensors that a history adds to a batch.
func (l *Loader) HistoryTensors() int {
	if !l.history.pruner.Prunes() {
		return 0
	}
	return 3 + (7+(3+len(TransposedNames))*len(l.draw.Parts.Schema.Shape().Relations))*l.draw.Options.Hops()
}
