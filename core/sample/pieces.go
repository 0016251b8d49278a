package sample

// inPieces calls fetch for at most FetchedEdges edges at a time where all are of one target. Several lists are never more
// together, but one list has any length, and what a fetch takes beside its result grows with its edges: 44 bytes for each from
// disk, which no budget would know of.
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
