package scratch_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// rig is a pool in a directory of its own, on a file system that can fail.
type rig struct {
	t      testing.TB
	fs     *faultfs.FS
	budget *mem.Budget
	engine *ssd.Engine
	dir    string
	pool   *scratch.Pool
	idle   int // bytes of the budget while the pool holds nothing
	before int // goroutines
}

// kinds are the engines that the system lets run.
func kinds(t testing.TB) (kinds []ssd.Kind) {
	for _, kind := range []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered} {
		e, err := ssd.NewEngine(ssd.Options{Kind: kind, Depth: 1, FS: ssd.OS, Budget: mem.NewBudget(0)}, storeDir(t))
		if err == nil {
			require.NoError(t, e.Close())
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// storeDir is a directory with a file that an engine can try to read.
func storeDir(t testing.TB) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "store"), make([]byte, ssd.PageBytes), 0o600))
	return dir
}

func newRig(t testing.TB, kind ssd.Kind, o scratch.Options) *rig {
	t.Helper()
	return newRigIn(t, t.TempDir(), ssd.Options{Kind: kind, Depth: 8}, o)
}

func newRigIn(t testing.TB, dir string, eo ssd.Options, o scratch.Options) *rig {
	t.Helper()
	r := &rig{t: t, fs: faultfs.New(ssd.OS), budget: mem.NewBudget(0), dir: dir, before: runtime.NumGoroutine()}
	eo.FS, eo.Budget = r.fs, r.budget
	var err error
	r.engine, err = ssd.NewEngine(eo, storeDir(t))
	require.NoError(t, err)
	r.idle = int(r.budget.Used())
	r.pool, err = scratch.Open(r.fs, r.engine, r.dir, r.budget, o)
	require.NoError(t, err)
	return r
}

// Close closes the pool and the engine, and requires that nothing is left of them.
func (r *rig) Close() {
	r.t.Helper()
	_ = r.pool.Close() // of a file that may be broken
	require.NoError(r.t, r.pool.Close(), "again")
	require.EqualValues(r.t, r.idle, r.budget.Used(), "memory left")
	s := r.pool.Stats()
	require.Zero(r.t, s.Memory)
	require.Zero(r.t, s.File)
	require.NoError(r.t, r.engine.Close())
	require.Zero(r.t, r.budget.Used())
	require.Zero(r.t, r.fs.OpenFiles(), "files left open")
	require.Empty(r.t, r.names(), "files left")
	deadline := time.Now().Add(10 * time.Second)
	for ; runtime.NumGoroutine() > r.before; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			r.t.Fatalf("goroutines left:\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// fill takes all memory that packs may have, so that the next ones go to the file.
func (r *rig) fill(o scratch.Options) *scratch.Pack {
	r.t.Helper()
	k, err := r.pool.NewPack(1, int(o.PackMemory())-4)
	require.NoError(r.t, err)
	require.EqualValues(r.t, o.PackMemory(), r.pool.Stats().Memory)
	return k
}

// names lists what is in the directory.
func (r *rig) names() (names []string) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		require.ErrorIs(r.t, err, os.ErrNotExist)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var noise = func() []byte {
	p := make([]byte, 4<<20+1<<17)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range p {
		p[i] = byte(random.Uint32())
	}
	return p
}()

// row returns the bytes of a row, a pure function of pack, position and length. They are not to be changed.
func row(pack, pos, n int) []byte {
	const places = 1 << 17 // nothing else has the bytes of one place, but for rows of some bytes
	return noise[(pack*7919+pos*31)%places:][:n:n]
}

// add puts rows [from, to) of a pack in, from several goroutines: one by one, and
// many at a time from a table.
func add(k *scratch.Pack, pack, from, to, rowBytes int) error {
	var wait sync.WaitGroup
	errs := make([]error, 3)
	for g := range errs {
		wait.Go(func() {
			var pos, at []int32
			var table []byte
			for i := from + g; i < to && errs[g] == nil; i += len(errs) {
				if data := row(pack, i, rowBytes); g == 0 {
					errs[g] = k.Add(int32(i), data)
				} else {
					pos, at, table = append(pos, int32(i)), append(at, int32(len(at))), append(table, data...)
				}
			}
			slices.Reverse(pos)
			slices.Reverse(at)
			if g > 0 && len(pos) > 0 {
				half := len(pos) / 2
				errs[g] = cmp.Or(k.AddRows(pos[:half], table, rowBytes, at[:half]),
					k.AddRows(pos[half:], table, rowBytes, at[half:]))
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// check reads a pack that holds rows [0, n). It returns the error of Read after seeing to it that nothing wrong was
// emitted; without error all rows must have come.
func check(k *scratch.Pack, pack, n, rowBytes int) error {
	var mu sync.Mutex
	seen := map[int32]bool{}
	err := k.Read(context.Background(), func(pos scratch.Positions, rows []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if len(rows) != pos.Len()*rowBytes {
			return fmt.Errorf("%w: %d bytes for %d rows of pack %d", errWrong, len(rows), pos.Len(), pack)
		}
		for i := range pos.Len() {
			at, data := pos.At(i), rows[i*rowBytes:][:rowBytes]
			if seen[at] || at < 0 || int(at) >= n || string(data) != string(row(pack, int(at), rowBytes)) {
				return fmt.Errorf("%w: row %d of pack %d", errWrong, at, pack)
			}
			seen[at] = true
		}
		return nil
	})
	if err == nil && len(seen) != n {
		return fmt.Errorf("%w: %d rows of %d", errWrong, len(seen), n)
	}
	return err
}

var errWrong = fmt.Errorf("wrong data")
