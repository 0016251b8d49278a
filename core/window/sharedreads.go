package window

import (
	"errors"
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
	each    int64 // an estimate of the most bytes that a batch requests; 0: unknown
}

const (
	// mostShared is the most batches that share reads. Arbitrary.
	mostShared = 64
	// mostAtOnce is the most neighbours that are read at once. Arbitrary: enough to keep the engine busy.
	mostAtOnce = 1 << 18
)

// atOnce returns the number of neighbours that are read at once, in a quarter of the memory for shared reads.
func (c *Cache) atOnce() int {
	return int(min(c.draw.Split.Together/4/graph.TogetherBytes(1), mostAtOnce))
}

// most returns the number of batches that may share reads; 0: none.
func (t *sharedReads) most(c *Cache) int64 {
	if t.each == 0 || c.draw.Split.Together == 0 || !draw.SharesReads(c.draw) {
		return 0
	}
	return min(mostShared, c.wantedRoom()/t.each)
}

// wantedRoom returns the memory for the requests of batches.
func (c *Cache) wantedRoom() int64 {
	return c.draw.Split.Together - graph.TogetherBytes(c.atOnce())
}

// learn estimates the requests of a batch from batches that did not share their reads.
func (t *sharedReads) learn(batches, read int64) { t.each = max(t.each, 10*read/max(1, batches)) }

// readShared reads the requests of count batches of these numbers, as far as it can, and returns them by batch, nil for
// batches without any. It ignores errors: drawing the batch meets them again.
func (s *blocks) readShared(count int64, number func(i int64) int64) []*graph.Wanted {
	c, t := s.inspector.cache, &s.sharedReads
	wanted := make([]*graph.Wanted, count)
	most := min(t.most(s.inspector.cache), count)
	if most < 2 {
		return wanted
	}
	pending, room := make([]int64, most), new(atomic.Int64)
	room.Store(s.inspector.cache.wantedRoom())
	for i := range pending {
		wanted[i], pending[i] = graph.NewWanted(c.draw.Budget, room), int64(i)
	}
	for range c.draw.Parts.Schema.Hops {
		if pending = s.ask(wanted, pending, number); len(pending) == 0 {
			break
		}
		asking := make([]*graph.Wanted, len(pending))
		for i, at := range pending {
			asking[i] = wanted[at]
		}
		if err := t.reading.Read(s.inspector.ctx, asking, s.inspector.cache.atOnce()); err != nil {
			freeWanted(wanted)
			clear(wanted)
			return wanted
		}
	}
	for _, w := range wanted[:most] {
		t.each = max(t.each, w.Bytes())
	}
	return wanted
}

// ask draws batches as far as they go without their requests, and returns the batches that request more.
func (s *blocks) ask(wanted []*graph.Wanted, pending []int64, number func(i int64) int64) (asking []int64) {
	var next atomic.Int64
	_ = guard.All(min(len(s.scratch), len(pending)), func(i int) error { // see readShared
		for {
			k := int(next.Add(1)) - 1
			if k >= len(pending) {
				return nil
			}
			at := pending[k]
			giveBack, err := s.draw(number(at), wanted[at], false, &s.scratch[i])
			if err == nil {
				giveBack()
			} else if !errors.Is(err, sample.ErrDeferred) {
				return err
			}
		}
	})
	for _, at := range pending {
		if wanted[at].Asks() {
			asking = append(asking, at)
		}
	}
	return asking
}

func freeWanted(wanted []*graph.Wanted) {
	for _, w := range wanted {
		if w != nil {
			w.Free()
		}
	}
}
