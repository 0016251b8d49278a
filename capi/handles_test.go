package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHandleIsFoundUntilRemoved(t *testing.T) {
	table := newHandleTable()
	j := &job{}
	p := table.add(j)
	assert.EqualValues(t, 1, table.count("job"))
	found, err := find[*job](table, p)
	require.NoError(t, err)
	assert.Same(t, j, found)
	removed, err := remove[*job](table, p)
	require.NoError(t, err)
	assert.Same(t, j, removed)
	assert.Zero(t, table.count("job"))

	_, err = find[*job](table, p)
	require.ErrorIs(t, err, errClosed)
	_, err = remove[*job](table, p)
	require.ErrorIs(t, err, errClosed)
	assert.Zero(t, table.count("job"), "closing twice counts once")
}

func TestWrongHandles(t *testing.T) {
	table := newHandleTable()
	p := table.add(&job{})
	_, err := find[*storeHandle](table, p)
	require.ErrorIs(t, err, errArgument)
	require.ErrorContains(t, err, "expected a store, got a job")
	_, err = remove[*loaderHandle](table, p)
	require.ErrorIs(t, err, errArgument)
	_, err = find[*job](table, nil)
	require.ErrorIs(t, err, errArgument)
	var stranger int64
	_, err = find[*job](table, unsafe.Pointer(&stranger))
	require.ErrorIs(t, err, errClosed)
	_, err = remove[*job](table, p)
	require.NoError(t, err)
	_, err = find[*storeHandle](table, p)
	require.ErrorIs(t, err, errArgument, "a closed handle of another kind")
}

func TestStaleHandlesAreNotReused(t *testing.T) {
	table := newHandleTable()
	stale := table.add(&job{})
	_, err := remove[*job](table, stale)
	require.NoError(t, err)
	for range recentlyClosed - 1 {
		p := table.add(&job{})
		require.NotEqual(t, stale, p)
		_, err := remove[*job](table, p)
		require.NoError(t, err)
	}
	_, err = remove[*job](table, stale)
	require.ErrorIs(t, err, errClosed)

	for range recentlyClosed { // pushes every handle out
		_, err := remove[*job](table, table.add(&job{}))
		require.NoError(t, err)
	}
	assert.Len(t, table.closed, recentlyClosed, "what is remembered is bounded")
	assert.Zero(t, table.count("job"))
}

func TestOnlyOneOfManyClosesAHandle(t *testing.T) {
	table := newHandleTable()
	for range 100 {
		p := table.add(&job{})
		var closed atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := remove[*job](table, p); err == nil {
					closed.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, closed.Load())
	}
	assert.Zero(t, table.count("job"))
}

func TestSharedIsFreedByItsLastUser(t *testing.T) {
	freed := 0
	s := newShared(func() { freed++ })
	require.NoError(t, s.use())
	s.drop()
	assert.Zero(t, freed)
	s.drop()
	assert.Equal(t, 1, freed)
	assert.ErrorIs(t, s.use(), errClosed)
	assert.Equal(t, 1, freed)
}
