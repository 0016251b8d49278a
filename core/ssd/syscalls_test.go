package ssd_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
)

// deeds returns the operations of ssd.OS, in an order in which each finds the files that it needs in a directory.
func deeds(dir string) (names []string, do map[string]func() error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	var f ssd.File
	do = map[string]func() error{}
	add := func(name string, deed func() error) { names, do[name] = append(names, name), deed }
	add("open", func() (err error) {
		f, err = ssd.OS.Open(at("file"), syscall.O_RDWR|syscall.O_CREAT, 0o600)
		return err
	})
	add("write", func() error { return ssd.WriteFull(f, []byte("hello"), 0) })
	add("read", func() error { return ssd.ReadFull(f, make([]byte, 5), 0) })
	add("sync", func() error { return f.Sync() })
	add("truncate", func() error { return f.Truncate(3) })
	add("allocate", func() error { return f.Allocate(0, 100) })
	add("size", func() error { _, err := f.Size(); return err })
	add("lock", func() error {
		held, err := f.Lock(true)
		return errors.Join(err, map[bool]error{false: errors.New("not held")}[held || err != nil])
	})
	add("stat", func() error { _, err := ssd.OS.Stat(at("file")); return err })
	add("lstat", func() error { _, err := ssd.OS.Lstat(at("file")); return err })
	add("space", func() error { _, err := ssd.OS.Space(at("file")); return err })
	add("share", func() error { return ssd.OS.Share(at("file"), at("shared")) })
	add("mkdir", func() error { return ssd.OS.Mkdir(at("directory"), 0o700) })
	add("readdir", func() error { _, err := ssd.OS.ReadDir(at("directory")); return err })
	add("syncdir", func() error { return ssd.OS.SyncDir(at("directory")) })
	add("exchange", func() error { return ssd.OS.Exchange(at("file"), at("shared")) })
	add("rename", func() error { return ssd.OS.Rename(at("shared"), at("renamed")) })
	add("remove", func() error { return ssd.OS.Remove(at("renamed")) })
	add("removeall", func() error { return ssd.OS.RemoveAll(at("directory")) })
	add("close", func() error { return f.Close() })
	return names, do
}

// TestDeeds is traced by TestSystemCalls: it does every operation in a directory and prints the outcomes.
func TestDeeds(t *testing.T) {
	dir := os.Getenv("FRESHGO_TEST_DEEDS")
	if dir == "" {
		dir = t.TempDir()
	}
	names, do := deeds(dir)
	for _, name := range names {
		err := do[name]()
		if fd := os.NewFile(3, "answers"); os.Getenv("FRESHGO_TEST_DEEDS") != "" {
			_, _ = fmt.Fprintf(fd, "%s: %v\n", name, err)
		} else {
			require.NoError(t, err, name)
		}
		if name == "open" && err != nil {
			return // nothing else can be done
		}
	}
}

// TestSystemCalls has the real system calls of ssd.OS fail, by a tracer that puts other results in their place: those
// that a signal interrupts are made again, and a failure is an error of the deed that it belongs to, which says where.
func TestSystemCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace")
	}
	if testing.Short() {
		t.Skip("starts many processes")
	}
	run := func(t *testing.T, inject ...string) map[string]string {
		dir := t.TempDir()
		answers, err := os.Create(filepath.Join(t.TempDir(), "answers"))
		require.NoError(t, err)
		defer answers.Close()
		args := []string{"-f", "-qq", "-o", "/dev/null"}
		for _, name := range []string{"file", "shared", "renamed", "directory"} {
			args = append(args, "-P", filepath.Join(dir, name))
		}
		args = append(append(args, inject...), os.Args[0], "-test.run", "^TestDeeds$")
		command := exec.Command(strace, args...)
		command.Env = append(os.Environ(), "FRESHGO_TEST_DEEDS="+dir)
		command.ExtraFiles = []*os.File{answers}
		if out, err := command.CombinedOutput(); err != nil {
			require.Empty(t, inject, "%v: %s", err, out)
			t.Skipf("processes cannot be traced here: %v: %s", err, out)
		}
		data, err := os.ReadFile(answers.Name())
		require.NoError(t, err)
		said := map[string]string{}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			name, outcome, _ := strings.Cut(lines.Text(), ": ")
			said[name] = outcome
		}
		return said
	}
	names, _ := deeds("")
	said := run(t)
	for _, name := range names {
		require.Equal(t, "<nil>", said[name], name)
	}
	// Of each call: the deeds that make it, whose errors name the path.
	for calls, makers := range map[string][]string{
		"openat": {"open"}, "pwrite64": {"write"}, "pread64": {"read"}, "fsync": {"sync"}, "ftruncate": {"truncate"},
		"fallocate": {"allocate"}, "flock": {"lock"}, "statfs": {"space"}, "/^(rename|renameat|renameat2)$": {"exchange"},
		"/^mkdir(at)?$": {"mkdir"}, "/^unlink(at)?$": {"remove"},
	} {
		interrupted := run(t, "-e", "inject="+calls+":error=EINTR:when=1..2")
		failed := run(t, "-e", "inject="+calls+":error=EIO:when=1..2")
		for _, name := range makers {
			require.Contains(t, failed[name], "input/output error", calls)
			require.Contains(t, failed[name], "ssd: ", calls)
			require.Equal(t, "<nil>", interrupted[name], calls)
		}
	}
}
