// Package faultfs is the fault-injecting twin of ssd.OS: it passes calls on to another ssd.FS, counts them, and makes
// chosen ones fail, transfer less than asked, or find the disk full. Tests of every package that touches files use it;
// nothing else does.
//
// It reaches reads and writes by io_uring too, which bypass File.Pread and Pwrite: there it changes the result after
// the fact (ssd.CompletionFilter, ssd.WriteFilter).
package faultfs

import (
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"freshgo/core/ssd"
)

// Op names a kind of call.
type Op string

// The kinds of call. Any counts and matches all of them.
const (
	Any        Op = "any"
	Open       Op = "open"        // without O_DIRECT
	OpenDirect Op = "open direct" // with O_DIRECT
	Rename     Op = "rename"
	Exchange   Op = "exchange"
	Share      Op = "share"
	Remove     Op = "remove"
	RemoveAll  Op = "remove all"
	Mkdir      Op = "mkdir"
	ReadDir    Op = "readdir"
	Stat       Op = "stat"
	Space      Op = "space"
	SyncDir    Op = "sync directory"
	Read       Op = "read"  // Pread, and completions of a ring
	Write      Op = "write" // Pwrite, and completions of a ring
	Sync       Op = "sync"
	Truncate   Op = "truncate"
	Allocate   Op = "allocate"
	Size       Op = "size"
	Lock       Op = "lock"
	Close      Op = "close"
)

// Forever as a Fault's Times lets it act on every call from the first one on.
const Forever = -1

// Fault makes calls fail. A call that it acts on does not reach the file system, unless it is short.
type Fault struct {
	Op    Op
	Place string        // which calls, by what Watch's locate says; empty matches all
	Path  string        // a pattern of filepath.Match for the last element of the path; empty matches all
	Nth   int           // the first call to act on, among those that match, counted from 1
	Times int           // on how many calls in a row; 0 is 1
	Errno syscall.Errno // what the call fails with
	Short int           // with Errno 0: a read or write transfers at most this many bytes; 0 reads as the end of the file
	Hook  func()        // called before the fault acts, if not nil
}

type armed struct {
	Fault
	seen int // calls that matched
}

// FS is an ssd.FS with faults. It is safe for concurrent use; mu guards all fields below it.
type FS struct {
	inner ssd.FS

	locate func(Op, Callers) string // nil: nobody watches

	mu     sync.Mutex
	places map[string]int // calls from each
	faults []*armed
	calls  map[Op]int
	space  int64 // bytes that writes may still transfer; -1: no limit
	open   int
}

var _ ssd.FS = (*FS)(nil)

// New returns an FS over inner with faults armed.
func New(inner ssd.FS, faults ...Fault) *FS {
	f := &FS{inner: inner, calls: map[Op]int{}, space: -1}
	f.Arm(faults...)
	return f
}

// Callers are program counters of a stack, the innermost first, as runtime.Callers gives them; zeros follow.
type Callers [64]uintptr

// Frames returns the functions and lines on the stack.
func (c Callers) Frames() (stack []runtime.Frame) {
	frames := runtime.CallersFrames(c[:slices.Index(append(c[:], 0), 0)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		stack = append(stack, frame)
	}
	return stack
}

// Watch has locate name the place that each call comes from, by its stack. It is called before anything else, by
// several goroutines.
func (f *FS) Watch(locate func(op Op, stack Callers) string) {
	f.locate, f.places = locate, map[string]int{}
}

// Places returns how many calls there have been from each place.
func (f *FS) Places() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.places)
}

// place names where a call comes from.
func (f *FS) place(op Op) string {
	if f.locate == nil {
		return ""
	}
	var callers Callers
	runtime.Callers(3, callers[:])
	return f.locate(op, callers)
}

// Arm adds faults; their calls count from now.
func (f *FS) Arm(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		if fault.Times == 0 {
			fault.Times = 1
		}
		f.faults = append(f.faults, &armed{Fault: fault})
	}
}

// Clear removes all faults and the limit of SetSpace.
func (f *FS) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.space = nil, -1
}

// SetSpace lets writes transfer n more bytes: the one that crosses the limit is short, those after it fail with ENOSPC.
func (f *FS) SetSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = n
}

// Calls returns how many calls of a kind there have been.
func (f *FS) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// OpenFiles returns how many files are open.
func (f *FS) OpenFiles() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// enter counts a call and returns the fault that acts on it, or nil.
func (f *FS) enter(op Op, path string) *Fault {
	place := f.place(op)
	f.mu.Lock()
	f.calls[op]++
	f.calls[Any]++
	if f.places != nil {
		f.places[place]++
	}
	var acting *Fault
	for _, a := range f.faults {
		if !a.matches(op, path, place) {
			continue
		}
		a.seen++
		if a.seen >= a.Nth && (a.Times == Forever || a.seen < a.Nth+a.Times) && acting == nil {
			acting = &a.Fault
		}
	}
	f.mu.Unlock()
	if acting != nil && acting.Hook != nil {
		acting.Hook()
	}
	return acting
}

func (a *armed) matches(op Op, path, place string) bool {
	if a.Op != op && a.Op != Any || a.Place != "" && a.Place != place {
		return false
	}
	if a.Path == "" {
		return true
	}
	ok, err := filepath.Match(a.Path, filepath.Base(path))
	if err != nil {
		panic(err) // a test with a malformed pattern
	}
	return ok
}

// run makes a call that either fails by a fault or is made.
func (f *FS) run(op Op, path string, call func() error) error {
	if fault := f.enter(op, path); fault != nil && fault.Errno != 0 {
		return failure(op, path, -1, fault.Errno)
	}
	return call()
}

func failure(op Op, path string, off int64, errno syscall.Errno) error {
	return &ssd.PathError{Op: string(op), Path: path, Off: off, Err: errno}
}

// Open implements ssd.FS.
func (f *FS) Open(path string, flag int, perm uint32) (ssd.File, error) {
	op := Open
	if flag&ssd.Direct != 0 {
		op = OpenDirect
	}
	var inner ssd.File
	err := f.run(op, path, func() (err error) {
		inner, err = f.inner.Open(path, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.open++
	f.mu.Unlock()
	opened := &file{File: inner, fs: f}
	if ssd.ByDescriptor(inner) {
		return ringFile{opened}, nil
	}
	return opened, nil
}

// Share implements ssd.FS.
func (f *FS) Share(from, to string) error {
	return f.run(Share, to, func() error { return f.inner.Share(from, to) })
}

// Rename implements ssd.FS. Faults see the old path.
func (f *FS) Rename(from, to string) error {
	return f.run(Rename, from, func() error { return f.inner.Rename(from, to) })
}

// Exchange implements ssd.FS. Faults see the first path.
func (f *FS) Exchange(one, other string) error {
	return f.run(Exchange, one, func() error { return f.inner.Exchange(one, other) })
}

// Remove implements ssd.FS.
func (f *FS) Remove(path string) error {
	return f.run(Remove, path, func() error { return f.inner.Remove(path) })
}

// RemoveAll implements ssd.FS.
func (f *FS) RemoveAll(path string) error {
	return f.run(RemoveAll, path, func() error { return f.inner.RemoveAll(path) })
}

// Mkdir implements ssd.FS.
func (f *FS) Mkdir(path string, perm uint32) error {
	return f.run(Mkdir, path, func() error { return f.inner.Mkdir(path, perm) })
}

// ReadDir implements ssd.FS.
func (f *FS) ReadDir(path string) (names []string, err error) {
	err = f.run(ReadDir, path, func() (err error) {
		names, err = f.inner.ReadDir(path)
		return err
	})
	return names, err
}

// Stat implements ssd.FS.
func (f *FS) Stat(path string) (info ssd.Info, err error) {
	err = f.run(Stat, path, func() (err error) {
		info, err = f.inner.Stat(path)
		return err
	})
	return info, err
}

// Lstat implements ssd.FS. It counts as a Stat.
func (f *FS) Lstat(path string) (info ssd.Info, err error) {
	err = f.run(Stat, path, func() (err error) {
		info, err = f.inner.Lstat(path)
		return err
	})
	return info, err
}

// Space implements ssd.FS. It is what the file system has: SetSpace is for what fills up meanwhile.
func (f *FS) Space(path string) (n int64, err error) {
	err = f.run(Space, path, func() (err error) { n, err = f.inner.Space(path); return err })
	return n, err
}

// SyncDir implements ssd.FS.
func (f *FS) SyncDir(path string) error {
	return f.run(SyncDir, path, func() error { return f.inner.SyncDir(path) })
}
