package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"unsafe"

	"freshgo/core/gpu"
	"freshgo/csrc/cuda"
)

// exportReady is like export, and refuses the call where the library has no device path.
func exportReady(out *C.fg_error, body func() error) C.int32_t {
	return export(out, func() error {
		if err := cuda.Ready(); err != nil {
			return err
		}
		return body()
	})
}

//export fg_cuda_probe
func fg_cuda_probe(numDevices, driver *C.int32_t, err *C.fg_error) C.int32_t {
	return exportReady(err, func() error {
		devices, version, err := gpu.Probe()
		*numDevices, *driver = C.int32_t(devices), C.int32_t(version)
		return err
	})
}

//export fg_cuda_memory
func fg_cuda_memory(device C.int32_t, freeBytes, totalBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return exportReady(err, func() error {
		free, total, err := gpu.Memory(int(device))
		*freeBytes, *totalBytes = C.int64_t(free), C.int64_t(total)
		return err
	})
}

//export fg_cuda_register_host
func fg_cuda_register_host(device C.int32_t, data unsafe.Pointer, n C.int64_t, address *unsafe.Pointer,
	err *C.fg_error) C.int32_t {
	return exportReady(err, func() error {
		if data == nil || n <= 0 {
			return invalid("%d bytes of host memory at %p", n, data)
		}
		return gpu.In(int(device), func() error {
			there, err := cuda.RegisterHost(data, int64(n))
			if err == nil {
				*address = there
			}
			return err
		})
	})
}

//export fg_cuda_unregister_host
func fg_cuda_unregister_host(device C.int32_t, data unsafe.Pointer, err *C.fg_error) C.int32_t {
	return exportReady(err, func() error {
		if data == nil {
			return invalid("no host memory")
		}
		return gpu.In(int(device), func() error { return cuda.UnregisterHost(data) })
	})
}

// queue plans a call and queues what it becomes.
func queue(on *C.fg_cuda_queue, err *C.fg_error, plan func(status uintptr) ([]gpu.Launch, error)) C.int32_t {
	return exportReady(err, func() error {
		q, err := sized(on, "fg_cuda_queue")
		if err != nil {
			return err
		}
		launches, err := plan(uintptr(unsafe.Pointer(q.status)))
		if err != nil {
			return err
		}
		return gpu.Queue(int(q.device), cuda.Image(), uintptr(q.stream), launches)
	})
}

//export fg_cuda_aggregate
func fg_cuda_aggregate(in *C.fg_aggregation, scratch unsafe.Pointer, scratchBytes *C.int64_t, on *C.fg_cuda_queue,
	err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) {
		return cuda.Aggregate(unsafe.Pointer(in), scratch, (*int64)(scratchBytes), status)
	})
}

//export fg_cuda_attention_forward
func fg_cuda_attention_forward(in *C.fg_attention, on *C.fg_cuda_queue, err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) {
		return cuda.Attention(unsafe.Pointer(in), false, status)
	})
}

//export fg_cuda_attention_back
func fg_cuda_attention_back(in *C.fg_attention, on *C.fg_cuda_queue, err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) {
		return cuda.Attention(unsafe.Pointer(in), true, status)
	})
}

//export fg_cuda_transpose
func fg_cuda_transpose(in *C.fg_transposition, scratch unsafe.Pointer, scratchBytes *C.int64_t, on *C.fg_cuda_queue,
	err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) {
		return cuda.Transpose(unsafe.Pointer(in), scratch, (*int64)(scratchBytes), status)
	})
}

//export fg_cuda_map
func fg_cuda_map(in *C.fg_mapping, scratch unsafe.Pointer, scratchBytes *C.int64_t, on *C.fg_cuda_queue,
	err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) {
		return cuda.Map(unsafe.Pointer(in), scratch, (*int64)(scratchBytes), status)
	})
}

//export fg_cuda_draw_count
func fg_cuda_draw_count(in *C.fg_drawing, scratch unsafe.Pointer, scratchBytes *C.int64_t, on *C.fg_cuda_queue,
	err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) {
		return cuda.DrawCount(unsafe.Pointer(in), scratch, (*int64)(scratchBytes), status)
	})
}

//export fg_cuda_draw
func fg_cuda_draw(in *C.fg_drawing, on *C.fg_cuda_queue, err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) { return cuda.Draw(unsafe.Pointer(in), status) })
}

//export fg_cuda_gather
func fg_cuda_gather(in *C.fg_gathering, on *C.fg_cuda_queue, err *C.fg_error) C.int32_t {
	return queue(on, err, func(status uintptr) ([]gpu.Launch, error) { return cuda.Gather(unsafe.Pointer(in), status) })
}
