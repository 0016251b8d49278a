package scratch_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

var inFile = scratch.Options{MemoryBytes: 2 * mib, FileBytes: 8 * mib}

// typed requires that an error is one that callers know, and returns whether there is one.
func typed(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !errors.Is(err, scratch.ErrBroken) && !errors.Is(err, scratch.ErrFull) {
		t.Fatalf("not typed: %v", err)
	}
	require.NotErrorIs(t, err, errWrong)
	return err != nil
}

// exercise fills, seals and reads packs and a blob in the file, and a pack in memory at the end. It returns the errors.
func exercise(t *testing.T, r *rig) (failures []error) {
	t.Helper()
	note := func(err error) bool {
		if !typed(t, err) {
			return true
		}
		failures = append(failures, err)
		return false
	}
	filler := r.fill(inFile)
	var packs []*scratch.Pack
	const packed, rowBytes = 700, 508 // five and a half chunks each
	for range 3 {
		k, err := r.pool.NewPack(packed, rowBytes)
		if note(err) {
			packs = append(packs, k)
		}
	}
	for i, k := range packs {
		require.NoError(t, add(k, i, 0, packed, rowBytes), "a failed write is no error of Add")
	}
	for i, k := range packs {
		if err := k.Seal(); note(err) {
			note(check(k, i, packed, rowBytes))
		} else {
			require.Error(t, check(k, i, packed, rowBytes), "after a failed Seal")
		}
	}
	if b, err := r.pool.NewBlob(200_000); note(err) {
		data := row(9, 9, 200_000)
		if note(b.Write(data[:70_000])) && note(b.Write(data[70_000:])) && note(b.Finish()) {
			got, release, err := b.Load(context.Background())
			if note(err) {
				require.True(t, string(data) == string(got), "wrong data")
				release()
			}
		}
		b.Close()
	}
	for _, k := range packs {
		k.Close()
	}
	filler.Close()
	k, err := r.pool.NewPack(packed, rowBytes)
	require.NoError(t, err, "memory goes on")
	require.NoError(t, add(k, 7, 0, packed, rowBytes))
	require.NoError(t, k.Seal())
	require.NoError(t, check(k, 7, packed, rowBytes))
	require.Equal(t, len(failures) == 0, r.pool.Stats().Why == "", "%v", failures)
	return failures
}

// Every fault at every write and every read gives a typed error or the right data, nothing is left over, and memory
// goes on.
func TestFaultsAtEveryTransfer(t *testing.T) {
	faults := map[string]struct {
		fault  faultfs.Fault
		mended bool
	}{
		"EIO":              {faultfs.Fault{Errno: syscall.EIO}, false},
		"ENOSPC":           {faultfs.Fault{Errno: syscall.ENOSPC}, false},
		"ENOSPC for ever":  {faultfs.Fault{Errno: syscall.ENOSPC, Times: faultfs.Forever}, false},
		"EINTR":            {faultfs.Fault{Errno: syscall.EINTR}, true},
		"short, aligned":   {faultfs.Fault{Short: 4 * ssd.PageBytes}, true},
		"short, unaligned": {faultfs.Fault{Short: 5000}, true},
		"nothing for ever": {faultfs.Fault{Short: 0, Times: faultfs.Forever}, false},
	}
	stride := 1
	for _, kind := range kinds(t) {
		r := newRig(t, kind, inFile)
		writes, reads := r.fs.Calls(faultfs.Write), r.fs.Calls(faultfs.Read)
		require.Empty(t, exercise(t, r))
		writes, reads = r.fs.Calls(faultfs.Write)-writes, r.fs.Calls(faultfs.Read)-reads
		r.Close()
		require.Greater(t, writes, 20)
		require.Greater(t, reads, 20)
		for name, c := range faults {
			for op, calls := range map[faultfs.Op]int{faultfs.Write: writes, faultfs.Read: reads} {
				if op == faultfs.Write && kind == ssd.Pread && kinds(t)[0] == ssd.IOUring {
					continue // as with io_uring
				}
				for nth := 1; nth <= calls; nth += stride {
					r := newRig(t, kind, inFile)
					c.fault.Op, c.fault.Nth, c.fault.Path = op, nth, ssd.TempPrefix+"*"
					r.fs.Arm(c.fault)
					failures := exercise(t, r)
					if c.mended {
						require.Empty(t, failures, "%s, %s at %s %d", kind, name, op, nth)
					} else {
						require.NotEmpty(t, failures, "%s, %s at %s %d", kind, name, op, nth)
						if c.fault.Errno != 0 {
							require.ErrorIs(t, failures[0], c.fault.Errno)
						}
					}
					r.Close()
				}
			}
		}
		stride = 5 // the first engine was tried at each
	}
}

// The calls that make the file fail one after the other.
func TestFaultsWhileTheFileIsMade(t *testing.T) {
	kind := kinds(t)[0]
	for _, op := range []faultfs.Op{faultfs.Open, faultfs.OpenDirect, faultfs.Lock, faultfs.Size, faultfs.Allocate,
		faultfs.Remove, faultfs.Close} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.EMFILE, syscall.EROFS, syscall.EINVAL,
			syscall.EOPNOTSUPP} {
			r := newRig(t, kind, inFile)
			times := 1
			if op == faultfs.Allocate {
				times = 2 // space ahead of what is needed is only tried for
			}
			r.fs.Arm(faultfs.Fault{Op: op, Path: ssd.TempPrefix + "*", Nth: 1, Times: times, Errno: errno})
			failures := exercise(t, r)
			harmless := op == faultfs.Lock || op == faultfs.Close || (op == faultfs.Allocate && errno == syscall.EOPNOTSUPP)
			if kind == ssd.Buffered {
				harmless = harmless || op == faultfs.OpenDirect // nobody makes the call
			} else {
				// tried again without O_DIRECT
				harmless = harmless || (errno == syscall.EINVAL && (op == faultfs.OpenDirect || op == faultfs.Size))
			}
			require.Equal(t, harmless, len(failures) == 0, "%s %v: %v", op, errno, failures)
			if !harmless {
				require.ErrorIs(t, failures[0], errno)
				require.ErrorIs(t, failures[0], scratch.ErrFull)
				require.ErrorIs(t, failures[0], scratch.ErrBroken)
			}
			if op == faultfs.Remove {
				r.fs.Clear()
				ssd.RemoveTemps(r.fs, r.dir) // the lock went with the failure
			}
			r.Close()
		}
	}
}

// A disk that fills up takes the file away and leaves memory; what is told is the first reason.
func TestDiskFull(t *testing.T) {
	for space := int64(0); space <= 1200_000; space += 100_000 {
		r := newRig(t, kinds(t)[0], inFile)
		r.fs.SetSpace(space)
		failures := exercise(t, r)
		if space < 1_150_000 {
			require.NotEmpty(t, failures)
			for _, err := range failures {
				require.ErrorIs(t, err, syscall.ENOSPC)
			}
			require.Contains(t, r.pool.Stats().Why, "no space left on device")
		}
		r.Close()
	}
}

// A file that cannot grow keeps its length: what is freed of it is taken again, and it grows once the disk has room.
func TestFileStaysWhileTheDiskIsFull(t *testing.T) {
	const part = 32 * mib
	o := scratch.Options{MemoryBytes: 2 * mib, FileBytes: 8 * part}
	r := newRig(t, kinds(t)[0], o)
	defer r.Close()
	blob := func() *scratch.Blob {
		b, err := r.pool.NewBlob(part)
		require.NoError(t, err)
		return b
	}
	first := blob() // the file grows ahead, to two of them
	r.fs.Arm(faultfs.Fault{Op: faultfs.Allocate, Nth: 1, Times: faultfs.Forever, Errno: syscall.ENOSPC},
		faultfs.Fault{Op: faultfs.Space, Nth: 1, Times: faultfs.Forever, Errno: syscall.EIO})
	blob()
	for range 2 {
		_, err := r.pool.NewBlob(part)
		require.ErrorIs(t, err, scratch.ErrFull)
		require.NotErrorIs(t, err, scratch.ErrBroken)
	}
	all, left := r.pool.FileRoom()
	require.EqualValues(t, 2*part+ssd.PageBytes, all, "with the page of the trial")
	require.EqualValues(t, ssd.PageBytes, left)
	require.Empty(t, r.pool.Stats().Why)
	require.Contains(t, r.pool.Stats().Short, "33554432 more bytes were needed")
	first.Close()
	blob()
	r.fs.Clear()
	blob()
	all, left = r.pool.FileRoom()
	require.EqualValues(t, 8*part, all)
	require.EqualValues(t, 5*part, left)
}

// A directory that is missing is found out when the file is needed, and only then.
func TestMissingDirectory(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	r := newRigIn(t, none, ssd.Options{Depth: 8}, inFile)
	defer r.Close()
	k, err := r.pool.NewPack(100, 100)
	require.NoError(t, err)
	k.Close()
	require.Empty(t, r.pool.Stats().Why)
	defer r.fill(inFile).Close()
	for range 2 {
		_, err = r.pool.NewPack(100, 100)
		require.ErrorIs(t, err, scratch.ErrFull)
		require.ErrorIs(t, err, scratch.ErrBroken)
		require.ErrorIs(t, err, syscall.ENOENT)
	}
	_, err = r.pool.NewBlob(10)
	require.ErrorIs(t, err, scratch.ErrFull)
	require.Contains(t, r.pool.Stats().Why, none)
}

// flipFS damages the nth write to a file, or with drop loses it without a word.
type flipFS struct {
	ssd.FS
	nth, at int
	drop    bool
	writes  atomic.Int64
}

type flipFile struct {
	ssd.File
	fs *flipFS
}

func (f *flipFS) Open(path string, flag int, perm uint32) (ssd.File, error) {
	file, err := f.FS.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &flipFile{file, f}, nil
}

func (f *flipFile) Pwrite(p []byte, off int64) (int, error) {
	if int(f.fs.writes.Add(1)) != f.fs.nth {
		return f.File.Pwrite(p, off)
	}
	if f.fs.drop {
		return len(p), nil
	}
	i := f.fs.at % len(p)
	p[i] ^= 4
	defer func() { p[i] ^= 4 }()
	return f.File.Pwrite(p, off)
}

// A chunk that is not what was written is found out before a row of it is given out.
func TestDamage(t *testing.T) {
	const writes = 1 + 18 + 4 // the trial, three packs and the blob of exercise
	stride := 1
	for _, kind := range kinds(t) {
		for nth := 2; nth <= writes; nth += stride {
			for _, fs := range []*flipFS{{at: 0}, {at: 2001}, {drop: true}} {
				fs.FS, fs.nth = ssd.OS, nth
				r := &rig{t: t, fs: faultfs.New(fs), budget: mem.NewBudget(0), dir: t.TempDir(), before: 1 << 30}
				var err error
				r.engine, err = ssd.NewEngine(ssd.Options{Kind: kind, Depth: 8, FS: r.fs, Budget: r.budget}, storeDir(t))
				require.NoError(t, err)
				r.idle = int(r.budget.Used())
				r.pool, err = scratch.Open(r.fs, r.engine, r.dir, r.budget, inFile)
				require.NoError(t, err)
				failures := exercise(t, r)
				require.NotEmpty(t, failures)
				for _, err := range failures { // the damage, and what comes after it
					require.ErrorIs(t, err, scratch.ErrBroken)
					require.ErrorIs(t, err, scratch.ErrDamaged)
				}
				require.Contains(t, r.pool.Stats().Why, "checksum")
				r.Close()
			}
		}
		stride = 5 // the first engine was tried at each
	}
}
