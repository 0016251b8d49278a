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

// check validates the manifest against itself and fills in the description of the store. Nothing it lets through can overflow an int64, name a
// file outside the directory, or disagree with another part.
func (s *Store) check() error {
	m := s.manifest
	c := checker{dir: s.path, files: map[string]bool{manifest.Name: true}}
	if len(m.GetUuid()) != 16 {
		return c.corrupt("uuid of %d bytes, expected 16", len(m.GetUuid()))
	}
	if len(m.GetNodeTypes()) != 1 || len(m.GetEdgeTypes()) != 1 {
		return fmt.Errorf("store: %s: %d node types and %d edge types, expected one of each: %w",
			s.path, len(m.GetNodeTypes()), len(m.GetEdgeTypes()), ErrVersion)
	}
	node, edge := m.GetNodeTypes()[0], m.GetEdgeTypes()[0]
	n, e := node.GetCount(), edge.GetCount()
	if n < 1 || n == math.MaxInt64 {
		return c.corrupt("%d nodes, expected at least 1", n)
	}
	if e < 0 {
		return c.corrupt("%d edges, expected at least 0", e)
	}
	if edge.GetSource() != node.GetName() || edge.GetTarget() != node.GetName() {
		return c.corrupt("edges from %q to %q, expected %q", edge.GetSource(), edge.GetTarget(), node.GetName())
	}
	s.topology = Topology{NumNodes: n, NumEdges: e}
	s.topology.Indptr = c.column(edge.GetIndptr(), "indptr", n+1, manifest.DType_INT64)
	s.topology.Indices = c.column(edge.GetIndices(), "indices", e, indicesType(n))
	if edge.GetEdgeIds() != nil {
		s.topology.EdgeIDs = c.column(edge.GetEdgeIds(), "edge_ids", e, edgeIDType(e))
	}
	if node.GetOrder() != nil {
		if n > maxOrdered {
			return fmt.Errorf("store: %s: %d nodes in another order than the user's, expected at most %d: %w", s.path, n, int64(maxOrdered), ErrVersion)
		}
		s.order = c.column(node.GetOrder(), "order", n, manifest.DType_UINT32)
	}
	s.nodes = c.tensors(node.GetTensors(), n)
	s.edges = c.tensors(edge.GetTensors(), e)
	names := map[string]bool{}
	for _, split := range node.GetSplits() {
		c.name("split", split.GetName(), names)
		ids := c.column(split.GetIds(), split.GetName(), split.GetIds().GetRows(), manifest.DType_INT64)
		s.splits = append(s.splits, Tensor{Name: split.GetName(), Array: *ids})
	}
	return c.err
}

// indicesType is the type in which n node ids are stored.
func indicesType(n int64) manifest.DType {
	if n < 1<<31 {
		return manifest.DType_INT32
	}
	return manifest.DType_INT64
}

// edgeIDType is the type in which e edge numbers are stored.
func edgeIDType(e int64) manifest.DType {
	if e <= 1<<32 {
		return manifest.DType_UINT32
	}
	return manifest.DType_INT64
}

// checker validates the parts of a manifest and keeps the first error; after it, results are empty.
type checker struct {
	dir   string
	files map[string]bool // names taken
	err   error
}

func (c *checker) corrupt(format string, args ...any) error {
	return &CorruptError{Path: filepath.Join(c.dir, manifest.Name), Reason: fmt.Sprintf(format, args...)}
}

func (c *checker) fail(format string, args ...any) *Array {
	if c.err == nil {
		c.err = c.corrupt(format, args...)
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
	if !a.GetDtype().Known() {
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
		File: a.GetFile(), Path: filepath.Join(c.dir, a.GetFile()), CRCPath: filepath.Join(c.dir, a.GetCrcFile()),
		DType: a.GetDtype(), RowShape: slices.Clone(a.GetRowShape()), Rows: rows,
		Layout: layout, Bytes: a.GetFileBytes(), crc: a.GetCrcFileCrc(),
	}
}

// column validates an array of scalars of a given type, whose rows fill their pages.
func (c *checker) column(a *manifest.Array, name string, rows int64, dtype manifest.DType) *Array {
	array := c.array(a, name, rows)
	if c.err != nil {
		return array
	}
	if array.DType != dtype || len(array.RowShape) != 0 {
		return c.fail("%s holds %s of shape %v, expected %s scalars", name, array.DType.Label(), array.RowShape, dtype.Label())
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
		if t.GetScale() != 0 || t.GetScales() != nil {
			if c.err == nil {
				c.err = fmt.Errorf("store: %s: tensor %q is quantised: %w", c.dir, t.GetName(), ErrVersion)
			}
			return nil
		}
		out = append(out, Tensor{Name: t.GetName(), Array: *c.array(t.GetData(), t.GetName(), rows)})
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
