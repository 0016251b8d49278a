package store

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

// maxDims bounds the dimensions of a row: PyTorch's own limit is 64.
const maxDims = 63

// maxTypes bounds the node types, and of edges, so that sums of maxCount over them fit an int64.
const maxTypes = 1 << 14

// check validates the manifest against itself and fills in the description of the store. Nothing it lets through can
// overflow an int64, name a file outside the directory, or disagree with another part.
func (s *Store) check() error {
	m := s.manifest
	c := newChecker(s.directory)
	if len(m.GetUuid()) != 16 {
		return c.corrupt("uuid of %d bytes, expected 16", len(m.GetUuid()))
	}
	if len(m.GetNodeTypes()) == 0 || len(m.GetEdgeTypes()) == 0 {
		return c.corrupt("%d node types and %d edge types, expected at least one of each",
			len(m.GetNodeTypes()), len(m.GetEdgeTypes()))
	}
	if max(len(m.GetNodeTypes()), len(m.GetEdgeTypes())) > maxTypes {
		return fmt.Errorf("store: %s: %d node types and %d edge types, expected at most %d of each: %w",
			s.path, len(m.GetNodeTypes()), len(m.GetEdgeTypes()), maxTypes, ErrVersion)
	}
	heterogeneous := m.GetNodeTypes()[0].GetName() != ""
	if !heterogeneous && (len(m.GetNodeTypes()) > 1 || len(m.GetEdgeTypes()) > 1) {
		return c.corrupt("%d node types and %d edge types, the first without a name",
			len(m.GetNodeTypes()), len(m.GetEdgeTypes()))
	}
	counts := map[string]int64{}
	for i, node := range m.GetNodeTypes() {
		if _, taken := counts[node.GetName()]; taken || heterogeneous && node.GetName() == "" {
			return c.corrupt("the name of the node type %q is empty or occurs twice", node.GetName())
		}
		checked, err := c.nodeType(node, heterogeneous)
		if err != nil {
			return err
		}
		if heterogeneous {
			checked.file = nodeTypeFile(i, checked.Name)
		}
		s.nodeTypes = append(s.nodeTypes, checked)
		counts[node.GetName()] = node.GetCount()
	}
	names := map[[3]string]bool{}
	for i, edge := range m.GetEdgeTypes() {
		name := [3]string{edge.GetSource(), edge.GetRelation(), edge.GetTarget()}
		if names[name] || heterogeneous != (name[1] != "") {
			return c.corrupt("the name of the edge type %s is wrong or occurs twice", edgeTypeName(name[0], name[1], name[2]))
		}
		names[name] = true
		checked, err := c.edgeType(edge, counts, heterogeneous)
		if err != nil {
			return err
		}
		if heterogeneous {
			checked.file = edgeTypeFile(i, name[0], name[1], name[2])
		}
		s.edgeTypes = append(s.edgeTypes, checked)
	}
	for i, node := range m.GetNodeTypes() {
		for j, t := range node.GetTensors() {
			if a := t.GetAggregate(); a != nil {
				c.aggregate(s, i, &s.nodeTypes[i].Tensors[j], a)
			}
		}
	}
	s.attachments = c.attachments(m.GetAttachments())
	return c.err
}

// nodeType validates a node type.
func (c *checker) nodeType(node *manifest.NodeType, heterogeneous bool) (NodeType, error) {
	c.label = nodeLabel(node.GetName())
	t := NodeType{Name: node.GetName(), Count: node.GetCount(), in: c.dir}
	n := t.Count
	if heterogeneous && (n < 0 || n > maxCount) || !heterogeneous && (n < 1 || n == math.MaxInt64) {
		return t, c.corrupt("%s%d nodes, expected at least %d", c.label, n, least(heterogeneous))
	}
	if node.GetOrder() != nil {
		if n > maxOrdered {
			return t, fmt.Errorf("store: %s: %s%d nodes in another order than the user's, expected at most %d: %w",
				c.dir.path, c.label, n, int64(maxOrdered), ErrVersion)
		}
		t.Order = c.column(node.GetOrder(), "order", n, manifest.DType_UINT32)
	}
	t.Tensors = c.tensors(node.GetTensors(), n)
	names := map[string]bool{}
	for _, split := range node.GetSplits() {
		c.name("split", split.GetName(), names)
		ids := c.column(split.GetIds(), split.GetName(), split.GetIds().GetRows(), manifest.DType_INT64)
		t.Splits = append(t.Splits, Tensor{Name: split.GetName(), Array: *ids})
	}
	return t, c.err
}

// least returns the least number of nodes of a type: the only type of a graph must have some.
func least(heterogeneous bool) int64 {
	if heterogeneous {
		return 0
	}
	return 1
}

// edgeType validates an edge type between node types of these numbers.
func (c *checker) edgeType(edge *manifest.EdgeType, counts map[string]int64, heterogeneous bool) (EdgeType, error) {
	t := EdgeType{Source: edge.GetSource(), Relation: edge.GetRelation(), Target: edge.GetTarget()}
	c.label = edgeLabel(t.Source, t.Relation, t.Target)
	sources, known := counts[t.Source]
	targets, both := counts[t.Target]
	if !known || !both {
		return t, c.corrupt("%sedges from %q to %q, expected node types", c.label, t.Source, t.Target)
	}
	e := edge.GetCount()
	if e < 0 || heterogeneous && e > maxCount {
		return t, c.corrupt("%s%d edges, expected at least 0", c.label, e)
	}
	t.Topology = Topology{NumSources: sources, NumNodes: targets, NumEdges: e}
	t.Indptr = c.column(edge.GetIndptr(), "indptr", targets+1, manifest.DType_INT64)
	t.Indices = c.column(edge.GetIndices(), "indices", e, indicesType(sources))
	if ids := edge.GetEdgeIds(); ids != nil {
		dtype, held := edgeIDType(e), ids.GetDtype()
		if held == manifest.DType_INT64 && e > 1<<32 || held == manifest.DType_UINT40 && e <= 1<<40 {
			dtype = held // version 1 has no type between, and one that is wider than it must be is no harm
		}
		t.EdgeIDs = c.column(ids, edgeIDsName, e, dtype)
	}
	if t.Unnumbered = edge.GetUnnumbered(); t.Unnumbered && (t.EdgeIDs != nil || len(edge.GetTensors()) > 0) {
		return t, c.corrupt("%sedges without numbers have edge_ids or tensors", c.label)
	}
	t.Tensors = c.tensors(edge.GetTensors(), e)
	t.Weights = c.weights(edge, t.Tensors, e)
	return t, c.err
}

// indicesType returns the type in which n node ids are stored.
func indicesType(n int64) manifest.DType {
	if n < 1<<31 {
		return manifest.DType_INT32
	}
	return manifest.DType_INT64
}

// edgeIDsName is the name of the numbers of edges in the names of files and in messages.
const edgeIDsName = "edge_ids"

// edgeIDType returns the type in which e edge numbers are stored.
func edgeIDType(e int64) manifest.DType {
	switch {
	case e <= 1<<32:
		return manifest.DType_UINT32
	case e <= 1<<40:
		return manifest.DType_UINT40
	}
	return manifest.DType_INT64
}

// checker validates the parts of a manifest and keeps the first error; after it, results are empty.
type checker struct {
	dir   *directory
	label string          // of the type at hand, before the names of its arrays
	files map[string]bool // names taken
	err   error
}

func newChecker(dir *directory) *checker {
	return &checker{dir: dir, files: map[string]bool{manifest.Name: true}}
}

func (c *checker) corrupt(format string, args ...any) error {
	return &CorruptError{Path: filepath.Join(c.dir.path, manifest.Name), Reason: fmt.Sprintf(format, args...)}
}

func (c *checker) fail(format string, args ...any) *Array {
	if c.err == nil {
		c.err = c.corrupt("%s%s", c.label, fmt.Sprintf(format, args...))
	}
	return &Array{}
}

// array validates one array that must have this many rows.
func (c *checker) array(a *manifest.Array, name string, rows int64) *Array {
	if c.err != nil {
		return &Array{}
	}
	if a == nil {
		return c.fail("%s has no array", name)
	}
	for _, file := range []string{a.GetFile(), a.GetCrcFile()} {
		if file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\x00") {
			return c.fail("%s names the file %q, expected a name inside the store", name, file)
		}
		if c.files[file] {
			return c.fail("%s names the file %q, which is taken", name, file)
		}
		c.files[file] = true
	}
	if !a.GetDtype().Known() && (name != edgeIDsName || a.GetDtype() != manifest.DType_UINT40) {
		return c.fail("%s has the unknown dtype %d", name, a.GetDtype())
	}
	if len(a.GetRowShape()) > maxDims {
		return c.fail("%s has rows of %d dimensions, expected at most %d", name, len(a.GetRowShape()), maxDims)
	}
	rowBytes, ok := rowBytesOf(a.GetDtype(), a.GetRowShape())
	if !ok {
		return c.fail("%s has rows of shape %v, expected 1 to %d bytes", name, a.GetRowShape(), maxRowBytes)
	}
	if a.GetRows() != rows || rows < 0 {
		return c.fail("%s has %d rows, expected %d", name, a.GetRows(), rows)
	}
	perPage := a.GetRowsPerPage()
	if perPage < 0 || perPage > int64(ssd.PageBytes/rowBytes) {
		return c.fail("%s has %d rows of %d bytes per page", name, perPage, rowBytes)
	}
	layout := ssd.Layout{RowBytes: rowBytes, RowsPerPage: int(perPage), NumRows: rows}
	if size, ok := fileBytes(layout); !ok || size != a.GetFileBytes() {
		return c.fail("%s has %d rows of %d bytes in %d bytes", name, rows, rowBytes, a.GetFileBytes())
	}
	return &Array{
		File: a.GetFile(), Path: filepath.Join(c.dir.path, a.GetFile()), CRCPath: filepath.Join(c.dir.path, a.GetCrcFile()),
		DType: a.GetDtype(), RowShape: slices.Clone(a.GetRowShape()), Rows: rows,
		Layout: layout, Bytes: a.GetFileBytes(), crc: a.GetCrcFileCrc(), in: c.dir,
	}
}

// column validates an array of scalars of a given type, whose rows fill their pages.
func (c *checker) column(a *manifest.Array, name string, rows int64, dtype manifest.DType) *Array {
	array := c.array(a, name, rows)
	if c.err != nil {
		return array
	}
	if array.DType != dtype || len(array.RowShape) != 0 {
		return c.fail("%s holds %s of shape %v, expected %s scalars",
			name, array.DType.Label(), array.RowShape, dtype.Label())
	}
	if dtype == manifest.DType_UINT40 && array.Layout.RowsPerPage == 0 {
		return c.fail("%s has numbers of five bytes that straddle pages", name)
	}
	if array.Layout.RowsPerPage != 0 && array.Layout.RowsPerPage != ssd.PageBytes/dtype.Size() {
		return c.fail("%s has %d rows per page, expected full pages", name, array.Layout.RowsPerPage)
	}
	return array
}

func (c *checker) tensors(list []*manifest.Tensor, rows int64) []Tensor {
	var out []Tensor
	names := map[string]bool{}
	for _, t := range list {
		c.name("tensor", t.GetName(), names)
		array := c.array(t.GetData(), t.GetName(), rows)
		out = append(out, Tensor{Name: t.GetName(), Array: *array, Narrow: c.narrowed(t, array)})
	}
	return out
}

// name checks that a name is given and given once.
func (c *checker) name(kind, name string, taken map[string]bool) {
	if name == "" {
		c.fail("a %s has no name", kind)
	}
	if taken[name] {
		c.fail("%s %q occurs twice", kind, name)
	}
	taken[name] = true
}
