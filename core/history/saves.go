package history

import "fmt"

// Saves estimates the reads of rows that the entry of each computed row would save in a batch like this one:
// saves[l-1][i] for output i of hidden layer l, 1 <= l < L, with as many elements as Levels[l].Computed. FreshGNN says
// only that an estimate of the saving should rank the entries; this estimate is ours.
//
// Loading row r of level 0 costs cost(its node): 1, or 0 if its type has no features. The load is saved if no row that
// uses r is computed. A row of level l-1 with u computed users (each edge counts, and each target's own row)
// contributes its cost * h^(u-1) to each of them: the expected saving if this user is a hit and each other user is one
// with probability h, the hit rate of the level's rows in this batch. The sum of these is the cost of the computed row
// in the next level; a hit costs nothing.
//
// While hits are few, only what a row alone needs counts, which never exceeds the true saving; an entry's neighbours
// count as hits become frequent. Rejected: equal shares, cost/u, which assume that all u become hits.
//
// It returns mem.ErrBudget if the budget has no room for it.
//
// It takes two passes over the edges of the hidden layers, each with a random access to 4 bytes per row.
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
