package main

/*
#cgo CFLAGS: -DFG_IN= -I${SRCDIR}/../csrc/include
#include "freshgo.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"unsafe"

	"freshgo/core/loader"
)

// poison is the first panic of the library, nil while there is none. After it nothing in here can be trusted, so every
// export refuses. Atomic: any goroutine may set it.
var poison atomic.Pointer[failure]

// notePanic records the first panic. It returns whether err is one.
func notePanic(err error) bool {
	var p *loader.PanicError
	if !errors.As(err, &p) {
		return false
	}
	poison.CompareAndSwap(nil, &failure{
		code:    C.FG_INTERNAL,
		message: fmt.Sprintf("freshgo: defect, please report: %v\n%s", p.Value, p.Stack),
	})
	return true
}

// recovered calls fn and returns its error, or a *loader.PanicError where it panicked.
func recovered(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &loader.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// export runs the body of an exported function: it refuses when the library is poisoned, recovers a panic and maps the
// error. FG_TIMEOUT and FG_END come as the errors errTimeout and errEnd.
func export(out *C.fg_error, body func() error) C.int32_t {
	f := poison.Load()
	if f == nil {
		err := recovered(body)
		if err == nil {
			return C.FG_OK
		}
		if notePanic(err) {
			f = poison.Load()
		} else {
			f = failureOf(err)
		}
	}
	f.write(out)
	return C.int32_t(f.code)
}

// write fills the caller's struct, which may be absent.
func (f *failure) write(out *C.fg_error) {
	if out == nil {
		return
	}
	out.code = C.int32_t(f.code)
	out.sys_errno = C.int32_t(f.errno)
	out.minimum = C.int64_t(f.minimum)
	message := strings.ToValidUTF8(f.message, "\uFFFD")
	writeText(unsafe.Slice((*byte)(unsafe.Pointer(&out.message)), len(out.message)), message) // the array of this struct
	writeText(unsafe.Slice((*byte)(unsafe.Pointer(&out.path)), len(out.path)), f.path)        // the array of this struct
}
