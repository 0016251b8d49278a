package sample

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// nodeSet holds the nodes of one type in a batch, and the id map that numbers them.
type nodeSet struct {
	budget   *mem.Budget
	numNodes int64 // of the graph
	disjoint bool  // nodes are words with trees in a forest, see disjoint.go
	moved    bool  // nodes may move while edges are drawn from them: front has copies
	n        int   // numbered nodes

	ids    idMap
	nodes  buffer[int64]
	forest forest

	first, end int           // the nodes that the current hop expands
	front      buffer[int64] // their global ids
	perHop     []int64
}

func (s *nodeSet) free() {
	s.ids.free()
	freeAll(s.rooms(nodesRoom{}))
}

// initIDs makes an id map for nodes, or for words.
func (s *nodeSet) initIDs(stamp bool) error {
	if s.disjoint {
		return s.ids.init(s.budget, math.MaxInt64, false)
	}
	return s.ids.init(s.budget, s.numNodes, stamp)
}

// begin checks the seeds and numbers them. In a disjoint batch firstTree is the tree of the first seed.
func (s *nodeSet) begin(ctx context.Context, seeds []int64, firstTree, hops int) error {
	for i, v := range seeds {
		if v < 0 || v >= s.numNodes {
			return badSeed(v, i, s.numNodes)
		}
	}
	s.n = 0
	s.ids.begin()
	if err := s.ids.reserve(nil, len(seeds)); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if err := s.nodes.grow(s.budget, mem.Trace, int64(len(seeds)), 0); err != nil {
		return err
	}
	copy(s.nodes.data, seeds)
	if s.disjoint {
		s.packSeeds(seeds, firstTree)
	}
	for part := range slices.Chunk(s.nodes.data[:len(seeds)], ahead) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		prefetchIDs(&s.ids, part)
		s.ids.insert(s.nodes.data, s.n, s.n+len(part))
		s.n += len(part)
	}
	s.first, s.end = 0, s.n
	s.perHop = append(make([]int64, 0, hops+1), int64(s.n))
	if s.disjoint {
		return s.unpackTrees()
	}
	return nil
}

func badSeed(v int64, at int, numNodes int64) error {
	return fmt.Errorf("sample: seed %d at index %d, expected a node in [0, %d): %w", v, at, numNodes, ErrSeed)
}

// beginHop prepares the targets of a hop.
func (s *nodeSet) beginHop() error {
	if !s.moved || s.disjoint { // the ids of trees are in the forest, which does not change within a hop
		return nil
	}
	targets := s.nodes.data[s.first:s.end]
	if err := s.front.grow(s.budget, mem.Trace, int64(len(targets)), 0); err != nil {
		return err
	}
	copy(s.front.data, targets)
	return nil
}

// endHop counts the nodes that a hop has reached, the targets of the next hop.
func (s *nodeSet) endHop() error {
	s.perHop = append(s.perHop, int64(s.n-s.end))
	s.first, s.end = s.end, s.n
	if s.disjoint {
		return s.unpackTrees()
	}
	return nil
}

// targets returns the global ids of nodes that the hop expands, by local ids.
func (s *nodeSet) targets(first, end int) []int64 {
	switch {
	case s.disjoint:
		return s.forest.ids.data[first:end]
	case s.moved:
		return s.front.data[first-s.first : end-s.first]
	}
	return s.nodes.data[first:end]
}

// before returns the global ids of the nodes numbered before the hop, and after the last hop of all nodes.
func (s *nodeSet) before() []int64 {
	if s.disjoint {
		return s.forest.ids.data[:s.end]
	}
	return s.nodes.data[:s.end]
}

// newNodes returns the largest number of a type's nodes that the edges can reach.
func newNodes(edges, numNodes int64, disjoint bool) int64 {
	if disjoint {
		return edges
	}
	return min(edges, numNodes)
}

const (
	stampSize = 4       // bytes of a stamp
	minTable  = 1 << 12 // slots of a new hash map; arbitrary
)

// idMap numbers the nodes of a batch: one pass looks up an id and gives it the next local id if it is new.
//
// A stamp is base + local id. The base of each batch exceeds all stamps of earlier batches, so their stamps count as
// absent and nothing is cleared between batches. Stamps have 32 bits, so the stamp array takes half the cache that a
// 64-bit stamp of generation and local id would; the price is a clear after 2^31 numbered nodes.
//
// Exactly one of stamps and table is used, with the same numbering. An idMap is not safe for concurrent use.
type idMap struct {
	budget *mem.Budget
	base   uint32 // smaller stamps are absent; at least 1, so zeroed memory is absent
	next   uint32 // above all stamps so far: the base of the next batch

	// stamps has one element for each node of the graph.
	stamps buffer[uint32]

	// table is a hash map with linear probing, at most half full. An entry has the low 32 bits of an id above its stamp.
	table buffer[uint64]
	shift uint // a slot number is the upper 64-shift bits of a product
	exact bool // 32 bits distinguish all ids of the graph
}

// id is a global id in the graph's own width.
type id interface{ uint32 | int64 }

func (m *idMap) init(budget *mem.Budget, numNodes int64, stamp bool) error {
	m.budget, m.next = budget, 1
	m.exact = numNodes <= math.MaxUint32
	if stamp {
		return m.stamps.grow(budget, mem.IDMap, max(numNodes, 1), 0)
	}
	if err := m.table.grow(budget, mem.IDMap, minTable, 0); err != nil {
		return err
	}
	m.setShift()
	return nil
}

func (m *idMap) setShift() { m.shift = uint(64 - bits.Len(uint(len(m.table.data)-1))) }

func (m *idMap) free() {
	m.stamps.free()
	m.table.free()
}

// begin forgets all ids.
func (m *idMap) begin() {
	if m.next > math.MaxUint32-maxLocals {
		clear(m.stamps.data)
		clear(m.table.data)
		m.next = 1
	}
	m.base = m.next
}

// reserve makes room for more ids beside the numbered nodes.
func (m *idMap) reserve(nodes []int64, more int) error {
	if len(nodes)+more > maxLocals {
		return fmt.Errorf("a batch of %d nodes, and %d edges to more, expected at most %d nodes: %w",
			len(nodes), more, maxLocals, ErrTooLarge)
	}
	m.next = max(m.next, m.base+uint32(len(nodes)+more))
	if m.table.block == nil || 2*(len(nodes)+more) <= len(m.table.data) {
		return nil
	}
	old := m.table
	m.table = buffer[uint64]{}
	if err := m.table.grow(m.budget, mem.IDMap, int64(1)<<bits.Len(uint(2*(len(nodes)+more)-1)), 0); err != nil {
		m.table = old
		return err
	}
	old.free()
	m.setShift()
	m.insert(nodes, 0, len(nodes))
	return nil
}

// prefetchIDs prefetches the entries of ids.
func prefetchIDs[T id](m *idMap, ids []T) {
	if m.table.block == nil {
		asm.Prefetch(m.stamps.data, ids)
		return
	}
	var slots [group]int64
	for part := range slices.Chunk(ids, group) {
		for i, v := range part {
			slots[i] = int64(uint64(v) * golden >> m.shift)
		}
		asm.Prefetch(m.table.data, slots[:len(part)])
	}
}

// number sets row[i] to the local id of ids[i], for all i in order, writes new ids to nodes[n], nodes[n+1], ... and
// returns the new n. The caller has reserved len(ids), and nodes has room for them. row and ids may be the same array.
func number[T id](m *idMap, nodes []int64, n int, ids []T, row []uint32) int {
	if m.table.block == nil {
		return numberStamps(m, nodes, n, ids, row)
	}
	return numberTable(m, nodes, n, ids, row)
}

// numberStamps branches on whether an id is new, although the branch is hard to predict: without it (a conditional
// move, and a node written each time) every address would wait for all stamps before it, which took 1.2 times as long.
func numberStamps[T id](m *idMap, nodes []int64, n int, ids []T, row []uint32) int {
	stamps, base := m.stamps.data, m.base
	row = row[:len(ids)]
	for i, v := range ids {
		stamp := stamps[v]
		if stamp < base {
			stamp = base + uint32(n)
			stamps[v] = stamp
			nodes[n] = int64(v)
			n++
		}
		row[i] = stamp - base
	}
	return n
}

func numberTable[T id](m *idMap, nodes []int64, n int, ids []T, row []uint32) int {
	table, base, shift, exact := m.table.data, m.base, m.shift, m.exact
	mask := uint64(len(table) - 1)
	row = row[:len(ids)]
	for i, v := range ids {
		for slot := uint64(v) * golden >> shift; ; slot = (slot + 1) & mask {
			entry := table[slot&mask]
			stamp := uint32(entry)
			if stamp < base {
				table[slot&mask] = uint64(v)<<32 | uint64(base+uint32(n))
				nodes[n], row[i] = int64(v), uint32(n)
				n++
				break
			}
			if uint32(entry>>32) == uint32(v) && (exact || nodes[stamp-base] == int64(v)) {
				row[i] = stamp - base
				break
			}
		}
	}
	return n
}

// insert numbers nodes[first:end] by their positions. A repeated id, as among seeds, has the number of its first
// position.
func (m *idMap) insert(nodes []int64, first, end int) {
	mask := uint64(len(m.table.data) - 1)
	for local := first; local < end; local++ {
		v, stamp := nodes[local], m.base+uint32(local)
		if m.table.block == nil {
			if m.stamps.data[v] < m.base {
				m.stamps.data[v] = stamp
			}
			continue
		}
		for slot := uint64(v) * golden >> m.shift; ; slot = (slot + 1) & mask {
			entry := m.table.data[slot]
			if uint32(entry) < m.base {
				m.table.data[slot] = uint64(v)<<32 | uint64(stamp)
				break
			}
			if uint32(entry>>32) == uint32(v) && (m.exact || nodes[uint32(entry)-m.base] == v) {
				break
			}
		}
	}
}
