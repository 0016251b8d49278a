package ssd_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// kinds are the engines that the system lets run. It is asked by bare system calls, so that a fault of ours shows as
// one.
var kinds = func() []ssd.Kind {
	var kinds []ssd.Kind
	if hasDirect && hasRing {
		kinds = append(kinds, ssd.IOUring)
	}
	if hasDirect {
		kinds = append(kinds, ssd.Pread)
	}
	return append(kinds, ssd.Buffered)
}()

var hasDirect = func() bool {
	f, err := os.CreateTemp("", "direct")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_ = f.Close()
	direct, err := ssd.OS.Open(f.Name(), syscall.O_RDONLY|ssd.Direct, 0)
	if err == nil {
		_ = direct.Close()
	}
	return err == nil
}()

func needDirect(t *testing.T) {
	if !hasDirect {
		t.Skip("the file system for temporary files refuses O_DIRECT")
	}
}

// needRing skips where a container or an administrator forbids io_uring.
func needRing(t *testing.T) {
	needDirect(t)
	if !hasRing {
		t.Skip("the system refuses io_uring")
	}
}

// rig is an engine on a file of words that each hold their own index.
type rig struct {
	t      *testing.T
	fs     *faultfs.FS
	budget *mem.Budget
	engine *ssd.Engine
	handle *ssd.Handle
	path   string
	data   []byte
}

func (r *rig) Close() {
	require.NoError(r.t, r.handle.Close())
	require.NoError(r.t, r.engine.Close())
	require.Zero(r.t, r.budget.Used(), "memory left")
	require.Zero(r.t, r.fs.OpenFiles(), "files left open")
}

func writeWords(t *testing.T, size int) (path string, data []byte) {
	t.Helper()
	data = make([]byte, size+8)
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(data[i:], uint64(i/8)*0x9E3779B97F4A7C15)
	}
	data = data[:size]
	path = filepath.Join(t.TempDir(), "words.bin")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return path, data
}

func newRig(t *testing.T, o ssd.Options, size int) *rig {
	return newRigOn(t, &ssd.KernelStub{}, o, size)
}

func newRigOn(t *testing.T, k *ssd.KernelStub, o ssd.Options, size int) *rig {
	t.Helper()
	r := &rig{t: t, fs: faultfs.New(ssd.OS), budget: mem.NewBudget(0)}
	r.path, r.data = writeWords(t, size)
	o.FS, o.Budget = r.fs, r.budget
	var err error
	r.engine, err = ssd.NewEngineOn(k, o, filepath.Dir(r.path))
	require.NoError(t, err)
	r.handle, err = r.engine.Open(r.path)
	require.NoError(t, err)
	return r
}

// check reads ranges, and requires that each arrives once with the bytes of the file.
func (r *rig) check(ranges []ssd.Range) {
	r.t.Helper()
	require.NoError(r.t, r.read(context.Background(), ranges))
}

var errWrong = errors.New("wrong data")

func (r *rig) read(ctx context.Context, ranges []ssd.Range) error {
	arrived := make([]atomic.Int32, len(ranges))
	err := r.engine.Read(ctx, r.handle, ranges, func(i int, data []byte) error {
		arrived[i].Add(1)
		want := r.data[ranges[i].Off:min(ranges[i].Off+int64(ranges[i].Len), int64(len(r.data)))]
		if string(want) != string(data) {
			return errWrong
		}
		return nil
	})
	for i := range arrived {
		if n := arrived[i].Load(); n > 1 || (n == 0 && err == nil) {
			r.t.Errorf("range %d delivered %d times", i, n)
		}
	}
	return err
}

// pages covers the file with ranges of a page.
func (r *rig) pages() []ssd.Range {
	var ranges []ssd.Range
	for off := int64(0); off < r.handle.Size(); off += ssd.PageBytes {
		ranges = append(ranges, ssd.Range{Off: off, Len: ssd.PageBytes})
	}
	return ranges
}

func randomRanges(r *rand.Rand, size int64, n int) []ssd.Range {
	pages := (size + ssd.PageBytes - 1) / ssd.PageBytes
	ranges := make([]ssd.Range, n)
	for i := range ranges {
		length := 1 + r.Int64N(min(16, pages))
		ranges[i] = ssd.Range{Off: r.Int64N(pages-length+1) * ssd.PageBytes, Len: int32(length * ssd.PageBytes)}
	}
	return ranges
}

func TestEnginesReadTheRightBytes(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for _, depth := range []int{1, 3, 128} {
			r := newRig(t, ssd.Options{Kind: kind, Depth: depth}, 1<<20+777)
			require.Equal(t, string(kind), r.engine.Name())
			require.Empty(t, r.engine.Why())
			random := explore.Rand(t, 1, uint64(depth))
			for range 5 {
				r.check(randomRanges(random, r.handle.Size(), random.IntN(300)))
			}
			r.Close()
		}
	}
}

func TestTailOfTheFile(t *testing.T) {
	for _, kind := range kinds {
		for _, size := range []int{1, 4095, 4096, 4097, 8192, 65536 - 5, 65536 + 5} {
			r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, size)
			require.EqualValues(t, size, r.handle.Size())
			require.Equal(t, r.path, r.handle.Name())
			r.check(r.pages())
			pages := int64(size+ssd.PageBytes-1) / ssd.PageBytes
			if pages <= 16 {
				r.check([]ssd.Range{{Off: 0, Len: int32(pages * ssd.PageBytes)}})
			}
			for _, beyond := range []ssd.Range{{pages * ssd.PageBytes, ssd.PageBytes},
				{(pages - 1) * ssd.PageBytes, 2 * ssd.PageBytes}, {1 << 60, ssd.PageBytes}} {
				err := r.read(context.Background(), []ssd.Range{beyond})
				requireAt(t, err, io.ErrUnexpectedEOF, r.path, int64(size))
			}
			r.Close()
		}
	}
}

func requireAt(t *testing.T, err, cause error, path string, off int64) {
	t.Helper()
	require.ErrorIs(t, err, cause)
	var located *ssd.PathError
	require.ErrorAs(t, err, &located)
	require.Equal(t, path, located.Path)
	require.Equal(t, off, located.Off)
	require.ErrorContains(t, err, path)
}

func TestMalformedRangesAreRefused(t *testing.T) {
	r := newRig(t, ssd.Options{Kind: ssd.Buffered, Depth: 2}, 1<<20)
	defer r.Close()
	for name, bad := range map[string]ssd.Range{
		"offset unaligned":     {Off: 512, Len: 4096},
		"offset negative":      {Off: -4096, Len: 4096},
		"length unaligned":     {Off: 0, Len: 100},
		"length zero":          {Off: 0, Len: 0},
		"length negative":      {Off: 0, Len: -4096},
		"longer than the slot": {Off: 0, Len: 65536 + 4096},
	} {
		err := r.read(context.Background(), []ssd.Range{{Off: 0, Len: 4096}, bad})
		require.ErrorContains(t, err, "expected multiples of 4096 and at most 65536 bytes", name)
	}
	require.NoError(t, r.read(context.Background(), nil), "no ranges")
}

func TestManyCallersShareAnEngine(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 16}, 2<<20)
		var wg sync.WaitGroup
		for caller := range 12 {
			wg.Go(func() {
				random := explore.Rand(t, 7, uint64(caller))
				for range 30 {
					// Single ranges between long lists put the engine to sleep and wake it at every possible moment.
					n := 1
					if random.IntN(4) == 0 {
						n = random.IntN(60)
					}
					if err := r.read(context.Background(), randomRanges(random, r.handle.Size(), n)); err != nil {
						t.Errorf("%s: %v", kind, err)
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		r.Close()
	}
}

func TestPlannedRowsArriveWhateverTheEngine(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	layouts := map[string]ssd.Layout{
		"packed":     {RowBytes: 1000, NumRows: size / 1000},
		"page":       {RowBytes: 512, RowsPerPage: 8, NumRows: size / 512},
		"long":       {RowBytes: 9000, NumRows: size / 9000},
		"with waste": {RowBytes: 600, RowsPerPage: 6, NumRows: size / 4096 * 6},
	}
	for _, kind := range kinds {
		for name, l := range layouts {
			r := newRig(t, ssd.Options{Kind: kind, Depth: 8}, size)
			random := explore.Rand(t, 3, 4)
			rows := make([]int64, 700)
			for i := range rows {
				rows[i] = random.Int64N(l.NumRows)
			}
			got := make([][]byte, len(rows))
			var m ssd.Merger
			plan := m.Plan(l, rows, ssd.DefaultHole, ssd.DefaultSlotBytes)
			err := r.engine.Read(context.Background(), r.handle, plan.Ranges, func(i int, data []byte) error {
				for _, pos := range plan.Pos[plan.First[i]:plan.First[i+1]] {
					at := l.Offset(rows[pos]) - plan.Ranges[i].Off
					got[pos] = append(got[pos], data[at:at+int64(l.RowBytes)]...)
				}
				return nil
			})
			require.NoError(t, err)
			for i, row := range rows {
				at := l.Offset(row)
				require.Equal(t, r.data[at:at+int64(l.RowBytes)], got[i], "%s %s row %d", kind, name, row)
			}
			r.Close()
		}
	}
}

func TestStatsCountRequestsAndBytes(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, 40*ssd.PageBytes)
		before := r.engine.Stats()
		r.fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 3, Errno: syscall.EINTR})
		r.check(r.pages())
		after := r.engine.Stats()
		require.EqualValues(t, 41, after.Requests-before.Requests)
		require.EqualValues(t, 1, after.Retries-before.Retries)
		require.EqualValues(t, 40*ssd.PageBytes, after.Bytes-before.Bytes)
		require.Greater(t, after.Busy, before.Busy)
		r.Close()
	}
}

func TestCancelEndsRead(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 2}, 1000*ssd.PageBytes)
		ctx, cancel := context.WithCancel(context.Background())
		var delivered, active atomic.Int32
		err := r.engine.Read(ctx, r.handle, r.pages(), func(int, []byte) error {
			active.Add(1)
			defer active.Add(-1)
			if delivered.Add(1) >= 5 {
				cancel()
				time.Sleep(5 * time.Millisecond) // all thousand would take seconds
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, delivered.Load(), int32(1000))
		require.Zero(t, active.Load(), "returned before the last deliver")
		stopped := delivered.Load()
		r.check(r.pages())
		require.Equal(t, stopped, delivered.Load(), "delivered after the return")

		require.ErrorIs(t, r.read(ctx, r.pages()), context.Canceled, "ended before the start")
		r.Close()
	}
}

func TestErrorAndPanicOfDeliver(t *testing.T) {
	failure := errors.New("no room for the row")
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, 100*ssd.PageBytes)
		err := r.engine.Read(context.Background(), r.handle, r.pages(), func(i int, _ []byte) error {
			if i == 50 {
				return failure
			}
			return nil
		})
		require.Equal(t, failure, err)

		err = r.engine.Read(context.Background(), r.handle, r.pages(), func(i int, _ []byte) error {
			if i == 20 {
				panic("broken receiver")
			}
			return nil
		})
		var p *guard.PanicError
		require.ErrorAs(t, err, &p)
		require.Equal(t, "broken receiver", p.Value)
		r.check(r.pages()) // the engine is none the worse
		r.Close()
	}
}

// A thread that ends, by a panic of its own or because deliver ended the goroutine, takes the engine with it, and no
// Read waits for ever.
func TestEndOfAThreadFailsAllReads(t *testing.T) {
	for _, kind := range kinds {
		for name, end := range map[string]func(*rig) error{
			"panic": func(r *rig) error {
				r.fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 30, Hook: func() { panic("broken engine") }})
				return r.read(context.Background(), r.pages())
			},
			"goexit": func(r *rig) error {
				return r.engine.Read(context.Background(), r.handle, r.pages(), func(i int, _ []byte) error {
					if i == 30 {
						runtime.Goexit()
					}
					return nil
				})
			},
		} {
			r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, 100*ssd.PageBytes)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for r.read(context.Background(), r.pages()) == nil {
					}
				})
			}
			err := end(r)
			wg.Wait()
			require.Error(t, err)
			require.NotErrorIs(t, err, ssd.ErrClosed)
			again := r.read(context.Background(), r.pages())
			require.Error(t, again, "later Reads")
			if name == "panic" {
				var p *guard.PanicError
				require.ErrorAs(t, again, &p)
				require.Equal(t, "broken engine", p.Value)
			}
			r.Close()
		}
	}
}

func TestCloseEndsReads(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, 64*ssd.PageBytes)
		var wg sync.WaitGroup
		var started sync.WaitGroup
		for range 6 {
			started.Add(1)
			wg.Go(func() {
				require.NoError(t, r.read(context.Background(), r.pages()))
				started.Done()
				var err error
				for err == nil {
					err = r.read(context.Background(), r.pages())
				}
				require.ErrorIs(t, err, ssd.ErrClosed)
			})
		}
		started.Wait()
		require.NoError(t, r.engine.Close())
		wg.Wait()
		require.ErrorIs(t, r.read(context.Background(), r.pages()), ssd.ErrClosed)
		r.Close()
	}
}

func TestCloseOfAHandleWaitsForItsReads(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, ssd.Options{Kind: kind, Depth: 4}, 64*ssd.PageBytes)
		reached, closed := make(chan struct{}), make(chan error)
		var once sync.Once
		go func() {
			<-reached
			closed <- r.handle.Close()
		}()
		var delivered atomic.Int32
		err := r.engine.Read(context.Background(), r.handle, r.pages(), func(int, []byte) error {
			once.Do(func() { close(reached) })
			delivered.Add(1)
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 64, delivered.Load())
		require.NoError(t, <-closed)
		require.ErrorIs(t, r.read(context.Background(), r.pages()), ssd.ErrClosed)
		r.Close()
	}
}

// TestNothingToProbe: an engine tries a read on a file below a directory, and what keeps it from one is in the error.
func TestNothingToProbe(t *testing.T) {
	dir := t.TempDir()
	_, err := ssd.NewEngine(ssd.Options{FS: ssd.OS}, dir)
	require.ErrorContains(t, err, "no file in "+dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, ssd.PageBytes), 0o600))
	for _, op := range []faultfs.Op{faultfs.ReadDir, faultfs.Stat} {
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: op, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO})
		_, err := ssd.NewEngine(ssd.Options{FS: fs}, dir)
		require.ErrorIs(t, err, syscall.EIO)
		require.ErrorContains(t, err, dir)
	}
}

func TestEnginesLeaveNoDescriptors(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := count()
	for _, kind := range kinds {
		for range 20 {
			r := newRig(t, ssd.Options{Kind: kind, Depth: 2}, 1<<16)
			r.check(r.pages())
			r.Close()
			require.NoError(t, r.engine.Close(), "again")
		}
	}
	require.LessOrEqual(t, count(), before)
}
