package window

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// hooked calls a function before the request of a batch.
type hooked struct {
	draw.Requester
	before func(batch uint64) error
}

func (h hooked) Request(ctx context.Context, m *draw.Sampling, key sample.Key, r *draw.Request) error {
	if err := h.before(key.Batch); err != nil {
		return err
	}
	return h.Requester.Request(ctx, m, key, r)
}

// TestOneOfSeveralFails holds that where one of several batches fails that are sampled at a time and forecast one after
// the other, those before it are made, nobody waits for it, and its error is the one that is told.
func TestOneOfSeveralFails(t *testing.T) {
	o := options()
	o.Workers, o.Prefetch = 8, 8
	fault := errors.New("a fault")
	for name, fail := range map[string]func() error{
		"with an error": func() error { return fault },
		"with a panic":  func() error { panic(fault) },
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, ssd.OS, o, func(*sizing.Split) {})
			m := &r.sampling
			require.Equal(t, 8, cap(m.Workers))
			in := &inspector{
				cache: r.cache, ctx: context.Background(), forecasting: true, forecaster: forecaster{of: noFollower{}},
			}
			s := newBlocks(in, place{})
			var err error
			s.order, err = m.NewSeedOrder(in.ctx, m.EpochKey(0))
			require.NoError(t, err)
			failing := make(chan struct{})
			m.Seeds = hooked{m.Seeds, func(batch uint64) error {
				switch batch {
				case 2: // is the last to come to its turn
					<-failing
					time.Sleep(10 * time.Millisecond)
				case 3:
					defer close(failing)
					return fail()
				}
				return nil
			}}
			made, err := s.sample(8, func(i int64) int64 { return i })
			require.ErrorIs(t, err, fault)
			require.Len(t, made, 3)
			require.Len(t, m.Workers, cap(m.Workers))
			freeAll(made)
			s.free()
		})
	}
}

// TestGroupsHaveRoom: where batches request more than the memory for shared reads has room for, the last ones are left
// for the next group, and all are what they are by themselves. One worker draws, so that batches take their room in
// order.
func TestGroupsHaveRoom(t *testing.T) {
	const most = 8
	o := options()
	o.Workers = 1
	r := open(t, ssd.OS, o, func(s *sizing.Split) { s.Neighbors, s.Together = false, 1<<20 })
	m, ctx := &r.sampling, context.Background()
	want := r.nodesOf(0)
	in := &inspector{cache: r.cache, ctx: ctx}
	s := newBlocks(in, place{})
	defer s.free()
	var err error
	s.order, err = m.NewSeedOrder(ctx, m.EpochKey(0))
	require.NoError(t, err)
	made, err := s.sample(1, func(int64) int64 { return 0 })
	require.NoError(t, err)
	freeAll(made)
	each := s.sharedReads.each
	require.Positive(t, each)
	for room := int64(1); room <= most; room++ {
		m.Split.Together = 4 * (room*each + each/2) / 3
		for first := int64(0); first < most; {
			s.sharedReads.each = each / 2 // as if twice as many had room
			made, err := s.sample(most-first, func(i int64) int64 { return first + i })
			require.NoError(t, err)
			if left := most - first; left > room+1 {
				require.GreaterOrEqual(t, int64(len(made)), max(1, room/2))
				require.LessOrEqual(t, int64(len(made)), room+1)
			}
			for i, b := range made {
				r.requireNodes(want[first+int64(i)], b)
			}
			first += int64(len(made))
			freeAll(made)
		}
	}
	m.Split.Together, s.sharedReads.each = 4*(each/2)/3, each/6
	made, err = s.sample(2, func(i int64) int64 { return i })
	require.NoError(t, err)
	require.Len(t, made, 1)
	require.Less(t, s.sharedReads.most(r.cache), int64(2), "not even one has room")
	freeAll(made)
}
