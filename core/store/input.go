package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// maxCount bounds edges, and what a store that is read may hold, so that sizes computed from them fit an int64.
const maxCount = 1 << 48

// maxNodes bounds the nodes of all types together: loaders number them one type after the other, in four bytes.
const maxNodes = 1<<32 - 1

// Input is a graph to convert. It is heterogeneous, or homogeneous and then the other fields describe it.
type Input struct {
	NumNodes    int64    // -1: as many as the node-level tensors have rows or, without any, the highest id plus one
	EdgeIndex   Source   // integers of shape [2, edges]; row 0 the sources, row 1 the targets
	More        []Source // as of EdgeInput
	NodeTensors []NamedSource
	EdgeTensors []NamedSource     // rows in the order of EdgeIndex
	WeightsOf   string            // as of EdgeInput
	Unnumbered  bool              // as of EdgeInput
	numbers     manifest.DType    // likewise
	Splits      map[string]Source // node ids, or a bool for each node

	NodeTypes []NodeInput // empty in a homogeneous graph
	EdgeTypes []EdgeInput

	Attachments []NamedSource // see Store.Attachments
	Details     string        // a line for people in the history of the store
}

// NodeInput holds the nodes of one type. Input documents its fields.
type NodeInput struct {
	Name     string
	NumNodes int64
	Tensors  []NamedSource
	Splits   map[string]Source
}

// EdgeInput is the edges of one type: from nodes of Source to nodes of Target, which NodeTypes name.
type EdgeInput struct {
	Source, Relation, Target string
	EdgeIndex                Source
	More                     []Source // edges that follow those of EdgeIndex, of its type and shape
	Tensors                  []NamedSource
	// the tensor whose numbers are stored by position too, with sums: see Weights; empty: none
	WeightsOf string
	// Unnumbered leaves the numbers of edges out, unless they are the positions. There are then no Tensors.
	Unnumbered bool

	numbers manifest.DType // of the numbers of edges, where a test asks for one; else 0
}

// graph is a checked Input.
type graph struct {
	heterogeneous bool
	nodes         []nodePart
	edges         []edgePart
	attachments   []NamedSource
	details       string
}

// nodePart is the nodes of one type.
type nodePart struct {
	// label begins what messages call its arrays, file the names of their files; empty in a homogeneous graph
	name, label, file string
	count             int64
	before            int64 // of these, nodes that are stored already: see Append
	tensors           []NamedSource
	splits            []NamedSource // by name
}

// edgePart is the edges of one type.
type edgePart struct {
	source, relation, target string
	label, file              string // as of nodePart
	from, to                 int    // node parts
	edges                    edgeList
	tensors                  []NamedSource
	numbers                  manifest.DType // as of EdgeInput
	weights                  *NamedSource   // the tensor that is stored by position too, or nil
}

// check validates everything about the input that its shapes and types show.
func (in Input) check(ctx context.Context, fs ssd.FS) (g graph, err error) {
	nodes, edges, err := in.types()
	if err != nil {
		return g, err
	}
	g.heterogeneous, g.details = !unnamed(nodes, edges), in.Details
	number := map[string]int{}
	for i, t := range nodes {
		part, err := t.check(fs)
		if err != nil {
			return g, err
		}
		if g.heterogeneous {
			part.file = nodeTypeFile(i, t.Name)
		}
		number[t.Name] = i
		g.nodes = append(g.nodes, part)
	}
	for i, t := range edges {
		part, err := t.check(fs)
		if err != nil {
			return g, err
		}
		part.from, part.to = number[t.Source], number[t.Target]
		if g.heterogeneous {
			part.file = edgeTypeFile(i, t.Source, t.Relation, t.Target)
		}
		g.edges = append(g.edges, part)
	}
	if g.attachments, err = checkTensors(fs, in.Attachments, attachmentLabel); err != nil {
		return g, err
	}
	if err := g.countNodes(ctx, fs); err != nil {
		return g, err
	}
	if g.nodes[0].count == 0 && !g.heterogeneous {
		return g, invalid("the graph has no nodes")
	}
	return g, checkNodeCount(g.nodes)
}

// checkNodeCount returns an error where there are more nodes than loaders can number.
func checkNodeCount(nodes []nodePart) error {
	total := int64(0)
	for _, t := range nodes {
		if t.count > maxNodes-total {
			return invalid("%s%d nodes, expected at most %d: a graph has at most 2^32 - 1", t.label, t.count, maxNodes-total)
		}
		total += t.count
	}
	return nil
}

// types lists the types, one of each without a name for a homogeneous graph. It checks names.
func (in Input) types() ([]NodeInput, []EdgeInput, error) {
	if len(in.NodeTypes) == 0 && len(in.EdgeTypes) == 0 {
		return []NodeInput{{NumNodes: in.NumNodes, Tensors: in.NodeTensors, Splits: in.Splits}},
			[]EdgeInput{{EdgeIndex: in.EdgeIndex, More: in.More, Tensors: in.EdgeTensors, WeightsOf: in.WeightsOf,
				Unnumbered: in.Unnumbered, numbers: in.numbers}}, nil
	}
	return in.NodeTypes, in.EdgeTypes, CheckTypes(in.NodeTypes, in.EdgeTypes)
}

// unnamed reports whether the graph is homogeneous: one node type and one edge type, without names.
func unnamed(nodes []NodeInput, edges []EdgeInput) bool {
	return len(nodes) == 1 && len(edges) == 1 && nodes[0].Name == "" &&
		edges[0].Source == "" && edges[0].Relation == "" && edges[0].Target == ""
}

// CheckTypes checks the names of types, and nothing else of them: an ErrInvalid says what is wrong, and which there
// are.
func CheckTypes(nodes []NodeInput, edges []EdgeInput) error {
	if unnamed(nodes, edges) {
		return nil
	}
	if len(edges) == 0 {
		return invalid("the graph has no edge type")
	}
	if max(len(nodes), len(edges)) > maxTypes {
		return invalid("%d node types and %d edge types, expected at most %d of each", len(nodes), len(edges), maxTypes)
	}
	known := map[string]bool{}
	for _, t := range nodes {
		if t.Name == "" || known[t.Name] {
			return invalid("the name of the node type %q is empty or given twice", t.Name)
		}
		known[t.Name] = true
	}
	names := map[[3]string]bool{}
	for _, t := range edges {
		name := edgeTypeName(t.Source, t.Relation, t.Target)
		if t.Relation == "" || names[[3]string{t.Source, t.Relation, t.Target}] {
			return invalid("the edge type %s has no relation or is given twice", name)
		}
		names[[3]string{t.Source, t.Relation, t.Target}] = true
		for _, end := range []string{t.Source, t.Target} {
			if !known[end] {
				return invalid("the edge type %s has the unknown node type %q, the node types are %q",
					name, end, slices.Sorted(maps.Keys(known)))
			}
		}
	}
	return nil
}

// nodeTypeFile begins the names of the files of a node type with a name. Names of files have room for 255 bytes: this
// takes at most 80, the name of a tensor less than 90.
func nodeTypeFile(number int, name string) string { return typeFile("t", number, name) }

// edgeTypeFile is nodeTypeFile for an edge type.
func edgeTypeFile(number int, source, relation, target string) string {
	return typeFile("e", number, source+"_"+relation+"_"+target)
}

func typeFile(kind string, number int, name string) string {
	return kind + strconv.Itoa(number) + "_" + fileName(name) + "_"
}

func (t NodeInput) check(fs ssd.FS) (p nodePart, err error) {
	p = nodePart{name: t.Name, label: nodeLabel(t.Name), count: t.NumNodes}
	rowsFrom := "the number of nodes" // what gave the count
	agree := func(name string, rows int64) error {
		if p.count < 0 {
			p.count, rowsFrom = rows, name
		}
		if rows != p.count {
			return invalid("%s has %d rows, expected %d as %s", name, rows, p.count, rowsFrom)
		}
		return nil
	}
	if p.tensors, err = checkTensors(fs, t.Tensors, p.label); err != nil {
		return p, err
	}
	for _, tensor := range p.tensors {
		if err := agree(p.label+tensor.Name, tensor.rows()); err != nil {
			return p, err
		}
	}
	for _, named := range namedSplits(t.Splits) {
		split, err := named.checkSplit(fs, p.label, named.Name)
		if err != nil {
			return p, err
		}
		if split.DType == manifest.DType_BOOL {
			if err := agree(splitName(p.label, named.Name), split.rows()); err != nil {
				return p, err
			}
		}
		p.splits = append(p.splits, NamedSource{Name: named.Name, Source: split})
	}
	return p, nil
}

// namedSplits lists splits by name.
func namedSplits(splits map[string]Source) (all []NamedSource) {
	for _, name := range slices.Sorted(maps.Keys(splits)) {
		all = append(all, NamedSource{name, splits[name]})
	}
	return all
}

func (t EdgeInput) check(fs ssd.FS) (p edgePart, err error) {
	p = edgePart{source: t.Source, relation: t.Relation, target: t.Target,
		label: edgeLabel(t.Source, t.Relation, t.Target)}
	if p.edges, err = checkEdges(fs, append([]Source{t.EdgeIndex}, t.More...), p.label+edgesName); err != nil {
		return p, err
	}
	if p.edges.count > maxCount {
		return p, invalid("%s%d edges, expected at most %d", p.label, p.edges.count, int64(maxCount))
	}
	if p.tensors, err = checkTensors(fs, t.Tensors, p.label); err != nil {
		return p, err
	}
	p.numbers, p.edges.numbers = t.numbers, cmp.Or(t.numbers, p.edges.numbers)
	if p.edges.unnumbered = t.Unnumbered; t.Unnumbered && len(p.tensors) > 0 {
		return p, needsNumbers(p.label + p.tensors[0].Name)
	}
	for _, tensor := range p.tensors {
		if tensor.rows() != p.edges.count {
			return p, invalid("%s has %d rows, expected %d as %s has edges",
				p.label+tensor.Name, tensor.rows(), p.edges.count, p.edges.name)
		}
	}
	return p, p.checkWeightsOf(t.WeightsOf)
}

// checkTensors validates named tensors and fills in their strides.
func checkTensors(fs ssd.FS, tensors []NamedSource, label string) ([]NamedSource, error) {
	out := make([]NamedSource, 0, len(tensors))
	names := map[string]bool{}
	for _, t := range tensors {
		if t.Name == "" || names[t.Name] {
			return nil, invalid("the tensor name %q is empty or given twice", label+t.Name)
		}
		names[t.Name] = true
		src, err := t.check(fs, label+t.Name)
		if err != nil {
			return nil, err
		}
		if err := src.checkNarrow(label + t.Name); err != nil {
			return nil, err
		}
		out = append(out, NamedSource{Name: t.Name, Source: src})
	}
	return out, nil
}

// splitName returns a split as messages name it.
func splitName(label, name string) string { return fmt.Sprintf("split %q", label+name) }

func (s Source) checkSplit(fs ssd.FS, label, name string) (Source, error) {
	if name == "" {
		return s, invalid("a split has no name")
	}
	name = splitName(label, name)
	if !s.DType.IsInteger() && s.DType != manifest.DType_BOOL {
		return s, invalid("%s holds %s, expected integers or bool", name, s.DType.Label())
	}
	if len(s.Shape) != 1 {
		return s, invalid("%s has shape %v, expected one dimension", name, s.Shape)
	}
	return s.check(fs, name)
}

// countNodes gives the nodes that no array counts the highest id plus one, of all ends of edges at their type.
func (g *graph) countNodes(ctx context.Context, fs ssd.FS) error {
	highest := make([]int64, len(g.nodes))
	for i := range highest {
		highest[i] = -1
	}
	for i := range g.edges {
		e := &g.edges[i]
		for row, end := range []struct {
			part int
			ids  Source
		}{{e.from, e.edges.sources}, {e.to, e.edges.targets}} {
			if g.nodes[end.part].count >= 0 {
				continue
			}
			id, err := e.edges.highest(ctx, fs, row, end.ids)
			if err != nil {
				return err
			}
			highest[end.part] = max(highest[end.part], id)
		}
	}
	for i := range g.nodes {
		if g.nodes[i].count < 0 {
			g.nodes[i].count = highest[i] + 1
		}
	}
	return nil
}

// highest returns the highest id in a row of the edge list, -1 without edges.
func (l edgeList) highest(ctx context.Context, fs ssd.FS, row int, ids Source) (int64, error) {
	reader, err := newIDReader(fs, ids, l.name, frugal.scanRows, mem.NewBudget(0))
	if err != nil {
		return 0, err
	}
	defer reader.close()
	highest := int64(-1)
	for at := int64(0); at < l.count; at += frugal.scanRows {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		part, err := reader.read(at, min(frugal.scanRows, l.count-at))
		if err != nil {
			return 0, err
		}
		for i, id := range part {
			if id < 0 {
				bad := at + int64(i)
				return 0, outOfRange(ids, fmt.Sprintf("%s[%d, %d]", l.name, row, bad), bad, id, maxCount)
			}
			highest = max(highest, id)
		}
	}
	return highest, nil
}

// fileName makes a tensor's name fit for a file: people recognise it, the manifest has it in full, and the number
// before it keeps it unique.
func fileName(name string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	return safe[:min(len(safe), 64)]
}
