package links

import (
	"context"
	"math"

	"freshgo/core/internal/reuse"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// everyEdge makes each edge of the relation a link, in the user's order. It holds no ends: a request looks its targets
// up in the offsets, and its sources in the lists, which it reads where these are on disk: a page for each link, of the
// list that a draw for its target reads next.
//
// Rejected: the ends of all links, 16 bytes each, which took 12.8 GB for 0.8G edges.
type everyEdge struct {
	narrow []uint32 // the position of each edge by its number, below 2^32
	wide   []int64  // or any; both nil: each edge's number is its position
}

// EveryEdgeBytes returns the memory of the links of a relation where every edge is one; numbered edges have numbers
// other than their positions.
func EveryEdgeBytes(numEdges int64, numbered bool) int64 {
	switch {
	case !numbered:
		return 0
	case numEdges > math.MaxUint32:
		return 8 * numEdges
	}
	return 4 * numEdges
}

// Count returns the number of links.
func (k *Links) Count() int64 {
	if k.every != nil {
		return k.of.NumEdges
	}
	return int64(len(k.Sources))
}

// Reads reports whether a request reads lists of the graph.
func (k *Links) Reads() bool { return k.every != nil || k.Strict() }

// With returns other links with the negatives of these.
func (k *Links) With(sources, targets []int64) *Links {
	other := *k
	other.Links, other.every = sample.Links{Sources: sources, Targets: targets}, nil
	return &other
}

// open finds the position of each of a number of links.
func (e *everyEdge) open(
	ctx context.Context, alloc func(n int64) (*mem.Block, error), count int64, g Graph,
) error {
	numbers, err := g.Numbers(ctx)
	if err != nil || numbers == nil {
		return err
	}
	block, err := alloc(EveryEdgeBytes(count, true))
	if err != nil {
		return err
	}
	if count > math.MaxUint32 {
		e.wide = mem.Slice[int64](block)
	} else {
		e.narrow = mem.Slice[uint32](block)
	}
	return numbers.Scan(ctx, func(first int64, links []int64) error {
		for i, link := range links {
			if at := first + int64(i); e.wide != nil {
				e.wide[link] = at
			} else {
				e.narrow[link] = uint32(at)
			}
		}
		return nil
	})
}

// position returns the position of a link's edge.
func (e *everyEdge) position(link int64) int64 {
	switch {
	case e.narrow != nil:
		return int64(e.narrow[link])
	case e.wide != nil:
		return e.wide[link]
	}
	return link
}

// ends writes the ends of links. positions is scratch.
func (e *everyEdge) ends(
	ctx context.Context, edges *sample.Relation, links []int64, positions *[]int64, sources, targets []int64,
) error {
	at := reuse.Slice(*positions, len(links))
	*positions = at
	for i, link := range links {
		at[i] = e.position(link)
	}
	return edges.Ends(ctx, at, sources, targets)
}
