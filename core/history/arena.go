package history

import (
	"unsafe"

	"freshgo/core/mem"
)

// arena hands out pieces of one block, which is kept from batch to batch. A batch larger than all before takes a new
// block of exactly its size: among n batches alike that happens about ln n times.
type arena struct {
	block *mem.Block
	rest  []byte
}

// pieceAlign keeps every piece aligned for its elements.
const pieceAlign = 8

// pieceBytes returns the memory that take uses for n elements.
func pieceBytes(n, size int64) int64 { return (n*size + pieceAlign - 1) &^ (pieceAlign - 1) }

// begin takes back all pieces and makes room for n bytes. With an error the arena is empty.
func (a *arena) begin(budget *mem.Budget, n int64) error {
	if a.block == nil || int64(len(a.block.Bytes())) < n {
		a.free()
		block, err := budget.Alloc(mem.Trace, n)
		if err != nil {
			return err
		}
		a.block = block
	}
	a.rest = a.block.Bytes()
	return nil
}

// take returns n elements whose contents are undefined.
func take[T any](a *arena, n int64) []T {
	var zero T
	nBytes := pieceBytes(n, int64(unsafe.Sizeof(zero))) // unsafe: only a size
	piece := mem.View[T](a.rest[:nBytes])
	a.rest = a.rest[nBytes:]
	return piece[:n:n]
}

func (a *arena) free() {
	if a.block != nil {
		a.block.Free()
	}
	a.block, a.rest = nil, nil
}
