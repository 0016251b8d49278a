package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// maxOrdered is the most nodes of a store whose rows are in an order of their own: rows are numbered in a uint32, of
// which one means none.
const maxOrdered = math.MaxUint32

// noRow marks a node whose row has not been seen yet. No row has this number.
const noRow = math.MaxUint32

// RowOf returns the row of every node in the tensors, Count uint32 by the user's id, or nil where the row is the id. It
// inverts Order, and checks that this is a permutation: each of the rows holds another node. It needs four bytes a node
// of the budget under this purpose until the block is freed, and Order.LoadBytes() while it runs; a few milliseconds
// per million nodes.
func (t *NodeType) RowOf(ctx context.Context, budget *mem.Budget, p mem.Purpose) (*mem.Block, error) {
	a := t.Order
	if a == nil {
		return nil, nil
	}
	block, err := budget.Alloc(p, a.Rows*4)
	if err != nil {
		return nil, err
	}
	rowOf := mem.Slice[uint32](block)
	for i := range rowOf {
		rowOf[i] = noRow
	}
	return a.scanInto(ctx, block, nil, budget, func(off int64, piece []byte) error {
		first := off / 4
		ids := mem.View[uint32](piece)
		for i, id := range ids[:min(int64(len(ids)), a.Rows-first)] {
			row := uint32(first + int64(i))
			if int64(id) >= a.Rows {
				return badValue(a, int64(row), int64(id), 0, a.Rows-1)
			}
			// Atomic: pieces are visited by several goroutines, and a damaged order may name a node in two of them.
			if other := atomic.SwapUint32(&rowOf[id], row); other != noRow {
				return notPermutation(a, max(row, other), id)
			}
		}
		return nil
	})
}

// LoadOrder returns the user's id of each row, Count uint32, checked to be a permutation, or nil where the id is the
// row. While it runs it needs a bit a node and Order.LoadBytes() besides the block.
func (t *NodeType) LoadOrder(ctx context.Context, budget *mem.Budget, p mem.Purpose) (*mem.Block, error) {
	if t.Order == nil {
		return nil, nil
	}
	check, err := newOrderCheck(t.Order, budget)
	if err != nil {
		return nil, err
	}
	defer check.close()
	return t.Order.loadFile(ctx, budget, p, check.visit)
}

// orderCheck checks piece by piece, in any order and from several goroutines, that an order is a permutation. As there
// are as many rows as nodes, it is one if no id is out of range and none occurs twice.
type orderCheck struct {
	array *Array
	block *mem.Block
	seen  []uint64 // a bit for each node; each word changed by atomic operations only
}

// newOrderCheck charges orderCheckBytes to the budget until close.
func newOrderCheck(a *Array, budget *mem.Budget) (*orderCheck, error) {
	block, err := budget.Alloc(mem.Staging, orderCheckBytes(a.Rows))
	if err != nil {
		return nil, err
	}
	return &orderCheck{array: a, block: block, seen: mem.Slice[uint64](block)}, nil
}

func orderCheckBytes(rows int64) int64 { return roundUp(rows, 64) / 8 }

func (c *orderCheck) close() { c.block.Free() }

func (c *orderCheck) visit(off int64, piece []byte) error {
	first := off / 4
	ids := mem.View[uint32](piece)
	for i, id := range ids[:min(int64(len(ids)), c.array.Rows-first)] {
		row := first + int64(i)
		if int64(id) >= c.array.Rows {
			return badValue(c.array, row, int64(id), 0, c.array.Rows-1)
		}
		// Atomic: two goroutines may set bits of one word.
		if bit := uint64(1) << (id % 64); atomic.OrUint64(&c.seen[id/64], bit)&bit != 0 {
			return notPermutation(c.array, uint32(row), id)
		}
	}
	return nil
}

func notPermutation(a *Array, row, id uint32) error {
	return &CorruptError{
		Path: a.Path, Off: a.Layout.Offset(int64(row)),
		Reason: fmt.Sprintf("row %d is of node %d, which has another row: the order is no permutation", row, id),
	}
}

// ReadTensor fills dense with all rows of a node, edge or split array of this store, back to back in the user's order.
// While it runs it needs LoadBytes of the array, and for a tensor of nodes with an Order what LoadOrder takes.
func (s *Store) ReadTensor(ctx context.Context, a *Array, dense []byte, budget *mem.Budget) error {
	owns := func(t NodeType) bool {
		return t.Order != nil && slices.ContainsFunc(t.Tensors, func(of Tensor) bool { return of.File == a.File })
	}
	i := slices.IndexFunc(s.nodeTypes, owns)
	if i < 0 {
		return a.scan(ctx, nil, budget, func(off int64, piece []byte) error {
			copyRows(dense, 0, a.Layout, off, piece)
			return nil
		})
	}
	order, err := s.nodeTypes[i].LoadOrder(ctx, budget, mem.Staging)
	if err != nil {
		return err
	}
	defer order.Free()
	// As the order is a permutation, the goroutines of the scan write to rows of their own.
	put := &scatter{array: a, order: mem.Slice[uint32](order), dense: dense}
	return a.scan(ctx, nil, budget, put.visit)
}

// scatter copies the rows in pieces of a file to the places of their nodes.
type scatter struct {
	array *Array
	order []uint32
	dense []byte
}

// visit copies what a piece holds of each row: packed rows may begin in the piece before or end in the next.
func (c *scatter) visit(off int64, piece []byte) error {
	l := c.array.Layout
	size := int64(l.RowBytes)
	if l.RowsPerPage == 0 {
		end := min(off+int64(len(piece)), c.array.Rows*size)
		for at := off; at < end; {
			row := at / size
			next := min((row+1)*size, end)
			copy(c.dense[int64(c.order[row])*size+at-row*size:], piece[at-off:next-off])
			at = next
		}
		return nil
	}
	perPage := int64(l.RowsPerPage)
	for page := off / ssd.PageBytes; len(piece) > 0; page, piece = page+1, piece[ssd.PageBytes:] {
		for i := range min(perPage, c.array.Rows-page*perPage) {
			copy(c.dense[int64(c.order[page*perPage+i])*size:][:size], piece[i*size:])
		}
	}
	return nil
}
