package loader

import "freshgo/core/internal/guard"

// PanicError is the error of Next, NewGraph, Open and the functions of package store where a goroutine of core
// panicked. It is named here for callers outside core, which cannot import its package.
type PanicError = guard.PanicError
