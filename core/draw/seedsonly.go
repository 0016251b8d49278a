package draw

import (
	"fmt"

	"freshgo/core/sample"
)

// Batches that the consumer draws, as a device does: a batch of an epoch is its seeds, without edges, and the keys of
// its draws. The consumer has the neighbour lists (ReadList), draws the batch that a Worker draws by these keys, pads
// it to the envelope, and reads all rows by id. Batches on demand and traces are drawn here.

// KeyName is the tensor that Options.SeedsOnly adds to a batch: int64 [relations], see Keys.
const KeyName = "fg/key"

// drawnElsewhere are the capabilities of a consumer that draws.
const drawnElsewhere = sample.CanTypes | sample.CanReplace | sample.CanTranspose | sample.CanAggregate |
	sample.CanExpected

// Keys returns the bits of sample.Key.Stream of each relation.
func Keys(s *Schema, batch sample.Key) []int64 {
	keys := make([]int64, len(s.Relations))
	for i := range keys {
		keys[i] = int64(batch.Of(i, !s.Homogeneous()).Stream())
	}
	return keys
}

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
		return undrawn("draws uniformly: it cannot be used with " + asked.String())
	}
	for option, given := range map[string]bool{"neighbor_sampler": o.Sampler != nil, "device_cache": o.Held != nil} {
		if given {
			return undrawn("cannot be used with " + option)
		}
	}
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; t.ByEdge {
			return undrawn(fmt.Sprintf("brings no rows of edges, and the graph has %q", t.Name))
		}
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
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; !t.ByID && m.Parts.Reaches(t) {
			return undrawn(fmt.Sprintf("needs all tensors of nodes in memory that the device reads, and %q is not", t.Name))
		}
	}
	return nil
}

// Lists of a relation, see ReadList.
const (
	ListPtr = iota
	ListSource
	ListEdge
)

// ReadList copies a part of a list of a relation. It returns false, and copies nothing, where edges have their
// positions for numbers.
func ReadList(m *Sampling, relation, list int, first int64, out []int64) (there bool, err error) {
	if !m.Options.SeedsOnly {
		return false, fmt.Errorf("%w: lists are for loaders with seeds_only", ErrOption)
	}
	relations := m.Parts.Schema.Relations
	if relation < 0 || relation >= len(relations) {
		return false, fmt.Errorf("%w: relation %d, expected 0 to %d", ErrOption, relation, len(relations)-1)
	}
	r := &relations[relation]
	size := r.NumEdges
	if list == ListPtr {
		size = r.Indptr.NumNodes() + 1
	}
	if list < ListPtr || list > ListEdge || first < 0 || first > size || int64(len(out)) > size-first {
		return false, fmt.Errorf("%w: %d elements of list %d from %d on, expected a part of 0 to %d",
			ErrOption, len(out), list, first, size)
	}
	switch list {
	case ListPtr:
		for i := range out {
			out[i] = r.NumEdges
			if v := first + int64(i); v < size-1 {
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
	}
	return true, nil
}
