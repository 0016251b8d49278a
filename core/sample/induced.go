package sample

import (
	"fmt"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// inducedEdges is the number of list elements that are looked up at a time: the elements and their results stay in a
// first-level cache.
const inducedEdges = 2048

// induce replaces the edges by all edges of the relation among the nodes of the batch: it reads the lists of all
// targets and keeps the sources that are in the id map.
//
// It reads every list of the targets, with prefetches in memory, by Fetch on disk.
func (b *batch) induce() error {
	targets := b.target.before()
	n := len(targets)
	if err := reserve(b.budget, room{&b.ptr, int64(n) + 1, 1}, room{&b.spans, int64(n), 0}); err != nil {
		return err
	}
	for at := 0; at < n; at += pieceTargets {
		if err := b.ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		end := min(at+pieceTargets, n)
		findSpans(b.relation.Indptr, targets[at:end], b.spans.data[at:end])
	}
	in := inducing{batch: b, nodes: targets, sources: b.source.before(), spans: b.spans.data[:n], ptr: b.ptr.data[:n+1]}
	for in.target < n {
		if err := in.lists(); err != nil {
			return err
		}
	}
	b.edges = edgeArrays{ptr: in.ptr, row: b.row.data[:in.edges], pos: b.pos.data[:in.edges]}
	b.room = max(b.room, in.edges)
	return nil
}

// inducing is the state of the work on an induced subgraph: the next element is at offset in the list of target.
type inducing struct {
	batch   *batch
	nodes   []int64
	sources []int64
	spans   []span
	ptr     []int64
	target  int
	offset  int64
	edges   int64 // kept
}

// lists takes the next lists, or parts of lists, up to the number that is fetched at a time.
func (in *inducing) lists() error {
	g := &in.batch.relation.Relation
	if g.Adjacency == nil {
		if err := in.batch.listIDs.grow(in.batch.budget, mem.Trace, inducedEdges, 0); err != nil {
			return err
		}
		return in.keep(in.load(in.batch.listIDs.data[:inducedEdges]))
	}
	err := reserve(in.batch.budget, room{&in.batch.listIDs, FetchedEdges, 0}, room{&in.batch.listPos, FetchedEdges, 0},
		room{&in.batch.listPtr, int64(len(in.nodes)) + 1, 0})
	if err != nil {
		return err
	}
	drawn := in.positions(in.batch.listPos.data[:FetchedEdges], in.batch.listPtr.data)
	ids := in.batch.listIDs.data[:len(drawn.Pos)]
	if len(ids) == 0 { // the remaining nodes have no in-edges
		return in.keep(nil)
	}
	if err := g.Adjacency.Fetch(in.batch.ctx, drawn, ids); err != nil {
		return fmt.Errorf("sample: fetching %d neighbours of a batch's nodes: %w", len(ids), err)
	}
	for len(ids) > 0 {
		part := ids[:min(len(ids), inducedEdges)]
		if err := in.keep(part); err != nil {
			return err
		}
		ids = ids[len(part):]
	}
	return nil
}

// load copies the next elements of lists in memory.
func (in *inducing) load(ids []int64) []int64 {
	g, n, offset := &in.batch.relation.Relation, 0, in.offset
	for i := in.target; i < len(in.spans) && n < len(ids); i++ {
		if next := i + group; next < len(in.spans) {
			in.ask(in.spans[next])
		}
		s := in.spans[i]
		part := ids[n:min(int64(len(ids)), int64(n)+s.deg-offset)]
		first := s.start + offset
		if g.Indices32 != nil {
			for j, v := range g.Indices32[first : first+int64(len(part))] {
				part[j] = int64(v)
			}
		} else {
			copy(part, g.Indices64[first:])
		}
		n += len(part)
		offset = 0
	}
	return ids[:n]
}

// ask prefetches the beginning of a list.
func (in *inducing) ask(s span) {
	n := int(min(s.deg, askedEdges))
	switch g := &in.batch.relation.Relation; {
	case n == 0:
	case g.Indices32 != nil:
		asm.PrefetchRange(unsafe.Pointer(&g.Indices32[s.start]), 4*n) // unsafe: the address of an element, only prefetched
	default:
		asm.PrefetchRange(unsafe.Pointer(&g.Indices64[s.start]), 8*n) // unsafe: as above
	}
}

// positions returns the positions of the next elements of lists.
func (in *inducing) positions(pos, ptr []int64) Drawn {
	n, offset, first := int64(0), in.offset, in.target
	ptr[0] = 0
	end := first
	for ; end < len(in.spans) && n < int64(len(pos)); end++ {
		s := in.spans[end]
		count := min(s.deg-offset, int64(len(pos))-n)
		for j := range count {
			pos[n+j] = s.start + offset + j
		}
		n += count
		ptr[end-first+1] = n
		offset = 0
	}
	return Drawn{Targets: in.nodes[first:end], Ptr: ptr[:end-first+1], Pos: pos[:n]}
}

// keep looks up the next elements and appends the nodes of the batch.
func (in *inducing) keep(ids []int64) error {
	if err := in.batch.ctx.Err(); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if in.edges > maxEdges {
		return fmt.Errorf("sample: %d edges among the nodes of a batch, expected at most %d: %w",
			in.edges, int64(maxEdges), ErrTooLarge)
	}
	need := in.edges + int64(len(ids))
	err := reserve(in.batch.budget, room{&in.batch.row, need, in.edges}, room{&in.batch.pos, need, in.edges})
	if err != nil {
		return err
	}
	in.batch.source.ids.find(in.sources, ids)
	row, pos, at := in.batch.row.data, in.batch.pos.data, in.edges
	for in.target < len(in.spans) {
		s := in.spans[in.target]
		count := min(s.deg-in.offset, int64(len(ids)))
		first := s.start + in.offset
		for j, local := range ids[:count] {
			row[at], pos[at] = uint32(local), first+int64(j) // overwritten if the node is absent
			if local >= 0 {
				at++
			}
		}
		ids = ids[count:]
		if in.offset += count; in.offset < s.deg {
			break
		}
		in.target, in.offset = in.target+1, 0
		in.ptr[in.target] = at
	}
	in.edges = at
	return nil
}

// find replaces ids by local ids, or by -1 if they have none.
func (m *idMap) find(nodes, ids []int64) {
	prefetchIDs(m, ids[:min(ahead, len(ids))])
	for at := 0; at < len(ids); at += group {
		if next := at + ahead; next < len(ids) {
			prefetchIDs(m, ids[next:min(next+group, len(ids))])
		}
		part := ids[at:min(at+group, len(ids))]
		if m.table.block == nil {
			for i, v := range part {
				part[i] = int64(m.stamps.data[v]) - int64(m.base)
			}
			for i, local := range part {
				part[i] = max(local, -1)
			}
			continue
		}
		for i, v := range part {
			part[i] = m.findSlot(nodes, v)
		}
	}
}

// findSlot is find for one id in a hash map.
func (m *idMap) findSlot(nodes []int64, v int64) int64 {
	mask := uint64(len(m.table.data) - 1)
	for slot := uint64(v) * golden >> m.shift; ; slot = (slot + 1) & mask {
		entry := m.table.data[slot&mask]
		stamp := uint32(entry)
		if stamp < m.base {
			return -1
		}
		if uint32(entry>>32) == uint32(v) && (m.exact || nodes[stamp-m.base] == v) {
			return int64(stamp - m.base)
		}
	}
}
