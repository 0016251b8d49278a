package window

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// drawnGroups counts the groups in which the batches of each epoch are drawn, by one worker: a group draws its batches
// for one hop after the other, so that a batch which is drawn for the first time after another was drawn again begins
// one.
type drawnGroups struct {
	draw.Requester
	mu     sync.Mutex // guards all below
	drawn  map[[2]uint64]bool
	again  bool
	groups map[uint64]int // by epoch
}

func (g *drawnGroups) Request(ctx context.Context, m *draw.Sampling, key sample.Key, r *draw.Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := [2]uint64{key.Epoch, key.Batch}
	if !g.drawn[at] && (g.again || g.groups[key.Epoch] == 0) {
		g.groups[key.Epoch]++
	}
	g.again, g.drawn[at] = g.drawn[at], true
	return g.Requester.Request(ctx, m, key, r)
}

// TestGroupsGoOnInTheNextWindow: windows have ten batches of an epoch of 47, and there is room for all of them to share
// their reads of lists. So they do, unless plans are in memory or the scratch file has less room than it was divided
// for; batches are the same. Where an epoch has many windows, the first six share reads among their own batches.
func TestGroupsGoOnInTheNextWindow(t *testing.T) {
	for name, c := range map[string]struct {
		stored bool
		window int64
		file   int64 // by which the file is smaller
		first  int   // groups of the first epoch; the first batch, which is drawn once, counts with the next
		whole  bool
	}{
		"in the scratch file":    {true, 10, 0, 1, true},
		"many windows":           {true, 5, 0, 6, true},
		"in a file that is full": {true, 10, 1, 5, false},
		"in memory":              {false, 10, 0, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Workers, o.NeighborCache, o.Scratch, o.ScratchBytes, o.Superbatch = 1, 0, t.TempDir(), 64<<20, c.window
			r := open(t, ssd.OS, o, func(s *sizing.Split) {
				s.Stored, s.Together = c.stored, 64<<20
			})
			r.sampling.Split.Scratch += c.file
			want := [][][]int64{r.nodesOf(0), r.nodesOf(1), r.nodesOf(2)} // drawn before they are counted
			require.Len(t, want[2], numBatches)
			counts := &drawnGroups{Requester: r.sampling.Seeds, drawn: map[[2]uint64]bool{}, groups: map[uint64]int{}}
			r.sampling.Seeds = counts
			for epoch := range int64(2) {
				r.whole(epoch)
			}
			r.cache.Stop()
			require.Equal(t, c.first, counts.groups[0])
			if c.whole {
				require.Equal(t, 1, counts.groups[1])
			} else {
				require.Greater(t, counts.groups[1], numBatches/10)
			}
		})
	}
}

// TestBatchesOfAGroupWait: batches beyond those that are taken wait, and come next; a return to the beginning drops
// them, and the end of the epoch ends their group. A batch that fails behind those that are taken fails in its turn.
func TestBatchesOfAGroupWait(t *testing.T) {
	r := open(t, ssd.OS, options(), func(s *sizing.Split) { s.Neighbors, s.Together = false, 64<<20 })
	ctx := context.Background()
	want := r.nodesOf(0)
	in := &inspector{cache: r.cache, ctx: ctx}
	in.shareSchedule, _ = draw.Share{}.Schedule(numBatches, 0)
	in.whole = in.shareSchedule
	s := newBlocks(in, place{})
	defer s.free()
	next := 0
	take := func(n int64, ahead bool, ready int) {
		t.Helper()
		some, err := s.take(n, ahead)
		require.NoError(t, err)
		require.Len(t, s.ready, ready)
		for _, b := range some {
			r.requireNodes(want[next], b)
			next++
		}
		freeAll(some)
	}
	take(1, true, 0) // tells what a batch requests
	take(4, false, 0)
	take(4, true, numBatches-9)
	take(40, false, 0)
	require.Equal(t, numBatches, next)
	s.returnTo(place{position: 20})
	next = 20
	take(5, true, numBatches-25)
	s.returnTo(place{position: 21})
	require.Empty(t, s.ready)
	next = 21

	fault := context.DeadlineExceeded // any error
	seeds := r.sampling.Seeds
	r.sampling.Seeds = hooked{seeds, func(batch uint64) error {
		if batch == 30 {
			return fault
		}
		return nil
	}}
	take(4, true, 30-25)
	take(5, true, 0)
	_, err := s.take(1, true)
	require.ErrorIs(t, err, fault)
	r.sampling.Seeds = seeds
	take(3, true, numBatches-33)
}
