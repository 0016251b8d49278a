package sample

import "context"

// LastHop lets a caller skip lists of the last hop that it does not need, if lists are on disk. For nodes that the last
// hop but one reached, only the last hop reads the lists, and no other hop's numbering depends on them. A list that is
// not needed is not fetched; each of its neighbours is replaced by a node that the batch has already, and the caller
// must ignore these edges.
type LastHop interface {
	// Needed appends to places the numbers of the targets whose lists are needed, ascending. targets are nodes that a
	// relation leads to. It is called once for each relation whose last hop fetches lists, possibly concurrently, and may
	// block.
	Needed(ctx context.Context, relation int, targets []int64, places []int32) ([]int32, error)
}

// needed holds the lists to fetch in the last hop.
type needed struct {
	places []int32 // numbers of the targets within the hop
	drawn  Drawn
	ids    []int64
}

// fetch is Adjacency.Fetch for a hop.
func (h *hop) fetch(from Adjacency, d Drawn, ids []int64) error {
	if h.last == nil || h.number < len(h.relation.fanouts)-1 || h.source.end == 0 {
		return from.Fetch(h.ctx, d, ids)
	}
	n := &h.needed
	var err error
	if n.places, err = h.last.Needed(h.ctx, h.place, d.Targets, n.places[:0]); err != nil {
		return err
	}
	if len(n.places) == len(d.Targets) {
		return from.Fetch(h.ctx, d, ids)
	}
	n.drawn = Drawn{Targets: n.drawn.Targets[:0], Ptr: append(n.drawn.Ptr[:0], 0), Pos: n.drawn.Pos[:0]}
	for _, at := range n.places {
		n.drawn.Targets = append(n.drawn.Targets, d.Targets[at])
		n.drawn.Pos = append(n.drawn.Pos, d.of(at)...)
		n.drawn.Ptr = append(n.drawn.Ptr, int64(len(n.drawn.Pos)))
	}
	if len(n.ids) < len(n.drawn.Pos) {
		n.ids = make([]int64, len(d.Pos))
	}
	if err := from.Fetch(h.ctx, n.drawn, n.ids[:len(n.drawn.Pos)]); err != nil {
		return err
	}
	known := h.source.before()[0]
	for i := range ids {
		ids[i] = known
	}
	for i, at := range n.places {
		copy(ids[d.Ptr[at]-d.Ptr[0]:], n.ids[n.drawn.Ptr[i]:n.drawn.Ptr[i+1]])
	}
	return nil
}

// of returns the positions of a target.
func (d *Drawn) of(target int32) []int64 {
	return d.Pos[d.Ptr[target]-d.Ptr[0] : d.Ptr[target+1]-d.Ptr[0]]
}
