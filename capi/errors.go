package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"unicode/utf8"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/gpu"
	"freshgo/core/history"
	"freshgo/core/loader"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/prune"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
	"freshgo/csrc/cuda"
)

// Errors of the boundary itself.
var (
	errTimeout  = errors.New("freshgo: not finished in time")
	errEnd      = errors.New("freshgo: end of the epoch")
	errClosed   = errors.New("freshgo: closed")
	errArgument = errors.New("freshgo: invalid argument")
	errDType    = errors.New("freshgo: unusable dtype")
)

// failure holds the contents of an fg_error.
type failure struct {
	code    int32
	errno   syscall.Errno
	minimum int64
	message string
	path    string
}

// codes maps errors of every package to codes; the first match counts. Errors of the file system come after it.
var codes = []struct {
	err  error
	code int32
}{
	{errTimeout, C.FG_TIMEOUT},
	{errEnd, C.FG_END},
	{errClosed, C.FG_CLOSED},
	{errArgument, C.FG_INVALID},
	{errDType, C.FG_DTYPE},
	{context.Canceled, C.FG_CANCELLED},

	{store.ErrCorrupt, C.FG_CORRUPT},
	{store.ErrVersion, C.FG_VERSION},
	{store.ErrFormat, C.FG_FORMAT},
	{store.ErrExists, C.FG_EXISTS},
	{store.ErrBusy, C.FG_BUSY},
	{store.ErrNotFound, C.FG_NOT_FOUND},
	{store.ErrPermission, C.FG_PERMISSION},
	{store.ErrInvalid, C.FG_INVALID},
	{store.ErrClosed, C.FG_CLOSED},
	{store.ErrReplaced, C.FG_CLOSED},

	{embed.ErrLost, C.FG_WRITE},
	{embed.ErrBusy, C.FG_BUSY},
	{embed.ErrInvalid, C.FG_INVALID},
	{embed.ErrInUse, C.FG_INVALID},
	{embed.ErrToken, C.FG_INVALID},
	{embed.ErrClosed, C.FG_CLOSED},

	{mem.ErrBudget, C.FG_BUDGET},

	{cache.ErrHotness, C.FG_INVALID},
	{cache.ErrPolicy, C.FG_INVALID},
	{cache.ErrCapacity, C.FG_INVALID},
	{plan.ErrConfig, C.FG_INVALID},

	{draw.ErrOption, C.FG_INVALID},
	{prune.ErrCall, C.FG_INVALID},
	{history.ErrConfig, C.FG_INVALID},
	{history.ErrRow, C.FG_INVALID},
	{history.ErrState, C.FG_FORMAT},
	{loader.ErrClosed, C.FG_CLOSED},
	{loader.ErrNoEpoch, C.FG_CLOSED},
	{sample.ErrFanout, C.FG_INVALID},
	{sample.ErrConfig, C.FG_INVALID},
	{sample.ErrSeed, C.FG_INVALID},
	{sample.ErrGraph, C.FG_INVALID},
	{sample.ErrTooLarge, C.FG_INVALID},
	{sample.ErrNegative, C.FG_INVALID},
	{ssd.ErrRefused, C.FG_INVALID},
	{ssd.ErrClosed, C.FG_CLOSED},

	{gpu.ErrUnavailable, C.FG_CUDA},
	{gpu.ErrDriver, C.FG_CUDA},
	{gpu.ErrUnsuited, C.FG_CUDA},
	{gpu.ErrDevice, C.FG_INVALID},

	// A file that is shorter than it was said to be.
	{io.ErrUnexpectedEOF, C.FG_CORRUPT},
}

// systemCodes maps what the system said where no package gave it a meaning; any other errno is a failed read or write.
var systemCodes = map[syscall.Errno]int32{
	syscall.ENOENT:  C.FG_NOT_FOUND,
	syscall.ENOTDIR: C.FG_NOT_FOUND,
	syscall.EEXIST:  C.FG_EXISTS,
	syscall.EACCES:  C.FG_PERMISSION,
	syscall.EPERM:   C.FG_PERMISSION,
	syscall.EROFS:   C.FG_PERMISSION,
	syscall.ENOMEM:  C.FG_BUDGET,
}

// reads are the operations of a PathError that only read; all others change something.
var reads = map[string]bool{"open": true, "read": true, "stat": true, "readdir": true, "lock": true}

// failureOf maps any error but a panic.
func failureOf(err error) *failure {
	f := &failure{code: C.FG_INTERNAL, message: err.Error()}
	var budget *mem.BudgetError
	if errors.As(err, &budget) {
		f.minimum = budget.Minimum()
	}
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		f.path = corrupt.Path
	}
	var path *ssd.PathError
	isPath := errors.As(err, &path)
	if isPath {
		f.path = path.Path
	}
	isErrno := errors.As(err, &f.errno)
	var refused *cuda.Refused
	if errors.As(err, &refused) {
		f.code = refused.Code
		return f
	}

	for _, c := range codes {
		if errors.Is(err, c.err) {
			f.code = c.code
			return f
		}
	}
	code, known := systemCodes[f.errno]
	switch {
	case known:
		f.code = code
	case isPath && !reads[path.Op]:
		f.code = C.FG_WRITE
	case isPath || isErrno:
		f.code = C.FG_READ
	}
	return f
}

// invalid returns an errArgument that says what was expected and what came.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errArgument, fmt.Sprintf(format, args...))
}

// writeText writes as much of text as fits, whole characters only, and a zero. Bytes that are no UTF-8 stay: paths may
// have them.
func writeText(out []byte, text string) {
	n := min(len(text), len(out)-1)
	for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	out[copy(out, text[:n])] = 0
}
