package store

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/packed"
	"freshgo/core/ssd"
)

// LoadIndptr returns the offsets of the in-edges, checked: they start at 0, never fall and end at NumEdges. The caller
// frees them.
func (e *EdgeType) LoadIndptr(ctx context.Context, budget *mem.Budget, p mem.Purpose) (*offsets.Table, error) {
	check := newIndptrCheck(e.Indptr, e.NumEdges)
	b, err := offsets.NewBuilder(budget, p, e.NumNodes, e.NumEdges)
	if err != nil {
		return nil, err
	}
	err = e.Indptr.scan(ctx, nil, budget, func(off int64, piece []byte) error {
		if err := check.visit(off, piece); err != nil {
			return err
		}
		b.Put(off/8, check.rows(off, piece))
		return nil
	})
	if err == nil {
		err = check.finish()
	}
	if err != nil {
		b.Table().Free()
		return nil, err
	}
	return b.Table(), nil
}

// IndptrBytes returns the memory of the offsets that LoadIndptr returns.
func (e *EdgeType) IndptrBytes() int64 { return offsets.Bytes(e.NumNodes, e.NumEdges) }

// indptrCheck checks offsets piece by piece, in any order, and how the pieces join at the end.
type indptrCheck struct {
	array    *Array
	numEdges int64
	ends     [][2]int64 // first and last offset of each piece; each written by the one call of visit for it
}

func newIndptrCheck(a *Array, numEdges int64) *indptrCheck {
	return &indptrCheck{array: a, numEdges: numEdges, ends: make([][2]int64, (a.Bytes+scanPiece-1)/scanPiece)}
}

// rows returns the offsets in a piece, without the padding of the last page.
func (c *indptrCheck) rows(off int64, piece []byte) []int64 {
	rows := mem.View[int64](piece)
	return rows[:min(int64(len(rows)), c.array.Rows-off/8)]
}

func (c *indptrCheck) visit(off int64, piece []byte) error {
	rows, last := c.rows(off, piece), int64(0)
	for i, v := range rows {
		if v < last || v > c.numEdges {
			return badValue(c.array, off/8+int64(i), v, last, c.numEdges)
		}
		last = v
	}
	c.ends[off/scanPiece] = [2]int64{rows[0], last}
	return nil
}

func (c *indptrCheck) finish() error {
	last := int64(0)
	for i, end := range c.ends {
		if end[0] < last || i == 0 && end[0] != 0 {
			return badValue(c.array, int64(i)*scanPiece/8, end[0], last, last)
		}
		last = end[1]
	}
	if last != c.numEdges {
		return badValue(c.array, c.array.Rows-1, last, c.numEdges, c.numEdges)
	}
	return nil
}

// LoadSplit returns the node ids of a split, each checked to be a node.
func (t *NodeType) LoadSplit(ctx context.Context, name string) ([]int64, error) {
	i := slices.IndexFunc(t.Splits, func(split Tensor) bool { return split.Name == name })
	if i < 0 {
		known := make([]string, len(t.Splits))
		for j := range t.Splits {
			known[j] = t.Splits[j].Name
		}
		return nil, fmt.Errorf("store: split %q, the splits of %s are %q: %w",
			nodeLabel(t.Name)+name, t.in.path, known, ErrNotFound)
	}
	a := &t.Splits[i].Array
	block, err := a.LoadIDs(ctx, t.Count, mem.NewBudget(0), mem.Staging)
	if err != nil {
		return nil, err
	}
	defer block.Free()
	return slices.Clone(mem.Slice[int64](block)[:a.Rows]), nil
}

// Load returns the rows back to back, without the padding of their pages, in the order in which they are stored.
// Store.ReadTensor has them in the user's.
func (a *Array) Load(ctx context.Context, budget *mem.Budget, p mem.Purpose) (*mem.Block, error) {
	l := a.Layout
	if l.RowsPerPage == 0 || l.RowsPerPage*l.RowBytes == ssd.PageBytes {
		return a.loadFile(ctx, budget, p, anyValue)
	}
	rowBytes := int64(l.RowBytes)
	block, err := budget.Alloc(p, a.Rows*rowBytes)
	if err != nil {
		return nil, err
	}
	dense, pageRows := block.Bytes(), int64(l.RowsPerPage)*rowBytes
	return a.scanInto(ctx, block, nil, budget, func(off int64, piece []byte) error {
		at := off / ssd.PageBytes * pageRows
		for ; len(piece) > 0; piece = piece[ssd.PageBytes:] {
			at += int64(copy(dense[at:], piece[:pageRows]))
		}
		return nil
	})
}

// scanInto is scan for a visitor that fills a block, which it returns, or frees on an error.
func (a *Array) scanInto(
	ctx context.Context, block *mem.Block, dest []byte, budget *mem.Budget, visit func(off int64, piece []byte) error,
) (*mem.Block, error) {
	if err := a.scan(ctx, dest, budget, visit); err != nil {
		block.Free()
		return nil, err
	}
	return block, nil
}

// EachInteger reads an array of one integer for each row once, at the device's sequential rate and every page checked,
// and calls visit with the integers of the rows from first on, from several goroutines and in no order. They are valid
// during the call only. It takes LoadBytes of the budget.
func (a *Array) EachInteger(
	ctx context.Context, budget *mem.Budget, visit func(first int64, integers []int64),
) error {
	perPage := int64(a.Layout.RowsPerPage)
	return a.scan(ctx, nil, budget, func(off int64, pages []byte) error {
		buffer := make([]int64, perPage)
		for row := off / ssd.PageBytes * perPage; row < a.Rows && len(pages) > 0; row += perPage {
			integers := buffer[:min(perPage, a.Rows-row)]
			DecodeIntegers(a.DType, pages[:len(integers)*a.Layout.RowBytes], integers)
			visit(row, integers)
			pages = pages[ssd.PageBytes:]
		}
		return nil
	})
}

// IDBytes returns the bytes of an id in memory, 4 or 8: those of five are widened.
func (a *Array) IDBytes() int {
	if a.DType == manifest.DType_UINT40 {
		return 8
	}
	return a.Layout.RowBytes
}

// LoadIDs loads integers, of IDBytes each, and checks that each is in [0, limit).
func (a *Array) LoadIDs(ctx context.Context, limit int64, budget *mem.Budget, p mem.Purpose) (*mem.Block, error) {
	if a.DType != manifest.DType_UINT40 {
		return a.loadFile(ctx, budget, p, idCheck(a, limit))
	}
	block, err := budget.Alloc(p, a.Rows*int64(a.IDBytes()))
	if err != nil {
		return nil, err
	}
	ids := mem.Slice[int64](block)
	return a.scanInto(ctx, block, nil, budget, func(off int64, piece []byte) error {
		return a.eachUint40(off, piece, limit, ids)
	})
}

// LoadPacked is LoadIDs into as few bits as the integers need, and takes packed.Bytes.
func (a *Array) LoadPacked(
	ctx context.Context, limit int64, budget *mem.Budget, p mem.Purpose,
) (*packed.Array, *mem.Block, error) {
	width := packed.Width(limit)
	block, err := budget.Alloc(p, packed.Bytes(a.Rows, width))
	if err != nil {
		return nil, nil, err
	}
	all, check := packed.Of(block.Bytes(), a.Rows, width), idCheck(a, limit)
	block, err = a.scanInto(ctx, block, nil, budget, func(off int64, piece []byte) error {
		if err := check(off, piece); err != nil {
			return err
		}
		first := a.Layout.RowAt(off)
		packer, rows := all.Packer(first), a.Layout.Dense(off, piece)
		rows = rows[:min(int64(len(rows)), (a.Rows-first)*int64(a.Layout.RowBytes))] // the last page is padded
		switch a.Layout.RowBytes {
		case 4:
			packed.Put(&packer, mem.View[uint32](rows))
		case 8:
			packed.Put(&packer, mem.View[int64](rows))
		default:
			buffer := make([]int64, a.Layout.RowsPerPage)
			for n := len(rows) / a.Layout.RowBytes; n > 0; n = len(rows) / a.Layout.RowBytes {
				ids := buffer[:min(n, len(buffer))]
				DecodeIntegers(a.DType, rows[:len(ids)*a.Layout.RowBytes], ids)
				packed.Put(&packer, ids)
				rows = rows[len(ids)*a.Layout.RowBytes:]
			}
		}
		packer.End()
		return nil
	})
	return all, block, err
}

// eachUint40 checks that the numbers in whole pages of the file are in [0, limit), and writes them to their places in
// all, unless it is nil.
func (a *Array) eachUint40(off int64, pages []byte, limit int64, all []int64) error {
	perPage := int64(a.Layout.RowsPerPage)
	buffer := make([]int64, perPage)
	for row := off / ssd.PageBytes * perPage; len(pages) > 0; row, pages = row+perPage, pages[ssd.PageBytes:] {
		numbers := buffer[:max(min(perPage, a.Rows-row), 0)]
		if all != nil {
			numbers = all[row:][:len(numbers)]
		}
		DecodeIntegers(manifest.DType_UINT40, pages, numbers)
		if at, value := outside(numbers, limit); at >= 0 {
			return badValue(a, row+int64(at), value, 0, limit-1)
		}
	}
	return nil
}

// loadFile loads the rows of a file whose pages have no padding before the last.
func (a *Array) loadFile(
	ctx context.Context, budget *mem.Budget, p mem.Purpose, visit func(int64, []byte) error,
) (*mem.Block, error) {
	block, err := budget.Alloc(p, a.Rows*int64(a.Layout.RowBytes))
	if err != nil {
		return nil, err
	}
	return a.scanInto(ctx, block, block.Bytes(), budget, visit)
}

func anyValue(int64, []byte) error { return nil }

// idCheck returns a visitor that checks that every id of a is in [0, limit).
func idCheck(a *Array, limit int64) func(off int64, piece []byte) error {
	return func(off int64, piece []byte) error {
		var at int
		var value int64
		if a.DType.Size() == 4 && pairsBelow(mem.View[uint64](piece), limit) {
			return nil
		}
		switch a.DType {
		case manifest.DType_UINT40:
			return a.eachUint40(off, piece, limit, nil)
		case manifest.DType_INT32:
			at, value = outside(mem.View[int32](piece), limit)
		case manifest.DType_UINT32:
			at, value = outside(mem.View[uint32](piece), limit)
		default:
			at, value = outside(mem.View[int64](piece), limit)
		}
		// The padding after the last row is no id.
		if row := off/int64(a.DType.Size()) + int64(at); at >= 0 && row < a.Rows {
			return badValue(a, row, value, 0, limit-1)
		}
		return nil
	}
}

// pairsBelow reports whether all numbers of four bytes are in [0, limit), two in each word, for a limit of up to 2^31:
// then no sum reaches the number above it. It takes 0.2 ns a number, and outside 0.6.
func pairsBelow(pairs []uint64, limit int64) bool {
	const signs = 1<<63 | 1<<31
	beyond := uint64(1<<31 - limit)
	if limit < 0 || limit > 1<<31 || len(pairs)%4 != 0 {
		return false
	}
	beyond |= beyond << 32
	found := uint64(0)
	for ; len(pairs) > 0; pairs = pairs[4:] {
		of := (*[4]uint64)(pairs)
		found |= of[0] | (of[0] + beyond) | of[1] | (of[1] + beyond) | of[2] | (of[2] + beyond) | of[3] | (of[3] + beyond)
	}
	return found&signs == 0
}

// outside returns the first value that is not in [0, limit) and its position, which is -1 where there is none.
func outside[T int32 | uint32 | int64](values []T, limit int64) (int, int64) {
	for i, v := range values {
		if uint64(int64(v)) >= uint64(limit) {
			return i, int64(v)
		}
	}
	return -1, 0
}

func badValue(a *Array, row, value, least, most int64) error {
	return &CorruptError{
		Path: a.Path, Off: a.Layout.Offset(row),
		Reason: fmt.Sprintf("row %d is %d, expected %d to %d", row, value, least, most),
	}
}
