package plan

import "freshgo/core/mem"

// list is a growing array outside the Go heap. Append to items after reserve has made room.
type list[T any] struct {
	budget  *mem.Budget
	purpose mem.Purpose
	block   *mem.Block
	items   []T
}

// reserve makes room for n more items.
func (l *list[T]) reserve(n int) error {
	if cap(l.items)-len(l.items) >= n {
		return nil
	}
	room := len(l.items) + max(n, len(l.items)/2)
	block, err := l.budget.Alloc(l.purpose, int64(room)*size[T]())
	if err != nil {
		return err
	}
	items := mem.Slice[T](block)[:len(l.items)]
	copy(items, l.items)
	l.release()
	l.block, l.items = block, items
	return nil
}

func (l *list[T]) release() {
	if l.block != nil {
		l.block.Free()
	}
	l.block, l.items = nil, nil
}
