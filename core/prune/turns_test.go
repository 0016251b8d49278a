package prune

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// These tests run in bubbles of testing/synctest: synctest.Wait returns when everyone waits, and a goroutine that waits
// for ever ends the test.

// crowd prunes all batches of an epoch at a time, each in its own goroutine.
type crowd struct {
	outcomes []*outcome // by batch
	errs     []error
	turns    []int64 // batches whose turn has come, in order
}

// start lets batches of an epoch wait for their turns, in a random order.
func (r *trainer) start(ctx context.Context, epoch int, batches []int64) *crowd {
	all := &crowd{outcomes: make([]*outcome, len(r.w.epochs[epoch])), errs: make([]error, len(r.w.epochs[epoch]))}
	for _, index := range batches {
		go func() {
			c, g := r.h.Lend(), r.w.epochs[epoch][index]
			defer r.h.TakeBack(c)
			inTurn := func() { all.turns = append(all.turns, index) } // one at a time, or the race detector says so
			if all.errs[index] = c.Prune(ctx, index, g, r.w.seeds[epoch][index], inTurn); all.errs[index] == nil {
				all.outcomes[index], all.errs[index] = r.build(c, g)
			}
		}()
	}
	synctest.Wait()
	return all
}

// shuffled are the batches of an epoch in a random order.
func (r *trainer) shuffled(epoch int) (batches []int64) {
	for _, index := range explore.Rand(r, 5, uint64(epoch)).Perm(len(r.w.epochs[epoch])) {
		batches = append(batches, int64(index))
	}
	return batches
}

func upTo(n int64) []int64 {
	list := []int64{}
	for index := range n {
		list = append(list, index)
	}
	return list
}

// lagging is a trainer of a small graph whose batches are pruned two updates ahead.
func lagging(t *testing.T, epochs int) *trainer {
	w := newWorld(t, explore.Rand(t, 3, 3), 1, 1, 3, epochs, 8)
	c := w.config(history.Performance, w.roomy()/4)
	c.History.Lag = 2
	return newTrainer(t, w, c)
}

// TestDecisionsDoNotDependOnThreads holds that batches that all wait at once have their turns one after the other,
// exactly as the lag says, and are pruned as if they came one by one.
func TestDecisionsDoNotDependOnThreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reference, r := lagging(t, 3), lagging(t, 3)
		for epoch := range r.w.epochs {
			want := reference.epoch(epoch, never)
			r.begin(0, 8)
			all := r.start(context.Background(), epoch, r.shuffled(epoch))
			for k := range int64(8) {
				require.Equal(t, upTo(min(k+r.c.History.Lag+1, 8)), all.turns)
				i := r.begun + k
				r.h.HandOver()
				r.ahead[i], r.levels[i] = all.outcomes[k], all.outcomes[k].left.Levels
				for slot := range r.ahead[i].relied {
					r.ahead[i].relied[slot] = r.buffer[slot]
				}
				r.update(i)
				synctest.Wait()
			}
			for index, o := range want {
				require.NoError(t, all.errs[index])
				require.Equal(t, o.left, all.outcomes[index].left)
			}
		}
		require.Positive(t, reference.hits)
	})
}

// waiting is a trainer with a waiting call of every kind: batch 0 is pruned and handed over; its update waits for batch
// 1, which nobody has requested yet, and so do the given batches and the lists of batch 5.
type waiting struct {
	*trainer
	batches *crowd
	updated error
	needed  error
	done    chan struct{} // has one for each of the two calls that has returned
}

func (r *trainer) wait(ctx context.Context, epoch int, batches ...int64) *waiting {
	r.begin(0, 8)
	o := r.prune(epoch, 0)
	r.h.HandOver()
	w := &waiting{trainer: r, batches: r.start(ctx, epoch, batches), done: make(chan struct{}, 2)}
	i := r.begun
	go func() {
		_, w.updated = r.h.Update(ctx, i, rowBytes, r.normsOf(i, o.left.Levels))
		w.done <- struct{}{}
	}()
	go func() {
		c := r.h.Lend()
		defer r.h.TakeBack(c)
		_, w.needed = c.LastHop(5).Needed(ctx, 0, []int64{1}, nil)
		w.done <- struct{}{}
	}()
	synctest.Wait()
	require.Empty(r, w.done)
	require.Empty(r, w.batches.turns)
	return w
}

// requireReturned holds that everyone has returned, the batches with an error.
func (w *waiting) requireReturned(want error) {
	w.Helper()
	synctest.Wait()
	require.Len(w, w.done, 2)
	for _, index := range []int64{2, 4, 7} {
		require.ErrorIs(w, w.batches.errs[index], want)
	}
	require.Empty(w, w.batches.turns)
}

// requireForgotten holds that no batch relies on any row, and that the next epoch is pruned as the first would be.
func (w *waiting) requireForgotten() {
	w.Helper()
	s, err := w.h.Stats()
	require.NoError(w, err)
	require.Zero(w, s.Ahead)
	w.begin(0, 8)
	s, err = w.h.Stats()
	require.NoError(w, err)
	require.Zero(w, s.Pinned)
	all := w.start(context.Background(), 1, w.shuffled(1))
	for k := range int64(8) {
		require.NoError(w, w.h.Skip(context.Background()))
		w.h.HandOver()
		require.Equal(w, k, w.given()-w.begun-1)
		synctest.Wait()
	}
	require.Equal(w, upTo(8), all.turns)
}

// TestAbandonMakesAllReturn holds that waiting batches end with ErrStopped, and later ones as well, and that they leave
// nothing behind.
func TestAbandonMakesAllReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lagging(t, 2).wait(context.Background(), 0, 2, 4, 7)
		w.h.Abandon()
		w.requireReturned(ErrStopped)
		require.ErrorIs(t, w.needed, ErrStopped)
		require.NoError(t, w.updated)
		require.ErrorIs(t, w.start(context.Background(), 0, []int64{1}).errs[1], ErrStopped)
		w.h.Stop()
		w.requireForgotten()
	})
}

// TestStopMakesAllReturn holds the same of Stop, which undoes what was decided and not handed over.
func TestStopMakesAllReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lagging(t, 2).wait(context.Background(), 0, 2, 4, 7)
		w.h.Stop()
		w.requireReturned(ErrStopped)
		require.ErrorIs(t, w.needed, ErrStopped)
		require.NoError(t, w.updated)
		w.requireForgotten()
	})
}

// TestStopUndoesWhatWasNotHandedOver holds that when an epoch stops, only the batch that was handed over is updated,
// and that no other relies on any row.
func TestStopUndoesWhatWasNotHandedOver(t *testing.T) {
	r := lagging(t, 3)
	r.epoch(0, never)
	r.begin(0, 8)
	var pinned []int64 // how many of the batches from each on rely on rows
	for index := range int64(3) {
		pinned = append(pinned, 0)
		if len(r.prune(1, index).relied) > 0 {
			for k := range pinned {
				pinned[k]++
			}
		}
	}
	r.h.HandOver()
	requireAhead := func(ahead, pinned int64) {
		t.Helper()
		s, err := r.h.Stats()
		require.NoError(t, err)
		require.Equal(t, ahead, s.Ahead)
		require.Equal(t, pinned, s.Pinned)
	}
	requireAhead(2, pinned[0])
	r.h.Stop()
	requireAhead(0, pinned[0]-pinned[1])
	r.update(r.begun)
	requireAhead(0, 0)
	_, err := r.h.Update(context.Background(), r.begun+1, rowBytes, nil)
	require.ErrorIs(t, err, ErrCall)
	r.forget(r.begun + 1)
	r.forget(r.begun + 2)
	r.epoch(2, never)
}

// TestAnEndedContextEndsWaiting holds that batches end with ErrStopped and an update with the error of its context, and
// that the update can be called again.
func TestAnEndedContextEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := lagging(t, 2).wait(ctx, 0, 2, 4, 7)
		cancel()
		w.requireReturned(ErrStopped)
		require.ErrorIs(t, w.needed, context.Canceled)
		require.ErrorIs(t, w.updated, context.Canceled)
		require.ErrorIs(t, w.h.Skip(ctx), context.Canceled)
		w.prune(0, 1)
		w.prune(0, 2)
		w.update(w.begun)
		w.h.Stop()
		w.requireForgotten()
	})
}

// TestAFailedBatchBlocksNobody holds that updates do not wait for a failed batch or later ones, that earlier batches
// are made and waited for, and that the others return when the epoch stops.
func TestAFailedBatchBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lagging(t, 2).wait(context.Background(), 0, 4, 7)
		w.h.Fail(4)
		w.prune(0, 1)
		synctest.Wait()
		require.Empty(t, w.done, "batch 2 is made")
		w.h.Fail(2)
		w.h.Fail(3) // the first counts
		synctest.Wait()
		require.Len(t, w.done, 1)
		require.NoError(t, w.updated)
		w.h.HandOver()
		require.NoError(t, w.h.Skip(context.Background()))
		require.Empty(t, w.batches.turns)
		w.h.Stop()
		synctest.Wait()
		require.Len(t, w.done, 2)
		require.ErrorIs(t, w.needed, ErrStopped)
		for _, index := range []int64{4, 7} {
			require.ErrorIs(t, w.batches.errs[index], ErrStopped)
		}
		w.requireForgotten()
	})
}

// TestTheStartOfAnEpochIsABarrier holds that an epoch does not wait for the update of the last batch before it: that
// update is skipped, and the batch relies on no row any more.
func TestTheStartOfAnEpochIsABarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lagging(t, 3)
		r.epoch(0, never)
		r.begin(0, 8)
		var last *outcome
		for k := range int64(8) {
			for next := k; next < min(k+3, 8); next++ {
				if r.ahead[r.begun+next] == nil {
					last = r.prune(1, next)
				}
			}
			if k < 7 {
				r.step(r.begun+k, never)
			}
		}
		r.h.HandOver()
		r.forget(r.begun + 7)
		r.begin(0, 8)
		s, err := r.h.Stats()
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Skipped)
		require.Zero(t, s.Pinned)
		_, err = r.h.Update(context.Background(), r.begun-1, rowBytes, r.normsOf(0, last.left.Levels))
		require.ErrorIs(t, err, ErrCall)
		require.Equal(t, upTo(3), r.start(context.Background(), 2, r.shuffled(2)).turns)
		r.h.Stop()
		synctest.Wait()
	})
}

// TestUpdatesWaitForBatchesThatMayNotKnowOfThem holds it of an update and of a batch that is skipped, and that the last
// batches of an epoch wait for none of the next.
func TestUpdatesWaitForBatchesThatMayNotKnowOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lagging(t, 1)
		r.begin(0, 4)
		r.prune(0, 0)
		pruned := int64(1)
		for k := range int64(4) {
			r.h.HandOver()
			for ; pruned < min(k+r.c.History.Lag+1, 4); pruned++ {
				ctx, cancel := context.WithCancel(context.Background())
				var updated, skipped error
				ended := make(chan struct{}, 2)
				go func() {
					_, updated = r.h.Update(ctx, k, rowBytes, r.normsOf(k, r.levels[k]))
					ended <- struct{}{}
				}()
				go func() {
					skipped = r.h.Skip(ctx)
					ended <- struct{}{}
				}()
				synctest.Wait()
				require.Empty(t, ended, "batch %d is updated before batch %d is pruned", k, pruned)
				cancel()
				synctest.Wait()
				require.ErrorIs(t, updated, context.Canceled)
				require.ErrorIs(t, skipped, context.Canceled)
				r.prune(0, pruned)
			}
			if k%2 == 0 {
				r.update(r.begun + k)
			} else {
				require.NoError(t, r.h.SkipUpdate(context.Background(), r.begun+k))
				r.forget(r.begun + k)
			}
		}
	})
}

// TestPruningWithoutMemory holds that an error of the budget is typed and takes nothing, that the updates before the
// batch do not wait for it, and that the epoch after it is pruned as ever.
func TestPruningWithoutMemory(t *testing.T) {
	r := lagging(t, 2)
	r.h.Close()
	tables := history.MetadataBytes(r.c.History)
	budget := mem.NewBudget(tables + 1<<20)
	h, err := New(budget, r.c)
	require.NoError(t, err)
	require.Equal(t, tables, budget.Used())
	r.h = h
	r.begin(0, 8)
	r.prune(0, 0)
	left := budget.Free()
	require.NoError(t, budget.Reserve(mem.Batch, left))
	c, ctx := h.Lend(), context.Background() // of batch 0, which has memory
	other := h.Lend()
	err = other.Prune(ctx, 1, r.w.epochs[0][1], r.w.seeds[0][1], func() { t.Error("the turn of a batch that failed") })
	require.ErrorIs(t, err, mem.ErrBudget)
	var of *mem.BudgetError
	require.ErrorAs(t, err, &of)
	require.Equal(t, mem.Trace, of.Purpose)
	require.Zero(t, budget.Free())
	h.Fail(1)
	r.h.HandOver()
	r.update(r.begun)
	budget.Release(mem.Batch, left)
	h.Stop()
	h.TakeBack(c)
	h.TakeBack(other)
	r.epoch(1, never)
	h.Close()
	require.Zero(t, budget.Used())
}

// TestCallsOutOfOrder holds that a batch is updated once, when it was handed over last, and with norms that fit.
func TestCallsOutOfOrder(t *testing.T) {
	r := lagging(t, 1)
	ctx := context.Background()
	require.ErrorIs(t, r.h.SkipUpdate(ctx, 0), ErrCall)
	r.begin(0, 8)
	require.ErrorIs(t, r.h.HandOver(), ErrCall, "before it is pruned")
	for index := range int64(3) {
		r.prune(0, index)
	}
	_, err := r.h.Update(ctx, 0, rowBytes, r.normsOf(0, r.levels[0]))
	require.ErrorIs(t, err, ErrCall, "before it is handed over")
	r.h.HandOver()
	wrong := r.normsOf(0, r.levels[0])
	wrong[0].Computed = append(wrong[0].Computed, 1)
	for _, norms := range [][]Norms{{}, wrong, {{Hits: []float32{1}}, {}}} {
		_, err = r.h.Update(ctx, 0, rowBytes, norms)
		require.ErrorIs(t, err, ErrCall)
	}
	for _, i := range []int64{-1, 1, 7} {
		_, err = r.h.Update(ctx, i, rowBytes, r.normsOf(0, r.levels[0]))
		require.ErrorIs(t, err, ErrCall)
		require.ErrorIs(t, r.h.SkipUpdate(ctx, i), ErrCall)
	}
	r.update(0)
	_, err = r.h.Update(ctx, 0, rowBytes, nil)
	require.ErrorIs(t, err, ErrCall)
	require.ErrorIs(t, r.h.SkipUpdate(ctx, 0), ErrCall)
	require.NoError(t, r.h.Skip(ctx), "it has been updated")
	s, err := r.h.Stats()
	require.NoError(t, err)
	require.Zero(t, s.Skipped)
	r.prune(0, 3)
	r.h.HandOver()
	require.NoError(t, r.h.SkipUpdate(ctx, 1))
	require.NoError(t, r.h.Skip(ctx))
	_, err = r.h.Update(ctx, 1, rowBytes, r.normsOf(1, r.levels[1]))
	require.ErrorIs(t, err, ErrCall, "it has been skipped")
	r.begin(0, 8)
	s, err = r.h.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 3, s.Skipped, "it, and those that were not handed over")
}

// TestAPanicInTurnEndsNobodyElse holds that a batch that panics in its turn does not hold up the others.
func TestAPanicInTurnEndsNobodyElse(t *testing.T) {
	r := lagging(t, 2)
	r.begin(0, 8)
	c := r.h.Lend()
	fault := errors.New("a fault")
	require.PanicsWithValue(t, fault, func() {
		_ = c.Prune(context.Background(), 0, r.w.epochs[0][0], r.w.seeds[0][0], func() { panic(fault) })
	})
	r.h.Fail(0)
	r.h.Stop()
	r.h.TakeBack(c)
	r.epoch(1, never)
}

// TestAPanicOfAMergeIsOne holds that a batch that breaks an invariant ends with a panic, which its goroutine recovers,
// and does not hold up the others.
func TestAPanicOfAMergeIsOne(t *testing.T) {
	r := lagging(t, 2)
	r.begin(0, 8)
	c := r.h.Lend()
	require.Panics(t, func() { _ = c.Prune(context.Background(), 0, &sample.Subgraph{}, 0, func() {}) })
	r.h.Fail(0)
	r.h.Stop()
	r.h.TakeBack(c)
	r.epoch(1, never)
}
