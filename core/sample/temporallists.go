package sample

import (
	"cmp"
	"fmt"
	"slices"

	"freshgo/core/mem"
)

// temporalLists is Temporal where times are not in memory: whole lists of them are fetched, many targets' at a time, and what
// is allowed of each is sorted. It gives what narrowed spans do.
type temporalLists struct {
	*Temporal
	replace bool
}

// moment is an edge of a list, with its time.
type moment struct{ time, offset int64 }

func (m *temporalLists) most(_ int, deg, k int64) int64 { return edges(deg, k, m.replace) }

func (m *temporalLists) scratch(_ int, widest, k int64) (set, entries int64) {
	if k == All || m.replace || k >= widest {
		return 0, 0
	}
	return k, 0
}

func (m *temporalLists) gives() gives { return gives{pos: true} }

func (m *temporalLists) bytes(s *Sampler, d Demand) int64 {
	n := max(FetchedEdges, s.widest)
	return (8+16)*(d.Nodes+1) + (8+8)*n + 16*s.widest + 5*minBuffer
}

func (m *temporalLists) expand(h *hop) error {
	ptr := h.ptr.data[h.first:]
	return h.eachFetched(func(lo, hi int, in []int64) error {
		drawn, err := h.listPositions(lo, hi, in)
		if err != nil {
			return err
		}
		total := int64(len(drawn.Pos))
		if err := h.listIDs.grow(h.budget, mem.Trace, total, 0); err != nil {
			return err
		}
		times := h.listIDs.data[:total]
		if err := m.Times.Source.FetchTimes(h.ctx, drawn, times); err != nil {
			return fmt.Errorf("sample: fetching %d times: %w", total, err)
		}
		for i := lo; i < hi; i++ {
			list := times[in[i-lo]:in[i-lo+1]]
			if err := h.moments.grow(h.budget, mem.Trace, int64(len(list)), 0); err != nil {
				return err
			}
			allowed := m.allowed(list, h.times[h.forest.trees.data[h.first+i]], h.moments.data[:0])
			allowed = allowed[m.narrow(int64(len(allowed)), h.k):]
			out := h.pos[ptr[i]-h.from:]
			out = out[:edges(int64(len(allowed)), h.k, m.replace)]
			all := span{deg: int64(len(allowed))}
			draw(h.stream(h.first+i), all, h.k == All, m.replace, &h.threads[0].set, out)
			start := h.spans.data[i].start
			for j, at := range out {
				out[j] = start + allowed[at].offset
			}
			h.counts[i] = int64(len(out))
		}
		return nil
	})
}

// allowed appends the edges that a seed of time t sees to out, in ascending order.
func (m *temporalLists) allowed(times []int64, t int64, out []moment) []moment {
	after, open := m.bounds(t)
	sorted := true
	for i, at := range times {
		if at <= t && (open || at > after) {
			sorted = sorted && (len(out) == 0 || out[len(out)-1].time <= at)
			out = append(out, moment{at, int64(i)})
		}
	}
	if !sorted {
		slices.SortFunc(out, func(a, b moment) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.offset, b.offset)) })
	}
	return out
}
