//go:build liburing

package main

/*
#cgo LDFLAGS: -luring
#include <stdlib.h>
#include "rival.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

var rivalRead = func(c config, offsets []int64, registered bool) error {
	path := C.CString(c.path)
	defer C.free(unsafe.Pointer(path)) // allocated by CString
	mode := C.int(0)
	if registered {
		mode = 1
	}
	// offsets is read during the call only.
	rc := C.rival_read(path, (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(offsets))), C.int64_t(len(offsets)),
		C.int(c.block), C.int(c.depth), mode)
	if rc < 0 {
		return fmt.Errorf("liburing loop: %w", syscall.Errno(-rc))
	}
	return nil
}
