package prune

import (
	"context"
	"iter"

	"freshgo/core/history"
	"freshgo/core/internal/reuse"
	"freshgo/core/sample"
)

// Cut prunes one batch at a time, from Prune to Estimate. It belongs to the preparer of the batch. The zero value
// serves a loader that prunes nothing.
type Cut struct {
	Batch *history.Batch // the current batch, if it is pruned

	pruner *Pruner
	on     bool // whether the current batch is pruned
	i      int64
	probes []Probe
	places []int32
	saves  [][]float32
	seeds  map[int64]bool
}

// Probe is the computed rows of a hidden layer that the history has as well, of a batch that was left whole to compare
// them: the rows, their nodes, their slots in the buffer and their ages.
type Probe struct{ Rows, Nodes, Slots, Ages []int64 }

// Prune waits until it is the turn of the epoch's batch with an index, and decides which of its rows the history
// replaces. The batch must stay as it is. Then it calls inTurn, before any batch after this one has its turn. It
// returns ErrStopped when the epoch stops or ctx ends, and the errors of history.Batch.
func (c *Cut) Prune(ctx context.Context, index int64, drawn *sample.Subgraph, numSeeds int64, inTurn func()) error {
	h := c.pruner
	c.begin(index)
	if c.on {
		c.Batch.Merge(drawn) // before the turn, and so that a panic finds the lock free
	}
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	if h.turns.awaitTurn(ctx, index) != nil {
		return ErrStopped
	}
	if c.on {
		if err := c.decide(numSeeds); err != nil {
			return err
		}
	}
	inTurn()
	h.turns.next++
	h.turns.wake()
	return nil
}

// begin sets the current batch, and whether it is pruned. All batches of an epoch are pruned, or none.
func (c *Cut) begin(index int64) {
	h := c.pruner
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	c.i = h.turns.first + index
	c.on = h.prunes(c.i)
}

// On reports whether the current batch is pruned.
func (c *Cut) On() bool { return c.on }

// Iteration returns the iteration of the current batch.
func (c *Cut) Iteration() int64 { return c.i }

// Probes returns the rows of each hidden layer to compare; none of a batch that is not left whole.
func (c *Cut) Probes() []Probe { return c.probes }

// decide finds the rows of the batch in the history, pins them and records the input of the update.
func (c *Cut) decide(numSeeds int64) error {
	h, i, g := c.pruner, c.i, c.Batch.Merged()
	if _, restored := h.decided.restored[i]; restored {
		h.decided.state.Unpin(i)
	}
	probing := h.decided.probes(i)
	lookup, lookups := h.decided.lookup(i, g, c)
	if err := c.Batch.Decide(numSeeds, lookup); err != nil {
		return err
	}
	c.probes = c.probes[:0]
	d := h.decided.newDecision()
	d.lookups = lookups
	for l := range d.layers {
		level, o := &c.Batch.Tables[l+1].Level, &d.layers[l]
		o.Nodes, o.HitNodes = o.Nodes[:0], o.HitNodes[:0]
		for _, at := range level.Computed {
			o.Nodes = append(o.Nodes, g.Nodes[level.Nodes[at]])
		}
		for _, at := range level.Hits {
			o.HitNodes = append(o.HitNodes, g.Nodes[level.Nodes[at]])
		}
		d.slots[l] = append(d.slots[l][:0], level.Slots...)
		if probing {
			c.probes = append(c.probes, h.decided.probe(i, l+1, level, o.Nodes))
			d.slots[l] = narrow(d.slots[l], c.probes[l].Slots)
		}
		h.decided.state.Pin(i, d.slots[l])
	}
	delete(h.decided.restored, i)
	d.probes = append(d.probes[:0], c.probes...)
	h.decided.waiting[i] = d
	return nil
}

// takeSeeds makes the set of a batch's seeds.
func (c *Cut) takeSeeds(seeds []int64) {
	if c.seeds == nil {
		c.seeds = make(map[int64]bool, len(seeds))
	}
	clear(c.seeds)
	for _, v := range seeds {
		c.seeds[v] = true
	}
}

func narrow(dst []int32, src []int64) []int32 {
	dst = dst[:0]
	for _, v := range src {
		dst = append(dst, int32(v))
	}
	return dst
}

// Build returns the rest of the current batch after Prune, and the position of each drawn node in it, or -1 if its
// features are not read. For a batch that is not pruned it returns the batch and nil.
func (c *Cut) Build(drawn *sample.Subgraph) (left *sample.Subgraph, places []int32) {
	if !c.on {
		return drawn, nil
	}
	c.Batch.Build()
	c.places = reuse.Slice(c.places, len(drawn.Nodes))
	c.Batch.Places(c.places)
	return c.Batch.Graph(), c.places
}

// NumLoaded returns how many of the current batch's nodes, whose number is given, have their features read.
func (c *Cut) NumLoaded(nodes int) int {
	if !c.on {
		return nodes
	}
	return len(c.Batch.Loaded())
}

// LoadedRuns yields ranges of the rows that are read in a node type's tensors, from and to, ascending: all rows for a
// batch that is not pruned.
func (c *Cut) LoadedRuns(typ, rows int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		if !c.on {
			yield(0, rows)
			return
		}
		loaded, first := c.Batch.LoadedOf(typ)
		for len(loaded) > 0 {
			n := 1
			for n < len(loaded) && loaded[n] == loaded[0]+int32(n) {
				n++
			}
			from := int(loaded[0] - first)
			if !yield(from, from+n) {
				return
			}
			loaded = loaded[n:]
		}
	}
}

// LevelBytes returns the memory of the level tables of the current batch.
func (c *Cut) LevelBytes(transposed bool) int64 {
	if !c.on {
		return 0
	}
	return c.Batch.LevelBytes(transposed)
}

// Estimate computes the savings of each new embedding of the current batch for the update, if the history's policy uses
// them. cost is the cost of loading a node's rows, by its global number.
func (c *Cut) Estimate(cost func(node int64) float32) error {
	h := c.pruner
	if h.config.History.Policy != history.Performance {
		return nil
	}
	h.turns.mu.Lock()
	d := h.decided.waiting[c.i]
	h.turns.mu.Unlock()
	if d == nil {
		return ErrStopped
	}
	c.saves = c.saves[:0]
	for l := range d.layers {
		o := &d.layers[l]
		o.Saves = reuse.Slice(o.Saves, len(o.Nodes))
		c.saves = append(c.saves, o.Saves)
	}
	return c.Batch.Saves(cost, c.saves)
}
