package prune

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoneDoesNothing holds that where there is no history, nothing is pruned, nobody waits and there is no state.
func TestNoneDoesNothing(t *testing.T) {
	var none None
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.False(t, none.Prunes())
	c := none.Lend()
	require.False(t, c.On())
	require.Empty(t, c.Probes())
	require.Nil(t, c.Batch)
	none.TakeBack(c)
	none.SetSpans(1, 2)
	none.Begin(0, 3, false)
	require.NoError(t, none.HandOver())
	none.Fail(1)
	none.Abandon()
	none.Stop()
	require.NoError(t, none.Skip(ended))
	_, err := none.Update(ended, 0, 8, nil)
	require.ErrorIs(t, err, ErrCall)
	require.ErrorIs(t, none.SkipUpdate(ended, 0), ErrCall)
	state, err := none.Save()
	require.ErrorIs(t, err, ErrCall)
	require.Empty(t, state)
	require.ErrorIs(t, none.Restore(nil, func() { t.Error("an epoch is stopped for nothing") }), ErrCall)
	s, err := none.Stats()
	require.ErrorIs(t, err, ErrCall)
	require.Zero(t, s)
}
