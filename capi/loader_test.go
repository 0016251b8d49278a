package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/loader"
	"freshgo/core/manifest"
	"freshgo/core/ssd"
	"freshgo/core/store"
	"freshgo/csrc"
)

const (
	testNodes = 500
	testEdges = 4000
)

// testStore converts a random graph with a column "x" that holds each node's id, and opens it.
func testStore(t *testing.T) *storeHandle {
	t.Helper()
	random := rand.New(rand.NewPCG(5, 6))
	edges, ids := make([]int64, 2*testEdges), make([]int64, testNodes)
	for i := range edges {
		edges[i] = random.Int64N(testNodes)
	}
	for i := range ids {
		ids[i] = int64(i)
	}
	path := filepath.Join(t.TempDir(), "g.freshgo")
	nodes := store.Dense(manifest.DType_INT64, []int64{testNodes}, bytesOf(ids))
	require.NoError(t, store.Convert(t.Context(), ssd.OS, store.Input{
		NumNodes:    testNodes,
		EdgeIndex:   store.Dense(manifest.DType_INT64, []int64{2, testEdges}, bytesOf(edges)),
		NodeTensors: []store.NamedSource{{Name: "x", Source: nodes}},
		Splits:      map[string]store.Source{"train": nodes},
	}, path, store.ConvertOptions{}))
	s, err := store.Open(ssd.OS, path)
	require.NoError(t, err)
	return newStoreHandle(s)
}

func testLoader(t *testing.T, s *storeHandle) *loaderHandle {
	t.Helper()
	require.NoError(t, s.use())
	o := draw.Options{
		Fanouts: []int64{4, 4}, BatchSize: 10, Prefetch: 2, FeatureCache: draw.Auto, NeighborCache: draw.Auto,
		IO:    ssd.Auto,
		Cache: "auto", Superbatch: draw.Auto, CarryOver: true, Lookahead: true, Transfer: "auto", TraceMemory: draw.Auto,
		BufferMemory: draw.Auto,
	}
	h, err := openLoader(t.Context(), s.opened(), o, csrc.Allocator{}, func(string, int64, int64) {})
	require.NoError(t, err)
	return h
}

// noBuffers asserts after a test that no tensor memory is left.
func noBuffers(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		live, liveBytes, pooled := csrc.Counters()
		assert.Zero(t, live)
		assert.Zero(t, liveBytes)
		assert.Zero(t, pooled)
	})
}

func TestReadCopiesSplitsAndTensors(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	defer s.drop()
	for kind, name := range map[int32]string{splitTensor: "train", nodeTensor: "x"} {
		read, err := s.reader(kind, 0, name)
		require.NoError(t, err)
		for _, versioned := range []bool{false, true} {
			r, err := read(t.Context(), versioned)
			require.NoError(t, err)
			live, _, _ := csrc.Counters()
			assert.EqualValues(t, 1, live)
			r.discard()
		}
	}
	for kind, want := range map[int32]string{splitTensor: "no split", nodeTensor: `it has ["x"]`, edgeTensor: "it has []",
		7: "kind is 7"} {
		_, err := s.reader(kind, 0, "nothing")
		require.ErrorIs(t, err, errArgument)
		require.ErrorContains(t, err, want)
	}
	for _, place := range []int32{-1, 1} {
		_, err := s.reader(nodeTensor, place, "x")
		require.ErrorIs(t, err, errArgument)
		require.ErrorContains(t, err, fmt.Sprintf("the type is %d of 1", place))
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	read, err := s.reader(nodeTensor, 0, "x")
	require.NoError(t, err)
	_, err = read(cancelled, false)
	require.ErrorIs(t, err, context.Canceled)
}

func TestBatchesBecomeTensors(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	h := testLoader(t, s)
	s.drop() // the loader keeps it open
	assert.Equal(t, 15, h.maxTensors)
	for epoch := range int64(3) {
		mode := []loader.Mode{loader.Train, loader.Trace, loader.Train}[epoch]
		require.NoError(t, h.alone(func() error { return h.loader.Start(epoch, 0, mode) }))
		for i := range h.loader.NumBatches() {
			b, err := h.next(-1)
			require.NoError(t, err)
			require.Equal(t, i, b.Index)
			tensors, err := exported(b, i%2 == 0)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(tensors), h.maxTensors)
			for _, tensor := range tensors {
				tensor.Delete()
			}
		}
		_, err := h.next(-1)
		require.ErrorIs(t, err, errEnd)
	}
	require.NoError(t, h.close())
	assert.ErrorIs(t, s.use(), errClosed, "closed with its last user")
}

func TestNextWithoutAnEpoch(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	defer s.drop()
	h := testLoader(t, s)
	_, err := h.next(50)
	require.ErrorIs(t, err, loader.ErrNoEpoch)
	require.NoError(t, h.close())
	_, err = h.next(50)
	require.ErrorIs(t, err, loader.ErrNoEpoch)
}

func TestConsumersTakeTurnsAndStopWakesThem(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	defer s.drop()
	h := testLoader(t, s)
	for epoch := range int64(20) {
		require.NoError(t, h.alone(func() error { return h.loader.Start(epoch, 0, loader.Train) }))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					b, err := h.next(-1)
					if err != nil {
						assert.True(t, err == errEnd || err == loader.ErrNoEpoch, err)
						return
					}
					b.Release()
				}
			})
		}
		if epoch%2 == 0 {
			assert.NoError(t, h.alone(func() error { h.loader.Stop(); return nil }))
		}
		all.Wait()
	}
	require.NoError(t, h.close())
}

func TestNextTimesOutAndLosesNothing(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	defer s.drop()
	h := testLoader(t, s)
	<-h.turn // as if another thread were waiting for a batch
	for _, timeout := range []int32{0, 1, 20} {
		_, err := h.next(timeout)
		require.ErrorIs(t, err, errTimeout)
	}
	require.NoError(t, h.within(h.step, 0, func(context.Context) error { return nil }), "steps wait for no batch")
	h.turn <- struct{}{}
	require.NoError(t, h.alone(func() error { return h.loader.Start(0, 0, loader.Train) }))
	for i := int64(0); i < h.loader.NumBatches(); {
		b, err := h.next(0)
		if err == errTimeout {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, i, b.Index)
		b.Release()
		i++
	}
	require.NoError(t, h.close())
}

func TestFailedOpenFreesTheSource(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	require.NoError(t, s.use())
	o := draw.Options{Fanouts: []int64{2}}
	_, err := openLoader(t.Context(), s.opened(), o, csrc.Allocator{}, func(string, int64, int64) {})
	require.ErrorIs(t, err, draw.ErrOption)
	s.drop()
	assert.ErrorIs(t, s.use(), errClosed)
}

func TestJSONThatDoesNotFitIsOnlyMeasured(t *testing.T) {
	out := []byte("????????????")
	at := unsafe.Pointer(unsafe.SliceData(out))
	n, err := writeJSON(map[string]int{"a": 1}, at, 6)
	require.NoError(t, err)
	assert.EqualValues(t, 7, n)
	assert.Equal(t, "????????????", string(out))
	n, err = writeJSON(map[string]int{"a": 1}, at, 7)
	require.NoError(t, err)
	assert.EqualValues(t, 7, n)
	assert.Equal(t, `{"a":1}?????`, string(out))
}

// A batch on demand that nobody takes leaves nothing, and neither does one that is taken into too little room.
func TestSampledBatches(t *testing.T) {
	noBuffers(t)
	s := testStore(t)
	defer s.drop()
	h := testLoader(t, s)
	for range 2 {
		b, err := h.loader.Sample(t.Context(), loader.OnDemand{Seeds: []int64{3, 4}})
		require.NoError(t, err)
		sampled := &sampledHandle{batch: b, maxTensors: h.maxTensors}
		opened := opening(sampled, sampled.batch.Release)
		assert.EqualValues(t, 1, handles.count(sampled.kind()))
		opened.discard()
		assert.Zero(t, handles.count(sampled.kind()))
	}
	require.NoError(t, h.close())
}
