package sample

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// temporalLists is Temporal for times on disk: it fetches and sorts whole lists of times, each once per hop for all
// trees with its node. For a batch of 1000 seeds of a question-and-answer site, that is a tenth of the lists of all
// targets. It draws the same edges as narrowed spans.
type temporalLists struct {
	*Temporal
	replace bool
}

func (m *temporalLists) most(_ int, deg, k int64) int64 { return edges(deg, k, m.replace) }

func (m *temporalLists) scratch(_ int, widest, k int64) (set, entries int64) {
	if k == All || m.replace || k >= widest {
		return 0, 0
	}
	return k, 0
}

func (m *temporalLists) gives() gives { return gives{pos: true} }
func (m *temporalLists) once() bool   { return false }

func (m *temporalLists) bytes(r *relation, d size) int64 {
	n := max(FetchedEdges, r.widest)
	return (8+8+8)*(d.nodes+1) + (8+8)*n + (4+4)*r.widest + 7*minBuffer
}

func (m *temporalLists) expand(h *hop) error {
	n := int64(h.targets) + 1
	if err := reserve(h.budget, room{&h.turns, n, 0}, room{&h.listPtr, n, 0}, room{&h.listNodes, n, 0}); err != nil {
		return err
	}
	nodes, turns := h.expanded(h.first, h.first+h.targets), h.turns.data[:h.targets]
	for i := range turns {
		turns[i] = int64(i)
	}
	slices.SortFunc(turns, func(a, b int64) int { return cmp.Compare(nodes[a], nodes[b]) })
	for len(turns) > 0 {
		if err := h.ctx.Err(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		drawn, n, err := m.nextLists(h, nodes, turns)
		if err != nil {
			return err
		}
		if err := h.listIDs.renew(h.budget, int64(len(drawn.Pos))); err != nil {
			return err
		}
		times := h.listIDs.data[:len(drawn.Pos)]
		if err := m.Times.fetch(h.ctx, drawn, times); err != nil {
			return fmt.Errorf("sample: fetching %d times: %w", len(times), err)
		}
		served := turns[:n]
		for i, v := range drawn.Targets {
			lo, hi := drawn.Ptr[i], drawn.Ptr[i+1]
			sorted, err := m.sortList(h, times[lo:hi], drawn.Pos[lo:hi]) // fetched positions are no longer needed
			if err != nil {
				return err
			}
			if len(h.exclude) > 0 {
				sorted = m.withoutExcluded(h, v, sorted)
			}
			for ; len(served) > 0 && nodes[served[0]] == v; served = served[1:] {
				m.choose(h, int(served[0]), sorted)
			}
		}
		turns = turns[n:]
	}
	return nil
}

// nextLists returns the lists that are fetched together for the first n of the targets, each once, as many as the
// memory allows: a node in many trees has one list.
func (m *temporalLists) nextLists(h *hop, nodes, turns []int64) (d Drawn, n int, err error) {
	lists, total := 0, int64(0)
	for ; n < len(turns); n++ {
		v, deg := nodes[turns[n]], h.spans.data[turns[n]].deg
		if lists > 0 && h.listNodes.data[lists-1] == v {
			continue
		}
		if lists > 0 && total+deg > FetchedEdges {
			break
		}
		h.listNodes.data[lists], h.listPtr.data[lists] = v, total
		lists, total = lists+1, total+deg
	}
	h.listPtr.data[lists] = total
	if err := h.listPos.renew(h.budget, total); err != nil {
		return d, 0, err
	}
	pos := h.listPos.data[:0]
	for _, v := range h.listNodes.data[:lists] {
		for p := h.relation.Indptr[v]; p < h.relation.Indptr[v+1]; p++ {
			pos = append(pos, p)
		}
	}
	return Drawn{Targets: h.listNodes.data[:lists], Ptr: h.listPtr.data[:lists+1], Pos: pos}, n, nil
}

// sortList sorts a list, with spare room for as many times.
func (m *temporalLists) sortList(h *hop, times, spare []int64) (timed, error) {
	n := int64(len(times))
	if n > math.MaxUint32 {
		return timed{}, fmt.Errorf("sample: times of %d in-edges of a node, expected at most 2^32-1: %w", n, ErrTooLarge)
	}
	for i := range h.listOffsets {
		if err := h.listOffsets[i].renew(h.budget, n); err != nil {
			return timed{}, err
		}
	}
	l := timed{times, h.listOffsets[0].data[:n]}
	return l.sorted(timed{spare, h.listOffsets[1].data[:n]}), nil
}

// withoutExcluded removes the excluded edges from the list of a node.
func (m *temporalLists) withoutExcluded(h *hop, v int64, list timed) timed {
	pos, start := h.excluded.of(v), h.relation.Indptr[v]
	if len(pos) == 0 {
		return list
	}
	n := 0
	for i, offset := range list.offsets {
		if _, found := slices.BinarySearch(pos, start+int64(offset)); !found {
			list.times[n], list.offsets[n] = list.times[i], offset
			n++
		}
	}
	return timed{list.times[:n], list.offsets[:n]}
}

// choose draws for target i, which has the given list.
func (m *temporalLists) choose(h *hop, i int, list timed) {
	upTo := func(t int64) int { return sort.Search(len(list.times), func(j int) bool { return list.times[j] > t }) }
	t := h.times[h.target.forest.trees.data[h.first+i]]
	allowed := list.offsets[:upTo(t)]
	if after, open := m.bounds(t); !open {
		allowed = allowed[upTo(after):]
	}
	allowed = allowed[m.narrow(int64(len(allowed)), h.k):]
	ptr, start := h.ptr.data[h.first+i], h.spans.data[i].start
	n := edges(int64(len(allowed)), h.k, m.replace)
	out := h.pos[ptr-h.from:][:n]
	draw(h.stream(h.first+i), span{deg: int64(len(allowed))}, h.k == All, m.replace, &h.threads[0].set, out)
	for j, at := range out {
		out[j] = start + int64(allowed[at])
	}
	h.counts[i] = n
}
