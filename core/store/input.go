package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// maxCount bounds nodes and edges, so that sizes computed from them fit an int64.
const maxCount = 1 << 48

// labelName is the node tensor in which a NaN is an error: PyG's name for labels.
const labelName = "y"

// Input is a homogeneous graph to convert.
type Input struct {
	NumNodes    int64  // -1: as many as the node-level tensors have rows or, without any, the highest id plus one
	EdgeIndex   Source // integers of shape [2, edges]; row 0 the sources, row 1 the targets
	NodeTensors []NamedSource
	EdgeTensors []NamedSource     // rows in the order of EdgeIndex
	Splits      map[string]Source // node ids, or a bool for each node
}

// graph is a checked Input.
type graph struct {
	numNodes int64
	edges    edgeList
	nodes    []NamedSource
	attrs    []NamedSource // edge-level tensors
	splits   []NamedSource // by name
}

// check validates everything about the input that its shapes and types show.
func (in Input) check(ctx context.Context, fs ssd.FS) (g graph, err error) {
	if g.edges, err = checkEdges(fs, in.EdgeIndex); err != nil {
		return g, err
	}
	g.numNodes = in.NumNodes
	rowsFrom := "the number of nodes" // what gave numNodes
	agree := func(name string, rows int64) error {
		if g.numNodes < 0 {
			g.numNodes, rowsFrom = rows, name
		}
		if rows != g.numNodes {
			return invalid("%s has %d rows, expected %d as %s", name, rows, g.numNodes, rowsFrom)
		}
		return nil
	}
	if g.nodes, err = checkTensors(fs, in.NodeTensors); err != nil {
		return g, err
	}
	for _, t := range g.nodes {
		if err := agree(t.Name, t.rows()); err != nil {
			return g, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Splits)) {
		split, err := in.Splits[name].checkSplit(fs, name)
		if err != nil {
			return g, err
		}
		if split.DType == manifest.DType_BOOL {
			if err := agree("split "+name, split.rows()); err != nil {
				return g, err
			}
		}
		g.splits = append(g.splits, NamedSource{Name: name, Source: split})
	}
	if g.attrs, err = checkTensors(fs, in.EdgeTensors); err != nil {
		return g, err
	}
	for _, t := range g.attrs {
		if t.rows() != g.edges.count {
			return g, invalid("%s has %d rows, expected %d as %s has edges", t.Name, t.rows(), g.edges.count, edgesName)
		}
	}
	if g.numNodes < 0 {
		if g.numNodes, err = g.edges.countNodes(ctx, fs); err != nil {
			return g, err
		}
	}
	switch {
	case g.numNodes == 0:
		return g, invalid("the graph has no nodes")
	case g.numNodes > maxCount:
		return g, invalid("%d nodes, expected at most %d", g.numNodes, int64(maxCount))
	case g.edges.count > maxCount:
		return g, invalid("%d edges, expected at most %d", g.edges.count, int64(maxCount))
	}
	return g, nil
}

// checkTensors validates named tensors and fills in their strides.
func checkTensors(fs ssd.FS, tensors []NamedSource) ([]NamedSource, error) {
	out := make([]NamedSource, 0, len(tensors))
	names := map[string]bool{}
	for _, t := range tensors {
		if t.Name == "" || names[t.Name] {
			return nil, invalid("the tensor name %q is empty or given twice", t.Name)
		}
		names[t.Name] = true
		src, err := t.check(fs, t.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, NamedSource{Name: t.Name, Source: src})
	}
	return out, nil
}

func (s Source) checkSplit(fs ssd.FS, name string) (Source, error) {
	if name == "" {
		return s, invalid("a split has no name")
	}
	if !s.DType.IsInteger() && s.DType != manifest.DType_BOOL {
		return s, invalid("split %s holds %s, expected integers or bool", name, s.DType.Label())
	}
	if len(s.Shape) != 1 {
		return s, invalid("split %s has shape %v, expected one dimension", name, s.Shape)
	}
	return s.check(fs, "split "+name)
}

// countNodes returns the highest id plus one.
func (l edgeList) countNodes(ctx context.Context, fs ssd.FS) (int64, error) {
	reader, err := newEdgeReader(fs, l, frugal.scanRows, mem.NewBudget(0))
	if err != nil {
		return 0, err
	}
	defer reader.close()
	highest := int64(-1)
	for at := int64(0); at < l.count; at += frugal.scanRows {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		sources, targets, err := reader.read(at, min(frugal.scanRows, l.count-at))
		if err != nil {
			return 0, err
		}
		for i := range sources {
			if min(sources[i], targets[i]) < 0 {
				return 0, l.outOfRange(at+int64(i), sources[i], targets[i], maxCount)
			}
			highest = max(highest, sources[i], targets[i])
		}
	}
	return highest + 1, nil
}

// fileName makes a tensor's name fit for a file: people recognise it, the manifest has it in full, and the number before it keeps it unique.
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
