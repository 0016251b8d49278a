package sites_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/internal/sites"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// methods are the names in the source of what faultfs counts as one kind of call.
var methods = map[faultfs.Op][]string{
	faultfs.Open: {"Open"}, faultfs.OpenDirect: {"Open"}, faultfs.Rename: {"Rename"}, faultfs.Exchange: {"Exchange"},
	faultfs.Share: {"Share"}, faultfs.Remove: {"Remove"}, faultfs.RemoveAll: {"RemoveAll"}, faultfs.Mkdir: {"Mkdir"},
	faultfs.ReadDir: {"ReadDir"}, faultfs.Stat: {"Stat", "Lstat"}, faultfs.Space: {"Space"},
	faultfs.SyncDir: {"SyncDir"}, faultfs.Read: {"Pread", "ReadFull", "FilterCompletion"},
	faultfs.Write: {"Pwrite", "WriteFull", "FilterWrite"}, faultfs.Sync: {"Sync"}, faultfs.Truncate: {"Truncate"},
	faultfs.Allocate: {"Allocate", "Reserve"}, faultfs.Size: {"Size"}, faultfs.Lock: {"Lock"}, faultfs.Close: {"Close"},
}

// transfers are the methods that move bytes: those may move fewer, or none for the moment.
var transfers = []string{"Pread", "ReadFull", "FilterCompletion", "Pwrite", "WriteFull", "FilterWrite"}

// kind is a fault that a call may return.
type kind struct {
	name   string
	fault  faultfs.Fault
	mended bool // nobody notices
}

var hard = []kind{
	{"EIO", faultfs.Fault{Errno: syscall.EIO}, false},
	{"ENOSPC", faultfs.Fault{Errno: syscall.ENOSPC}, false},
	{"EIO for ever", faultfs.Fault{Errno: syscall.EIO, Times: faultfs.Forever}, false},
}

var soft = []kind{
	{"EINTR", faultfs.Fault{Errno: syscall.EINTR}, true},
	{"EAGAIN, three in a row", faultfs.Fault{Errno: syscall.EAGAIN, Times: 3}, true},
	{"short", faultfs.Fault{Short: 700, Times: 2}, true},
	{"short, whole pages", faultfs.Fault{Short: ssd.PageBytes}, true},
}

// bench does works on a file system whose calls are counted by the site that they come from.
type bench struct {
	t       *testing.T
	sites   []sites.Site
	reached map[string]string // site → the faults that it had
	strange map[string]bool   // calls from nowhere
	faults  int

	mu    sync.Mutex
	named map[call]string // the sites of calls: to look at a stack takes longer than most calls
}

func (b *bench) watched(faults ...faultfs.Fault) *faultfs.FS {
	fs := faultfs.New(ssd.OS, faults...)
	fs.Watch(func(op faultfs.Op, stack faultfs.Callers) string {
		b.mu.Lock()
		defer b.mu.Unlock()
		from := call{op, stack}
		if _, known := b.named[from]; !known {
			s := sites.Locate(b.sites, methods[op], stack.Frames())
			b.named[from] = s.String()
			if s == (sites.Site{}) {
				b.named[from] = fmt.Sprint("nowhere: ", op)
			}
		}
		return b.named[from]
	})
	return fs
}

type call struct {
	op    faultfs.Op
	stack faultfs.Callers
}

// leftIn lists what is in a directory, and how many files are in the stores there.
func leftIn(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		inside, _ := os.ReadDir(filepath.Join(dir, e.Name()))
		names = append(names, fmt.Sprint(e.Name(), " ", len(inside)))
	}
	return names
}

// outcome is the result of a work without faults.
type outcome struct {
	sum   uint64
	left  []string
	calls map[string]int // by site
}

func (b *bench) healthy(name string, w work) outcome {
	dir, fs := b.prepared(w)
	fs.Arm(w.always...)
	require.NoError(b.t, w.run(fs, dir), name)
	return outcome{b.sum(w, dir), leftIn(b.t, dir), fs.Places()}
}

func (b *bench) prepared(w work) (string, *faultfs.FS) {
	dir := b.t.TempDir()
	if w.prepare != nil {
		w.prepare(b.t, dir)
	}
	return dir, b.watched()
}

func (b *bench) sum(w work, dir string) uint64 {
	if w.digest == nil {
		return 0
	}
	sum, err := w.digest(dir)
	require.NoError(b.t, err)
	return sum
}

// fail does a work in which some calls fail, and requires that it either says so or did what it does without; that it
// leaves no file open; and that, done again, it does what it does in a place that was never touched. It returns the
// calls that were made.
func (b *bench) fail(name string, w work, want outcome, mended bool, faults ...faultfs.Fault) (calls map[string]int) {
	outer := b.t
	defer func() { b.t = outer }()
	outer.Run(name, func(t *testing.T) { // in a directory of its own, and the next one runs if this one fails
		b.t = t
		dir, fs := b.prepared(w)
		defer func() { calls = fs.Places() }()
		fs.Arm(faults...)
		fs.Arm(w.always...)
		err := w.run(fs, dir)
		b.faults++
		require.Zero(t, fs.OpenFiles(), "%v", err)
		if mended {
			require.NoError(t, err)
		}
		switch {
		case err == nil && w.digest != nil:
			require.Equal(t, want.sum, b.sum(w, dir))
		case err != nil && faults[0].Errno != 0:
			known := slices.ContainsFunc(faults, func(f faultfs.Fault) bool { return errors.Is(err, f.Errno) })
			require.True(t, known, "%v", err)
		}
		again := faultfs.New(ssd.OS, w.always...)
		require.NoError(t, w.run(again, dir), "again after: %v", err)
		require.Equal(t, want.sum, b.sum(w, dir), "again")
		require.Equal(t, want.left, leftIn(t, dir), "again after: %v", err)
		require.Zero(t, again.OpenFiles())
	})
	return calls
}

// TestEverySite makes the calls from every site in the source fail in every way, while the works are done that reach
// it, those that only come after another failure included. A new site that no work reaches fails the test: a work that
// does is then to be added.
func TestEverySite(t *testing.T) {
	if testing.Short() {
		t.Skip("makes hundreds of faults, one after the other")
	}
	found, err := sites.Find("../..")
	require.NoError(t, err)
	require.Greater(t, len(found), 150)
	b := &bench{t: t, sites: found, reached: map[string]string{}, strange: map[string]bool{}, named: map[call]string{}}
	rng := explore.Rand(t, 31, 1)
	all := os.Getenv("FRESHGO_TEST_SITES") == "all"
	works := works(t)
	for _, name := range slices.Sorted(maps.Keys(works)) {
		w, begun, before := works[name], time.Now(), b.faults
		want := b.healthy(name, w)
		for _, place := range slices.Sorted(maps.Keys(want.calls)) {
			if b.note(place); b.strange[place] || !all && !w.every && b.reached[place] != "" {
				continue
			}
			for _, k := range b.kinds(place, all, rng.IntN) {
				b.at(name, w, want, place, want.calls[place], k, all)
			}
		}
		t.Logf("%s: %d faults, %v", name, b.faults-before, time.Since(begun))
	}
	var missed []string
	for _, s := range found {
		if b.reached[s.String()] == "" {
			missed = append(missed, s.String())
		}
	}
	t.Logf("%d sites, %d faults; %d not reached", len(found), b.faults, len(missed))
	require.Empty(t, b.strange, "calls that no site was found for")
	require.Empty(t, missed, "sites that no work reaches: add one that does, in works_test.go")
}

func (b *bench) note(place string) {
	if strings.HasPrefix(place, "nowhere") {
		b.strange[place] = true
	}
}

// kinds are the faults of a site: all, or one that is final and one that is not.
func (b *bench) kinds(place string, all bool, draw func(n int) int) (chosen []kind) {
	_, method, _ := strings.Cut(place, " ")
	moves := slices.Contains(transfers, method)
	if !all {
		chosen = []kind{hard[draw(len(hard))]}
		if moves {
			chosen = append(chosen, soft[draw(len(soft))])
		}
		return chosen
	}
	chosen = slices.Clone(hard)
	if moves {
		chosen = append(chosen, soft...)
	}
	return chosen
}

// at makes calls from a place fail, and then those that are made only because of it.
func (b *bench) at(name string, w work, want outcome, place string, calls int, k kind, all bool) {
	nths := []int{1}
	if all {
		nths = slices.Compact([]int{1, (calls + 1) / 2, calls})
	}
	for _, nth := range nths {
		first := k.fault
		first.Op, first.Place, first.Nth = faultfs.Any, place, max(nth, 1)
		said := fmt.Sprintf("%s, %s at %s, call %d", name, k.name, place, nth)
		after := b.fail(said, w, want, k.mended, first)
		if after[place] >= first.Nth { // or what the work found saved has spared it the call, and another work must do it
			b.reached[place] = said
		}
		for _, next := range slices.Sorted(maps.Keys(after)) {
			if want.calls[next] > 0 || b.reached[next] != "" {
				continue
			}
			if b.note(next); b.strange[next] {
				continue
			}
			b.reached[next] = said
			second := faultfs.Fault{Op: faultfs.Any, Place: next, Nth: 1, Errno: syscall.EIO}
			b.fail(said+", then EIO at "+next, w, want, false, first, second)
		}
	}
}
