// Package gpu talks to the driver of CUDA: which devices there are, what memory they have, and kernels queued on a
// stream.
//
// It works in primary contexts, as PyTorch does, and leaves a thread's current context as it was. It never
// synchronises, never allocates on a device and keeps nothing but a loaded module for each device, until the process
// ends. capi is its only user; the kernels come from csrc/cuda (FastGL, section 4). A launch costs what the driver
// takes for it, 2 to 3 µs, and under 1 µs here.
//
// The driver is reached by gorgonia.org/cu, with the build tag cuda; without it every function returns ErrUnavailable.
package gpu

import "errors"

// Errors of this package. What the driver says is wrapped in ErrDriver.
var (
	ErrUnavailable = errors.New("gpu: this build has no CUDA")
	ErrDriver      = errors.New("gpu: the CUDA driver failed")
	ErrDevice      = errors.New("gpu: no such device")
	ErrUnsuited    = errors.New("gpu: the device is too old")
)

// A Launch is a kernel and what it is queued with. Its one argument is a struct of 8-byte words.
type Launch struct {
	Kernel      string
	Blocks      int
	Threads     int // of a block
	SharedBytes int // of a block
	Words       []uint64
}
