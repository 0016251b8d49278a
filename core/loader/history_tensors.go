package loader

import (
	"fmt"

	"freshgo/core/history"
	"freshgo/core/sample"
)

// levelTensors adds the level tables of a pruned batch: what the model computes,
// layer by layer, and where the rest is. See Batch.
func (p *preparer) levelTensors(b *Batch) error {
	out, h := &p.out, p.loader.past
	counts, err := p.add(b, "history_counts", 4)
	if err != nil {
		return err
	}
	copy(counts, []int64{h.first + b.Index, int64(len(out.Loaded)), out.PlainNodes, out.PlainEdges})
	if err := p.addNarrow(b, "history_degree", out.Degree); err != nil {
		return err
	}
	if len(p.loops) > 0 {
		if err := p.addNarrow(b, "history_loops", p.loops); err != nil {
			return err
		}
	}
	for l := range out.Levels {
		level := &out.Levels[l]
		if err := p.addNarrow(b, fmt.Sprintf("history_nodes_%d", l), level.Nodes); err != nil {
			return err
		}
		if l == 0 {
			continue
		}
		if err := p.tableTensors(b, l, level); err != nil {
			return err
		}
	}
	for l := range out.Layers {
		if err := p.layerTensors(b, l+1, &out.Layers[l]); err != nil {
			return err
		}
	}
	return p.probeTensors(b)
}

// tableTensors adds what of a hidden level is computed, and what is kept.
func (p *preparer) tableTensors(b *Batch, l int, level *history.Level) error {
	for _, part := range []struct {
		name   string
		values []int32
	}{{"computed", level.Computed}, {"hit", level.Hits}, {"slot", level.Slots}} {
		if err := p.addNarrow(b, fmt.Sprintf("history_%s_%d", part.name, l), part.values); err != nil {
			return err
		}
	}
	return nil
}

// probeTensors adds the rows that are compared, of a batch that was left whole.
func (p *preparer) probeTensors(b *Batch) error {
	for l, found := range p.pruning.probes {
		for _, part := range []struct {
			name   string
			values []int64
		}{{"probe", found.rows}, {"probe_slot", found.slots}, {"probe_age", found.ages}} {
			data, err := p.add(b, fmt.Sprintf("history_%s_%d", part.name, l+1), int64(len(part.values)))
			if err != nil {
				return err
			}
			copy(data, part.values)
		}
	}
	return nil
}

func (p *preparer) layerTensors(b *Batch, number int, layer *history.Layer) error {
	edges := int64(len(layer.Source))
	ptr, err := p.add(b, fmt.Sprintf("history_ptr_%d", number), int64(len(layer.Ptr)))
	if err != nil {
		return err
	}
	copy(ptr, layer.Ptr)
	index, err := p.add(b, fmt.Sprintf("history_edge_index_%d", number), 2, edges)
	if err != nil {
		return err
	}
	fillEdgeIndex(index, layer.Source, ptr)
	if err := p.addNarrow(b, fmt.Sprintf("history_edge_%d", number), layer.Edge); err != nil {
		return err
	}
	g := sample.Subgraph{Nodes: p.batch.Nodes[:layer.NumSrc], Ptr: layer.Ptr, Row: unsigned(layer.Source)}
	return p.transposeGraph(b, &g, "history_", fmt.Sprint("_", number))
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

// HistoryTensors is how many tensors a history adds to a batch at most.
func (l *Loader) HistoryTensors() int {
	types, hops := l.parts.types, l.options.hops()
	switch {
	case l.past == nil:
		return 0
	case !types.unnamed():
		return 1 + (7+(3+len(TransposedNames))*len(types.relations))*hops
	}
	return 3 + (10+len(TransposedNames))*hops
}

// levelBytes is what those of the batch at hand take.
func (p *preparer) levelBytes() int64 {
	out, transposed := &p.out, p.loader.parts.transposed
	if p.types != nil {
		return p.types.levelBytes(out, transposed)
	}
	total := int64(len(out.Degree)) * 16
	for l := range out.Levels {
		level := &out.Levels[l]
		total += 8 * int64(len(level.Nodes)+len(level.Computed)+2*len(level.Hits))
	}
	for l := range out.Layers {
		total += 8 * int64(len(out.Layers[l].Ptr)+3*len(out.Layers[l].Edge))
		if transposed {
			total += transposedBytes(out.Layers[l].NumSrc, int64(len(out.Layers[l].Edge)))
		}
	}
	return total
}
