package draw

import (
	"fmt"
	"iter"
	"strconv"
	"unsafe"

	"freshgo/core/graph"
	"freshgo/core/history"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// A source numbers the nodes of all its types one after the other: node v of type t is first[t]+v. Rows, caches,
// policies, plans and traces know these numbers alone; tensors know the type that their rows belong to, and the sampler
// draws flat batches (see core/sample). A homogeneous graph has one node type and one relation, both without
// names. So node types are the business of few files, and of the places where a row number becomes a place in a file.

// Schema holds the node types and relations of a source, and their options.
type Schema struct {
	TypeNames []string // of node types
	First     []int64  // global number of the first node of each type, and the total number
	Relations []Relation
	Edges     []edgeType // of batches
	Hops      int
	Runs      []SeedRun
	Subgraph  sample.SubgraphType
	reverse   []int  // as sample.Config.Reverse
	reached   []bool // types whose nodes may be in a batch
	read      []bool // relations whose lists a batch may read
	leads     []bool // relations whose sources may then be expanded
	Walked    bool   // edges of batches come from walks and are no edges of the graph: they have no number
	atOnce    int64  // edges that a hop fetches at a time; 0: all
	packs     bool   // neighbours that are held whole are packed
}

// Relation is the edges of one type, in memory or on disk.
type Relation struct {
	Source, Target int
	NumEdges       int64
	name           string          // of the type, for messages
	Relation       string          // its middle part
	used           bool            // batches are drawn along it
	unnumbered     bool            // by Options.NoEdgeIDs: its edges in a batch have no numbers
	OnDisk         *store.EdgeType // nil: in memory

	graph.Lists // of a store, once these are open
}

// withoutNumbers reports whether the relation is of a store that has no numbers of its edges.
func (r *Relation) withoutNumbers() bool { return r.OnDisk != nil && r.OnDisk.Unnumbered }

// edgeType is the ends of a type of edges in batches: a relation or, with Options.Metapaths, a metapath.
type edgeType struct{ Source, Target int }

// SeedRun is the seeds of one type, which follow one another in the user's list.
type SeedRun struct {
	Type     int
	From, To int64 // places in the list
}

// namingOf returns the naming of the types of a graph.
func namingOf(s *Schema) naming {
	if s.Homogeneous() {
		return oneType{}
	}
	return namedTypes{}
}

// Homogeneous reports whether the graph has one node type and one relation, both without names.
func (s *Schema) Homogeneous() bool { return s.TypeNames[0] == "" }

func (s *Schema) NumTypes() int { return len(s.First) - 1 }

func (s *Schema) NumNodes(typ int) int64 { return s.First[typ+1] - s.First[typ] }

// stored yields the relations of a store along which batches are drawn.
func (s *Schema) stored() iter.Seq2[int, *Relation] {
	return func(yield func(i int, r *Relation) bool) {
		for i := range s.Relations {
			if r := &s.Relations[i]; r.OnDisk != nil && r.used && !yield(i, r) {
				return
			}
		}
	}
}

func (s *Schema) addNodes(name string, count int64) {
	s.TypeNames = append(s.TypeNames, name)
	s.First = append(s.First, s.First[s.NumTypes()]+count)
}

// finish completes parts and tensors after all types are known.
func (p *Parts) finish() {
	s := p.Schema
	p.NumNodes = s.First[s.NumTypes()]
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.ByEdge {
			t.Label = s.EdgeName(t.Type, t.Name)
		} else {
			t.Label, t.First = s.NodeName(t.Type, t.Name), s.First[t.Type]
		}
	}
}

// Shape describes the graph to pruning.
func (s *Schema) Shape() history.Shape {
	shape := history.Shape{First: s.First}
	for _, r := range s.Relations {
		shape.Relations = append(shape.Relations, history.Relation{Source: r.Source, Target: r.Target})
	}
	return shape
}

// Unsigned views ids that are not negative.
func Unsigned(ids []int32) []uint32 {
	// unsafe: the same memory, elements of equal size and alignment
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids))
}

func NodeName(typ int, name string) string { return "n" + strconv.Itoa(typ) + "/" + name }

func EdgeName(relation int, name string) string { return "e" + strconv.Itoa(relation) + "/" + name }

// NodeName returns the name of a node type's tensor in batches: for the unnamed type, the tensor's own name.
func (s *Schema) NodeName(typ int, name string) string { return namingOf(s).nodes(typ, name) }

// EdgeName returns the name in batches of a tensor of a relation or, with metapaths, of a metapath.
func (s *Schema) EdgeName(relation int, name string) string { return namingOf(s).edges(relation, name) }

// ofType adds the tensor's type to an error, if types have names.
func (s *Schema) ofType(t *Tensor, err error) error { return namingOf(s).within(s.typeLabel(t), err) }

// fullName returns the name of a tensor with the name of its type, if types have names.
func (s *Schema) fullName(t *Tensor) string { return namingOf(s).full(t.Name, s.typeOf(t)) }

// typeLabel names the type that a tensor belongs to in messages.
func (s *Schema) typeLabel(t *Tensor) string {
	if t.ByEdge {
		return "edge type " + s.typeOf(t)
	}
	return fmt.Sprintf("node type %q", s.typeOf(t))
}

// Describe names a tensor in messages.
func (s *Schema) Describe(t *Tensor) string { return namingOf(s).describe(t.Name, s.typeOf(t)) }

// OfRelation adds the edge type to an error, if types have names.
func (s *Schema) OfRelation(relation int, err error) error {
	return namingOf(s).within("edge type "+s.Relations[relation].name, err)
}

// typeOf returns the type that a tensor belongs to.
func (s *Schema) typeOf(t *Tensor) string {
	if t.ByEdge {
		return s.Relations[t.Type].name
	}
	return s.TypeNames[t.Type]
}
