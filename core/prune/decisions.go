package prune

import (
	"fmt"
	"maps"

	"freshgo/core/history"
	"freshgo/core/sample"
)

// decisions holds the history, and its decisions for batches that are pruned and not yet updated.
type decisions struct {
	config   *Config
	state    *history.History
	waiting  map[int64]*decision // by iteration
	spare    []*decision
	restored map[int64]finding // of batches that were pruned already in the run whose state was restored
}

// decision holds the lookups of a batch between its pruning and its update.
type decision struct {
	layers  []history.Observed // nodes and estimated savings; the update adds the norms
	slots   [][]int32          // of the hits, or of the probes
	probes  []Probe            // of a batch that was left whole to compare; else none
	lookups *history.Lookups   // counted when the batch is handed over
}

// observe takes the norms of the rows that were decided on.
func (d *decision) observe(norms []Norms) error {
	if len(norms) != len(d.layers) {
		return fmt.Errorf("%w: norms are of %d hidden layers, expected %d", ErrCall, len(norms), len(d.layers))
	}
	for l, n := range norms {
		o := &d.layers[l]
		none := len(n.Computed) == 0 && len(n.Hits) == 0
		if !none && (len(n.Computed) != len(o.Nodes) || len(n.Hits) != 0 && len(n.Hits) != len(o.HitNodes)) {
			return fmt.Errorf("%w: layer %d has %d and %d norms, expected %d of computed rows and %d of hits", ErrCall,
				l+1, len(n.Computed), len(n.Hits), len(o.Nodes), len(o.HitNodes))
		}
		o.Norms, o.HitNorms = n.Computed, n.Hits
	}
	return nil
}

// newDecision returns one to fill in.
func (s *decisions) newDecision() *decision {
	if n := len(s.spare); n > 0 {
		d := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return d
	}
	layers := s.config.History.Layers
	return &decision{layers: make([]history.Observed, layers), slots: make([][]int32, layers)}
}

// forget ends a decision.
func (s *decisions) forget(i int64) {
	d := s.waiting[i]
	delete(s.waiting, i)
	s.state.Unpin(i)
	s.spare = append(s.spare, d)
}

// probes reports whether the batch of an iteration is left whole, to compare.
func (s *decisions) probes(i int64) bool {
	every := s.config.ProbeEvery
	return every > 0 && (i-s.config.History.Start)%every == every-1
}

// finds returns the slot in which the batch of iteration i finds a row: in a restored run, the slot where it had found
// it before.
func (s *decisions) finds(i int64, layer int, node int64) int32 {
	if of, restored := s.restored[i]; restored {
		return of.layers[layer-1].find(node)
	}
	return s.state.Find(i, layer, node)
}

// since returns the iteration that admitted a row found by a batch that is left whole.
func (s *decisions) since(i int64, layer int, node int64) int64 {
	if of, restored := s.restored[i]; restored {
		return of.layers[layer-1].since(node)
	}
	return s.state.Admission(layer, node)
}

// lookup returns the function that looks up the rows of the batch of iteration i, and the counts of its results.
func (s *decisions) lookup(i int64, seeds *sample.Subgraph, c *Cut) (history.Lookup, *history.Lookups) {
	lookups := history.NewLookups(s.config.History.Layers)
	of, restored := s.restored[i]
	switch {
	case s.probes(i):
		return history.Each(func(int, int64) int32 { return history.Miss }), lookups
	case restored:
		return history.Each(func(layer int, node int64) int32 { return s.finds(i, layer, node) }), of.lookups
	case s.config.History.Policy == history.All:
		c.takeSeeds(seeds.Nodes[:seeds.NodesPerHop[0]])
		return history.Each(func(layer int, node int64) int32 {
			slot := []int32{history.Miss}
			if !c.seeds[node] { // a batch renews its own nodes, or nothing ever would
				s.state.Lookup(i, layer, []int64{node}, slot, lookups)
			}
			return slot[0]
		}), lookups
	}
	return func(layer int, nodes []int64, slots []int32) { s.state.Lookup(i, layer, nodes, slots, lookups) }, lookups
}

// probe finds the entries of rows that a layer computes.
func (s *decisions) probe(i int64, layer int, level *history.Level, nodes []int64) (found Probe) {
	for k, node := range nodes {
		if slot := s.finds(i, layer, node); slot != history.Miss {
			found.Rows = append(found.Rows, int64(level.Computed[k]))
			found.Nodes = append(found.Nodes, node)
			found.Slots = append(found.Slots, int64(slot))
			found.Ages = append(found.Ages, i-s.since(i, layer, node))
		}
	}
	return found
}

// finding holds the rows found by a batch that is pruned and not handed over.
type finding struct {
	layers  []reliance
	lookups *history.Lookups
}

// reliance is the rows of a hidden layer that a pruned batch relies on: where it has found them, and of probes since
// when they are there.
type reliance struct {
	nodes    []int64
	slots    []int32
	admitted []int64 // of probes alone
	places   map[int64]int32
}

// find returns the slot of a node, or history.Miss.
func (r *reliance) find(node int64) int32 {
	if at, found := r.places[node]; found {
		return r.slots[at]
	}
	return history.Miss
}

// since returns the iteration at which a probe was admitted that find has found.
func (r *reliance) since(node int64) int64 { return r.admitted[r.places[node]] }

// ahead returns the rows found by batches that are pruned and not handed over: here, or before this run was restored.
func (s *decisions) ahead(given int64) map[int64]finding {
	all := maps.Clone(s.restored)
	if all == nil {
		all = map[int64]finding{}
	}
	for i, d := range s.waiting {
		if i < given {
			continue
		}
		of := make([]reliance, len(d.layers))
		for l := range of {
			// And nothing else: the savings may be being written.
			of[l] = reliance{nodes: d.layers[l].HitNodes, slots: d.slots[l]}
			if len(d.probes) > 0 {
				of[l].nodes = d.probes[l].Nodes
				for _, age := range d.probes[l].Ages {
					of[l].admitted = append(of[l].admitted, i-age)
				}
			}
		}
		all[i] = finding{of, d.lookups}
	}
	return all
}

// pinRestored checks that the history has the rows that batches pruned before rely on, and pins them for these batches.
func (s *decisions) pinRestored(saved map[int64]finding) error {
	for i, f := range saved {
		for l, r := range f.layers {
			for k, node := range r.nodes {
				if node < 0 || node >= s.config.History.NumNodes || !s.state.Pinnable(i, l+1, node, r.slots[k]) {
					return damaged("in which iteration %d finds node %d of layer %d in slot %d", i, node, l+1, r.slots[k])
				}
			}
			for _, admitted := range r.admitted {
				if admitted < 0 || admitted >= i {
					return damaged("in which iteration %d finds a row of iteration %d", i, admitted)
				}
			}
		}
	}
	s.restored = saved
	for i, f := range saved {
		for _, r := range f.layers {
			s.state.Pin(i, r.slots)
		}
	}
	return nil
}

// dropRestored drops the entries that batches relied on before this run was restored: they are pruned again, or never.
func (s *decisions) dropRestored() {
	for i := range s.restored {
		s.state.Unpin(i)
	}
	s.restored = nil
}
