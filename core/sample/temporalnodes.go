package sample

import (
	"fmt"
	"math"

	"freshgo/core/mem"
)

// temporalNodes is Temporal for lists and times of nodes in memory. Of the list of a target it looks up the time of
// every source, keeps the allowed edges, and sorts these. It needs no memory for edges, and a draw from a list that is
// not in Times.Long costs more the longer the list is.
type temporalNodes struct{ timedDraws }

func (m *temporalNodes) exact() (*Weights, bool)    { return nil, false }
func (m *temporalNodes) wants() (ids, weights bool) { return true, false }

func (m *temporalNodes) bytes(r *relation, _ size) int64 {
	return 2*(8+4)*r.widest + 4*minBuffer
}

func (m *temporalNodes) expand(h *hop) error {
	widest := int64(0)
	for _, s := range h.spans.data[:h.targets] {
		widest = max(widest, s.deg)
	}
	if widest > math.MaxUint32 {
		return fmt.Errorf("sample: times of %d in-edges of a node, expected at most 2^32-1: %w", widest, ErrTooLarge)
	}
	for i := range h.threads {
		for j := range h.threads[i].sorting {
			if err := h.threads[i].sorting[j].grow(h.budget, widest); err != nil {
				return err
			}
		}
	}
	return h.wholeLists(m).expand()
}

// sorting is room for sorting a list by time.
type sorting struct {
	times   buffer[int64]
	offsets buffer[uint32]
}

// grow makes room for n edges.
func (s *sorting) grow(budget *mem.Budget, n int64) error {
	return reserve(budget, room{&s.times, n, 0}, room{&s.offsets, n, 0})
}

// first returns room for n edges.
func (s *sorting) first(n int) timed { return timed{s.times.data[:n], s.offsets.data[:n]} }

func (s *sorting) free() {
	s.times.free()
	s.offsets.free()
}

func (m *temporalNodes) choose(t *thread, h *hop, lo, hi int, at []span, from *lists) {
	switch of := m.Times.Nodes; {
	case from.ids32 != nil && of.Narrow != nil:
		chooseByNodes(m, t, h, lo, hi, at, from.ids32, of.Narrow, of.Least)
	case from.ids32 != nil:
		chooseByNodes(m, t, h, lo, hi, at, from.ids32, of.Wide, 0)
	case of.Narrow != nil:
		chooseByNodes(m, t, h, lo, hi, at, from.ids64, of.Narrow, of.Least)
	default:
		chooseByNodes(m, t, h, lo, hi, at, from.ids64, of.Wide, 0)
	}
}

// chooseByNodes is choose for sources and times of any width; a time is least more than its element.
func chooseByNodes[I int32 | int64, T uint32 | int64](
	m *temporalNodes, t *thread, h *hop, lo, hi int, at []span, sources []I, times []T, least int64,
) {
	nodes := h.expanded(h.first+lo, h.first+hi)
	for i := lo; i < hi; i++ {
		in := at[i-lo]
		ids := sources[in.start : in.start+in.deg]
		now := h.times[h.target.forest.trees.data[h.first+i]]
		earliest := int64(math.MinInt64)
		if after, open := m.bounds(now); !open {
			earliest = after + 1
		}
		var excluded []int64
		if len(h.exclude) > 0 {
			excluded = h.excluded.of(nodes[i-lo])
		}
		if order := m.Times.Long.of(nodes[i-lo], in.deg); order != nil && len(excluded) == 0 {
			drawTimed(&m.timedDraws, t, h, i, allowedOf(order, ids, times, least, earliest, now), ids)
			continue
		}
		list := t.sorting[0].first(len(ids))
		n := allowedEdges(list, ids, times, least, earliest, now)
		list = without(excluded, h.spans.data[i].start, timed{list.times[:n], list.offsets[:n]})
		list = list.sorted(t.sorting[1].first(len(list.times)))
		drawTimed(&m.timedDraws, t, h, i, list.offsets, ids)
	}
}

// allowedEdges sets list to the edges of a list with times from earliest to now, by offset, and returns their number.
// No branch depends on a time.
func allowedEdges[I int32 | int64, T uint32 | int64](
	list timed, ids []I, times []T, least, earliest, now int64,
) (n int) {
	width := uint64(now) - uint64(earliest)
	stamps, offsets := list.times[:len(ids)], list.offsets[:len(ids)]
	for i, v := range ids {
		time := least + int64(times[v])
		stamps[n], offsets[n] = time, uint32(i)
		more := n + 1
		if uint64(time)-uint64(earliest) <= width {
			n = more
		}
	}
	return n
}
