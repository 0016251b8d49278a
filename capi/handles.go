package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/mattn/go-pointer"
)

// handles is every handle that a caller holds.
//
// go-pointer gives each the address of a C byte and would give a freed address out again, so that a caller who closes
// twice might close a stranger. Therefore the addresses of closed handles are kept, and their bytes freed only after
// recentlyClosed later ones.
var handles = newHandleTable()

// recentlyClosed is the number of closed handles that are still recognised. Arbitrary; each costs about 100 bytes.
const recentlyClosed = 1 << 14

type handleTable struct {
	mu     sync.Mutex // guards closed and live, and the object of every handle
	closed []unsafe.Pointer
	next   int // of closed: the oldest
	live   map[string]int64
}

// handle is the value that go-pointer keeps. The object is nil after closing; its kind stays.
type handle struct {
	kind   string
	object any
}

func newHandleTable() *handleTable { return &handleTable{live: map[string]int64{}} }

// object is a Go value behind a handle; its kind is the word for it in messages.
type object interface{ kind() string }

// add makes a handle. The caller of the library closes it.
func (t *handleTable) add(o object) unsafe.Pointer {
	t.mu.Lock()
	t.live[o.kind()]++
	t.mu.Unlock()
	return pointer.Save(&handle{kind: o.kind(), object: o})
}

// restore finds a handle under the lock.
func restore[T object](p unsafe.Pointer) (*handle, T, error) {
	var none T
	if p == nil {
		return nil, none, invalid("the %s is NULL", none.kind())
	}
	h, ok := pointer.Restore(p).(*handle)
	if !ok {
		return nil, none, fmt.Errorf("%w: the %s is closed", errClosed, none.kind())
	}
	if h.kind != none.kind() {
		return nil, none, invalid("expected a %s, got a %s", none.kind(), h.kind)
	}
	if h.object == nil {
		return nil, none, fmt.Errorf("%w: the %s is closed", errClosed, none.kind())
	}
	return h, h.object.(T), nil
}

// find returns the object of a handle.
func find[T object](t *handleTable, p unsafe.Pointer) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, o, err := restore[T](p)
	return o, err
}

// remove ends a handle and returns its object, to exactly one caller.
func remove[T object](t *handleTable, p unsafe.Pointer) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, o, err := restore[T](p)
	if err != nil {
		return o, err
	}
	h.object = nil
	t.live[h.kind]--
	if len(t.closed) < recentlyClosed {
		t.closed = append(t.closed, p)
	} else {
		pointer.Unref(t.closed[t.next])
		t.closed[t.next] = p
		t.next = (t.next + 1) % recentlyClosed
	}
	return o, nil
}

// count returns the number of live handles of a kind.
func (t *handleTable) count(kind string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[kind]
}

// opening returns the result of a job that opened an object: a handle, which free undoes where nobody takes it.
func opening[T object](o T, free func()) result {
	p := handles.add(o)
	return result{pointer: p, discard: func() {
		if _, err := remove[T](handles, p); err == nil {
			free()
		}
	}}
}

// with runs the body of an exported function over the object of a handle.
func with[T object](h unsafe.Pointer, err *C.fg_error, body func(T) error) C.int32_t {
	return export(err, func() error {
		o, err := find[T](handles, h)
		if err != nil {
			return err
		}
		return body(o)
	})
}

// closing is like with, and ends the handle.
func closing[T object](h unsafe.Pointer, err *C.fg_error, body func(T) error) C.int32_t {
	return export(err, func() error {
		o, err := remove[T](handles, h)
		if err != nil {
			return err
		}
		return body(o)
	})
}

// writing is like with, and writes the value as JSON to a caller's buffer, if it fits, and its length.
func writing[T object](
	h unsafe.Pointer, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error, value func(T) (any, error),
) C.int32_t {
	return with(h, err, func(o T) error {
		v, err := value(o)
		if err != nil {
			return err
		}
		n, err := writeJSON(v, unsafe.Pointer(out), int64(capacity))
		*nBytes = C.int64_t(n)
		return err
	})
}
