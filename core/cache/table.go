package cache

import (
	"math"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/invariants"
	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
)

// accessed is the state of a row whose bit is set.
const accessed = 1

// table is the common part of the online policies: the slot of each row, the row
// of each slot, and the order of eviction.
//
// A batch is taken as one access after the other, in its order, with two rules
// that follow from gathering it as a whole. Hits are decided on the state before
// the batch. And the rows that enter are the difference between the states before
// and after it: a row that was admitted and pushed out again within the batch
// never enters, and a row that was pushed out and came back never left, so it
// keeps its slot.
//
// The order is an array of slots, so that the nodes of the next entries can be
// prefetched. A linked list, in which each miss waits for the one before, was
// rejected. An entry is valid while its slot points back at it; an entry that
// moves on leaves a hole behind.
type table struct {
	block     *mem.Block // nil when the capacity is 0
	addresses []int32    // by row: its slot, Miss, or below Miss the policy's note of the row
	nodes     []node     // by slot, and behind them the sentinel of the vacant slots
	order     []int32    // slots, as the policy arranges them
	extra     []byte     // the policy's additional memory
	capacity  int32
	step      *Step // of the call that runs
	undone    bool  // whether some move of the step was taken back
}

// A node is the state of a slot, in one cache line.
type node struct {
	row   uint32 // in the slot
	pos   uint32 // of its entry in the order
	state int32  // vacant, or the policy's state of the row
	move  int32  // of the step that filled the slot, if it is the one that runs
}

const (
	nodeBytes    = int64(unsafe.Sizeof(node{}))
	orderBytes   = 4  // for an entry of the order
	vacant       = -1 // the state of a slot without a row
	lookahead    = 32 // entries of the order between a prefetch and the use, at least. Arbitrary
	orderEntries = 2  // for each slot, where a policy leaves holes

	nowhere = math.MaxUint32 // the place of a row that has none yet
)

// queue is a policy's order of eviction. The table keeps rows and slots
// consistent.
type queue interface {
	// touch notes a hit.
	touch(slot int32)
	// evict makes at least one slot vacant, by table.vacate.
	evict()
	// insert adds a slot with a new row. address is the row's previous entry in the address table.
	insert(slot, address int32)
}

func newTable(budget *mem.Budget, numRows, capacity, slotBytes int64) (*table, error) {
	t := &table{capacity: int32(capacity)}
	if capacity == 0 {
		return t, nil
	}
	block, err := budget.Alloc(mem.FeatureCache, tableBytes(numRows, capacity, slotBytes))
	if err != nil {
		return nil, err
	}
	t.block = block
	rest := block.Bytes()
	cut := func(n int64) (part []byte) { part, rest = rest[:n], rest[n:]; return part }
	t.nodes = mem.View[node](cut((capacity + 1) * nodeBytes))
	t.addresses = mem.View[int32](cut(numRows * addressBytes))
	t.extra = rest
	for i := range t.addresses {
		t.addresses[i] = Miss
	}
	end := &t.nodes[capacity]
	end.row, end.pos = uint32(capacity), uint32(capacity)
	for slot := t.capacity - 1; slot >= 0; slot-- {
		t.release(slot)
	}
	return t, nil
}

func tableBytes(numRows, capacity, slotBytes int64) int64 {
	return numRows*addressBytes + capacity*slotBytes + nodeBytes
}

// arrange gives the policy an order with the given number of entries.
func (t *table) arrange(entries int) {
	n := min(int64(entries)*int64(t.capacity)*orderBytes, int64(len(t.extra)))
	t.order, t.extra = mem.View[int32](t.extra[:n]), t.extra[n:]
}

// Close implements Policy.
func (t *table) Close() {
	if t.block != nil {
		t.block.Free()
	}
	*t = table{}
}

// Vacant slots are a list through their nodes: pos is the one behind, row the one
// before. It is circular, with a sentinel.

func (t *table) release(slot int32) {
	end := &t.nodes[t.capacity]
	t.nodes[slot] = node{row: uint32(t.capacity), pos: end.pos, state: vacant, move: t.nodes[slot].move}
	t.nodes[end.pos].row = uint32(slot)
	end.pos = uint32(slot)
}

func (t *table) take(slot int32) {
	n := &t.nodes[slot]
	t.nodes[n.row].pos = n.pos
	t.nodes[n.pos].row = n.row
}

// nextVacant returns the slot that was vacated last, or the capacity.
func (t *table) nextVacant() int32 { return int32(t.nodes[t.capacity].pos) }

// place writes an entry of the order.
func (t *table) place(slot int32, pos uint32) {
	t.order[pos] = slot
	t.nodes[slot].pos = pos
}

// valid reports whether an entry of the order is no hole.
func (t *table) valid(slot int32, pos uint32) bool {
	n := &t.nodes[slot]
	return n.pos == pos && n.state != vacant
}

// prefetchOrder looks ahead at every lookahead-th position: it brings the nodes of
// the entries after next close, and the addresses of the rows of the next ones,
// whose nodes are here by now.
func (t *table) prefetchOrder(pos, end uint32) {
	if pos%lookahead != 0 {
		return
	}
	asm.Prefetch(t.nodes, t.order[min(pos+lookahead, end):min(pos+2*lookahead, end)])
	var rows [lookahead]uint32
	next := t.order[pos:min(pos+lookahead, end)]
	for i, slot := range next {
		rows[i] = t.nodes[slot].row
	}
	asm.Prefetch(t.addresses, rows[:len(next)])
}

// vacate evicts the row of a slot; address becomes the row's entry in the address table.
func (t *table) vacate(slot, address int32) {
	n := &t.nodes[slot]
	t.addresses[n.row] = address
	// A number of an earlier step never names a move of this one to this slot,
	// unless that is its number in this step as well.
	if in := t.step.In; int(n.move) < len(in) && in[n.move].Slot == slot {
		in[n.move].Slot = Miss
		t.undone = true
	}
	t.release(slot)
}

// run is the Step of a policy with a queue.
func (t *table) run(q queue, rows []uint32, step *Step) {
	t.begin(rows, step)
	if t.capacity == 0 {
		return
	}
	slots := step.Slots
	asm.Prefetch(t.nodes, slots[:min(ahead, len(slots))])
	for lo := 0; lo < len(slots); lo += ahead {
		hi := min(lo+ahead, len(slots))
		asm.Prefetch(t.nodes, slots[hi:min(hi+ahead, len(slots))])
		for i := lo; i < hi; i++ {
			address, row := slots[i], rows[i]
			if address < 0 {
				slots[i] = Miss
				t.admit(q, row, int32(i), address)
				continue
			}
			if n := &t.nodes[address]; n.row == row && n.state != vacant {
				q.touch(address)
			} else {
				t.readmit(q, row, address)
			}
		}
	}
	if t.undone {
		t.finish()
	}
	if invariants.Enabled {
		t.check(rows)
	}
}

// begin decides the hits. Entries of misses may still hold the policy's notes.
func (t *table) begin(rows []uint32, step *Step) {
	t.step = step
	step.In = step.In[:0]
	step.Slots = reuse.Slice(step.Slots, len(rows))
	lookUp(t.addresses, rows, step.Slots)
}

// admit gives a slot to a row that was not cached before the batch.
func (t *table) admit(q queue, row uint32, pos, address int32) {
	slot := t.free(q)
	t.take(slot)
	t.nodes[slot] = node{row: row, pos: nowhere, move: int32(len(t.step.In))}
	t.step.In = append(t.step.In, Move{Pos: pos, Slot: slot})
	t.addresses[row] = slot
	q.insert(slot, address)
}

// readmit restores a row that was cached before the batch and that an earlier row of the batch evicted. It returns to
// its slot, home; the row there moves to the free slot. That row is one which the batch admitted and which nothing has
// copied yet, as only one of the earlier rows has this home.
func (t *table) readmit(q queue, row uint32, home int32) {
	address := t.addresses[row]
	slot := t.free(q)
	if t.nodes[home].state == vacant {
		t.take(home)
	} else {
		t.take(slot)
		n := t.nodes[home]
		t.nodes[slot] = n
		t.order[n.pos] = slot
		t.addresses[n.row] = slot
		t.step.In[n.move].Slot = slot
	}
	t.nodes[home] = node{row: row, pos: nowhere, move: t.nodes[home].move}
	t.addresses[row] = home
	q.insert(home, address)
}

// free returns a vacant slot.
func (t *table) free(q queue) int32 {
	if t.nextVacant() == t.capacity {
		q.evict()
	}
	return t.nextVacant()
}

// finish drops the moves that were taken back.
func (t *table) finish() {
	kept := t.step.In[:0]
	for _, m := range t.step.In {
		if m.Slot >= 0 {
			kept = append(kept, m)
		}
	}
	t.step.In = kept
	t.undone = false
}
