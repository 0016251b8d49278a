package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachRunsAllAtTheSameTime(t *testing.T) {
	var met atomic.Int64
	all := make(chan struct{})
	require.NoError(t, Each(context.Background(), 5, func(_ context.Context, i int) error {
		if met.Add(1) == 5 {
			close(all)
		}
		<-all // nobody gets past without the others
		return nil
	}))
	require.NoError(t, Each(context.Background(), 0, nil))
}

// TestEachReturnsTheLowestError: a cancellation that an error caused, and errors of higher numbers, stand behind it.
func TestEachReturnsTheLowestError(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	err := Each(context.Background(), 4, func(ctx context.Context, i int) error {
		switch i {
		case 1:
			<-ctx.Done() // until 3 has failed
			return first
		case 3:
			return second
		}
		<-ctx.Done()
		return ctx.Err()
	})
	require.Same(t, first, err)
}

func TestEachReturnsACancellationOfTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, Each(ctx, 2, func(ctx context.Context, _ int) error { return ctx.Err() }), context.Canceled)
}

func TestEachReturnsAPanic(t *testing.T) {
	err := Each(context.Background(), 2, func(ctx context.Context, i int) error {
		if i == 1 {
			panic("broken")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	var p *PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "broken", p.Value)
}

func TestGroupRunsAllAndKeepsTheOrderOfErrors(t *testing.T) {
	var g Group
	first, second, released := errors.New("first"), errors.New("second"), make(chan struct{})
	g.Start(func() error { return context.Canceled })
	g.Start(func() error {
		<-released // the second fails before
		return first
	})
	g.Start(func() error {
		defer close(released)
		return second
	})
	require.Same(t, first, g.Wait())
	g = Group{}
	g.Start(func() error { return context.Canceled })
	g.Start(func() error { return nil })
	require.ErrorIs(t, g.Wait(), context.Canceled)
	require.NoError(t, new(Group).Wait())
}

func TestSplitCoversEverythingOnce(t *testing.T) {
	for threads := range 6 {
		for n := range 20 {
			seen, parts := make([]atomic.Int32, n), atomic.Int32{}
			Split(threads, n, func(lo, hi int) {
				parts.Add(1)
				for i := lo; i < hi; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				require.EqualValues(t, 1, seen[i].Load())
			}
			require.LessOrEqual(t, int(parts.Load()), max(1, threads))
		}
	}
}

// TestSplitPassesAPanicOn with the stack of the goroutine that panicked.
func TestSplitPassesAPanicOn(t *testing.T) {
	err := Run(func() error {
		Split(3, 9, func(lo, _ int) {
			if lo == 3 {
				broken()
			}
		})
		return nil
	})
	var p *PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "broken", p.Value)
	require.Contains(t, string(p.Stack), "guard.broken")
}

func broken() { panic("broken") }
