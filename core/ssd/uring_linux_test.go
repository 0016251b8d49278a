package ssd_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

func TestRingModesThatAreRefused(t *testing.T) {
	needRing(t)
	for name, known := range map[string]func(flags uint32) bool{
		"newest": func(uint32) bool { return true },
		"middle": func(flags uint32) bool { return flags&ssd.ModeDeferred == 0 },
		"oldest": func(flags uint32) bool { return flags == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			k := &ssd.KernelStub{Setup: func(flags uint32) error {
				if !known(flags) {
					return syscall.EINVAL
				}
				return nil
			}}
			r := newRigOn(t, k, ssd.Options{Kind: ssd.IOUring, Depth: 16}, 1<<20)
			for range 3 {
				r.check(r.pages())
			}
			r.Close()
		})
	}
}

func TestOldKernelIsRefused(t *testing.T) {
	needRing(t)
	path, _ := writeWords(t, 10_000)
	budget := mem.NewBudget(0)
	k := &ssd.KernelStub{Features: 1 << 3}
	_, err := ssd.NewEngineOn(k, ssd.Options{Kind: ssd.IOUring, FS: ssd.OS, Budget: budget}, filepath.Dir(path))
	require.ErrorIs(t, err, ssd.ErrRefused)
	require.ErrorContains(t, err, "Linux 5.6")
	require.Zero(t, budget.Used())
}

// Slots are registered once, in an engine that has read much; reads in flight meanwhile go on, and where the kernel
// refuses, reads go on without.
func TestSlotsAreRegisteredWhereMuchIsRead(t *testing.T) {
	needRing(t)
	for _, refusal := range []error{nil, syscall.ENOMEM} {
		var asked atomic.Int32
		k := &ssd.KernelStub{Register: func() error {
			asked.Add(1)
			return refusal
		}}
		r := newRigOn(t, k, ssd.Options{Kind: ssd.IOUring, Depth: 16}, 1<<20)
		pages := r.pages()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range ssd.RegisterAfter / len(pages) {
					r.check(pages)
				}
			})
		}
		all.Wait()
		r.check(pages)
		require.EqualValues(t, 1, asked.Load())
		r.check(pages)
		r.Close()

		asked.Store(0)
		r = newRigOn(t, k, ssd.Options{Kind: ssd.IOUring, Depth: 16}, 1<<20)
		for range ssd.RegisterAfter/len(pages) - 1 {
			r.check(pages)
		}
		r.Close()
		require.Zero(t, asked.Load())
	}
}

func TestEnterIsRepeated(t *testing.T) {
	needRing(t)
	for _, errno := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.EBUSY} {
		var calls atomic.Int32
		k := &ssd.KernelStub{Enter: func() error {
			if calls.Add(1)%3 != 0 {
				return errno
			}
			return nil
		}}
		r := newRigOn(t, k, ssd.Options{Kind: ssd.IOUring, Depth: 4}, 64*ssd.PageBytes)
		r.check(r.pages())
		r.Close()
	}
}

// When the ring itself fails, every Read gets the reason, those to come included.
func TestRingThatFails(t *testing.T) {
	needRing(t)
	for name, c := range map[string]struct {
		errno syscall.Errno
		times int32
	}{
		"at once":                   {syscall.EBADF, 1},
		"after too many repetition": {syscall.EAGAIN, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var left atomic.Int32
			k := &ssd.KernelStub{Enter: func() error {
				if left.Load() > 0 && left.Add(-1) >= 0 {
					return c.errno
				}
				return nil
			}}
			r := newRigOn(t, k, ssd.Options{Kind: ssd.IOUring, Depth: 4}, 64*ssd.PageBytes)
			r.check(r.pages())
			left.Store(c.times)
			for range 2 {
				err := r.read(context.Background(), r.pages())
				require.ErrorIs(t, err, c.errno)
				require.ErrorContains(t, err, "io_uring_enter")
			}
			r.Close()
		})
	}
}
