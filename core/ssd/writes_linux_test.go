package ssd_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// writeAll writes chunks of a Temp in any order, a few in flight, and returns how many failed and why.
func writeAll(e *ssd.Engine, temp *ssd.Temp, data []byte, chunk int) (failed int, why error) {
	writes := e.Writes(temp)
	defer writes.Close()
	ended := 0
	for i := range len(data) / chunk {
		at := i * 7 % (len(data) / chunk) * chunk
		writes.Begin(data[at:at+chunk], int64(at), func(err error) {
			if ended++; err != nil {
				failed, why = failed+1, err
			}
		})
		if writes.Full() {
			writes.Await()
		}
	}
	for writes.InFlight() > 0 {
		writes.Await()
	}
	writes.Await() // returns at once
	if ended != len(data)/chunk {
		return -1, errWrong
	}
	return failed, why
}

// Writes in flight together end each by itself: what the kernel interrupts or leaves is written after all, what fails
// is told to whoever began it, and a ring that is refused or breaks is done without.
func TestWrites(t *testing.T) {
	needRing(t)
	const chunk, count = 64 << 10, 100
	times := func(n int, err error) func() error {
		return func() error {
			if n--; n >= 0 {
				return err
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		setup  func(flags uint32) error // of rings for writes
		enter  func() error             // while they are in flight
		faults []faultfs.Fault
		failed int
		why    error
	}{
		"as it is": {},
		"no ring":  {setup: func(uint32) error { return syscall.ENOMEM }},
		"old kernel": {setup: func(flags uint32) error {
			if flags&ssd.ModeDeferred != 0 {
				return syscall.EINVAL
			}
			return nil
		}},
		"interrupted":              {enter: times(3, syscall.EINTR)},
		"no memory for the moment": {enter: times(3, syscall.EAGAIN)},
		"no memory at all": {enter: times(1<<30, syscall.EAGAIN), failed: 16,
			why: syscall.EAGAIN},
		"the ring breaks":      {enter: times(1, syscall.EBADF), failed: 16, why: syscall.EBADF},
		"short":                {faults: []faultfs.Fault{{Short: 5000, Times: 3}}},
		"short, within a page": {faults: []faultfs.Fault{{Short: 700, Times: 3}}},
		"interrupted in one":   {faults: []faultfs.Fault{{Errno: syscall.EINTR, Times: 3}}},
		"one fails":            {faults: []faultfs.Fault{{Errno: syscall.EIO}}, failed: 1, why: syscall.EIO},
		"all fail from one on": {
			faults: []faultfs.Fault{{Errno: syscall.ENOSPC, Nth: 41, Times: faultfs.Forever}}, failed: 60,
			why: syscall.ENOSPC,
		},
		"the rest of one fails": {
			faults: []faultfs.Fault{{Short: 5000}, {Errno: syscall.EIO, Nth: 2}}, failed: 1, why: syscall.EIO,
		},
		"the page cache is used": {
			faults: []faultfs.Fault{{Op: faultfs.OpenDirect, Errno: syscall.EINVAL, Times: faultfs.Forever}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := writeWords(t, 10_000)
			budget, fs := mem.NewBudget(0), faultfs.New(ssd.OS)
			var armed, ringed atomic.Bool
			kernel := &ssd.KernelStub{
				Setup: func(flags uint32) error {
					if c.setup != nil && armed.Load() {
						if err := c.setup(flags); err != nil {
							return err
						}
					}
					ringed.Store(true)
					return nil
				},
				Enter: func() error {
					if c.enter == nil || !armed.Load() {
						return nil
					}
					return c.enter()
				},
			}
			e, err := ssd.NewEngineOn(kernel, ssd.Options{Kind: ssd.IOUring, FS: fs, Budget: budget}, filepath.Dir(path))
			require.NoError(t, err)
			fault := func(op faultfs.Op) {
				for _, f := range c.faults {
					if f.Op == "" {
						f.Op = faultfs.Write
					}
					if f.Nth = max(f.Nth, 1); f.Op == op {
						fs.Arm(f)
					}
				}
			}
			fault(faultfs.OpenDirect)
			temp, err := e.CreateTemp(t.TempDir(), budget)
			require.NoError(t, err)
			block, err := budget.Alloc(mem.Staging, count*chunk)
			require.NoError(t, err)
			data := block.Bytes()
			copy(data, noise(len(data)))
			require.NoError(t, temp.Grow(int64(len(data))))
			fault(faultfs.Write)
			ringed.Store(false)
			armed.Store(true) // the engine's own thread sleeps in the kernel meanwhile: it has nothing to read
			failed, why := writeAll(e, temp, data, chunk)
			armed.Store(false)
			require.ErrorIs(t, why, c.why)
			require.Equal(t, c.failed, failed)
			require.Equal(t, temp.Direct() && name != "no ring", ringed.Load(), "a ring is used where writing is direct")
			if failed == 0 {
				var ranges []ssd.Range
				for at := range count {
					ranges = append(ranges, ssd.Range{Off: int64(at) * chunk, Len: chunk})
				}
				require.NoError(t, e.Read(context.Background(), temp.Handle(), ranges, func(i int, p []byte) error {
					if string(p) != string(data[i*chunk:][:chunk]) {
						return errWrong
					}
					return nil
				}))
			}
			block.Free()
			require.NoError(t, temp.Close())
			require.NoError(t, e.Close())
			require.Zero(t, budget.Used())
			require.Zero(t, fs.OpenFiles())
		})
	}
}
