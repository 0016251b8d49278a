package history

import "fmt"

// Saves estimates how many reads of rows the entry of each computed row would have saved, had it been a hit in this batch:
// saves[l-1][i] for output i of hidden layer l, 1 <= l < L, with as many elements as Levels[l].Computed.
//
// Loading row r of level 0 costs cost(its node): 1, or 0 where a cache has it. A row's cost is shared in equal parts among
// its uses by the layer above: each edge, and each target's own. What a computed row is given is the cost of the row in the
// next level; a hit costs nothing. So the saves of a layer sum up to no more than the rows loaded (FreshGNN says only that
// an estimate of the saving should rank the entries; the rule is ours).
//
// It fails with mem.ErrBudget.
//
// Cost: two passes over the edges of the hidden layers, with a random access each to 4 bytes by row.
func (p *Pruner) Saves(out *Pruned, cost func(node int64) float32, saves [][]float32) error {
	layers := len(out.Layers)
	if len(saves) != layers-1 {
		panic(fmt.Sprintf("history: saves for %d layers, want %d", len(saves), layers-1))
	}
	if layers == 1 {
		return nil
	}
	rows := int64(len(out.Levels[0].Nodes))
	for l := range out.Levels {
		rows = max(rows, int64(len(out.Levels[l].Nodes)))
	}
	if err := p.arena.begin(p.budget, 2*pieceBytes(rows, 4)); err != nil {
		return fmt.Errorf("history: scratch for the saves of a batch: %w", err)
	}
	value, uses := take[float32](&p.arena, rows), take[uint32](&p.arena, rows)
	for i, v := range out.Levels[0].Nodes {
		value[i] = cost(out.Graph.Nodes[v])
	}
	for l := 1; l < layers; l++ {
		layer, level := &out.Layers[l-1], &out.Levels[l]
		if len(saves[l-1]) != len(level.Computed) {
			panic(fmt.Sprintf("history: room for %d saves of layer %d, want %d", len(saves[l-1]), l, len(level.Computed)))
		}
		share(layer, value[:layer.NumSrc], uses[:layer.NumSrc], saves[l-1])
		clear(value[:len(level.Nodes)])
		for i, at := range level.Computed {
			value[at] = saves[l-1][i]
		}
	}
	return nil
}

// share divides the values of a layer's sources among its outputs. It leaves the parts in value.
func share(layer *Layer, value []float32, uses []uint32, outputs []float32) {
	for i := range uses {
		uses[i] = 0
		if int64(i) < layer.NumDst {
			uses[i] = 1
		}
	}
	for _, s := range layer.Source {
		uses[s]++
	}
	for i := range value {
		value[i] /= float32(uses[i])
	}
	for i := range outputs {
		total := value[i]
		for _, s := range layer.Source[layer.Ptr[i]:layer.Ptr[i+1]] {
			total += value[s]
		}
		outputs[i] = total
	}
}
