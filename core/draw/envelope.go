package draw

import (
	"context"
	"fmt"
	"math"
	"slices"

	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Envelope holds the sizes that Options.Pad pads batches to: for each node type the nodes of each hop, the seeds first,
// then for each relation the edges of each hop, as sample.Subgraph counts them. A cell without edges stays without.
type Envelope []int64

const (
	// envelopeBatches is the number of batches that an envelope is learned from. On a graph of a million nodes with skewed
	// degrees, 0.15 % of the batches of 1024 with [15,10,5] exceed the envelope of 16 batches, which is 9 % larger than
	// the mean; of the envelope of 8 batches, 1 %. A margin of 1.5 % alone leaves 32 %. The deviation falls with the root
	// of the batch size, so the envelope of small batches is wider, and as safe. Neither rows nor memory enter: at 10^8
	// nodes, opening samples 16 batches, and reads their lists where these are on disk.
	envelopeBatches = 16
	// envelopeSpread is the number of standard deviations above the mean that batches fit into, and envelopeMargin the
	// least share of the mean that the envelope adds to it.
	envelopeSpread, envelopeMargin = 4, 0.015
)

// Nodes returns the nodes of each hop, type after type.
func (e Envelope) Nodes(s *Schema) []int64 { return e[:s.NumTypes()*(s.Hops+1)] }

// Edges returns the edges of each hop, relation after relation.
func (e Envelope) Edges(s *Schema) []int64 { return e[s.NumTypes()*(s.Hops+1):] }

// Spares returns by node type and hop whether a padded batch needs a node there that pads: padding edges lead from a
// node found in their hop to a node found in the hop before.
func (e Envelope) Spares(s *Schema) []int64 {
	spares := make([]int64, len(e.Nodes(s)))
	for i, r := range s.Edges {
		for hop, n := range e.Edges(s)[i*s.Hops : (i+1)*s.Hops] {
			if n > 0 {
				spares[r.Target*(s.Hops+1)+hop], spares[r.Source*(s.Hops+1)+hop+1] = 1, 1
			}
		}
	}
	return spares
}

// validatePad returns an error for options that padding does not go with, and for an envelope that cannot be one.
func validatePad(m *Sampling) error {
	o, s := &m.Options, m.Parts.Schema
	if !o.Pad {
		return nil
	}
	for option, given := range map[string]bool{
		"subgraph_type": o.Subgraph != sample.Directional, "disjoint": o.Trees(), "history": o.History != nil,
		"held": o.Held != nil, "tables": len(o.Tables) > 0,
	} {
		if given {
			return fmt.Errorf("%w: pad cannot be used with %s", ErrOption, option)
		}
	}
	nodes, edges := s.NumTypes()*(s.Hops+1), len(s.Edges)*s.Hops
	if o.Envelope != nil && len(o.Envelope) != nodes+edges {
		return fmt.Errorf("%w: envelope has %d sizes, expected %d of nodes and %d of edges",
			ErrOption, len(o.Envelope), nodes, edges)
	}
	for i, n := range o.Envelope {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%w: envelope[%d] is %d, expected a size in [0, 2^31)", ErrOption, i, n)
		}
	}
	return nil
}

// LearnEnvelope sets the envelope of padded batches, unless it is given, from batches spread over the first epoch, or
// over the first epochs where one has few. It depends on what batches depend on, and on nothing else.
func LearnEnvelope(ctx context.Context, m *Sampling) error {
	if o := &m.Options; !o.Pad || o.Envelope != nil {
		o.Envelope = slices.Clone(o.Envelope) // the figures of a closed loader have it
		return nil
	}
	worker, err := m.Lease(ctx)
	if err != nil {
		return err
	}
	defer m.GiveBack(worker)
	var of moments
	var order *SeedOrder
	var r Request
	full := max(1, m.Seeds.Count()/m.Options.BatchSize) // a last batch that is not full is smaller than the others
	for n := range int64(envelopeBatches) {
		epoch, i := n/full, n%full
		if full >= envelopeBatches {
			epoch, i = 0, n*full/envelopeBatches
		}
		if key := m.EpochKey(epoch); order == nil || order.Key != key {
			if order != nil {
				order.Free()
			}
			if order, err = m.NewSeedOrder(ctx, key); err != nil {
				return err
			}
		}
		var g sample.Subgraph
		if err = order.Batch(ctx, i, &r); err == nil {
			err = m.Draw(ctx, worker, order.BatchKey(i), &r, &g)
		}
		if err != nil {
			order.Free()
			return fmt.Errorf("loader: learning the sizes of batches: %w", err)
		}
		of.add(g.NodesPerHop, g.EdgesPerHop)
	}
	order.Free()
	m.Options.Envelope = of.envelope(m.Parts.Schema, MaxDemand(m))
	return nil
}

// moments sums the sizes of batches, and their squares.
type moments struct {
	count        float64
	sums, square []float64
}

func (of *moments) add(sizes ...[]int64) {
	of.count++
	at := 0
	for _, part := range sizes {
		for _, n := range part {
			if at == len(of.sums) {
				of.sums, of.square = append(of.sums, 0), append(of.square, 0)
			}
			of.sums[at] += float64(n)
			of.square[at] += float64(n) * float64(n)
			at++
		}
	}
}

// envelope returns the sizes that all but a few batches fit into, with room for the nodes that padding needs. No batch
// has more edges than most.
func (of *moments) envelope(s *Schema, most sizing.Demand) Envelope {
	e := make(Envelope, len(of.sums))
	for i, sum := range of.sums {
		mean := sum / of.count
		variance := max(0, of.square[i]-sum*mean) / max(1, of.count-1)
		if sum > 0 {
			e[i] = int64(math.Ceil(mean + max(envelopeMargin*mean, envelopeSpread*math.Sqrt(variance))))
		}
	}
	for i := range e.Edges(s) {
		e.Edges(s)[i] = min(e.Edges(s)[i], most.EdgesPerHop[i])
	}
	for i, n := range e.Spares(s) {
		e[i] += n
	}
	return e
}
