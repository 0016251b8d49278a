package main

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJobPassesItsResultOnce(t *testing.T) {
	value, discarded := new(int64), 0
	j := startJob(func(context.Context, report) (result, error) {
		return result{pointer: unsafe.Pointer(value), discard: func() { discarded++ }}, nil
	})
	_, got, err := j.wait(-1)
	require.NoError(t, err)
	assert.Equal(t, unsafe.Pointer(value), got)
	_, got, err = j.wait(0)
	require.NoError(t, err)
	assert.Nil(t, got)
	j.close()
	assert.Zero(t, discarded, "it belongs to whoever took it")
}

func TestJobUndoesAResultThatNobodyTook(t *testing.T) {
	discarded := 0
	j := startJob(func(context.Context, report) (result, error) {
		return result{pointer: unsafe.Pointer(new(int64)), discard: func() { discarded++ }}, nil
	})
	<-j.ended
	j.close()
	assert.Equal(t, 1, discarded)
}

func TestJobTimesOutReportsAndIsCancelled(t *testing.T) {
	reported := make(chan struct{})
	j := startJob(func(ctx context.Context, report report) (result, error) {
		report("reading", 3, 10)
		close(reported)
		<-ctx.Done()
		return result{}, ctx.Err()
	})
	<-reported
	for _, timeout := range []int32{0, 1} {
		p, _, err := j.wait(timeout)
		require.ErrorIs(t, err, errTimeout)
		assert.Equal(t, progress{"reading", 3, 10}, p)
	}
	j.cancel()
	for range 2 { // every time
		_, _, err := j.wait(-1)
		require.ErrorIs(t, err, context.Canceled)
	}
	j.close()
}

func TestClosingAJobWaitsForItsEnd(t *testing.T) {
	ended := false
	j := startJob(func(ctx context.Context, _ report) (result, error) {
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond) // the inputs are still being read
		ended = true
		return result{}, ctx.Err()
	})
	j.close()
	assert.True(t, ended)
}

func TestJobFailsWithItsError(t *testing.T) {
	failed := errors.New("disk on fire")
	j := startJob(func(context.Context, report) (result, error) { return result{}, failed })
	defer j.close()
	for range 2 {
		_, _, err := j.wait(-1)
		require.ErrorIs(t, err, failed)
	}
	assert.Nil(t, poison.Load())
}

func TestPanicInAJobPoisons(t *testing.T) {
	t.Cleanup(func() { poison.Store(nil) })
	j := startJob(func(context.Context, report) (result, error) { panic("index out of range") })
	defer j.close()
	_, _, err := j.wait(-1)
	require.ErrorContains(t, err, "index out of range")
	require.NotNil(t, poison.Load())
	assert.Contains(t, poison.Load().message, "index out of range")
}
