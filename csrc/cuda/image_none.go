//go:build !cuda

package cuda

import (
	"unsafe"

	"freshgo/core/gpu"
)

// Image returns the kernels' machine code: none in this build.
func Image() []byte { return nil }

// Ready returns an error of one line if there is no driver.
func Ready() error { return gpu.ErrUnavailable }

// RegisterHost locks n bytes of host memory in place, for the current context, and returns their address there.
func RegisterHost(unsafe.Pointer, int64) (unsafe.Pointer, error) { return nil, gpu.ErrUnavailable }

// UnregisterHost undoes it.
func UnregisterHost(unsafe.Pointer) error { return gpu.ErrUnavailable }
