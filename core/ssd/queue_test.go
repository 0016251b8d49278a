package ssd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestQueue() (q *queue, woken *int) {
	q, woken = newQueue(), new(int)
	q.wake = func() { *woken++ }
	return q, woken
}

func newJob(n int) *job {
	return &job{handle: new(Handle), ranges: make([]Range, n), done: make(chan struct{})}
}

func over(j *job) bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func TestQueueServesJobsInOrderAndAcrossTheirEnds(t *testing.T) {
	q, _ := newTestQueue()
	a, b := newJob(3), newJob(4)
	require.NoError(t, q.push(a))
	require.NoError(t, q.push(b))
	tasks := make([]task, 5)
	n, open := q.poll(tasks)
	require.True(t, open)
	require.Equal(t, []task{{a, 0}, {a, 1}, {a, 2}, {b, 0}, {b, 1}}, tasks[:n])
	n, _ = q.poll(tasks)
	require.Equal(t, []task{{b, 2}, {b, 3}}, tasks[:n])
	for range 3 {
		require.False(t, over(a))
		q.finish(&transfer{task: task{job: a}}, nil)
	}
	require.True(t, over(a))
	require.False(t, over(b))
}

// Whoever polls is woken exactly when it found less than it had room for and something changes.
func TestQueueWakesASleeperOnce(t *testing.T) {
	q, woken := newTestQueue()
	tasks := make([]task, 2)

	require.NoError(t, q.push(newJob(3)))
	require.Zero(t, *woken, "nobody has polled")
	q.poll(tasks)
	require.NoError(t, q.push(newJob(1)))
	require.Zero(t, *woken, "it had no room to spare")
	q.poll(tasks[:0])
	require.NoError(t, q.push(newJob(1)))
	require.Zero(t, *woken, "it had no room at all")
	n, _ := q.poll(tasks)
	require.Equal(t, 2, n)
	n, _ = q.poll(tasks)
	require.Equal(t, 1, n)
	require.NoError(t, q.push(newJob(1)))
	require.NoError(t, q.push(newJob(1)))
	require.Equal(t, 1, *woken, "room for one more")
	q.poll(tasks)
	q.poll(tasks)
	q.stop(ErrClosed)
	require.Equal(t, 2, *woken)
	_, open := q.poll(tasks)
	require.False(t, open)
	q.retire()
	q.stop(ErrClosed)
	require.Equal(t, 2, *woken, "retired")
	require.ErrorIs(t, q.push(newJob(1)), ErrClosed)
}

func TestQueueAbort(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	q, _ := newTestQueue()
	waiting, running, done := newJob(2), newJob(2), newJob(1)
	tasks := make([]task, 2)

	require.NoError(t, q.push(waiting))
	q.abort(waiting, first)
	require.True(t, over(waiting))
	q.abort(waiting, second)
	require.Equal(t, first, waiting.err)

	require.NoError(t, q.push(running))
	n, _ := q.poll(tasks[:1])
	require.Equal(t, []task{{running, 0}}, tasks[:n], "what is aborted is not handed out")
	q.abort(running, first)
	require.False(t, over(running), "one is in flight")
	n, _ = q.poll(tasks)
	require.Zero(t, n)
	q.finish(&transfer{task: task{job: running}}, second)
	require.True(t, over(running))
	require.Equal(t, first, running.err)

	require.NoError(t, q.push(done))
	q.poll(tasks)
	q.finish(&transfer{task: task{job: done}}, nil)
	q.abort(done, first)
	require.NoError(t, done.err, "over before")
}

func TestQueueStop(t *testing.T) {
	q, _ := newTestQueue()
	a, b := newJob(2), newJob(1)
	require.NoError(t, q.push(a))
	require.NoError(t, q.push(b))
	one := make([]task, 1)
	q.poll(one)
	reason := errors.New("reason")
	q.stop(reason)
	q.stop(ErrClosed)
	require.False(t, over(a))
	require.True(t, over(b))
	require.Equal(t, reason, b.err)
	_, ok := q.take()
	require.False(t, ok)
	q.finish(&transfer{task: task{job: a}}, nil)
	require.True(t, over(a))
	require.Equal(t, reason, a.err)
	require.Equal(t, reason, q.push(newJob(1)), "the first reason stays")
	require.Zero(t, q.inFlight)
}
