package fetch

import (
	"slices"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/mem"
)

// Locker is an Allocator that locks memory in place, so that a device reads it where it is.
type Locker interface {
	// Lock locks memory until unlock is called, and returns nil if the system refuses.
	Lock(data []byte) (unlock func())
}

// Given are the node tensors of a graph in the user's memory whose rows are left to the consumer, which reads them
// there (draw.Options.RowsByID). They count in the loader's memory, unless it excludes the graph.
type Given struct {
	sampling *draw.Sampling
	locker   Locker
	tensors  []*draw.Tensor
	unlocks  map[*draw.Tensor]func()
}

// NewGiven returns the tensors that may be locked, and locks none. Batches leave out their rows from now on.
func NewGiven(m *draw.Sampling, alloc mem.Allocator) *Given {
	g := &Given{sampling: m, unlocks: map[*draw.Tensor]func(){}}
	g.locker, _ = alloc.(Locker)
	for i := range m.Parts.Tensors {
		if t := &m.Parts.Tensors[i]; g.locker != nil && readable(m, t) {
			g.tensors = append(g.tensors, t)
		}
	}
	g.mark()
	return g
}

// mark says which rows batches leave out, and what counts in the memory.
func (g *Given) mark() {
	m := g.sampling
	m.Locked = 0
	for i := range m.Parts.Tensors {
		m.Parts.Tensors[i].ByID = false
	}
	for _, t := range g.tensors {
		if t.ByID = true; !m.Options.Spare && m.Options.Memory > 0 {
			m.Locked += int64(len(t.Memory))
		}
	}
}

// Lock locks the tensors. It returns false where the system has refused some: batches bring the rows of these again.
func (g *Given) Lock() (whole bool) {
	before := len(g.tensors)
	g.tensors = slices.DeleteFunc(g.tensors, func(t *draw.Tensor) bool {
		if g.unlocks[t] == nil {
			if unlock := g.locker.Lock(t.Memory); unlock != nil {
				g.unlocks[t] = unlock
			}
		}
		return g.unlocks[t] == nil
	})
	g.mark()
	return len(g.tensors) == before
}

// Unlock unlocks them all, and reports whether there were any. Batches bring their rows again.
func (g *Given) Unlock() bool {
	some := len(g.tensors) > 0
	for _, unlock := range g.unlocks {
		unlock()
	}
	clear(g.unlocks)
	g.tensors = nil
	g.mark()
	return some
}

// lockResident locks the tensors of a store that are held whole, whose memory is counted already, and leaves their rows
// to the consumer.
func (f *Features) lockResident(m *draw.Sampling, alloc mem.Allocator) {
	locker, can := alloc.(Locker)
	for i := range f.Tables {
		t := &f.Tables[i]
		if !can || t.OnDisk == nil || t.Disk != nil || m.Order != nil || !readable(m, &t.Tensor) {
			continue
		}
		if unlock := locker.Lock(t.Memory); unlock != nil {
			m.OnClose(unlock)
			t.ByID, m.Parts.Tensors[i].ByID = true, true
		}
	}
}

// LockLists locks the neighbour lists of m, whose memory is counted already, until m is closed. It returns false, and
// locks none, where the system refuses one.
func LockLists(m *draw.Sampling, alloc mem.Allocator) (locked bool, err error) {
	locker, can := alloc.(Locker)
	var unlocks []func()
	defer func() {
		for _, unlock := range unlocks {
			if locked {
				m.OnClose(unlock)
			} else {
				unlock()
			}
		}
	}()
	for i := range m.Parts.Schema.Relations {
		lists, err := draw.ListsOf(m, i)
		if err != nil {
			return false, err
		}
		for _, list := range lists.All() {
			if len(list.Data) == 0 {
				continue
			}
			if !can {
				return false, nil
			}
			unlock := locker.Lock(list.Data)
			if unlock == nil {
				return false, nil
			}
			unlocks = append(unlocks, unlock)
		}
	}
	return true, nil
}

// readable reports whether a consumer can read the rows of a tensor in memory itself: not rows that change or are
// widened, and only for a consumer that draws all batches rows of edges and rows that are packed.
func readable(m *draw.Sampling, t *draw.Tensor) bool {
	return m.Options.RowsByID && len(t.Memory) > 0 && m.Parts.Reaches(t) && t.Trained == nil &&
		t.Narrow == nil && (m.Options.SeedsOnly || !t.ByEdge && !(m.Parts.Packed && batch.Packs(t)))
}
