package ssd_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

const testChunk = 2 * ssd.PageBytes

func noise(n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 5))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// writeFile writes data in pieces through a Writer, and requires that nothing is left over whatever happens.
func writeFile(t *testing.T, fs *faultfs.FS, path string, data []byte, piece int) error {
	t.Helper()
	budget := mem.NewBudget(0)
	defer func() {
		require.Zero(t, budget.Used(), "memory left")
		require.Zero(t, fs.OpenFiles(), "files left open")
	}()
	w, err := ssd.NewWriter(fs, path, budget, testChunk)
	if err != nil {
		return err
	}
	defer w.Abort()
	require.Equal(t, ssd.WriterBytes(testChunk), budget.Live()[mem.Staging])
	for rest := data; len(rest) > 0; {
		n, err := w.Write(rest[:min(piece, len(rest))])
		if err != nil {
			require.Less(t, n, piece+1)
			_, again := w.Write(rest)
			require.Equal(t, err, again, "the error stays")
			require.ErrorIs(t, w.Close(), err)
			return err
		}
		rest = rest[n:]
		require.EqualValues(t, len(data)-len(rest), w.Offset())
	}
	err = w.Close()
	require.Equal(t, err, w.Close(), "again")
	_, after := w.Write([]byte{1})
	require.ErrorIs(t, after, ssd.ErrClosed)
	return err
}

func requireFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, len(want), len(got))
	require.True(t, string(want) == string(got), "contents differ")
}

func TestWriterWritesWhatItIsGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, faults := range map[string][]faultfs.Fault{
		"direct":                    nil,
		"direct refused at open":    {{Op: faultfs.OpenDirect, Nth: 1, Errno: syscall.EINVAL}},
		"direct refused at a write": {{Op: faultfs.Write, Nth: 2, Errno: syscall.EINVAL}},
	} {
		for _, size := range []int{0, 1, 4095, 4096, 4097, testChunk - 1, testChunk, testChunk + 1, 5*testChunk + 100} {
			for _, piece := range []int{7, 4096, 3*testChunk + 5} {
				if piece == 7 && size > testChunk+1 {
					continue
				}
				fs := faultfs.New(ssd.OS, faults...)
				path := filepath.Join(dir, fmt.Sprintf("%s-%d-%d", name, size, piece))
				require.NoError(t, os.WriteFile(path, noise(100_000), 0o644)) // what was there goes
				data := noise(size)
				require.NoError(t, writeFile(t, fs, path, data, piece))
				requireFile(t, path, data)
				require.Equal(t, 1, fs.Calls(faultfs.Sync), "durable")
			}
		}
	}
}

func TestBufferedWriterBoundsDirtyPages(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.OpenDirect, Nth: 1, Errno: syscall.EINVAL})
	const chunk = ssd.DirtyBytes / 2
	path := filepath.Join(t.TempDir(), "f")
	w, err := ssd.NewWriter(fs, path, mem.NewBudget(0), chunk)
	require.NoError(t, err)
	piece := make([]byte, chunk)
	for range 3 {
		_, err := w.Write(piece)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.Equal(t, 2, fs.Calls(faultfs.Sync), "one for each dirtyBytes, one at the end")
}

func TestWriterMendsTransientFaultsAtEveryWrite(t *testing.T) {
	data := noise(5*testChunk + 5000)
	dir := t.TempDir()
	for name, fault := range map[string]faultfs.Fault{
		"EINTR":              {Errno: syscall.EINTR},
		"EAGAIN":             {Errno: syscall.EAGAIN, Times: 5},
		"short, unaligned":   {Short: 5000},
		"short, in the page": {Short: 3},
		"short, aligned":     {Short: ssd.PageBytes},
	} {
		for nth := 1; nth <= 6; nth++ {
			fault.Op, fault.Nth = faultfs.Write, nth
			fs := faultfs.New(ssd.OS, fault)
			path := filepath.Join(dir, "f")
			require.NoError(t, writeFile(t, fs, path, data, 1000), "%s, write %d", name, nth)
			requireFile(t, path, data)
			require.Greater(t, fs.Calls(faultfs.Write), 6, "%s, write %d: no fault happened", name, nth)
		}
	}
}

func TestWriterFailsAtEveryCall(t *testing.T) {
	data := noise(5*testChunk + 100)
	path := filepath.Join(t.TempDir(), "f")
	fs := faultfs.New(ssd.OS)
	require.NoError(t, writeFile(t, fs, path, data, 1000))
	calls := fs.Calls(faultfs.Any)
	for nth := 1; nth <= calls; nth++ {
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: nth, Errno: syscall.EIO})
		err := writeFile(t, fs, path, data, 1000)
		require.ErrorIs(t, err, syscall.EIO, "call %d of %d", nth, calls)
		var located *ssd.PathError
		require.ErrorAs(t, err, &located)
		require.Equal(t, path, located.Path)
	}
}

func TestWriterOnAFullDisk(t *testing.T) {
	data := noise(3*testChunk + 100)
	path := filepath.Join(t.TempDir(), "f")
	for _, direct := range []bool{true, false} {
		for space := int64(0); space <= int64(len(data)); space += 1511 {
			fs := faultfs.New(ssd.OS)
			if !direct {
				fs.Arm(faultfs.Fault{Op: faultfs.OpenDirect, Nth: 1, Errno: syscall.EINVAL})
			}
			fs.SetSpace(space)
			err := writeFile(t, fs, path, data, 1000)
			require.ErrorIs(t, err, syscall.ENOSPC, "space for %d", space)
			require.ErrorContains(t, err, path)
		}
	}
}

func TestWriterThatNeverGetsOn(t *testing.T) {
	for want, fault := range map[error]faultfs.Fault{
		syscall.EAGAIN:   {Errno: syscall.EAGAIN},
		io.ErrShortWrite: {Short: 10},
	} {
		fault.Op, fault.Nth, fault.Times = faultfs.Write, 1, faultfs.Forever
		fs := faultfs.New(ssd.OS, fault)
		err := writeFile(t, fs, filepath.Join(t.TempDir(), "f"), noise(testChunk), 1000)
		require.ErrorIs(t, err, want)
		require.LessOrEqual(t, fs.Calls(faultfs.Write), ssd.MaxRetries+2) // the last asks why
	}
}

func TestPanicInAWriterIsAnError(t *testing.T) {
	for nth := 1; nth <= 3; nth++ {
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Write, Nth: nth, Hook: func() { panic("broken") }})
		err := writeFile(t, fs, filepath.Join(t.TempDir(), "f"), noise(9*testChunk), 1000)
		var p *guard.PanicError
		require.ErrorAs(t, err, &p)
	}
}

func TestAbortLeavesNothingOpen(t *testing.T) {
	fs, budget := faultfs.New(ssd.OS), mem.NewBudget(0)
	w, err := ssd.NewWriter(fs, filepath.Join(t.TempDir(), "f"), budget, testChunk)
	require.NoError(t, err)
	_, err = w.Write(noise(3*testChunk + 5))
	require.NoError(t, err)
	w.Abort()
	w.Abort()
	require.ErrorIs(t, w.Close(), ssd.ErrClosed)
	require.Zero(t, fs.Calls(faultfs.Sync))
	require.Zero(t, fs.OpenFiles())
	require.Zero(t, budget.Used())
}

func TestNewWriterRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, chunk := range []int{0, -4096, 1000, 4097} {
		_, err := ssd.NewWriter(ssd.OS, path, mem.NewBudget(0), chunk)
		require.ErrorContains(t, err, "expected a positive multiple of 4096")
	}
	small := mem.NewBudget(ssd.WriterBytes(testChunk) - 1)
	_, err := ssd.NewWriter(ssd.OS, path, small, testChunk)
	require.ErrorIs(t, err, mem.ErrBudget)
	budget := mem.NewBudget(0)
	_, err = ssd.NewWriter(ssd.OS, filepath.Join(path, "below"), budget, testChunk)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Zero(t, budget.Used())
}
