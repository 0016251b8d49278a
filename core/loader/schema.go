package loader

import (
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"freshgo/core/graph"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// A source numbers the nodes of all its types one after the other: node v of type t is first[t]+v. Rows, caches,
// policies, plans and traces know these numbers alone; tensors know the type that their rows belong to, and the sampler
// draws flat batches (see core/sample). A homogeneous graph has one node type and one relation, both without
// names. So node types are the business of few files, and of the places where a row number becomes a place in a file.

// schema is the node types and relations of a source, and what the options ask of them.
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
	read      []bool // relations whose lists a batch may read
	leads     []bool // and those whose sources may then be asked for theirs
	walked    bool   // edges of batches come from walks and are no edges of the graph: they have no number
	atOnce    int64  // edges that a hop fetches at a time; 0: all of them
}

// relation is the edges of one type, in memory or on disk.
type relation struct {
	source, target int
	numEdges       int64
	name           string          // of the type, for messages
	relation       string          // its middle part
	used           bool            // batches are drawn along it
	unnumbered     bool            // by Options.NoEdgeIDs: its edges in a batch have no numbers
	csc            *store.CSC      // in memory, or
	onDisk         *store.EdgeType // on disk

	// Of an open loader:
	graph.Lists
}

// edgeType is the ends of a type of edges in batches: a relation or, with Options.Metapaths, a metapath.
type edgeType struct{ source, target int }

// seedRun is the seeds of one type, which follow one another in the user's list.
type seedRun struct {
	typ      int
	from, to int64 // places in the list
}

// unnamed reports whether the graph is homogeneous.
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

// onDisk reports whether neighbours of some relation are on disk.
func (s *schema) onDisk() bool {
	return slices.ContainsFunc(s.relations, func(r relation) bool { return r.Neighbors.OnDisk() })
}

// unsigned views ids that are not negative.
func unsigned(ids []int32) []uint32 {
	// unsafe: the same memory, elements of equal size and alignment
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids))
}

func nodeName(typ int, name string) string { return "n" + strconv.Itoa(typ) + "/" + name }

func edgeName(relation int, name string) string { return "e" + strconv.Itoa(relation) + "/" + name }

// nodeName returns the name of a node type's tensor in batches: for the unnamed type, the tensor's own name.
func (s *schema) nodeName(typ int, name string) string {
	if s.unnamed() {
		return name
	}
	return nodeName(typ, name)
}

// edgeName returns the name in batches of a tensor of a relation or, with metapaths, of a metapath.
func (s *schema) edgeName(relation int, name string) string {
	if s.unnamed() {
		return name
	}
	return edgeName(relation, name)
}

// ofType tells of an error which type the tensor belongs to, where types have names.
func (s *schema) ofType(t *tensor, err error) error {
	if s.unnamed() {
		return err
	}
	return fmt.Errorf("%s: %w", s.typeLabel(t), err)
}

// fullName is the name of a tensor with that of its type, where types have names.
func (s *schema) fullName(t *tensor) string {
	if s.unnamed() {
		return t.name
	}
	return s.typeOf(t) + "." + t.name
}

// typeLabel is typeOf for messages.
func (s *schema) typeLabel(t *tensor) string {
	if t.byEdge {
		return "edge type " + s.typeOf(t)
	}
	return fmt.Sprintf("node type %q", s.typeOf(t))
}

// describe is a tensor in messages.
func (s *schema) describe(t *tensor) string {
	if s.unnamed() {
		return strconv.Quote(t.name)
	}
	return fmt.Sprintf("%q of %s", t.name, s.typeOf(t))
}

// ofRelation tells of an error which edge type it is of, where they have names.
func (s *schema) ofRelation(relation int, err error) error {
	if s.unnamed() {
		return err
	}
	return fmt.Errorf("edge type %s: %w", s.relations[relation].name, err)
}

// typeOf is the type that a tensor belongs to.
func (s *schema) typeOf(t *tensor) string {
	if t.byEdge {
		return s.relations[t.typ].name
	}
	return s.names[t.typ]
}
