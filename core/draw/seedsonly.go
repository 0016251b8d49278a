package draw

import (
	"fmt"

	"freshgo/core/sample"
)

// Batches that the consumer draws, as a device does: a batch of an epoch is its seeds, without edges, and the key of
// its draws. The consumer has the neighbour lists (ReadList), draws the batch that a Worker draws by this key, and
// reads all rows by id. Whatever else is drawn, for batches on demand and for traces, is drawn here.

// KeyName is the tensor that Options.SeedsOnly adds to a batch: int64 [1], the bits of sample.Key.Stream.
const KeyName = "fg/key"

// drawnElsewhere are the capabilities of a consumer that draws.
const drawnElsewhere = sample.CanReplace | sample.CanTranspose | sample.CanAggregate | sample.CanExpected

// validateSeedsOnly returns an error for options that a consumer does not draw by, and for tensors whose rows it does
// not read.
func validateSeedsOnly(m *Sampling) error {
	o := &m.Options
	if !o.SeedsOnly {
		return nil
	}
	if asked := o.asks(m.Parts.Schema) &^ drawnElsewhere; asked != 0 {
		return undrawn("draws uniformly, in a graph without types: it cannot be used with " + asked.String())
	}
	for option, given := range map[string]bool{
		"neighbor_sampler": o.Sampler != nil, "pad=True": o.Pad, "device_cache": o.Held != nil,
	} {
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
	r := &m.Parts.Schema.Relations[0]
	if r.Neighbors.OnDisk() || r.EdgeIDs.OnDisk() {
		return undrawn("needs all neighbour lists, and the numbers of edges, in memory, and memory= has no room for them")
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

// ReadList copies a part of a list of the only relation. It returns false, and copies nothing, where edges have their
// positions for numbers.
func ReadList(m *Sampling, list int, first int64, out []int64) (there bool, err error) {
	if !m.Options.SeedsOnly {
		return false, fmt.Errorf("%w: lists are for loaders with seeds_only", ErrOption)
	}
	r := &m.Parts.Schema.Relations[0]
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
