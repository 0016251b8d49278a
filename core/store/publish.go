package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"freshgo/core/manifest"
)

// recoverReplaced repairs what a conversion left that was killed between the two renames of publish, or before it
// removed the old store.
func (s *site) recoverReplaced() error {
	aside := s.path + replacedSuffix
	if _, err := s.fs.Lstat(aside); errors.Is(err, syscall.ENOENT) {
		return nil
	} else if err != nil {
		return access(err)
	}
	if err := s.checkDirectory(aside); err != nil {
		return err
	}
	names, err := s.fs.ReadDir(aside)
	if err != nil { // what there is is not known: to say that it is no store would be wrong
		return access(err)
	}
	if len(names) == 0 || slices.Contains(names, removedName) {
		return s.removeReplaced(aside)
	}
	if err := s.checkStore(aside); err != nil {
		return err
	}
	if _, err = s.fs.Stat(s.path); errors.Is(err, syscall.ENOENT) {
		return s.fs.Rename(aside, s.path)
	}
	if err != nil {
		return access(err)
	}
	return s.removeReplaced(aside)
}

// removeReplaced removes a replaced store. It is marked first and until the end, so that after a kill the next
// conversion neither takes what is left for a store nor for somebody else's.
func (s *site) removeReplaced(aside string) error {
	mark := filepath.Join(aside, removedName)
	file, err := s.fs.Open(mark, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return access(err)
	}
	_ = file.Close() // nothing was written
	if err := s.removeAllBut(removedName, aside, s.fs.RemoveAll); err != nil {
		return err
	}
	if err := s.fs.Remove(mark); err != nil {
		return access(err)
	}
	return s.fs.Remove(aside)
}

// conclude publishes a store that was written as m, or discards it where there is an error.
func (s *site) conclude(ctx context.Context, m *manifest.Manifest, err error, overwrite bool) error {
	if err == nil {
		err = s.seal(m)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = s.publish(overwrite)
	}
	if err != nil {
		return errors.Join(err, s.discard())
	}
	return nil
}

// seal writes the manifest and makes the building directory a whole and durable store.
func (s *site) seal(m *manifest.Manifest) error {
	data, err := manifest.Encode(m)
	if err != nil {
		return err
	}
	if err := s.writeFile(manifest.Name, data); err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

// exchange gives the sealed directory and the store at the path each other's place: at every moment one of them is
// there, whole. It returns false where there is no store, or where the file system cannot. The old store has the lock
// file that tells a building directory, so that after a kill the next conversion removes it.
func (s *site) exchange() (bool, error) {
	info, err := s.fs.Lstat(s.path)
	if errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, access(err)
	}
	if !info.IsDir { // put there since checkTarget
		return false, s.noDirectory()
	}
	lock, err := s.fs.Open(filepath.Join(s.path, lockName), syscall.O_RDWR|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return false, access(err)
	}
	defer lock.Close()                                     // nothing was written
	if held, err := lock.Lock(true); err != nil || !held { // somebody adds a tensor, and finds the store replaced
		return false, err
	}
	// Or after a loss of power there might be the exchange without the lock file.
	if err := s.fs.SyncDir(s.path); err != nil {
		return false, err
	}
	err = s.fs.Exchange(s.dir, s.path)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		return false, nil
	}
	if errors.Is(err, syscall.EXDEV) { // nor can it be moved aside
		err = fmt.Errorf("store: %s lies in a lower layer of an overlay, where nothing can take its place: write to another "+
			"path, or remove it first: %w", s.path, err)
	}
	if err != nil {
		return false, access(err)
	}
	if err := s.fs.SyncDir(filepath.Dir(s.path)); err != nil {
		return false, errors.Join(err, s.fs.Exchange(s.dir, s.path))
	}
	aside := s.path + replacedSuffix
	if s.fs.Rename(s.dir, aside) == nil {
		_ = s.removeReplaced(aside) // as in publish
	}
	return true, nil
}

// publish puts the sealed directory at its path. An old store there stays whole until that moment, and comes back if it
// fails. Where the file system cannot exchange two directories, a loss of power between two renames leaves the old
// store beside its path, where the next conversion finds it.
func (s *site) publish(overwrite bool) error {
	aside := s.path + replacedSuffix
	replacing := false
	if overwrite {
		published, err := s.exchange()
		if err != nil {
			return err
		}
		if published {
			_ = s.fs.Remove(filepath.Join(s.path, lockName))
			_ = s.lock.Close()
			return nil
		}
		err = s.fs.Rename(s.path, aside)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return access(err)
		}
		replacing = err == nil
	}
	err := s.fs.Rename(s.dir, s.path)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTDIR) {
		err = fmt.Errorf("store: %s: %w: %w", s.path, ErrExists, err)
	} else if err != nil {
		err = access(err)
	} else if err = s.fs.SyncDir(filepath.Dir(s.path)); err != nil {
		err = errors.Join(err, s.fs.Rename(s.path, s.dir))
	}
	if err != nil {
		if replacing {
			err = errors.Join(err, s.fs.Rename(aside, s.path))
		}
		return err
	}
	// The store is published. What cannot be removed now does no harm, and the next conversion to this path removes it.
	if replacing {
		_ = s.removeReplaced(aside)
	}
	_ = s.fs.Remove(filepath.Join(s.path, lockName))
	_ = s.lock.Close()
	return nil
}
