package draw

import (
	"context"

	"freshgo/core/sample"
)

// fetchedEdge is the memory of fetching an edge, beside the result.
const fetchedEdge = 44

// inPieces makes an Adjacency fetch up to atOnce edges at a time; 0: all.
func inPieces(a sample.Adjacency, atOnce int64) sample.Adjacency {
	if atOnce == 0 {
		return a
	}
	return pieces{a, atOnce}
}

// pieces is an Adjacency that fetches the edges of a hop in pieces.
type pieces struct {
	whole sample.Adjacency
	most  int64
}

// Fetch implements sample.Adjacency.
func (p pieces) Fetch(ctx context.Context, d sample.Drawn, out []int64) error {
	first := d.Ptr[0]
	for t := 0; t < len(d.Targets); {
		begin, end := d.Ptr[t], t+1
		for end < len(d.Targets) && d.Ptr[end+1]-begin <= p.most {
			end++
		}
		for at := begin; at < d.Ptr[end]; { // the list of a single target may be longer
			stop := min(at+p.most, d.Ptr[end])
			ptr := d.Ptr[t : end+1]
			if end == t+1 {
				ptr = []int64{at, stop}
			}
			of := sample.Drawn{Targets: d.Targets[t:end], Ptr: ptr, Pos: d.Pos[at-first : stop-first]}
			if err := p.whole.Fetch(ctx, of, out[at-first:stop-first]); err != nil {
				return err
			}
			at = stop
		}
		t = end
	}
	return nil
}
