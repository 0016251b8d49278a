package cache

import (
	"container/list"
	"slices"
)

// The policies as their papers state them, one access at a time and as slow as
// it gets. They share nothing with the package: no slots, no batches.
type reference interface {
	access(row uint32)
	cached() []uint32
}

// refLRU is a list with the latest access at the front.
type refLRU struct {
	capacity int
	order    []uint32
}

func (r *refLRU) access(row uint32) {
	if i := slices.Index(r.order, row); i >= 0 {
		r.order = slices.Delete(r.order, i, i+1)
	} else if len(r.order) == r.capacity {
		r.order = r.order[:len(r.order)-1]
	}
	r.order = slices.Insert(r.order, 0, row)
}

func (r *refLRU) cached() []uint32 { return r.order }

// refClock is a ring of frames with a hand.
type refClock struct {
	capacity int
	frames   []uint32
	used     []bool
	hand     int
}

func (r *refClock) access(row uint32) {
	if i := slices.Index(r.frames, row); i >= 0 {
		r.used[i] = true
		return
	}
	if len(r.frames) < r.capacity {
		r.frames, r.used = append(r.frames, row), append(r.used, false)
		return
	}
	for r.used[r.hand] {
		r.used[r.hand] = false
		r.hand = (r.hand + 1) % r.capacity
	}
	r.frames[r.hand] = row
	r.hand = (r.hand + 1) % r.capacity
}

func (r *refClock) cached() []uint32 { return r.frames }

// refSieve is algorithm 1 of the SIEVE paper.
type refSieve struct {
	capacity int
	queue    *list.List // of *refSieveItem, newest first
	hand     *list.Element
}

type refSieveItem struct {
	row     uint32
	visited bool
}

func (r *refSieve) access(row uint32) {
	for e := r.queue.Front(); e != nil; e = e.Next() {
		if item := e.Value.(*refSieveItem); item.row == row {
			item.visited = true
			return
		}
	}
	if r.queue.Len() == r.capacity {
		o := r.hand
		if o == nil {
			o = r.queue.Back()
		}
		for o.Value.(*refSieveItem).visited {
			o.Value.(*refSieveItem).visited = false
			if o = o.Prev(); o == nil {
				o = r.queue.Back()
			}
		}
		r.hand = o.Prev()
		r.queue.Remove(o)
	}
	r.queue.PushFront(&refSieveItem{row: row})
}

func (r *refSieve) cached() (rows []uint32) {
	for e := r.queue.Front(); e != nil; e = e.Next() {
		rows = append(rows, e.Value.(*refSieveItem).row)
	}
	return rows
}

// refS3FIFO is algorithm 1 of the S3-FIFO paper. A row is in the ghost queue for
// as many insertions into it as the main queue has room for rows.
type refS3FIFO struct {
	capacity    int
	small, main []uint32 // head first
	freq        map[uint32]int
	ghost       map[uint32]int // when it was inserted
	insertions  int
}

func (r *refS3FIFO) size() int     { return len(r.small) + len(r.main) }
func (r *refS3FIFO) mainRoom() int { return r.capacity - (r.capacity+9)/10 }

func (r *refS3FIFO) access(row uint32) {
	if slices.Contains(r.small, row) || slices.Contains(r.main, row) {
		r.freq[row] = min(r.freq[row]+1, 3)
		return
	}
	for r.size() == r.capacity {
		if 10*len(r.small) >= r.capacity {
			r.evictSmall()
		} else {
			r.evictMain()
		}
	}
	if at, known := r.ghost[row]; known && r.insertions-at <= r.mainRoom() {
		delete(r.ghost, row)
		r.main = slices.Insert(r.main, 0, row)
	} else {
		r.small = slices.Insert(r.small, 0, row)
	}
	r.freq[row] = 0
}

func (r *refS3FIFO) evictSmall() {
	for evicted := false; !evicted && len(r.small) > 0; {
		t := r.small[len(r.small)-1]
		r.small = r.small[:len(r.small)-1]
		if r.freq[t] > 1 {
			r.freq[t] = 0
			r.main = slices.Insert(r.main, 0, t)
			if len(r.main) > r.mainRoom() {
				r.evictMain()
			}
		} else {
			r.ghost[t] = r.insertions
			r.insertions++
			evicted = true
		}
	}
}

func (r *refS3FIFO) evictMain() {
	for evicted := false; !evicted && len(r.main) > 0; {
		t := r.main[len(r.main)-1]
		r.main = r.main[:len(r.main)-1]
		if r.freq[t] > 0 {
			r.main = slices.Insert(r.main, 0, t)
			r.freq[t]--
		} else {
			evicted = true
		}
	}
}

func (r *refS3FIFO) cached() []uint32 { return append(slices.Clone(r.small), r.main...) }

func newReference(name string, capacity int) reference {
	switch name {
	case "lru":
		return &refLRU{capacity: capacity}
	case "clock":
		return &refClock{capacity: capacity}
	case "sieve":
		return &refSieve{capacity: capacity, queue: list.New()}
	case "s3fifo":
		return &refS3FIFO{capacity: capacity, freq: map[uint32]int{}, ghost: map[uint32]int{}}
	}
	return nil
}
