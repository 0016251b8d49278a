package batch

import (
	"fmt"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/sample"
)

// levelTensors adds the level tables of a pruned batch: the rows that each layer computes, and the sources of the
// others. See csrc/include/freshgo/history.h.
func (d *Drawn) levelTensors(b *Batch) error {
	if err := b.addCounts("history_counts", d.Cut.Batch.Counts([]int64{d.Cut.Iteration()})); err != nil {
		return err
	}
	if err := d.degreeTensors(b); err != nil {
		return err
	}
	for l := range d.Cut.Batch.Tables {
		if err := d.tableTensors(b, l, &d.Cut.Batch.Tables[l]); err != nil {
			return err
		}
	}
	for l := range d.Cut.Batch.Tables {
		for i := range d.Parts.Schema.Shape().Relations {
			if err := d.layerTensors(b, l+1, i, d.Cut.Batch.Layer(l+1, i)); err != nil {
				return err
			}
		}
	}
	return d.probeTensors(b)
}

// degreeTensors adds the degrees for GCN's normalization, if they are known.
func (d *Drawn) degreeTensors(b *Batch) error {
	degrees, loops, ok := d.Cut.Batch.Degrees()
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

// tableTensors adds the rows of a level, and for a hidden level the computed rows and the hits.
func (d *Drawn) tableTensors(b *Batch, l int, table *history.Table) error {
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
func (d *Drawn) probeTensors(b *Batch) error {
	for l, found := range d.Cut.Probes() {
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
func (d *Drawn) layerTensors(b *Batch, number, relation int, layer *history.Layer) error {
	prefix := d.Parts.Schema.EdgeName(relation, "history_")
	name := func(part string) string { return fmt.Sprintf("%s%s_%d", prefix, part, number) }
	if err := b.addCounts(name("ptr"), layer.Ptr); err != nil {
		return err
	}
	if _, err := addEdgeIndex(b, name("edge_index"), layer.Source, layer.Ptr); err != nil {
		return err
	}
	if err := b.addNarrow(name("edge"), layer.Edge); err != nil {
		return err
	}
	// Only the number of its nodes counts.
	g := sample.Subgraph{Nodes: d.Graph.Nodes[:layer.NumSrc], Ptr: layer.Ptr, Row: draw.Unsigned(layer.Source)}
	return d.transposeGraph(b, &g, prefix, fmt.Sprint("_", number))
}
