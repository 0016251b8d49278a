//go:build cuda

package cuda

/*
#cgo LDFLAGS: -lcuda -ldl -lpthread
#include <stddef.h>
#include "driver/driver.h"

// Of the driver's header, which only what gorgonia.org/cu leaves out is needed of.
int cuMemHostRegister_v2(void *p, size_t n_bytes, unsigned flags);
int cuMemHostUnregister(void *p);
int cuMemHostGetDevicePointer_v2(unsigned long long *address, void *p, unsigned flags);

// For every context, and readable by kernels.
enum { PORTABLE = 1, DEVICEMAP = 2 };
*/
import "C"

import (
	_ "embed"
	"errors"
	"fmt"
	"unsafe"

	"freshgo/core/gpu"
)

// Machine code for sm_80, 86, 89, 90 and 100, and PTX that later devices compile for themselves. `make cuda` writes it.
//
//go:embed kernels.fatbin
var image []byte

// Image returns the kernels' machine code.
func Image() []byte { return image }

// Ready returns an error of one line if there is no driver.
func Ready() error {
	if why := C.fgc_driver(); why != nil {
		return fmt.Errorf("%w: %w", gpu.ErrDriver, errors.New(C.GoString(why)))
	}
	return nil
}

// RegisterHost locks n bytes of host memory in place, for the current context, and returns their address there.
func RegisterHost(data unsafe.Pointer, n int64) (unsafe.Pointer, error) {
	if code := C.cuMemHostRegister_v2(data, C.size_t(n), C.PORTABLE|C.DEVICEMAP); code != 0 {
		return nil, fmt.Errorf("%w: registering %d bytes of host memory: CUresult %d", gpu.ErrDriver, n, code)
	}
	var address unsafe.Pointer
	// An address has 64 bits on both sides.
	if code := C.cuMemHostGetDevicePointer_v2((*C.ulonglong)(unsafe.Pointer(&address)), data, 0); code != 0 {
		C.cuMemHostUnregister(data)
		return nil, fmt.Errorf("%w: mapping registered memory: CUresult %d", gpu.ErrDriver, code)
	}
	return address, nil
}

// UnregisterHost undoes it.
func UnregisterHost(data unsafe.Pointer) error {
	if code := C.cuMemHostUnregister(data); code != 0 {
		return fmt.Errorf("%w: unregistering host memory: CUresult %d", gpu.ErrDriver, code)
	}
	return nil
}
