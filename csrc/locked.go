package csrc

/*
#include "lock.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// lockedRange is memory that Allocator.Lock has locked.
type lockedRange struct {
	lock  unsafe.Pointer // what fgi_unlock takes; C memory
	users int
}

var (
	locking sync.Mutex // guards locked
	// locked counts the users of memory by its place: a driver locks memory once, and several loaders may have one graph.
	locked = map[span]*lockedRange{}
)

type span struct {
	data unsafe.Pointer // never Go memory
	n    int
}

// Lock locks memory in place until unlock is called, if the allocator's memory is locked too and the system allows it:
// else it returns nil.
func (a Allocator) Lock(data []byte) (unlock func()) {
	if !a.Locked || len(data) == 0 {
		return nil
	}
	at := span{unsafe.Pointer(unsafe.SliceData(data)), len(data)}
	locking.Lock()
	defer locking.Unlock()
	r := locked[at]
	if r == nil {
		lock := C.fgi_lock(at.data, C.size_t(at.n))
		if lock == nil {
			return nil
		}
		r = &lockedRange{lock: unsafe.Pointer(lock)}
		locked[at] = r
	}
	r.users++
	return func() {
		locking.Lock()
		defer locking.Unlock()
		if r.users--; r.users == 0 {
			C.fgi_unlock(r.lock, at.data)
			delete(locked, at)
		}
	}
}
