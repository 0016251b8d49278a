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
