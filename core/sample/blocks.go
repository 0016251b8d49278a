package sample

import (
	"context"
	"fmt"
	"math"
	"unsafe"
)

// Weighted draws from long lists on disk, if their source has sums of blocks of weights. They follow drawLong, with a
// request for each lookup of sums and of a block, so a list of 10^6 edges takes a few requests per drawn edge instead
// of a read of the whole list.
//
// The lists of a hop share their requests, in waves. A list that lacks m edges gets the next m points of its stream in
// a wave. Each point adds at most one edge, so drawing one by one would have drawn all of them as well, and the batch
// is the same to the bit. Nearly all lists are done after one wave; a list whose points hit edges again gets points for
// the missing edges in the next. Where drawLong needs the whole list, for a race or because of rounding at the last
// weight, the whole list is read and drawn from.

// BlockSource is a WeightSource that locates points in lists without reading whole lists.
type BlockSource interface {
	WeightSource
	// Worth reports whether locating k points in a list of deg edges costs less than fetching its weights.
	Worth(deg, k int64) bool
	// Locate locates all points: it sets their Block, Before and the first Len of Weights.
	Locate(ctx context.Context, points []Point) error
}

// SumBlock is the number of weights in a block that has a sum.
const SumBlock = sumBlock

// Point is a point in the weights of a list. Its block is the first one whose running sum, as Sum computes it, exceeds
// Below; without such a block it is the rest of the list after the last whole block.
type Point struct {
	Start, Deg int64 // the list: Deg weights, at least SumBlock, from position Start
	Below      float64

	Block   int64   // number of the block; the number of whole blocks stands for the rest after them
	Before  float64 // sum of the preceding blocks
	Weights [SumBlock]float64
}

// Len returns the number of weights in the point's block.
func (p *Point) Len() int64 { return min(SumBlock, p.Deg-p.Block*SumBlock) }

// offset returns the offset of the first weight whose running sum exceeds Below, if the block has it.
func (p *Point) offset() (int64, bool) {
	sum := p.Before
	for i, w := range p.Weights[:p.Len()] {
		if sum += w; sum > p.Below {
			return p.Block*SumBlock + int64(i), true
		}
	}
	return 0, false
}

// wavePoints bounds the points that are located together. Each takes at most two requests, and an engine has fewer in
// flight. They take 400 KB.
const wavePoints = 2048

// longList is a list that is drawn from by blocks.
type longList struct {
	target    int // of the hop
	stream    stream
	total     float64
	n, wasted int  // edges drawn, points that hit again
	asked     int  // points in this wave
	whole     bool // the whole list is read
}

// located holds the memory of a wave.
type located struct {
	points buffer[Point]
	lists  buffer[longList]
}

func locatedBytes() int64 {
	return wavePoints*int64(unsafe.Sizeof(Point{})+unsafe.Sizeof(longList{})) + 2*minBuffer // unsafe: only sizes
}

// blockDraws makes the weighted draws of a hop from lists whose weights are in blocks on disk.
type blockDraws struct {
	hop    *hop
	method *weighted
	lists  *wholeLists
	source BlockSource
}

// expand draws by blocks from the lists for which this pays, and from the others whole. Meanwhile the degree of a long
// list is its complement, which counts as an empty list.
func (b *blockDraws) expand() error {
	h, m := b.hop, b.method
	err := reserve(h.budget, room{&h.points, wavePoints, 0}, room{&h.located.lists, wavePoints, 0})
	if err != nil {
		return err
	}
	spans, skipped, long := h.spans.data[:h.targets], h.skipped.from(0), false
	for i := range spans {
		s := &spans[i]
		switch {
		case h.skipped.has(skipped, i): // weights that exclusions set to 0 are in no sum
			skipped++
		case s.deg > shortList && (m.replace || s.deg > raceDegree*h.k) && b.source.Worth(s.deg, h.k):
			s.deg, long = ^s.deg, true
		}
	}
	if err := b.lists.chooseFetched(0, h.targets); err != nil || !long {
		return err
	}
	for i := 0; i < h.targets; {
		lists := h.located.lists.data[:0]
		for ; i < h.targets && len(lists) < wavePoints; i++ {
			if s := &spans[i]; s.deg < 0 {
				s.deg = ^s.deg
				lists = append(lists, longList{target: i, stream: h.stream(h.first + i)})
			}
		}
		if err := b.drawLists(lists); err != nil {
			return err
		}
	}
	return nil
}

// drawLists draws from long lists, at most wavePoints of them.
func (b *blockDraws) drawLists(lists []longList) error {
	h := b.hop
	points := h.points.data[:len(lists)]
	for j := range lists {
		s := h.spans.data[lists[j].target]
		points[j] = Point{Start: s.start, Deg: s.deg, Below: math.Inf(1)}
	}
	if err := b.locate(points); err != nil {
		return err
	}
	for j := range lists {
		l, p := &lists[j], &points[j]
		l.total = p.Before
		for _, w := range p.Weights[:p.Len()] {
			l.total += w
		}
	}
	for {
		waiting := lists[:0]
		for _, l := range lists {
			out := b.outOf(l.target)
			switch {
			case l.whole:
				if err := b.lists.chooseFetched(l.target, l.target+1); err != nil {
					return err
				}
			case l.total == 0 || l.n == len(out):
				start := h.spans.data[l.target].start
				for j := range out[:l.n] {
					out[j] += start
				}
				h.counts[l.target] = int64(l.n)
			default:
				waiting = append(waiting, l)
			}
		}
		if lists = waiting; len(lists) == 0 {
			return nil
		}
		if err := b.drawWave(lists); err != nil {
			return err
		}
	}
}

// outOf returns the room for the edges of a target of the hop.
func (b *blockDraws) outOf(target int) []int64 {
	h := b.hop
	ptr := h.ptr.data[h.first+target:]
	return h.pos[ptr[0]-h.from : ptr[1]-h.from]
}

// drawWave draws as many points as fit into a wave and adds the edges that they hit.
func (b *blockDraws) drawWave(lists []longList) error {
	h, m := b.hop, b.method
	points := h.points.data[:0]
	for j := range lists {
		l := &lists[j]
		s := h.spans.data[l.target]
		var x uint64
		for l.asked = 0; l.n+l.asked < len(b.outOf(l.target)) && len(points) < wavePoints; l.asked++ {
			x, l.stream = l.stream.next()
			points = append(points, Point{Start: s.start, Deg: s.deg, Below: float64(x>>11) * 0x1p-53 * l.total})
		}
	}
	if err := b.locate(points); err != nil {
		return err
	}
	t := &h.threads[0]
	for j := range lists {
		l := &lists[j]
		mine, out := points[:l.asked], b.outOf(l.target)
		points = points[l.asked:]
		if !m.replace {
			t.set.reset(len(out))
			for _, offset := range out[:l.n] {
				t.set.add(uint64(offset))
			}
		}
		for k := range mine {
			offset, found := mine[k].offset()
			if found && (m.replace || t.set.add(uint64(offset))) {
				out[l.n] = offset
				l.n++
			} else if l.wasted++; !found || l.wasted > triesEach*len(out)+triesMore {
				l.whole = true
				break
			}
		}
	}
	return nil
}

func (b *blockDraws) locate(points []Point) error {
	h := b.hop
	if err := h.ctx.Err(); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if err := b.source.Locate(h.ctx, points); err != nil {
		return fmt.Errorf("sample: finding %d places in lists by weight: %w", len(points), err)
	}
	return nil
}
