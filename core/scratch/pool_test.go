package scratch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

func TestOptions(t *testing.T) {
	for _, o := range []scratch.Options{{MemoryBytes: -1}, {FileBytes: -1}} {
		_, err := scratch.Open(ssd.OS, nil, "", mem.NewBudget(0), o)
		require.ErrorContains(t, err, "expected no less than 0")
	}
	require.EqualValues(t, 8*mib, scratch.Options{MemoryBytes: 8 * mib}.PackMemory(), "no file, no buffers")
	require.EqualValues(t, 6*mib, scratch.Options{MemoryBytes: 8 * mib, FileBytes: 1}.PackMemory())
	require.EqualValues(t, 992*mib, scratch.Options{MemoryBytes: 1024 * mib, FileBytes: 1}.PackMemory())
}

// Without a file neither directory nor engine is touched.
func TestMemoryOnly(t *testing.T) {
	budget := mem.NewBudget(0)
	p, err := scratch.Open(ssd.OS, nil, "", budget, scratch.Options{MemoryBytes: 10_000})
	require.NoError(t, err)
	k, err := p.NewPack(10, 996)
	require.NoError(t, err)
	require.EqualValues(t, 10_000, budget.Live()[mem.Pack])
	_, err = p.NewPack(1, 1)
	require.ErrorIs(t, err, scratch.ErrFull)
	require.ErrorContains(t, err, "5 bytes in memory")
	_, err = p.NewBlob(1)
	require.ErrorIs(t, err, scratch.ErrFull)
	k.Close()
	require.Zero(t, budget.Used())
	require.Equal(t, scratch.Stats{MemoryPeak: 10_000}, p.Stats())
	require.NoError(t, p.Close())
	_, err = p.NewPack(1, 1)
	require.ErrorIs(t, err, scratch.ErrClosed)
}

// Memory and file are used to the last byte that the bounds allow, and no further; what is closed is used again.
func TestBounds(t *testing.T) {
	o := scratch.Options{MemoryBytes: 4 * mib, FileBytes: 3 * mib}
	r := newRig(t, kinds(t)[0], o)
	defer r.Close()
	r.fill(o)
	var packs []*scratch.Pack
	for {
		k, err := r.pool.NewPack(2*128, 508)
		if err != nil {
			require.ErrorIs(t, err, scratch.ErrFull)
			require.NotErrorIs(t, err, scratch.ErrBroken)
			break
		}
		packs = append(packs, k)
	}
	require.Len(t, packs, 7, "a MiB is left: eight buffers are spare, seven fill, and there are tables")
	require.LessOrEqual(t, r.pool.Stats().Memory, o.MemoryBytes)
	for i, k := range packs {
		require.NoError(t, add(k, i, 0, 256, 508))
	}
	require.Eventually(t, func() bool {
		k, err := r.pool.NewPack(2*128, 508)
		if err == nil {
			k.Close()
		}
		return err == nil
	}, 10*time.Second, time.Millisecond, "full packs give their buffers back once they are written, unsealed as they are")
	for i, k := range packs {
		require.NoError(t, k.Seal())
		require.NoError(t, check(k, i, 256, 508))
	}
	for len(packs) < 24 {
		k, err := r.pool.NewPack(2*128, 508)
		require.NoError(t, err)
		require.NoError(t, k.Seal())
		packs = append(packs, k)
	}
	s := r.pool.Stats()
	require.Equal(t, o.FileBytes, s.File)
	require.LessOrEqual(t, s.MemoryPeak, o.MemoryBytes)
	require.Equal(t, s.MemoryPeak, r.budget.Peaks()[mem.Pack])
	_, err := r.pool.NewPack(1, 1)
	require.ErrorIs(t, err, scratch.ErrFull)
	require.ErrorContains(t, err, "65536 bytes in the file")
	_, err = r.pool.NewBlob(1)
	require.ErrorIs(t, err, scratch.ErrFull)

	// Every other pack goes, and one takes the pieces.
	for i := 0; i < len(packs); i += 2 {
		packs[i].Close()
	}
	k, err := r.pool.NewPack(24*128, 508)
	require.NoError(t, err)
	require.NoError(t, add(k, 99, 0, 24*128, 508))
	require.NoError(t, k.Seal())
	require.NoError(t, check(k, 99, 24*128, 508))
	for i := 1; i < 7; i += 2 {
		require.NoError(t, check(packs[i], i, 256, 508), "not overwritten")
	}
	require.Equal(t, o.FileBytes, r.pool.Stats().FilePeak)
	require.Empty(t, r.pool.Stats().Why)
	_, err = r.pool.NewPack(1, 64<<10)
	require.ErrorContains(t, err, "too long")
}

// A budget that is smaller than the options promise is no failure of the file.
func TestBudget(t *testing.T) {
	r := newRig(t, kinds(t)[0], inFile)
	defer r.Close()
	defer r.fill(inFile).Close()
	for _, free := range []int64{0, 64 << 10, 600 << 10} {
		tight := mem.NewBudget(free + 1)
		require.NoError(t, tight.Reserve(mem.Batch, 1))
		p, err := scratch.Open(r.fs, r.engine, r.dir, tight, inFile)
		require.NoError(t, err)
		k, err := p.NewPack(10_000, 508)
		if free < 600<<10 {
			require.ErrorIs(t, err, scratch.ErrFull)
			require.ErrorIs(t, err, mem.ErrBudget)
		} else {
			require.NoError(t, err, "in the file")
			k.Close()
		}
		require.Empty(t, p.Stats().Why)
		require.NoError(t, p.Close())
		require.EqualValues(t, 1, tight.Used())
	}
}

func TestMisuse(t *testing.T) {
	for _, o := range []scratch.Options{{MemoryBytes: mib}, inFile} {
		r := newRig(t, kinds(t)[0], o)
		if o.FileBytes > 0 {
			r.fill(o)
		}
		k, err := r.pool.NewPack(1, 8)
		require.NoError(t, err)
		panics := func(message string, f func()) {
			t.Helper()
			require.PanicsWithValue(t, "scratch: "+message, f)
		}
		panics("a row of 9 bytes in a pack of rows of 8", func() { _ = k.Add(0, make([]byte, 9)) })
		panics("1 positions for 0 rows of 8 bytes in a pack of rows of 8", func() { _ = k.AddRows([]int32{0}, nil, 8, nil) })
		panics("0 positions for 0 rows of 9 bytes in a pack of rows of 8", func() { _ = k.AddRows(nil, nil, 9, nil) })
		panics("Read of a pack that is not sealed", func() { _ = k.Read(context.Background(), nil) })
		require.NoError(t, k.Add(-5, row(0, 0, 8)))
		panics("more than 1 rows in a pack", func() { _ = k.Add(0, row(0, 0, 8)) })
		require.NoError(t, k.Seal())
		require.ErrorIs(t, k.Add(0, row(0, 0, 8)), scratch.ErrSealed)
		for _, size := range [][2]int{{-1, 1}, {1, 0}, {1 << 31, 1}, {1, 1 << 31}} {
			require.Panics(t, func() { _, _ = r.pool.NewPack(size[0], size[1]) })
		}
		k.Close()
		require.ErrorIs(t, k.Add(0, row(0, 0, 8)), scratch.ErrClosed)
		require.ErrorIs(t, k.Seal(), scratch.ErrClosed)
		require.ErrorIs(t, k.Read(context.Background(), nil), scratch.ErrClosed)
		r.Close()
	}
}

// Errors, panics and the context of a reader end the reading, are told as they are, and are no fault of the file.
func TestReadersThatStop(t *testing.T) {
	for _, o := range []scratch.Options{{MemoryBytes: 64 * mib}, inFile} {
		r := newRig(t, kinds(t)[0], o)
		if o.FileBytes > 0 {
			r.fill(o)
		}
		k, err := r.pool.NewPack(10_000, 508)
		require.NoError(t, err)
		require.NoError(t, add(k, 1, 0, 10_000, 508))
		require.NoError(t, k.Seal())
		mine := &ssd.PathError{Op: "mine", Err: syscall.EIO}
		err = k.Read(context.Background(), func(scratch.Positions, []byte) error { return mine })
		require.Same(t, mine, err)
		err = k.Read(context.Background(), func(scratch.Positions, []byte) error { panic("mine") })
		var caught *guard.PanicError
		require.ErrorAs(t, err, &caught)
		ctx, cancel := context.WithCancel(context.Background())
		var emitted atomic.Int32
		err = k.Read(ctx, func(scratch.Positions, []byte) error {
			if emitted.Add(1) == 3 {
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, k.Read(ctx, func(scratch.Positions, []byte) error { return nil }), context.Canceled)
		require.Empty(t, r.pool.Stats().Why)
		require.NoError(t, check(k, 1, 10_000, 508))
		require.NoError(t, r.engine.Close())
		if o.FileBytes > 0 {
			require.ErrorIs(t, check(k, 1, 10_000, 508), ssd.ErrClosed)
			require.Empty(t, r.pool.Stats().Why)
		}
		r.idle = 0
		r.Close()
	}
}

// slowly makes every write to the file take a while.
func (r *rig) slowly() {
	r.fs.Arm(faultfs.Fault{Op: faultfs.Write, Nth: 2, Times: faultfs.Forever, Short: 1 << 30, Hook: func() {
		time.Sleep(time.Millisecond)
	}})
}

// Rows that the engine delivers go to packs whose writes are slower than the reading: with one thread that delivers
// all, nobody may wait for a read. Packs that are read at the same time share that thread.
func TestPacksAreFedByTheEngineThatReadsThem(t *testing.T) {
	for _, kind := range kinds(t) {
		dir := t.TempDir()
		data := row(0, 0, 4*mib)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rows"), data, 0o600))
		o := scratch.Options{MemoryBytes: 4 * mib, FileBytes: 32 * mib}
		r := newRigIn(t, t.TempDir(), ssd.Options{Kind: kind, Depth: 8}, o)
		r.fill(o)
		old, err := r.pool.NewPack(5000, 508)
		require.NoError(t, err)
		require.NoError(t, add(old, 1, 0, 5000, 508))
		require.NoError(t, old.Seal())
		r.slowly()
		h, err := r.engine.Open(filepath.Join(dir, "rows"))
		require.NoError(t, err)
		var packs []*scratch.Pack
		var held [4]sync.Map
		for range held {
			k, err := r.pool.NewPack(len(data)/512/4, 512)
			require.NoError(t, err)
			packs = append(packs, k)
		}
		var ranges []ssd.Range
		for off := 0; off < len(data); off += 32 << 10 {
			ranges = append(ranges, ssd.Range{Off: int64(off), Len: 32 << 10})
		}
		reading := make(chan error)
		go func() { reading <- check(old, 1, 5000, 508) }()
		require.NoError(t, r.engine.Read(context.Background(), h, ranges, func(i int, p []byte) error {
			for at := 0; at < len(p); at += 512 {
				pos := int(ranges[i].Off)/512 + at/512
				held[pos%4].Store(int32(pos), true)
				if err := packs[pos%4].Add(int32(pos), p[at:at+512]); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, <-reading)
		for i, k := range packs {
			require.NoError(t, k.Seal())
			require.NoError(t, k.Read(context.Background(), func(pos scratch.Positions, rows []byte) error {
				for n := range pos.Len() {
					at := pos.At(n)
					if _, ok := held[i].LoadAndDelete(at); !ok || string(rows[n*512:][:512]) != string(data[at*512:][:512]) {
						return errWrong
					}
				}
				return nil
			}))
			held[i].Range(func(any, any) bool { t.Error("row missing"); return false })
		}
		require.NoError(t, h.Close())
		r.Close()
	}
}

// Packs, blobs and the pool are closed in every state, and while others use them.
func TestCloseInAnyState(t *testing.T) {
	for round := range 40 {
		o := scratch.Options{MemoryBytes: 4 * mib, FileBytes: 32 * mib}
		r := newRig(t, kinds(t)[0], o)
		filler := r.fill(o)
		r.slowly()
		var wait sync.WaitGroup
		ended := func(err error) {
			if err != nil && !errors.Is(err, scratch.ErrClosed) && !errors.Is(err, ssd.ErrClosed) &&
				!errors.Is(err, scratch.ErrFull) {
				t.Error(err)
			}
		}
		for i := range 6 {
			k, err := r.pool.NewPack(4000, 508)
			require.NoError(t, err)
			wait.Go(func() {
				if err := add(k, i, 0, 100+600*i, 508); err != nil {
					ended(err)
					return
				}
				if i%3 == 0 {
					return
				}
				if err := k.Seal(); err != nil {
					ended(err)
				} else if i%3 == 1 {
					ended(check(k, i, 100+600*i, 508))
				}
				if i%2 == 0 {
					k.Close()
				}
			})
		}
		wait.Go(func() {
			b, err := r.pool.NewBlob(500_000)
			if err == nil {
				err = b.Write(row(0, 0, 300_000))
			}
			if err == nil {
				err = b.Finish()
			}
			ended(err)
		})
		time.Sleep(time.Duration(round) * 300 * time.Microsecond)
		if round%2 == 0 {
			filler.Close()
		}
		require.NoError(t, r.pool.Close())
		_, err := r.pool.NewPack(1, 1)
		require.ErrorIs(t, err, scratch.ErrClosed)
		_, err = r.pool.NewBlob(1)
		require.ErrorIs(t, err, scratch.ErrClosed)
		wait.Wait()
		r.Close()
	}
}

// Packs for which Fits tells that there is memory find it, whatever else is open and however short they are.
func TestFits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	r := newRig(t, kinds(t)[0], scratch.Options{MemoryBytes: 4 * mib, FileBytes: 64 * mib, BufferBytes: 4 * mib})
	defer r.Close()
	require.True(t, r.pool.Fits(1000), "there is no file yet, and nobody knows")
	var packs []*scratch.Pack
	fitted, refused := 0, 0
	for range 200 {
		many := 1 + rng.IntN(20)
		if fits := r.pool.Fits(many); !fits && len(packs) > 0 {
			refused++
			at := rng.IntN(len(packs))
			packs[at].Close()
			packs = append(packs[:at], packs[at+1:]...)
			continue
		}
		for range many {
			k, err := r.pool.NewPack(1+rng.IntN(300), 508)
			require.NoError(t, err)
			packs = append(packs, k)
		}
		fitted++
	}
	require.Positive(t, refused)
	require.Greater(t, fitted, 10)
}

// TestPacksLeaveBuffersForBlobs: where packs have all the buffers that they may, blobs find some yet.
func TestPacksLeaveBuffersForBlobs(t *testing.T) {
	for _, rows := range []int{3, 1000} { // less than a chunk each, and more
		r := newRig(t, kinds(t)[0], scratch.Options{MemoryBytes: 8 * mib, FileBytes: 1024 * mib, BufferBytes: 8 * mib})
		packs := 0
		for ; ; packs++ {
			if _, err := r.pool.NewPack(rows, 508); err != nil {
				require.ErrorIs(t, err, scratch.ErrFull)
				break
			}
		}
		require.Greater(t, packs, 20)
		for range 4 {
			b, err := r.pool.NewBlob(1 << 20)
			require.NoError(t, err)
			require.NoError(t, b.Write(make([]byte, 100)))
		}
		r.Close()
	}
}
