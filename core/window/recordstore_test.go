package window

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// fetching is a record store without records in memory.
type fetching struct {
	*recordStore
	fs   *faultfs.FS
	idle int64 // bytes of the budget while nothing is loaded
}

func newFetching(t *testing.T) *fetching {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "probe"), make([]byte, ssd.PageBytes), 0o600))
	budget, fs := mem.NewBudget(8<<20), faultfs.New(ssd.OS)
	engine, err := ssd.NewEngine(ssd.Options{Depth: 8, FS: fs, Budget: budget}, dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	pool, err := scratch.Open(fs, engine, dir, budget, scratch.Options{MemoryBytes: 2 << 20, FileBytes: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() }) // its file may have failed
	return &fetching{recordStore: &recordStore{budget: budget, pool: pool}, fs: fs}
}

// put puts n bytes, and waits until they are in the file.
func (f *fetching) put(t *testing.T, n int) (plan.Record, []byte) {
	t.Helper()
	data := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, n/7+1)[:n]
	r, err := f.Put(data[:n/3], data[n/3:])
	require.NoError(t, err)
	require.IsType(t, &inFile{}, r)
	got, release, err := r.Load(context.Background())
	require.NoError(t, err)
	require.Equal(t, data, got)
	release()
	f.idle = f.budget.Used()
	return r, data
}

// fetchRecord lets a record be fetched, and waits for the end of that.
func fetchRecord(ctx context.Context, r plan.Record) {
	plan.Fetch(ctx, r)
	r.(*inFile).coming.Load().Take()
}

// TestWhatIsFetchedIsReadOnce: loading a record that was fetched gives its bytes without another read, once; after that
// loading reads again.
func TestWhatIsFetchedIsReadOnce(t *testing.T) {
	f := newFetching(t)
	r, data := f.put(t, 300_000)
	before := f.pool.Stats().Read
	fetchRecord(context.Background(), r)
	each := f.pool.Stats().Read - before
	require.GreaterOrEqual(t, each, int64(len(data)))
	plan.Fetch(context.Background(), r) // again: nothing
	for times := int64(1); times <= 2; times++ {
		got, release, err := r.Load(context.Background())
		require.NoError(t, err)
		require.Equal(t, data, got)
		release()
		require.Equal(t, times*each, f.pool.Stats().Read-before)
	}
	require.Equal(t, f.idle, f.budget.Used())
	r.Free()
}

// TestWhatIsFetchedAndNotLoadedIsGivenBack, when its record is freed.
func TestWhatIsFetchedAndNotLoadedIsGivenBack(t *testing.T) {
	f := newFetching(t)
	r, _ := f.put(t, 300_000)
	fetchRecord(context.Background(), r)
	require.Greater(t, f.budget.Used(), f.idle)
	r.Free()
	require.LessOrEqual(t, f.budget.Used(), f.idle)
	require.Zero(t, f.pool.Stats().File)
}

// TestAFetchThatFailsIsNoFailure: without memory for it, or when what it was for has ended, the record is loaded when
// it is needed. A file that fails says so then.
func TestAFetchThatFailsIsNoFailure(t *testing.T) {
	f := newFetching(t)
	r, data := f.put(t, 300_000)
	ended, end := context.WithCancel(context.Background())
	end()
	rest := f.budget.Limit() - f.budget.Used()
	for _, without := range []func(){
		func() { fetchRecord(ended, r) },
		func() {
			require.NoError(t, f.budget.Reserve(mem.Batch, rest))
			fetchRecord(context.Background(), r)
			f.budget.Release(mem.Batch, rest)
		},
	} {
		without()
		require.Equal(t, f.idle, f.budget.Used())
		got, release, err := r.Load(context.Background())
		require.NoError(t, err)
		require.Equal(t, data, got)
		release()
	}
	f.fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO})
	fetchRecord(context.Background(), r)
	_, _, err := r.Load(context.Background())
	require.ErrorIs(t, err, scratch.ErrBroken)
	r.Free()
}

// TestBatchesToComeAreFetched: the traces of batches whose turn has not come are on their way.
func TestBatchesToComeAreFetched(t *testing.T) {
	o := options()
	o.Prefetch, o.Scratch = 1, t.TempDir()
	r := open(t, ssd.OS, o, stored(0))
	p := r.start(0, 0)
	defer p.stop()
	p.take(4)
	in := r.cache.inspector
	require.Eventually(t, func() bool { // the fifth is made, and the sixth waits for the consumer
		in.mu.Lock()
		defer in.mu.Unlock()
		s := in.holding(5)
		return s != nil && s.batches[5-s.first].trace.(*inFile).coming.Load() != nil
	}, 10*time.Second, time.Millisecond)
}
