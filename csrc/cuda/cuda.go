// Package cuda is the device path's C side seen from Go: which kernels a call of the C API becomes, and their machine
// code.
//
// It guarantees that what it plans is what the kernels expect, because both are built from the same headers (args.h,
// instances.h), and that planning reads the caller's struct and nothing behind it. The kernels (aggregate.h,
// attention.h, dot.h, sort.h, map.h, draw.h, labor.h, weighted.h, gather.h: FastGL, sections 4.2 and 4.3) are C++
// against warp.h, which is the device for nvcc and an emulator for any other compiler: their logic is tested here
// without a device, and their machine code is there with the build tag cuda only, after `make cuda`. capi is the only
// user. A plan costs one call into C, about 200 ns, and 5 KB on the stack of the caller.
package cuda

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -I${SRCDIR}/../include
#include "plan.h"
*/
import "C"

import (
	"embed"
	"unsafe"

	"freshgo/core/gpu"
)

// Embedding the headers makes a change to them rebuild this package, see csrc.
//
//go:embed *.h driver
var _ embed.FS

// Refused is the error of a call with an argument that cannot work. Code is an error code of the C API.
type Refused struct {
	Code    int32
	Message string
}

// Error implements error.
func (r *Refused) Error() string { return r.Message }

// The structs below come from freshgo.h. cgo makes a type of its own for each in every package, so they are passed as
// pointers without a type.

// Aggregate plans fg_cuda_aggregate. `in` is an *fg_aggregation, scratch its memory of n bytes, status a word of the
// device or 0. Without scratch there is nothing to launch and *n becomes what is needed.
func Aggregate(in, scratch unsafe.Pointer, n *int64, status uintptr) ([]gpu.Launch, error) {
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_aggregate((*C.fg_aggregation)(in), scratch, (*C.int64_t)(n), C.uintptr_t(status), p)
	})
}

// Attention plans fg_cuda_attention_forward or fg_cuda_attention_back. `in` is an *fg_attention.
func Attention(in unsafe.Pointer, back bool, status uintptr) ([]gpu.Launch, error) {
	var which C.int32_t
	if back {
		which = 1
	}
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_attention((*C.fg_attention)(in), which, C.uintptr_t(status), p)
	})
}

// Transpose plans fg_cuda_transpose. `in` is an *fg_transposition, scratch as for Aggregate.
func Transpose(in, scratch unsafe.Pointer, n *int64, status uintptr) ([]gpu.Launch, error) {
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_transpose((*C.fg_transposition)(in), scratch, (*C.int64_t)(n), C.uintptr_t(status), p)
	})
}

// Map plans fg_cuda_map. `in` is an *fg_mapping, scratch as for Aggregate.
func Map(in, scratch unsafe.Pointer, n *int64, status uintptr) ([]gpu.Launch, error) {
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_map((*C.fg_mapping)(in), scratch, (*C.int64_t)(n), C.uintptr_t(status), p)
	})
}

// DrawCount plans fg_cuda_draw_count. `in` is an *fg_drawing, scratch as for Aggregate.
func DrawCount(in, scratch unsafe.Pointer, n *int64, status uintptr) ([]gpu.Launch, error) {
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_draw_count((*C.fg_drawing)(in), scratch, (*C.int64_t)(n), C.uintptr_t(status), p)
	})
}

// Draw plans fg_cuda_draw. `in` is an *fg_drawing.
func Draw(in unsafe.Pointer, status uintptr) ([]gpu.Launch, error) {
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_draw((*C.fg_drawing)(in), C.uintptr_t(status), p)
	})
}

// Gather plans fg_cuda_gather. `in` is an *fg_gathering.
func Gather(in unsafe.Pointer, status uintptr) ([]gpu.Launch, error) {
	return launches(func(p *C.fgc_plan) C.int32_t {
		return C.fgc_plan_gather((*C.fg_gathering)(in), C.uintptr_t(status), p)
	})
}

func launches(plan func(*C.fgc_plan) C.int32_t) ([]gpu.Launch, error) {
	var p C.fgc_plan
	if code := plan(&p); code != C.FG_OK {
		return nil, &Refused{Code: int32(code), Message: C.GoString(&p.message[0])}
	}
	list := make([]gpu.Launch, p.num_launches)
	for i := range list {
		l := &p.launches[i]
		list[i] = gpu.Launch{Kernel: C.GoString(&l.kernel[0]), Blocks: int(l.blocks), Threads: C.FGC_THREADS,
			SharedBytes: int(l.shared_bytes)}
		for _, w := range l.words[:l.num_words] {
			list[i].Words = append(list[i].Words, uint64(w))
		}
	}
	return list, nil
}
