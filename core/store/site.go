package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"

	"freshgo/core/manifest"
	"freshgo/core/ssd"
)

const (
	partialSuffix  = ".partial"  // where a store is built
	replacedSuffix = ".replaced" // where the old store is while a new one takes its place
	lockName       = "lock"      // in the partial directory: held by the process that builds there
	removedName    = "removed"   // in a replaced store: it is being removed, and what is left is no store
)

// site is the directory in which a store is built, beside its final path. While it is held, its lock file is locked,
// which tells a running conversion from the remains of a killed one: the system drops the lock with the process.
type site struct {
	fs   ssd.FS
	path string // of the store to be
	dir  string
	lock ssd.File
}

// prepareSite checks that path may be written, takes the building directory beside it, and removes what a killed
// conversion left there.
func prepareSite(fs ssd.FS, path string, overwrite bool) (*site, error) {
	path = filepath.Clean(path)
	s := &site{fs: fs, path: path, dir: path + partialSuffix}
	if err := s.checkParent(); err != nil {
		return nil, err
	}
	if err := s.checkOutside(); err != nil {
		return nil, err
	}
	if err := s.checkTarget(overwrite); err != nil {
		return nil, err
	}
	if err := s.acquire(); err != nil {
		return nil, err
	}
	err := s.removeAllBut(lockName, s.dir, s.fs.Remove)
	if err == nil {
		err = s.recoverReplaced()
	}
	if err == nil {
		// What recoverReplaced put back may be in the way.
		err = s.checkTarget(overwrite)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// checkParent returns an error unless the directory that the store is to be in is there.
func (s *site) checkParent() error {
	parent := filepath.Dir(s.path)
	info, err := s.fs.Stat(parent)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("store: there is no directory %s to write a store in, create it first: %w: %w", parent,
			ErrNotFound, err)
	case errors.Is(err, syscall.ENOTDIR) || err == nil && !info.IsDir:
		return fmt.Errorf("store: %s, to write a store in, is not a directory: %w: %w", parent, ErrNotFound,
			&ssd.PathError{Op: "stat", Path: parent, Off: -1, Err: syscall.ENOTDIR})
	case err != nil:
		return access(err)
	}
	return nil
}

// checkOutside returns an error if a directory above the path is a store: what is in it goes when it is replaced.
func (s *site) checkOutside() error {
	for path := s.path; path != filepath.Dir(path); {
		path = filepath.Dir(path)
		switch err := s.checkStore(path); {
		case err == nil:
			return invalid("%s is inside the store %s: write it elsewhere", s.path, path)
		case !errors.Is(err, ErrFormat):
			return err
		}
	}
	return nil
}

// checkTarget returns an error unless path is free or, with overwrite, a store.
func (s *site) checkTarget(overwrite bool) error {
	info, err := s.fs.Lstat(s.path)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return access(err)
	}
	if !overwrite {
		return fmt.Errorf("store: %s: %w; overwrite replaces it", s.path, ErrExists)
	}
	if !info.IsDir && !info.IsFile {
		return s.noDirectory()
	}
	return s.checkStore(s.path)
}

// noDirectory reports a link, or another thing that is no store, at the path. To replace a link by a store would leave
// behind it what it led to, or remove that.
func (s *site) noDirectory() error {
	return fmt.Errorf("store: %s is a link or no directory: give the path that it leads to, or remove it: %w", s.path,
		ErrExists)
}

// checkStore returns an error unless path is a store, damaged perhaps, but ours to replace.
func (s *site) checkStore(path string) error {
	file, err := s.fs.Open(filepath.Join(path, manifest.Name), syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("store: %s exists and is not replaced: %w", path, ErrFormat)
	}
	if err != nil {
		return access(err)
	}
	defer file.Close() // nothing was written
	header := make([]byte, manifest.HeaderBytes)
	err = ssd.ReadFull(file, header, 0)
	if err == nil && manifest.HasMagic(header) {
		return nil
	}
	return errors.Join(fmt.Errorf("store: %s exists and is not replaced: %w", path, ErrFormat), err)
}

// acquire makes the building directory and locks it.
func (s *site) acquire() error {
	// A conversion that ends may take directory or lock file away between two of our steps; each attempt then starts
	// afresh. The bound is arbitrary: a second attempt is already rare.
	for range 10 {
		err := s.fs.Mkdir(s.dir, 0o755)
		if err != nil && !errors.Is(err, syscall.EEXIST) {
			return access(err)
		}
		if err != nil {
			if err := s.checkOurs(); err != nil {
				return err
			}
		}
		made := err == nil
		held, err := s.tryLock()
		if err != nil && made && !errors.Is(err, ErrBusy) {
			// Nothing is in it yet. What cannot be removed does no harm: the next conversion takes it over.
			_ = s.fs.Remove(filepath.Join(s.dir, lockName))
			_ = s.fs.Remove(s.dir)
		}
		if held || err != nil {
			return err
		}
	}
	return fmt.Errorf("store: %s: %w", s.dir, ErrBusy)
}

// checkOurs returns an error unless the building directory that exists already was made by a conversion: it holds a
// lock file or nothing, or the mark of a store that was being removed, whose new name was lost with the power.
func (s *site) checkOurs() error {
	if err := s.checkDirectory(s.dir); err != nil {
		return err
	}
	names, err := s.fs.ReadDir(s.dir)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return access(err)
	}
	for _, name := range names {
		if name == lockName || name == removedName {
			return nil
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("store: %s is in the way and no conversion made it: %w", s.dir, ErrExists)
	}
	return nil
}

// checkDirectory returns an error unless a directory is at path, or nothing. A link is none: what it leads to may be
// anybody's, and files are removed from there.
func (s *site) checkDirectory(path string) error {
	info, err := s.fs.Lstat(path)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return nil
	case err != nil:
		return access(err)
	case !info.IsDir:
		return fmt.Errorf("store: %s is in the way and no directory: %w", path, ErrExists)
	}
	return nil
}

// tryLock locks the lock file; false means that it vanished and the caller tries again.
func (s *site) tryLock() (bool, error) {
	name := filepath.Join(s.dir, lockName)
	file, err := s.fs.Open(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o644)
	if errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, access(err)
	}
	held, err := file.Lock(true)
	if err == nil && !held {
		err = fmt.Errorf("store: %s: %w", s.dir, ErrBusy)
	}
	if err == nil {
		held, err = s.lockedStill(file, name)
	}
	if err != nil || !held {
		return false, errors.Join(err, file.Close())
	}
	s.lock = file
	return true, nil
}

// lockedStill reports whether a locked file is still the one at its path. The holder before us may have removed it or
// renamed its directory between our opening and our locking. A mark written through the descriptor must then be visible
// through the path.
func (s *site) lockedStill(file ssd.File, name string) (bool, error) {
	id, err := newUUID()
	if err != nil {
		return false, err
	}
	if err := ssd.WriteFull(file, id, 0); err != nil {
		return false, err
	}
	again, err := s.fs.Open(name, syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, access(err)
	}
	defer again.Close() // nothing was written
	seen := make([]byte, len(id))
	err = ssd.ReadFull(again, seen, 0)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return err == nil && string(seen) == string(id), err
}

func (s *site) writeFile(name string, data []byte) error {
	file, err := s.fs.Open(filepath.Join(s.dir, name), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, 0o644)
	if err != nil {
		return access(err)
	}
	err = ssd.WriteFull(file, data, 0)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// discard removes the building directory, the lock last: while it exists, others see that somebody is at work.
func (s *site) discard() error {
	err := s.removeAllBut(lockName, s.dir, s.fs.Remove)
	if err == nil {
		err = s.fs.Remove(filepath.Join(s.dir, lockName))
	}
	if err == nil {
		err = s.fs.Remove(s.dir)
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.ENOENT) {
			err = nil // the next conversion has it already
		}
	}
	return errors.Join(err, s.lock.Close())
}

// removeAllBut removes what is in a directory but one file, each by remove.
func (s *site) removeAllBut(keep, dir string, remove func(path string) error) error {
	names, err := s.fs.ReadDir(dir)
	if err != nil {
		return access(err)
	}
	for _, name := range names {
		if name == keep {
			continue
		}
		if err := remove(filepath.Join(dir, name)); err != nil {
			return access(err)
		}
	}
	return nil
}
