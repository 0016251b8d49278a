// Package guard starts goroutines whose panics come back as errors.
//
// A panic that leaves a goroutine ends the whole process, and with it the Python interpreter that loaded the library.
// So core starts goroutines only through Go and Group (a test in core/internal/lint enforces it), and the exported C
// functions wrap their work in Run. All turn a panic into a *PanicError that carries the stack of the place where it
// happened.
//
// Cost: one deferred call for each goroutine or Run. Fatal runtime errors (concurrent map writes, out of memory) and
// runtime.Goexit are not panics and pass through.
package guard

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a recovered panic: a broken invariant, never bad input.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the goroutine that panicked
}

// Error gives the value without the stack: messages cross the C boundary in a buffer of fixed size.
func (e *PanicError) Error() string { return fmt.Sprintf("guard: recovered panic: %v", e.Value) }

// Unwrap gives the value where it is an error, a runtime.Error for instance, so that errors.As finds it.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Run calls fn and returns its error, or a *PanicError where it panicked.
func Run(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	return fn()
}

// panicError wraps a recovered value. A panic that Split has passed on keeps the stack of its origin.
func panicError(v any) *PanicError {
	if p, again := v.(*PanicError); again {
		return p
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}

// Go runs fn on a new goroutine. If fn panics, onPanic runs on that goroutine after the deferred calls of fn, so a
// WaitGroup that fn marks done by defer may be awake before onPanic: report completion from onPanic too, or mark done
// in a wrapper around both. onPanic must not be nil and must not panic.
func Go(fn func(), onPanic func(*PanicError)) {
	go func() {
		defer func() {
			if v := recover(); v != nil {
				onPanic(panicError(v))
			}
		}()
		fn()
	}()
}
