package history

import "fmt"

// Saves estimates how many reads of rows the entry of each computed row would save in a batch like this one:
// saves[l-1][i] for output i of hidden layer l, 1 <= l < L, with as many elements as Levels[l].Computed. FreshGNN says
// only that an estimate of the saving should rank the entries; this one is ours.
//
// Loading row r of level 0 costs cost(its node): 1, or 0 where its type has no features. It is saved when no row that
// uses it is computed. A row of level l-1 that u computed rows use (each edge counts, and each target's own row) so
// gives each of them its cost * h^(u-1): that much less is read if this one is a hit and each of the others is one with
// chance h, the share of the level's rows that history gave in this batch. What a computed row is given is its cost in
// the next level; a hit costs nothing.
//
// While there are few hits, only what a row needs for itself counts, which is never more than is saved; an entry's
// neighbours count as hits become frequent. Rejected: equal shares, cost/u, which expect that all u become hits.
//
// It fails with mem.ErrBudget.
//
// Cost: two passes over the edges of the hidden layers, with a random access each to 4 bytes by row.
func (p *Pruner) Saves(out *Pruned, cost func(node int64) float32, saves [][]float32) error {
	layers := len(out.Layers)
	if len(saves) != layers-1 {
		panic(fmt.Sprintf("history: saves for %d layers, expected %d", len(saves), layers-1))
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
			panic(fmt.Sprintf("history: room for %d saves of layer %d, expected %d", len(saves[l-1]), l, len(level.Computed)))
		}
		share(layer, value[:layer.NumSrc], uses[:layer.NumSrc], saves[l-1],
			float64(len(level.Hits))/float64(len(level.Nodes)))
		clear(value[:len(level.Nodes)])
		for i, at := range level.Computed {
			value[at] = saves[l-1][i]
		}
	}
	return nil
}

// mostUses bounds the powers of the chance: with 255 other uses it makes no difference whether one more is a hit.
const mostUses = 256

// share gives the values of a layer's sources to its outputs: each the part that it saves as a hit, as all others are
// with a chance. It leaves the parts in value.
func share(layer *Layer, value []float32, uses []uint32, outputs []float32, chance float64) {
	for i := range uses {
		uses[i] = 0
		if int64(i) < layer.NumDst {
			uses[i] = 1
		}
	}
	for _, s := range layer.Source {
		uses[s]++
	}
	var part [mostUses]float32 // by the number of other uses
	for i, x := 0, 1.0; i < mostUses; i, x = i+1, x*chance {
		part[i] = float32(x)
	}
	for i := range value {
		value[i] *= part[min(uses[i], mostUses)-1]
	}
	for i := range outputs {
		total := value[i]
		for _, s := range layer.Source[layer.Ptr[i]:layer.Ptr[i+1]] {
			total += value[s]
		}
		outputs[i] = total
	}
}
