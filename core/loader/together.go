package loader

import (
	"errors"
	"sync/atomic"

	"freshgo/core/graph"
	"freshgo/core/internal/guard"
	"freshgo/core/links"
	"freshgo/core/sample"
)

// Batches that the inspector samples ahead read neighbour lists on disk together: hop by hop, a page that several of
// them want is read once (graph.Together). What a batch has does not depend on it, since what is not read so, for want
// of memory or because reading failed, the batch reads itself when it is drawn.

// together is what the inspector knows of that.
type together struct {
	reading graph.Together
	each    int64 // about what a batch wants at most, in bytes; 0: unknown
}

const (
	// mostTogether is how many batches are read together at most. Arbitrary.
	mostTogether = 64
	// mostAtOnce is how many neighbours are read at once. Arbitrary: enough to keep the engine busy.
	mostAtOnce = 1 << 18
)

// atOnce is how many neighbours are read at once, in a quarter of the memory for reading together.
func (l *Loader) atOnce() int {
	return int(min(l.split.Together/4/graph.TogetherBytes(1), mostAtOnce))
}

// most is how many batches may be read together; 0: none.
func (t *together) most(l *Loader) int64 {
	k := l.options.Links
	excludes := k != nil && k.Exclude != links.ExcludeNone // and fetches lists for that
	if t.each == 0 || l.split.Together == 0 || excludes || !l.sampler.FetchesOnce() {
		return 0
	}
	return min(mostTogether, l.wantedRoom()/t.each)
}

// wantedRoom is the memory for what batches want.
func (l *Loader) wantedRoom() int64 { return l.split.Together - graph.TogetherBytes(l.atOnce()) }

// apart learns from batches that were not read together, and read so many neighbours.
func (t *together) apart(batches, read int64) { t.each = max(t.each, 10*read/max(1, batches)) }

// readTogether reads what count batches of these numbers want, as far as it can, and returns that by batch, nil of
// those that have nothing. No error matters here: who draws the batch meets it again.
func (s *blocks) readTogether(count int64, number func(i int64) int64) []*graph.Wanted {
	l, t := s.inspector.loader, &s.together
	wanted := make([]*graph.Wanted, count)
	most := min(t.most(l), count)
	if most < 2 {
		return wanted
	}
	pending, room := make([]int64, most), new(atomic.Int64)
	room.Store(l.wantedRoom())
	for i := range pending {
		wanted[i], pending[i] = graph.NewWanted(l.budget, room), int64(i)
	}
	for range l.parts.types.hops {
		if pending = s.ask(wanted, pending, number); len(pending) == 0 {
			break
		}
		asking := make([]*graph.Wanted, len(pending))
		for i, at := range pending {
			asking[i] = wanted[at]
		}
		if err := t.reading.Read(s.inspector.ctx, asking, l.atOnce()); err != nil {
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

// ask draws batches as far as they go without what they want, and returns those that ask for more.
func (s *blocks) ask(wanted []*graph.Wanted, pending []int64, number func(i int64) int64) (asking []int64) {
	var next atomic.Int64
	_ = guard.All(min(len(s.scratch), len(pending)), func(i int) error { // see readTogether
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
