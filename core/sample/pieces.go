package sample

import (
	"context"
	"fmt"
)

// inPieces calls fetch for at most FetchedEdges edges at a time if all are of one target. Several lists never have more
// together, but one list has any length, and a fetch takes memory in proportion to its edges beside its result: 44
// bytes per edge from disk, outside every budget.
func inPieces[T any](d Drawn, out []T, fetch func(Drawn, []T) error) error {
	for len(d.Ptr) == 2 && len(d.Pos) > FetchedEdges {
		piece := Drawn{Targets: d.Targets, Ptr: []int64{0, FetchedEdges}, Pos: d.Pos[:FetchedEdges]}
		if err := fetch(piece, out[:FetchedEdges]); err != nil {
			return err
		}
		d.Pos, out = d.Pos[FetchedEdges:], out[FetchedEdges:]
		d.Ptr = []int64{0, int64(len(d.Pos))}
	}
	return fetch(d, out)
}

// Ends writes the ends of the edges at some positions of the index array. It returns errors of Adjacency.Fetch.
func (r *Relation) Ends(ctx context.Context, pos []int64, sources, targets []int64) error {
	ptr := make([]int64, len(pos)+1)
	for i, p := range pos {
		targets[i], ptr[i+1] = r.Indptr.Find(p), int64(i)+1
	}
	if err := r.fetch(ctx, Drawn{Targets: targets, Ptr: ptr, Pos: pos}, sources); err != nil {
		return fmt.Errorf("sample: fetching the sources of %d edges: %w", len(pos), err)
	}
	return nil
}

// listPiece is a part of the in-edges of a target: their sources, and the position of the first. A target has at least
// one piece.
type listPiece struct {
	target int // index into the targets
	first  int64
	ids    []int64
	last   bool // the target's last piece
}

// eachFetched calls visit with the pieces of every target's list, in the order of the targets and of the lists. It
// fetches at most FetchedEdges edges at a time, whose positions and sources are on the Go heap, 16 bytes each, even for
// longer lists.
func (r *Relation) eachFetched(ctx context.Context, targets []int64, visit func(p listPiece)) error {
	var pos, ptr, ids []int64
	for i, done := 0, int64(0); i < len(targets); { // i targets are done, and done edges of the next
		pos, ptr = pos[:0], append(ptr[:0], 0)
		first, skipped := i, done
		for i < len(targets) && len(pos) < FetchedEdges {
			begin, end := r.Indptr.Range(targets[i])
			begin += done
			stop := min(end, begin+int64(FetchedEdges-len(pos)))
			for p := begin; p < stop; p++ {
				pos = append(pos, p)
			}
			ptr = append(ptr, int64(len(pos)))
			if done += stop - begin; stop < end {
				break
			}
			i, done = i+1, 0
		}
		of := targets[first : first+len(ptr)-1]
		if len(ids) < len(pos) {
			ids = make([]int64, cap(pos))
		}
		if err := r.fetch(ctx, Drawn{Targets: of, Ptr: ptr, Pos: pos}, ids[:len(pos)]); err != nil {
			return fmt.Errorf("sample: fetching lists of %d neighbours: %w", len(pos), err)
		}
		for j, v := range of {
			begin, end := r.Indptr.Range(v)
			begin += skipped
			n := ptr[j+1] - ptr[j]
			visit(listPiece{target: first + j, first: begin, ids: ids[ptr[j]:ptr[j+1]], last: begin+n == end})
			skipped = 0
		}
	}
	return nil
}
