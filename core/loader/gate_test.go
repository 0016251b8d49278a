package loader

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
)

// acquired runs acquire in the background and reports its outcome.
func acquired(g *gate, i, n int64) chan error {
	done := make(chan error, 1)
	go func() { done <- g.acquire(i, n) }()
	return done
}

func requireWaits(t *testing.T, done chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.FailNow(t, "did not wait", "returned %v", err)
	case <-time.After(20 * time.Millisecond):
	}
}

func TestGateAdmitsInOrder(t *testing.T) {
	budget := mem.NewBudget(100)
	g := newGate(budget, 100, 7)
	second := acquired(g, 8, 40)
	requireWaits(t, second)
	require.NoError(t, g.acquire(7, 40))
	require.NoError(t, <-second)
	require.EqualValues(t, 80, budget.Used())
}

func TestGateWaitsForTheConsumer(t *testing.T) {
	budget := mem.NewBudget(100)
	g := newGate(budget, 100, 0)
	require.NoError(t, g.acquire(0, 60))
	second := acquired(g, 1, 60)
	g.want(0)
	g.handOver(60)
	requireWaits(t, second) // the consumer still holds batch 0
	third := acquired(g, 2, 30)
	requireWaits(t, third) // its turn has not come, though there is room
	g.shutdown()
	require.ErrorIs(t, <-second, draw.ErrStopped)
	require.ErrorIs(t, <-third, draw.ErrStopped)
	g.drain()
	require.Zero(t, budget.Used())
}

func TestGateMakesRoomWhenABatchIsReplaced(t *testing.T) {
	g := newGate(mem.NewBudget(0), 100, 0)
	require.NoError(t, g.acquire(0, 30))
	require.NoError(t, g.acquire(1, 30))
	third := acquired(g, 2, 60)
	g.want(0)
	g.handOver(30)
	requireWaits(t, third)
	g.want(1)
	g.handOver(30) // batch 0 is gone
	require.NoError(t, <-third)
}

// TestGateGivesALargeBatchWhatIsLeft: the limit is what measured batches take, and a larger one is no reason to end an
// epoch.
func TestGateGivesALargeBatchWhatIsLeft(t *testing.T) {
	budget := mem.NewBudget(200)
	g := newGate(budget, 100, 0)
	require.NoError(t, g.acquire(0, 50))
	second := acquired(g, 1, 150)
	requireWaits(t, second) // others may leave room within the limit
	g.want(0)
	g.handOver(50)
	g.want(1)
	require.NoError(t, <-second)
	require.EqualValues(t, 200, budget.Used())
	third := acquired(g, 2, 60)
	g.handOver(150)
	requireWaits(t, third) // the consumer holds more than the limit
	g.want(2)
	require.ErrorIs(t, <-third, mem.ErrBudget)
	g.drain()
	require.Zero(t, budget.Used())
}

func TestGateReportsABatchThatNeverFits(t *testing.T) {
	g := newGate(mem.NewBudget(100), 100, 0)
	require.NoError(t, g.acquire(0, 50))
	g.want(0)
	g.handOver(50)
	second := acquired(g, 1, 51)
	requireWaits(t, second) // the consumer may yet come back for it
	g.want(1)
	var tooSmall *mem.BudgetError
	require.True(t, errors.As(<-second, &tooSmall))
	require.EqualValues(t, 51, tooSmall.Need)
	require.EqualValues(t, 50, tooSmall.Free)
}

func TestGateStretchesForABatchThatIsDue(t *testing.T) {
	budget := mem.NewBudget(150)
	g := newGate(budget, 100, 0)
	require.NoError(t, g.acquire(0, 50))
	g.want(0)
	g.handOver(50)
	second := acquired(g, 1, 100)
	requireWaits(t, second) // the limit keeps what is left for others as long as the consumer may make room
	g.want(1)
	require.NoError(t, <-second)
	require.EqualValues(t, 150, budget.Used())
	g.handOver(100)
	require.EqualValues(t, 100, budget.Used())
}

func TestGateCountsInTheBudget(t *testing.T) {
	budget := mem.NewBudget(100)
	require.NoError(t, budget.Reserve(mem.IDMap, 80))
	g := newGate(budget, 90, 0)
	first := acquired(g, 0, 30)
	requireWaits(t, first)
	g.want(0)
	require.ErrorIs(t, <-first, mem.ErrBudget)
}

func TestGateCountsEveryBatchHeld(t *testing.T) {
	g := newGate(mem.NewBudget(0), 100, 0)
	g.holds = 2
	for i := range int64(3) {
		require.NoError(t, g.acquire(i, 30))
	}
	last := acquired(g, 3, 30)
	g.handOver(30)
	g.handOver(30)
	requireWaits(t, last) // batches 0 and 1 are held, 2 waits
	g.handOver(30)
	require.NoError(t, <-last)
}
