package faultfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"freshgo/core/ssd"
)

// sector is the size that a disk writes whole or not at all.
const sector = 512

// Losing is an ssd.FS whose changes are lost with the power unless they were synced. It is stricter than any file
// system on Linux: files and directories keep what they keep independently of each other, so that a file may be there
// without its contents, and a later change of one directory without an earlier one of another. The writes to a file may
// reach the disk in any order, as where blocks are allocated late (xfs, ext4): what was lost before a later write reads
// as it was, or as zeros.
//
// It makes changes at once, and keeps what takes them back. Lose may be called when nobody uses it any more.
type Losing struct {
	ssd.FS
	attic string // directory of the same file system, for what was removed

	mu      sync.Mutex
	changes map[object][]change // what each file and directory has not synced, in its order
	handles map[object]*os.File // to reach them wherever they are by then
	kept    int                 // names taken in attic
}

// object is a file or a directory, whatever its name.
type object struct{ device, number uint64 }

// change is one that was made. undo takes it back, but for the first of its bytes that had reached the disk. redo makes
// it again.
type change struct {
	bytes int // 0: it happens as a whole
	undo  func(reached int) error
	redo  func() error // nil: of a directory, whose changes keep their order in a journal
}

// NewLosing returns a Losing over the real file system. attic is an empty directory of the file system that is written
// to.
func NewLosing(attic string) *Losing {
	return &Losing{FS: ssd.OS, attic: attic, changes: map[object][]change{}, handles: map[object]*os.File{}}
}

// Lose takes back, of each file and directory, some of the last changes that were not synced; of the first write that
// is taken back, some sectors have reached the disk. Of every second file it takes any of them back, not the last ones.
// It returns how many changes were taken back.
func (l *Losing) Lose(random *rand.Rand) (lost int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, changes := range l.changes {
		if changes[0].redo != nil && random.IntN(2) == 0 {
			n, failed := loseAny(random, changes)
			lost, err = lost+n, errors.Join(err, failed)
			delete(l.changes, of)
			continue
		}
		keep := random.IntN(len(changes) + 1)
		for i := len(changes) - 1; i >= keep; i-- {
			reached := 0
			if i == keep && changes[i].bytes > 0 {
				reached = min(random.IntN(changes[i].bytes/sector+2)*sector, changes[i].bytes)
			}
			err = errors.Join(err, changes[i].undo(reached))
			lost++
		}
		delete(l.changes, of)
	}
	for of, handle := range l.handles {
		err = errors.Join(err, handle.Close())
		delete(l.handles, of)
	}
	return lost, err
}

// loseAny takes any changes of a file back, and returns their number.
func loseAny(random *rand.Rand, changes []change) (lost int, err error) {
	for _, c := range slices.Backward(changes) {
		err = errors.Join(err, c.undo(0))
	}
	for _, c := range changes {
		if random.IntN(2) == 0 {
			lost++
		} else {
			err = errors.Join(err, c.redo())
		}
	}
	return lost, err
}

// hold returns an object and a handle of it that works under every name. Callers hold mu.
func (l *Losing) hold(path string) (object, *os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return object{}, nil, err
	}
	of := object{uint64(st.Dev), st.Ino}
	if handle := l.handles[of]; handle != nil {
		return of, handle, nil
	}
	flag := os.O_RDWR
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flag = os.O_RDONLY
	}
	handle, err := os.OpenFile(path, flag, 0)
	if err == nil {
		l.handles[of] = handle // which also keeps the number from being given to another file
	}
	return of, handle, err
}

// entry makes a change to a directory, the parent of path, that undo takes back.
func (l *Losing) entry(path string, do func() error, undo func(dir int, name string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, dir, holdErr := l.hold(filepath.Dir(path))
	if err := do(); err != nil {
		return err
	}
	if holdErr != nil {
		panic(holdErr) // the change was made there
	}
	l.changes[of] = append(l.changes[of], change{undo: func(int) error {
		return undo(int(dir.Fd()), filepath.Base(path))
	}})
	return nil
}

// spare returns an unused path in attic.
func (l *Losing) spare() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept++
	return filepath.Join(l.attic, strconv.Itoa(l.kept))
}

func unlink(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }

// Open implements ssd.FS.
func (l *Losing) Open(path string, flag int, perm uint32) (file ssd.File, err error) {
	open := func() error {
		file, err = l.FS.Open(path, flag, perm)
		return err
	}
	if _, missing := l.Lstat(path); missing != nil && flag&syscall.O_CREAT != 0 {
		err = l.entry(path, open, unlink)
	} else {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of, handle, err := l.hold(path)
	if err != nil { // a file that may not be written
		return file, nil
	}
	return &losingFile{File: file, fs: l, of: of, handle: handle}, nil
}

// Rename implements ssd.FS, within a directory.
func (l *Losing) Rename(from, to string) error {
	replaced := l.spare()
	if os.Link(to, replaced) != nil {
		replaced = "" // nothing is there, or an empty directory
	}
	return l.entry(to, func() error { return l.FS.Rename(from, to) }, func(dir int, name string) error {
		err := unix.Renameat(dir, name, dir, filepath.Base(from))
		if replaced != "" {
			err = errors.Join(err, unix.Renameat(unix.AT_FDCWD, replaced, dir, name))
		}
		return err
	})
}

// Exchange implements ssd.FS, within a directory.
func (l *Losing) Exchange(one, other string) error {
	return l.entry(one, func() error { return l.FS.Exchange(one, other) }, func(dir int, name string) error {
		return unix.Renameat2(dir, name, dir, filepath.Base(other), unix.RENAME_EXCHANGE)
	})
}

// Share implements ssd.FS.
func (l *Losing) Share(from, to string) error {
	return l.entry(to, func() error { return l.FS.Share(from, to) }, unlink)
}

// Mkdir implements ssd.FS.
func (l *Losing) Mkdir(path string, perm uint32) error {
	aside := l.spare()
	return l.entry(path, func() error { return l.FS.Mkdir(path, perm) }, func(dir int, name string) error {
		return unix.Renameat(dir, name, unix.AT_FDCWD, aside)
	})
}

// Remove implements ssd.FS.
func (l *Losing) Remove(path string) error {
	if info, err := l.Lstat(path); err == nil && info.IsDir {
		if names, err := l.ReadDir(path); err == nil && len(names) > 0 {
			return failure(Remove, path, -1, syscall.ENOTEMPTY)
		}
	}
	return l.takeAway(path)
}

// RemoveAll implements ssd.FS.
func (l *Losing) RemoveAll(path string) error {
	if err := l.takeAway(path); !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}

func (l *Losing) takeAway(path string) error {
	aside := l.spare()
	return l.entry(path, func() error {
		if err := unix.Rename(path, aside); err != nil {
			return failure(Remove, path, -1, err.(syscall.Errno))
		}
		return nil
	}, func(dir int, name string) error { return unix.Renameat(unix.AT_FDCWD, aside, dir, name) })
}

// SyncDir implements ssd.FS.
func (l *Losing) SyncDir(path string) error {
	if err := l.FS.SyncDir(path); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of, _, err := l.hold(path)
	delete(l.changes, of)
	return err
}

// losingFile is a file of a Losing.
type losingFile struct {
	ssd.File
	fs     *Losing
	of     object
	handle *os.File
}

// change makes a change to n bytes of the file from off on, or to its size, and keeps what was there. redo makes it
// again.
func (f *losingFile) change(off, n int64, do func() (int, error), redo func() error) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	info, err := f.handle.Stat()
	if err != nil {
		panic(err) // it is open
	}
	size := info.Size()
	old := make([]byte, min(n, max(size-off, 0)))
	if _, err := f.handle.ReadAt(old, off); err != nil {
		panic(err)
	}
	done, err := do()
	if err != nil {
		return done, err
	}
	f.fs.changes[f.of] = append(f.fs.changes[f.of], change{bytes: done, undo: func(reached int) error {
		if reached < len(old) {
			if _, err := f.handle.WriteAt(old[reached:], off+int64(reached)); err != nil {
				return err
			}
		}
		end := size
		if reached > 0 {
			end = max(size, off+int64(reached))
		}
		return f.handle.Truncate(end)
	}, redo: redo})
	return done, nil
}

// Pwrite implements ssd.File.
func (f *losingFile) Pwrite(p []byte, off int64) (int, error) {
	data := bytes.Clone(p)
	return f.change(off, int64(len(p)), func() (int, error) { return f.File.Pwrite(p, off) }, func() error {
		_, err := f.handle.WriteAt(data, off)
		return err
	})
}

// Truncate implements ssd.File.
func (f *losingFile) Truncate(size int64) error {
	_, err := f.change(size, 1<<40, func() (int, error) { return 0, f.File.Truncate(size) }, func() error {
		return f.handle.Truncate(size)
	})
	return err
}

// Allocate implements ssd.File.
func (f *losingFile) Allocate(off, n int64) error {
	_, err := f.change(off, 0, func() (int, error) { return 0, f.File.Allocate(off, n) }, func() error {
		info, err := f.handle.Stat()
		if err == nil && info.Size() < off+n {
			err = f.handle.Truncate(off + n)
		}
		return err
	})
	return err
}

// Sync implements ssd.File.
func (f *losingFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	delete(f.fs.changes, f.of)
	return nil
}
