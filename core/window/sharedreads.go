package window

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/sample"
)

// Batches that the inspector samples ahead share their reads of neighbour lists on disk: hop by hop, a page that
// several of them need is read once (graph.Together). Batches do not depend on it: neighbours that are not read so, for
// lack of memory or because reading failed, are read when the batch is drawn.

// sharedReads tracks the neighbour lists that several batches of a window read together.
type sharedReads struct {
	reading graph.Together
	each    int64 // bytes that a batch of the last group requests on average; 0: unknown
}

// atOnce returns the number of neighbours that are read at once, in the part of the memory that requests leave, and
// within the bound of an ssd.Merger.
func (c *Cache) atOnce() int {
	return int(min((c.draw.Split.Together-c.draw.Split.WantedRoom())/graph.TogetherBytes(1), math.MaxInt32/2))
}

// most returns the number of batches that may share reads; 0: none.
func (t *sharedReads) most(c *Cache) int64 {
	if t.each == 0 || c.draw.Split.Together == 0 || !draw.SharesReads(c.draw, c.draw.Sampler) {
		return 0
	}
	return c.draw.Split.WantedRoom() / t.each
}

// learn estimates the requests of a batch from batches that did not share their reads.
func (t *sharedReads) learn(c *Cache, batches, read int64) {
	const margin = 32 // a divisor. Arbitrary: batches differ by a few per cent, and those without room wait
	each := read / max(1, batches)
	wide := graph.WideRequests(c.draw.Parts.NumNodes, c.draw.Parts.NumEdges)
	t.each = max(t.each, graph.RequestBytes(each+each/margin, wide))
}

// readShared reads the requests of the next batches of these numbers, as far as it can, and returns the requests by
// batch, nil for batches without any. Where count batches have too many requests for the memory, it leaves the last
// ones for another group: a batch by itself may read as many pages as a group. It ignores errors: drawing the batch
// meets them again.
func (s *blocks) readShared(count int64, number func(i int64) int64) []*graph.Wanted {
	c, t := s.inspector.cache, &s.sharedReads
	most := min(t.most(c), count)
	if most < 2 {
		return make([]*graph.Wanted, count)
	}
	wanted, room := make([]*graph.Wanted, most), new(atomic.Int64)
	room.Store(c.draw.Split.WantedRoom())
	for i := range wanted {
		wanted[i] = graph.NewWanted(c.draw.Budget, room)
	}
	hops := c.draw.Parts.Schema.Hops + draw.RequestReads(c.draw)
	err := t.reading.ReadHops(s.inspector.ctx, wanted, hops, c.atOnce(), func(hop int, numbers []int) error {
		s.inspector.progress.report(s.inspector, "reading neighbour lists", int64(hop), int64(hops))
		s.ask(wanted, numbers, number)
		if full := slices.IndexFunc(wanted, (*graph.Wanted).Full); full >= 0 {
			freeWanted(wanted[max(1, full):])
			wanted = wanted[:max(1, full)]
		}
		return nil
	})
	if err != nil {
		freeWanted(wanted)
		return make([]*graph.Wanted, len(wanted))
	}
	total := int64(0)
	for _, w := range wanted {
		total += w.Bytes()
	}
	t.each = 1 + total/int64(len(wanted))
	if wanted[0].Full() {
		t.each = c.draw.Split.Together // not even one batch has room
	}
	return wanted
}

// ask draws the batches of the given numbers as far as they go without their requests.
func (s *blocks) ask(wanted []*graph.Wanted, numbers []int, number func(i int64) int64) {
	work := guard.NewPieces(int64(len(numbers)), 1)
	_ = guard.All(min(len(s.scratch), len(numbers)), func(i int) error { // see readShared
		for k := range work.Each() {
			at := numbers[k]
			giveBack, err := s.draw(number(int64(at)), wanted[at], false, &s.scratch[i])
			if err == nil {
				giveBack()
			} else if !errors.Is(err, sample.ErrDeferred) {
				return err
			}
		}
		return nil
	})
}

func freeWanted(wanted []*graph.Wanted) {
	for _, w := range wanted {
		if w != nil {
			w.Free()
		}
	}
}
