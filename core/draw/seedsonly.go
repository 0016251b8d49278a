package draw

import (
	"fmt"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Batches that the consumer draws, as a device does: a batch of an epoch is its seeds, without edges, and the keys of
// its draws. The consumer has the neighbour lists (ReadList, ListsOf), draws the batch that a Worker draws by these
// keys, pads it to the envelope, and reads all rows by id. Batches on demand and traces are drawn here.

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

// CheckSeedsOnly returns an error unless the memory is divided so that all that the consumer needs is in memory.
func CheckSeedsOnly(m *Sampling, g *sizing.Graph) error {
	switch split := &m.Split; {
	case !m.Options.SeedsOnly:
		return nil
	case !split.HoldsLists(g):
		return undrawn("needs all neighbour lists, and the numbers of edges, in memory, and memory= has no room for them")
	case !split.HoldsWeights(g):
		return undrawn("needs all weights in memory, and memory= has no room for them")
	default:
		return checkReadable(m, func(i int) bool { return split.HoldsTensor(g, i) })
	}
}

// CheckLocked returns an error unless the consumer reads the rows of all tensors.
func CheckLocked(m *Sampling) error {
	if !m.Options.SeedsOnly {
		return nil
	}
	return checkReadable(m, func(i int) bool { return m.Parts.Tensors[i].ByID })
}

func checkReadable(m *Sampling, readable func(tensor int) bool) error {
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; m.Parts.Reaches(t) && !readable(i) {
			return undrawn(fmt.Sprintf("needs all tensors in memory that the device reads, and %q is not", t.Name))
		}
	}
	return nil
}

// Lists that ReadList copies.
const (
	ListPtr = iota
	ListPositive
)

// StoredList is a list in the memory of the sampling.
type StoredList struct {
	Data []byte
	Bits int // of an element: 32 or 64, of ids also as many as core/packed gives them; 0 where there is no list
}

// StoredLists holds the stored lists of a relation.
type StoredLists struct {
	Source      StoredList
	Edge        StoredList // none where edges have no numbers in a batch, or their positions for numbers
	Weight, Sum StoredList // none where edges are drawn without weights
}

// All returns the lists, those that are none too.
func (l *StoredLists) All() []StoredList { return []StoredList{l.Source, l.Edge, l.Weight, l.Sum} }

// relationOf checks the number of a relation whose lists are read.
func relationOf(m *Sampling, relation int) (*Relation, error) {
	if !m.Options.SeedsOnly {
		return nil, fmt.Errorf("%w: lists are for loaders with seeds_only", ErrOption)
	}
	relations := m.Parts.Schema.Relations
	if relation < 0 || relation >= len(relations) {
		return nil, fmt.Errorf("%w: relation %d, expected 0 to %d", ErrOption, relation, len(relations)-1)
	}
	return &relations[relation], nil
}

// weightsIn returns the weights of a relation, nil where edges are drawn uniformly.
func weightsIn(m *Sampling, relation int) *sample.Weights {
	if len(m.DrawnBy) == 0 {
		return nil
	}
	return m.DrawnBy[relation]
}

// ReadList copies a part of ListPtr or ListPositive of a relation. It returns false, and copies nothing, where edges
// are drawn without weights, or all have weights above 0.
func ReadList(m *Sampling, relation, list int, first int64, out []int64) (there bool, err error) {
	r, err := relationOf(m, relation)
	if err != nil {
		return false, err
	}
	nodes, size := r.Indptr.NumNodes(), r.Indptr.NumNodes()
	switch list {
	case ListPtr:
		size++
	case ListPositive:
	default:
		return false, fmt.Errorf("%w: list %d, expected %d or %d", ErrOption, list, ListPtr, ListPositive)
	}
	if first < 0 || first > size || int64(len(out)) > size-first {
		return false, fmt.Errorf("%w: %d elements of list %d from %d on, expected a part of 0 to %d",
			ErrOption, len(out), list, first, size)
	}
	if list == ListPositive {
		w := weightsIn(m, relation)
		if w == nil || w.Positive {
			return false, nil
		}
		countPositive(w, r, first, out)
		return true, nil
	}
	for i := range out {
		out[i] = r.NumEdges
		if v := first + int64(i); v < nodes {
			out[i] = r.Indptr.Begin(v)
		}
	}
	return true, nil
}

// countPositive sets out to the number of in-edges with a weight above 0 of each node from first on.
func countPositive(w *sample.Weights, r *Relation, first int64, out []int64) {
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

// ListsOf returns the stored lists of a relation.
func ListsOf(m *Sampling, relation int) (of StoredLists, err error) {
	r, err := relationOf(m, relation)
	if err != nil {
		return of, err
	}
	if of.Source.Data, of.Source.Bits = r.Neighbors.Memory(); of.Source.Bits == 0 { // no edges
		of.Source.Bits = 32
	}
	if !r.unnumbered {
		of.Edge.Data, of.Edge.Bits = r.EdgeIDs.Memory()
	}
	if w := weightsIn(m, relation); w != nil {
		of.Sum = StoredList{mem.Bytes(w.Sums), 64}
		if w.Narrow != nil {
			of.Weight = StoredList{mem.Bytes(w.Narrow), 32}
		} else {
			of.Weight = StoredList{mem.Bytes(w.Wide), 64}
		}
	}
	return of, nil
}
