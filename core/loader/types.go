package loader

import (
	"context"
	"fmt"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// Graphs with types. A source with types numbers the nodes of all types one after the other: node v of type t is first[t]+v. Rows, caches, policies, plans
// and traces know these numbers alone, as they know those of the nodes of a homogeneous graph; tensors know the type that their rows belong to, and the
// sampler draws flat batches (see core/sample). So types are the business of this file and the others named typed, and of the few places where a row
// number becomes a place in a file.

// schema is the types of a source.
type schema struct {
	names     []string // of node types
	first     []int64  // global number of the first node of each type; and of all, how many
	relations []relation
	edges     []edgeType // of batches
	hops      int
	runs      []seedRun
	subgraph  sample.SubgraphType
	reverse   []int  // as sample.Config.Reverse
	reached   []bool // types whose nodes may be in a batch
	read      []bool // relations of which a batch may read lists
	leads     []bool // and those whose sources may then be asked for theirs
	walked    bool   // edges of batches are those of walks, none of the graph: they have no number
}

// relation is the edges of one type, in memory or on disk.
type relation struct {
	source, target int
	numEdges       int64
	name           string          // of the type, for messages
	relation       string          // its middle part
	used           bool            // batches are drawn along it
	csc            *store.CSC      // in memory, or
	onDisk         *store.EdgeType // on disk

	// Of an open loader:
	indptr    []int64
	neighbors idArray
	edgeIDs   idArray
}

// edgeType is the ends of a type of edges in batches: a relation or, with Options.Metapaths, a metapath.
type edgeType struct{ source, target int }

// seedRun is the seeds of one type, which follow one another in the user's list.
type seedRun struct {
	typ      int
	from, to int64 // places in the list
}

// unnamed says whether the graph is homogeneous.
func (s *schema) unnamed() bool { return s.names[0] == "" }

func (s *schema) types() int { return len(s.first) - 1 }

func (s *schema) count(typ int) int64 { return s.first[typ+1] - s.first[typ] }

func (s *schema) addNodes(name string, count int64) {
	s.names = append(s.names, name)
	s.first = append(s.first, s.first[s.types()]+count)
}

// finish tells parts and tensors what all types together came to.
func (s *schema) finish(p *parts) {
	p.numNodes = s.first[s.types()]
	for i := range p.tensors {
		if t := &p.tensors[i]; t.byEdge {
			t.label = s.edgeName(t.typ, t.name)
		} else {
			t.label, t.first = s.nodeName(t.typ, t.name), s.first[t.typ]
		}
	}
}

// inputsOf visits, in their order, the seeds of a type among those at some places of the user's list: i counts them, at
// is the place and place that among the user's seeds of the type.
func (s *schema) inputsOf(typ int, inputs []int64, visit func(i int, at, place int64)) {
	for _, r := range s.runs {
		if r.typ != typ {
			continue
		}
		i := 0
		for _, at := range inputs {
			if at >= r.from && at < r.to {
				visit(i, at, at-r.from)
				i++
			}
		}
	}
}

// openIndptr loads or finds the offsets of all relations, see Loader.openIndptr.
func (s *schema) openIndptr(ctx context.Context, l *Loader) error {
	for i := range s.relations {
		r := &s.relations[i]
		if r.csc != nil {
			r.indptr = r.csc.Indptr
			continue
		}
		if !r.used {
			continue
		}
		block, err := r.onDisk.LoadIndptr(ctx, mem.NewBudget(0), mem.Topology)
		if err != nil {
			return err
		}
		l.onClose(block.Free)
		r.indptr = mem.Slice[int64](block)
	}
	return nil
}

// openTopology finds neighbours and edge numbers of all relations where the split puts them.
func (s *schema) openTopology(ctx context.Context, l *Loader) error {
	for i := range s.relations {
		r := &s.relations[i]
		if !r.used {
			continue
		}
		sources := s.count(r.source)
		if g := r.csc; g != nil {
			r.neighbors = idArray{narrow: unsigned(g.Indices32), wide: g.Indices64, limit: sources}
			r.edgeIDs = idArray{narrow: g.EdgeIDs32, wide: g.EdgeIDs64, limit: r.numEdges}
			continue
		}
		ids, err := l.openIDs(ctx, r.onDisk.Indices, l.split.Neighbors, sources, r.onDisk.LoadIndices)
		if err != nil {
			return err
		}
		r.neighbors, r.edgeIDs = *ids, idArray{limit: r.numEdges}
		if r.neighbors.disk != nil {
			r.neighbors.counts = s.counts(l)
		}
		if r.onDisk.EdgeIDs == nil || s.walked {
			continue
		}
		if ids, err = l.openIDs(ctx, r.onDisk.EdgeIDs, l.split.EdgeIDs, r.numEdges, r.onDisk.LoadEdgeIDs); err != nil {
			return err
		}
		r.edgeIDs = *ids
	}
	return nil
}

// counts is where edges of all relations are counted.
func (s *schema) counts(l *Loader) *fetchCounts {
	if l.neighbors == nil {
		l.neighbors = &idArray{counts: new(fetchCounts)}
	}
	return l.neighbors.counts
}

// checkOrder refuses rows that are not in the order of the nodes, which a store with types does not have.
func (s *schema) checkOrder(st *store.Store) error {
	if st == nil {
		return nil
	}
	for _, t := range st.NodeTypes() {
		if t.Order != nil {
			return fmt.Errorf("%w: the rows of node type %q are in another order than its nodes", store.ErrVersion, t.Name)
		}
	}
	return nil
}
