package ssd_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// Every fault at every read of a job, on every engine: what can be mended is, and what cannot is an error that names
// the place.
func TestFaultsAtEveryRead(t *testing.T) {
	t.Parallel()
	const reads = 12
	faults := map[string]struct {
		fault faultfs.Fault
		want  error
	}{
		"EIO":                      {faultfs.Fault{Errno: syscall.EIO}, syscall.EIO},
		"EINVAL":                   {faultfs.Fault{Errno: syscall.EINVAL}, syscall.EINVAL},
		"EINTR":                    {faultfs.Fault{Errno: syscall.EINTR}, nil},
		"EAGAIN, three in a row":   {faultfs.Fault{Errno: syscall.EAGAIN, Times: 3}, nil},
		"short, unaligned":         {faultfs.Fault{Short: 5000}, nil},
		"short, within a page":     {faultfs.Fault{Short: 100}, nil},
		"short, aligned":           {faultfs.Fault{Short: ssd.PageBytes}, nil},
		"all short from then on":   {faultfs.Fault{Short: ssd.PageBytes + 1, Times: faultfs.Forever}, nil},
		"nothing":                  {faultfs.Fault{Short: 0}, io.ErrUnexpectedEOF},
		"EAGAIN for ever":          {faultfs.Fault{Errno: syscall.EAGAIN, Times: faultfs.Forever}, syscall.EAGAIN},
		"less than a page forever": {faultfs.Fault{Short: 100, Times: faultfs.Forever}, io.ErrUnexpectedEOF},
	}
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, reads*4*ssd.PageBytes)
		var ranges []ssd.Range
		for i := range int64(reads) {
			ranges = append(ranges, ssd.Range{Off: i * 4 * ssd.PageBytes, Len: 4 * ssd.PageBytes})
		}
		for name, c := range faults {
			for nth := 1; nth <= reads; nth++ {
				r.fs.Clear()
				c.fault.Op, c.fault.Nth = faultfs.Read, nth
				r.fs.Arm(c.fault)
				before := r.engine.Stats().Retries
				err := r.read(context.Background(), ranges)
				if c.want == nil {
					require.NoError(t, err, "%s, %s, read %d", kind, name, nth)
					require.Greater(t, r.engine.Stats().Retries, before, "%s, %s, read %d: no fault happened", kind, name, nth)
					continue
				}
				require.ErrorIs(t, err, c.want, "%s, %s, read %d", kind, name, nth)
				var located *ssd.PathError
				require.ErrorAs(t, err, &located)
				require.Equal(t, r.path, located.Path)
				require.GreaterOrEqual(t, located.Off, int64(0))
			}
		}
		r.fs.Clear()
		r.check(ranges)
		r.Close()
	}
}

func TestErrorNamesTheOffset(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 1}, 10*ssd.PageBytes)
		r.fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 8, Errno: syscall.EIO})
		err := r.read(context.Background(), r.pages()) // one at a time, hence in order
		requireAt(t, err, syscall.EIO, r.path, 7*ssd.PageBytes)
		r.Close()
	}
}

func TestFaultsUnderManyCallers(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 8}, 1<<20)
		r.fs.Arm(
			faultfs.Fault{Op: faultfs.Read, Nth: 10, Errno: syscall.EINTR, Times: 30},
			faultfs.Fault{Op: faultfs.Read, Nth: 60, Short: 4200, Times: 200},
		)
		done := make(chan error)
		for caller := range 6 {
			go func() {
				random := rand.New(rand.NewPCG(1, uint64(caller)))
				done <- r.read(context.Background(), randomRanges(random, r.handle.Size(), 80))
			}()
		}
		for range 6 {
			require.NoError(t, <-done)
		}
		r.Close()
	}
}

func TestFileCutShortWhileOpen(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, 20*ssd.PageBytes)
		require.NoError(t, os.Truncate(r.path, 10*ssd.PageBytes+5))
		r.check([]ssd.Range{{0, 10 * ssd.PageBytes}})
		err := r.read(context.Background(), []ssd.Range{{15 * ssd.PageBytes, ssd.PageBytes}})
		requireAt(t, err, io.ErrUnexpectedEOF, r.path, 15*ssd.PageBytes)
		err = r.read(context.Background(), []ssd.Range{{8 * ssd.PageBytes, 4 * ssd.PageBytes}})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		r.Close()
	}
}

func TestAutoFallsBackAndSaysWhy(t *testing.T) {
	needRing(t)
	path, _ := writeWords(t, 10_000)
	noDirect := faultfs.Fault{Op: faultfs.OpenDirect, Nth: 1, Times: faultfs.Forever, Errno: syscall.EINVAL}
	noRing := &ssd.KernelStub{Setup: func(uint32) error { return syscall.EPERM }}
	for name, c := range map[string]struct {
		kernel *ssd.KernelStub
		faults []faultfs.Fault
		runs   ssd.Kind
		why    []string
	}{
		"all there":   {&ssd.KernelStub{}, nil, ssd.IOUring, nil},
		"no io_uring": {noRing, nil, ssd.Pread, []string{"io_uring: setup: operation not permitted"}},
		"no O_DIRECT": {&ssd.KernelStub{}, []faultfs.Fault{noDirect}, ssd.Buffered,
			[]string{"io_uring: ssd: open direct", "pread: ssd: open direct", "invalid argument"}},
		"neither": {noRing, []faultfs.Fault{noDirect}, ssd.Buffered,
			[]string{"io_uring: setup", "pread: ssd: open direct"}},
		"O_DIRECT refused at the read": {
			&ssd.KernelStub{}, []faultfs.Fault{{Op: faultfs.Read, Nth: 1, Times: 2, Errno: syscall.EINVAL}},
			ssd.Buffered, []string{"io_uring: ssd: read", "pread: ssd: read"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			budget, fs := mem.NewBudget(0), faultfs.New(ssd.OS, c.faults...)
			e, err := ssd.NewEngineOn(c.kernel, ssd.Options{FS: fs, Budget: budget}, filepath.Dir(path))
			require.NoError(t, err)
			require.Equal(t, string(c.runs), e.Name())
			require.Equal(t, len(c.why) == 0, e.Why() == "")
			for _, reason := range c.why {
				require.Contains(t, e.Why(), reason)
			}
			require.NotContains(t, e.Why(), "\n")
			require.NoError(t, e.Close())
			require.Zero(t, budget.Used())
			require.Zero(t, fs.OpenFiles())
		})
	}
}

func TestForcedEngineThatIsRefused(t *testing.T) {
	needRing(t)
	path, _ := writeWords(t, 10_000)
	for name, c := range map[string]struct {
		kind   ssd.Kind
		kernel *ssd.KernelStub
		faults []faultfs.Fault
		cause  error
	}{
		"io_uring without system call": {ssd.IOUring, &ssd.KernelStub{Setup: func(uint32) error {
			return syscall.ENOSYS
		}}, nil, syscall.ENOSYS},
		"io_uring without O_DIRECT": {ssd.IOUring, &ssd.KernelStub{},
			[]faultfs.Fault{{Op: faultfs.OpenDirect, Nth: 1, Errno: syscall.EINVAL}}, syscall.EINVAL},
		"pread without O_DIRECT": {ssd.Pread, &ssd.KernelStub{},
			[]faultfs.Fault{{Op: faultfs.OpenDirect, Nth: 1, Errno: syscall.EINVAL}}, syscall.EINVAL},
		"buffered, bad disk": {ssd.Buffered, &ssd.KernelStub{},
			[]faultfs.Fault{{Op: faultfs.Read, Nth: 1, Errno: syscall.EIO}}, syscall.EIO},
		"auto, bad disk": {ssd.Auto, &ssd.KernelStub{},
			[]faultfs.Fault{{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO}}, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			budget, fs := mem.NewBudget(0), faultfs.New(ssd.OS, c.faults...)
			_, err := ssd.NewEngineOn(c.kernel, ssd.Options{Kind: c.kind, FS: fs, Budget: budget}, filepath.Dir(path))
			require.ErrorIs(t, err, ssd.ErrRefused)
			require.ErrorIs(t, err, c.cause)
			require.Zero(t, budget.Used())
			require.Zero(t, fs.OpenFiles())
		})
	}
}

func TestNewEngineRefusesBadOptions(t *testing.T) {
	path, _ := writeWords(t, 10_000)
	for want, o := range map[string]ssd.Options{
		`engine "sync", expected "auto", "io_uring", "pread" or "buffered"`: {Kind: "sync"},
		"depth -1, expected 1 to 4096":                                      {Depth: -1},
		"depth 5000, expected 1 to 4096":                                    {Depth: 5000},
		"slots of 4096 bytes, expected a multiple of 4096 from 65536 on":    {SlotBytes: 4096},
		"slots of 65537 bytes":                                              {SlotBytes: 65537},
	} {
		o.FS, o.Budget = ssd.OS, mem.NewBudget(0)
		_, err := ssd.NewEngine(o, filepath.Dir(path))
		require.ErrorContains(t, err, want)
	}
	o := ssd.Options{FS: ssd.OS, Budget: mem.NewBudget(0)}
	_, err := ssd.NewEngine(o, filepath.Join(filepath.Dir(path), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ssd.NewEngine(o, t.TempDir())
	require.ErrorContains(t, err, "no file")
}

func TestBudgetTooSmallForAnEngine(t *testing.T) {
	path, _ := writeWords(t, 10_000)
	for _, kind := range append([]ssd.Kind{ssd.Auto}, kinds...) {
		o := ssd.Options{Kind: kind, Depth: 8, FS: ssd.OS}
		require.EqualValues(t, 8*ssd.DefaultSlotBytes, o.StagingBytes())
		o.Budget = mem.NewBudget(o.StagingBytes() - 1)
		_, err := ssd.NewEngine(o, filepath.Dir(path))
		var refusal *mem.BudgetError
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, mem.Staging, refusal.Purpose)
		require.Equal(t, o.StagingBytes(), refusal.Need)
		require.Zero(t, o.Budget.Used())

		o.Budget = mem.NewBudget(o.StagingBytes())
		e, err := ssd.NewEngine(o, filepath.Dir(path))
		require.NoError(t, err, "exactly enough")
		require.NoError(t, e.Close())
	}
}
