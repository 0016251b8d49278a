package draw

import (
	"fmt"
	"math"

	"freshgo/core/sample"
)

// Batches that the consumer draws, as a device does: a batch of an epoch is its seeds, without edges, and the keys of
// its draws. The consumer has the neighbour lists (ReadList), draws the batch that a Worker draws by these keys, pads
// it to the envelope, and reads all rows by id. Batches on demand and traces are drawn here.

// KeyName is the tensor that Options.SeedsOnly adds to a batch: the bits of sample.Sampler.HopKeys and the number
// of the batch.
const KeyName = "fg/key"

// drawnElsewhere are the capabilities of a consumer that draws.
const drawnElsewhere = sample.CanWeights | sample.CanTypes | sample.CanReplace | sample.CanTranspose |
	sample.CanAggregate | sample.CanExpected

// OnlySeeds sets g to the seeds of a batch, without edges. It uses g's memory again.
func OnlySeeds(s *Schema, g *sample.Subgraph, seeds []int64) {
	*g = sample.Subgraph{Nodes: g.Nodes[:0], Ptr: g.Ptr[:0]}
	g.NodesPerHop, g.EdgesPerHop = make([]int64, s.NumTypes()*(s.Hops+1)), make([]int64, len(s.Edges)*s.Hops)
	for t := range s.NumTypes() {
		before := len(g.Nodes)
		for _, v := range seeds {
			if s.First[t] <= v && v < s.First[t+1] {
				g.Nodes = append(g.Nodes, v)
			}
		}
		g.NodesPerHop[t*(s.Hops+1)] = int64(len(g.Nodes) - before)
	}
	for _, r := range s.Edges {
		for range 1 + Sum(s.NodesPerHop(g, r.Target)[:s.Hops]) {
			g.Ptr = append(g.Ptr, 0)
		}
	}
}

// validateSeedsOnly returns an error for options that a consumer does not draw by, and for tensors whose rows it does
// not read.
func validateSeedsOnly(m *Sampling) error {
	o := &m.Options
	if !o.SeedsOnly {
		return nil
	}
	if asked := o.asks(m.Parts.Schema) &^ drawnElsewhere; asked != 0 {
		return undrawn("cannot be used with " + asked.String())
	}
	if o.Held != nil {
		return undrawn("cannot be used with device_cache")
	}
	return nil
}

func undrawn(why string) error {
	return fmt.Errorf("%w: sample_on=\"device\" %s: use sample_on=\"cpu\"", ErrOption, why)
}

// CheckSeedsOnly returns an error unless the consumer can read all that it needs in memory.
func CheckSeedsOnly(m *Sampling) error {
	if !m.Options.SeedsOnly {
		return nil
	}
	for _, r := range m.Parts.Schema.Relations {
		if r.Neighbors.OnDisk() || r.EdgeIDs.OnDisk() {
			return undrawn("needs all neighbour lists, and the numbers of edges, in memory, and memory= has no room for them")
		}
	}
	for _, w := range m.DrawnBy {
		if w != nil && w.Source != nil {
			return undrawn("needs all weights in memory, and memory= has no room for them")
		}
	}
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; !t.ByID && m.Parts.Reaches(t) {
			return undrawn(fmt.Sprintf("needs all tensors in memory that the device reads, and %q is not", t.Name))
		}
	}
	return nil
}

// Lists of a relation, see ReadList.
const (
	ListPtr = iota
	ListSource
	ListEdge
	ListWeight
	ListSum
	ListPositive
)

// ReadList copies a part of a list of a relation: weights and sums as the bits of float64. It returns false,
// and copies nothing, where edges have their positions for numbers, are drawn without weights, or all have weights
// above 0.
func ReadList(m *Sampling, relation, list int, first int64, out []int64) (there bool, err error) {
	if !m.Options.SeedsOnly {
		return false, fmt.Errorf("%w: lists are for loaders with seeds_only", ErrOption)
	}
	relations := m.Parts.Schema.Relations
	if relation < 0 || relation >= len(relations) {
		return false, fmt.Errorf("%w: relation %d, expected 0 to %d", ErrOption, relation, len(relations)-1)
	}
	if list < ListPtr || list > ListPositive {
		return false, fmt.Errorf("%w: list %d, expected 0 to %d", ErrOption, list, ListPositive)
	}
	r := &relations[relation]
	nodes := r.Indptr.NumNodes()
	size := []int64{nodes + 1, r.NumEdges, r.NumEdges, r.NumEdges, sample.SumsLen(r.NumEdges), nodes}[list]
	if first < 0 || first > size || int64(len(out)) > size-first {
		return false, fmt.Errorf("%w: %d elements of list %d from %d on, expected a part of 0 to %d",
			ErrOption, len(out), list, first, size)
	}
	switch list {
	case ListPtr:
		for i := range out {
			out[i] = r.NumEdges
			if v := first + int64(i); v < nodes {
				out[i] = r.Indptr.Begin(v)
			}
		}
	case ListSource:
		r.Neighbors.Read(first, out)
	case ListEdge:
		if r.EdgeIDs.Identity() {
			return false, nil
		}
		r.EdgeIDs.Read(first, out)
	default:
		if len(m.DrawnBy) == 0 || m.DrawnBy[relation] == nil {
			return false, nil
		}
		return readWeights(m.DrawnBy[relation], r, list, first, out), nil
	}
	return true, nil
}

// readWeights is ReadList for the lists of weights.
func readWeights(w *sample.Weights, r *Relation, list int, first int64, out []int64) bool {
	switch list {
	case ListWeight:
		for i := range out {
			out[i] = int64(math.Float64bits(w.At(first + int64(i))))
		}
	case ListSum:
		for i := range out {
			out[i] = int64(math.Float64bits(w.Sums[first+int64(i)]))
		}
	case ListPositive:
		if w.Positive {
			return false
		}
		for i := range out {
			begin, end := r.Indptr.Range(first + int64(i))
			out[i] = 0
			for p := begin; p < end; p++ {
				if w.At(p) > 0 {
					out[i]++
				}
			}
		}
	}
	return true
}
