package store

import (
	"errors"
	"fmt"
	"syscall"

	"freshgo/core/manifest"
)

// What can be wrong. Errors of this package wrap one of these, or come from below: *ssd.PathError with the errno
// (ENOSPC, EIO, ...), *mem.BudgetError, *guard.PanicError, or the context's error.
var (
	ErrNotFound   = errors.New("not found")
	ErrPermission = errors.New("permission denied")
	ErrExists     = errors.New("already exists")
	ErrBusy       = errors.New("another conversion is writing it")
	ErrInvalid    = errors.New("invalid input")
	ErrClosed     = errors.New("store is closed")
	ErrReplaced   = errors.New("store was replaced by another while open")
	ErrFormat     = manifest.ErrFormat  // a directory or file that freshgo did not write
	ErrVersion    = manifest.ErrVersion // written by a newer freshgo
	ErrCorrupt    = manifest.ErrCorrupt // always in a *CorruptError
)

// CorruptError names the damaged place of a store.
type CorruptError struct {
	Path   string
	Off    int64 // of the damaged block, or 0 when the file as a whole is wrong
	Reason string
}

// Error names file, offset and what was expected.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("store: %s at offset %d: %s: %v", e.Path, e.Off, e.Reason, ErrCorrupt)
}

// Unwrap makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// invalid returns an ErrInvalid that says what was expected and what came.
func invalid(format string, args ...any) error {
	return fmt.Errorf("store: %s: %w", fmt.Sprintf(format, args...), ErrInvalid)
}

// access adds ErrNotFound or ErrPermission to an error of the file system that means it.
func access(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("store: %w: %w", ErrNotFound, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("store: %w: %w", ErrPermission, err)
	}
	return err
}
