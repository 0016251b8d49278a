package sample

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// timedDraws is Temporal for lists whose times are found and sorted when a batch is drawn. It draws the same edges as
// narrowed spans. With times of nodes it gives the sources, which the times were found by.
type timedDraws struct {
	*Temporal
	replace bool
}

func (m *timedDraws) most(_ int, deg, k int64) int64 { return edges(deg, k, m.replace) }

func (m *timedDraws) scratch(_ int, widest, k int64) (set, entries int64) {
	if k == All || m.replace || k >= widest {
		return 0, 0
	}
	return k, 0
}

func (m *timedDraws) gives() gives { return gives{pos: true, ids: m.Times.Nodes != nil} }
func (m *timedDraws) once() bool   { return false }

// drawTimed draws for target i of a hop from its allowed edges: offsets in its list, in order of time. With times of
// nodes, ids are the sources of the list.
func drawTimed[I int32 | int64](m *timedDraws, t *thread, h *hop, i int, allowed []uint32, ids []I) {
	allowed = allowed[m.narrow(int64(len(allowed)), h.k):]
	at, start := h.ptr.data[h.first+i]-h.from, h.spans.data[i].start
	n := edges(int64(len(allowed)), h.k, m.replace)
	out := h.pos[at:][:n]
	draw(h.stream(h.first+i), span{deg: int64(len(allowed))}, h.k == All, m.replace, &t.set, out)
	if ids != nil {
		for j, place := range out {
			h.sources[at+int64(j)] = int64(ids[allowed[place]])
		}
	}
	for j, place := range out {
		out[j] = start + int64(allowed[place])
	}
	h.counts[i] = n
}

// temporalLists is Temporal for lists or times on disk: it fetches and sorts whole lists, each once per hop for all
// trees with its node. For a batch of 1000 seeds of a question-and-answer site, that is a tenth of the lists of all
// targets.
type temporalLists struct{ timedDraws }

func (m *temporalLists) bytes(r *relation, d size) int64 {
	n := max(FetchedEdges, r.widest)
	total := (8+8+8)*(d.nodes+1) + (8+8)*n + (4+4)*r.widest + 7*minBuffer
	if m.Times.Nodes != nil {
		total += 8*n + minBuffer
	}
	return total
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
		ids, times, err := m.fetchTimes(h, drawn)
		if err != nil {
			return err
		}
		served := turns[:n]
		for i, v := range drawn.Targets {
			lo, hi := drawn.Ptr[i], drawn.Ptr[i+1]
			sorted, err := m.sortList(h, times[lo:hi], drawn.Pos[lo:hi]) // fetched positions are no longer needed
			if err != nil {
				return err
			}
			if len(h.exclude) > 0 {
				sorted = without(h.excluded.of(v), h.relation.Indptr.Begin(v), sorted)
			}
			list := ids
			if list != nil {
				list = ids[lo:hi]
			}
			for ; len(served) > 0 && nodes[served[0]] == v; served = served[1:] {
				m.choose(h, int(served[0]), sorted, list)
			}
		}
		turns = turns[n:]
	}
	return nil
}

// fetchTimes returns the times of whole lists and, with times of nodes, the sources that have them.
func (m *temporalLists) fetchTimes(h *hop, drawn Drawn) (ids, times []int64, err error) {
	n := int64(len(drawn.Pos))
	if err := h.listTimes.renew(h.budget, n); err != nil {
		return nil, nil, err
	}
	times = h.listTimes.data[:n]
	nodes := m.Times.Nodes
	if nodes == nil {
		err = m.Times.fetch(h.ctx, drawn, times)
	} else {
		if err := h.listIDs.renew(h.budget, n); err != nil {
			return nil, nil, err
		}
		ids = h.listIDs.data[:n]
		if err := h.relation.Relation.fetch(h.ctx, drawn, ids); err != nil {
			return nil, nil, fmt.Errorf("sample: fetching lists of %d neighbours: %w", n, err)
		}
		err = nodes.Read(h.ctx, ids, times)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("sample: fetching %d times: %w", n, err)
	}
	return ids, times, nil
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
		begin, end := h.relation.Indptr.Range(v)
		for p := begin; p < end; p++ {
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
	l.number()
	return l.sorted(timed{spare, h.listOffsets[1].data[:n]}), nil
}

// without removes the edges at some positions from a list that begins at start.
func without(pos []int64, start int64, list timed) timed {
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

// choose draws for target i, which has the given list, in order of time, with these sources.
func (m *temporalLists) choose(h *hop, i int, list timed, ids []int64) {
	upTo := func(t int64) int { return sort.Search(len(list.times), func(j int) bool { return list.times[j] > t }) }
	t := h.times[h.target.forest.trees.data[h.first+i]]
	allowed := list.offsets[:upTo(t)]
	if after, open := m.bounds(t); !open {
		allowed = allowed[upTo(after):]
	}
	drawTimed(&m.timedDraws, &h.threads[0], h, i, allowed, ids)
}
