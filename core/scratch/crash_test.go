package scratch_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

const (
	crashDir  = "FRESHGO_TEST_CRASH_DIR"
	crashCall = "FRESHGO_TEST_CRASH_CALL"
)

// TestCrashing is the process that TestKilledAtEveryCall kills.
func TestCrashing(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("runs in a process of its own")
	}
	nth, err := strconv.Atoi(os.Getenv(crashCall))
	require.NoError(t, err)
	r := newRigIn(t, dir, ssd.Options{Depth: 8}, inFile)
	r.fs.Arm(faultfs.Fault{Op: faultfs.Any, Path: ssd.TempPrefix + "*", Nth: nth, Hook: func() {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {}
	}})
	require.Empty(t, exercise(t, r))
	r.Close()
}

// A process killed before any call on its file leaves nothing, or what the next Open removes.
func TestKilledAtEveryCall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some tens of processes")
	}
	dir, temps := t.TempDir(), t.TempDir() // nothing in the process that is killed removes its directories
	left := 0
	for nth := 1; ; nth++ {
		if nth > 30 {
			nth += 9 // these are writes and reads of a file that has no name any more
		}
		child := exec.Command(os.Args[0], "-test.run=^TestCrashing$")
		child.Env = append(os.Environ(), crashDir+"="+dir, crashCall+"="+strconv.Itoa(nth), "TMPDIR="+temps)
		out, err := child.CombinedOutput()
		if err == nil {
			require.Greater(t, nth, 30)
			break
		}
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%s", out)
		names, err := ssd.OS.ReadDir(dir)
		require.NoError(t, err)
		left += len(names)
		for _, name := range names {
			require.Contains(t, name, ssd.TempPrefix)
		}
		p, err := scratch.Open(ssd.OS, nil, dir, mem.NewBudget(0), inFile)
		require.NoError(t, err)
		require.NoError(t, p.Close())
		names, err = ssd.OS.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, names)
	}
	require.Positive(t, left, "no kill came at the moment for which RemoveTemps is made")
}

// Leftovers are told from live files by their lock, and from other people's files by their names.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	dead, live := ssd.TempPrefix+"0123456789abcdef", ssd.TempPrefix+"fedcba9876543210"
	others := []string{ssd.TempPrefix + "0123", ssd.TempPrefix + "0123456789abcdeg", "0123456789abcdef", "notes"}
	for _, name := range append([]string{dead, live}, others...) {
		require.NoError(t, os.WriteFile(at(name), []byte("x"), 0o600))
	}
	require.NoError(t, os.Mkdir(at(ssd.TempPrefix+"00000000000000dd"), 0o700))
	require.NoError(t, os.Symlink(at("notes"), at(ssd.TempPrefix+"00000000000000ee")))
	file, err := ssd.OS.Open(at(live), syscall.O_RDWR, 0)
	require.NoError(t, err)
	held, err := file.Lock(true)
	require.NoError(t, err)
	require.True(t, held)
	open := func(o scratch.Options) {
		p, err := scratch.Open(ssd.OS, nil, dir, mem.NewBudget(0), o)
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	open(scratch.Options{MemoryBytes: 1})
	require.FileExists(t, at(dead), "a pool without a file does not look")
	open(inFile)
	require.NoFileExists(t, at(dead))
	for _, name := range append([]string{live, ssd.TempPrefix + "00000000000000ee"}, others...) {
		require.FileExists(t, at(name))
	}
	require.DirExists(t, at(ssd.TempPrefix+"00000000000000dd"))
	require.NoError(t, file.Close())
	open(inFile)
	require.NoFileExists(t, at(live))
}

// Pools in one directory, which all look for leftovers while others make their files, do not disturb each other.
func TestManyPoolsInOneDirectory(t *testing.T) {
	dir := t.TempDir()
	done := make(chan error)
	const pools = 4
	r := newRigIn(t, dir, ssd.Options{Depth: 8}, inFile)
	for g := range pools {
		go func() {
			done <- func() error {
				for round := range 20 {
					budget := mem.NewBudget(0)
					p, err := scratch.Open(r.fs, r.engine, dir, budget, scratch.Options{MemoryBytes: mib, FileBytes: 8 * mib})
					if err != nil {
						return err
					}
					b, err := p.NewBlob(100_000)
					if err != nil {
						return err
					}
					err = errors.Join(b.Write(row(g, round, 100_000)), b.Finish())
					data, release, loaded := b.Load(t.Context())
					if err = errors.Join(err, loaded); err != nil {
						return err
					}
					if string(data) != string(row(g, round, 100_000)) {
						return errWrong
					}
					release()
					if err := p.Close(); err != nil {
						return err
					}
					if budget.Used() != 0 {
						return errors.New("memory left")
					}
				}
				return nil
			}()
		}()
	}
	for range pools {
		require.NoError(t, <-done)
	}
	r.Close()
}
