package draw

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/guard"
)

// TestThreadsAreBounded: computations of one thread and of several, and pieces that are shared, never run on more
// threads than there are, and all of them end.
func TestThreadsAreBounded(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		synctest.Test(t, func(t *testing.T) {
			threads := newThreads(n)
			var running, most atomic.Int64
			work := func(threads int64) {
				if now := running.Add(threads); now > most.Load() {
					most.Store(now)
				}
				time.Sleep(time.Millisecond)
				running.Add(-threads)
			}
			var done atomic.Int64
			require.NoError(t, guard.All(20, func(i int) error {
				want := 1 + i%4
				err := threads.run(t.Context(), want, func() { work(int64(min(want, n))) })
				if err != nil {
					return err
				}
				return threads.run(t.Context(), 1, func() {
					threads.share(10, 1, func(lo, hi int) {
						work(1)
						done.Add(int64(hi - lo))
					})
				})
			}))
			require.EqualValues(t, 200, done.Load())
			require.EqualValues(t, n, most.Load())
			require.Empty(t, threads.busy)
			require.Empty(t, threads.several)
		})
	}
}

// TestPiecesCoverEverythingOnce, and idle threads take their part.
func TestPiecesCoverEverythingOnce(t *testing.T) {
	for n := range 25 {
		for _, piece := range []int{1, 4, 30} {
			synctest.Test(t, func(t *testing.T) {
				threads, seen := newThreads(4), make([]atomic.Int32, n)
				start := time.Now()
				require.NoError(t, threads.run(t.Context(), 1, func() {
					threads.share(n, piece, func(lo, hi int) {
						require.LessOrEqual(t, hi-lo, piece)
						time.Sleep(time.Second)
						for i := lo; i < hi; i++ {
							seen[i].Add(1)
						}
					})
				}))
				for i := range seen {
					require.EqualValues(t, 1, seen[i].Load())
				}
				pieces := (n + piece - 1) / piece
				require.Equal(t, time.Duration((pieces+3)/4)*time.Second, time.Since(start))
				require.Empty(t, threads.busy)
			})
		}
	}
}

// TestPiecesGiveWay: whoever waits for a thread waits for a piece, and not for all of them.
func TestPiecesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		threads, start := newThreads(2), time.Now()
		var waited time.Duration
		require.NoError(t, guard.All(2, func(i int) error {
			if i == 1 {
				time.Sleep(1500 * time.Millisecond)
				return threads.run(t.Context(), 1, func() { waited = time.Since(start) })
			}
			return threads.run(t.Context(), 1, func() {
				threads.share(10, 1, func(int, int) { time.Sleep(time.Second) })
			})
		}))
		require.Equal(t, 2*time.Second, waited)
	})
}

// TestPanicsOfPieces come to the caller, when no piece runs any more.
func TestPanicsOfPieces(t *testing.T) {
	for _, broken := range []int{0, 3, 7} {
		synctest.Test(t, func(t *testing.T) {
			threads := newThreads(3)
			var running atomic.Int64
			require.Panics(t, func() {
				_ = threads.run(t.Context(), 1, func() {
					threads.share(8, 1, func(lo, _ int) {
						running.Add(1)
						defer running.Add(-1)
						time.Sleep(time.Duration(lo) * time.Second)
						if lo == broken {
							panic("broken")
						}
					})
				})
			})
			require.Zero(t, running.Load())
			require.Empty(t, threads.busy)
		})
	}
}

// TestThreadsStop: whoever waits for threads ends with its context, and leaves none taken.
func TestThreadsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		threads := newThreads(2)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, threads.run(t.Context(), 1, func() {
			var waiting guard.Group
			for _, n := range []int{1, 2, 2, 5} {
				waiting.Start(func() error { return threads.run(ctx, n, func() { time.Sleep(time.Hour) }) })
			}
			synctest.Wait()
			cancel()
			require.ErrorIs(t, waiting.Wait(), ErrStopped)
		}))
		require.Empty(t, threads.busy)
		require.Empty(t, threads.several)
	})
}
