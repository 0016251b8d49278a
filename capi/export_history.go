package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"freshgo/core/loader"
	"freshgo/core/mem"
	"freshgo/core/prune"
	"freshgo/csrc"
)

//export fg_history_buffer
func fg_history_buffer(h *C.fg_loader, versioned C.int32_t, out *C.fg_tensor, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		*out = C.fg_tensor{}
		return l.alone(func() error {
			buffer, err := l.loader.HistoryBuffer()
			if err != nil || buffer == nil {
				return err
			}
			return giveBytes(buffer, versioned, out)
		})
	})
}

// giveBytes makes a tensor of a buffer, which it then holds too.
func giveBytes(buffer mem.Buffer, versioned C.int32_t, out *C.fg_tensor) error {
	shape := []int64{int64(len(buffer.Bytes()))}
	t, err := buffer.(*csrc.Buffer).Tensor("history", csrc.DType{Code: C.kDLUInt, Bits: 8}, shape, versioned != 0)
	if err == nil {
		*out = C.fg_tensor{name: (*C.char)(t.Name), managed: t.Managed}
	}
	return err
}

//export fg_history_update
func fg_history_update(h *C.fg_loader, iteration, rowBytes C.int64_t, layers *C.fg_history_layer, numLayers,
	timeoutMS C.int32_t, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		var t taker
		raw := list[C.fg_history_layer](&t, layers, int64(numLayers), "layers")
		norms := make([]prune.Norms, len(raw))
		for i := range raw {
			layer := &raw[i]
			layer.num_admitted = 0
			norms[i].Computed = list[float32](&t, layer.computed, int64(layer.num_computed), "norms")
			norms[i].Hits = list[float32](&t, layer.hits, int64(layer.num_hits), "norms")
			if layer.num_computed > 0 && (layer.rows == nil || layer.slots == nil) {
				return invalid("layer %d has no room for the rows that are kept", i+1)
			}
		}
		if t.err != nil {
			return t.err
		}
		return l.within(l.step, int32(timeoutMS), func(ctx context.Context) error {
			if len(norms) == 0 {
				return l.loader.SkipHistory(ctx, int64(iteration))
			}
			admitted, err := l.loader.UpdateHistory(ctx, int64(iteration), int64(rowBytes), norms)
			if err != nil {
				return err
			}
			for i, a := range admitted {
				rows := unsafe.Slice((*int64)(raw[i].rows), raw[i].num_computed)
				slots := unsafe.Slice((*int64)(raw[i].slots), raw[i].num_computed)
				for k, row := range a.Rows {
					rows[k], slots[k] = int64(row), int64(a.Slots[k])
				}
				raw[i].num_admitted = C.int64_t(len(a.Rows))
			}
			return nil
		})
	})
}

//export fg_history_begin
func fg_history_begin(h *C.fg_loader, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		return l.within(l.step, -1, func(context.Context) error { return loader.BeginStep(l.loader) })
	})
}

//export fg_history_end
func fg_history_end(h *C.fg_loader, timeoutMS C.int32_t, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		return l.within(l.step, int32(timeoutMS), func(ctx context.Context) error { return loader.EndStep(ctx, l.loader) })
	})
}

//export fg_history_stats
func fg_history_stats(h *C.fg_loader, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return writing(unsafe.Pointer(h), out, capacity, nBytes, err, func(l *loaderHandle) (any, error) {
		return l.loader.HistoryStats()
	})
}

//export fg_history_forecast
func fg_history_forecast(h *C.fg_loader, epoch, firstBatch C.int64_t, numLayers, timeoutMS C.int32_t,
	counts *C.int64_t, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		var t taker
		out := list[int64](&t, counts, 4+2*int64(numLayers), "counts")
		if t.err != nil {
			return t.err
		}
		return l.within(l.turn, int32(timeoutMS), func(ctx context.Context) error {
			found, err := l.loader.ForecastHistory(ctx, int64(epoch), int64(firstBatch))
			if err != nil {
				return err
			}
			if 4+2*len(found.Hits) != len(out) {
				return fmt.Errorf("%w: counts of %d hidden layers, expected %d", prune.ErrCall, numLayers, len(found.Hits))
			}
			copy(out, []int64{found.Rows, found.PlainRows, found.Edges, found.PlainEdges})
			for i := range found.Hits {
				out[4+2*i], out[5+2*i] = found.Hits[i], found.Misses[i]
			}
			return nil
		})
	})
}

//export fg_history_bound
func fg_history_bound(h *C.fg_loader, stale C.int64_t, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		return l.alone(func() error { return loader.BoundHistory(l.loader, int64(stale)) })
	})
}

//export fg_history_save
func fg_history_save(h *C.fg_loader, versioned C.int32_t, out *C.fg_tensor, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		*out = C.fg_tensor{}
		state, err := l.loader.SaveHistory()
		if err != nil {
			return err
		}
		buffer, err := csrc.Allocator{}.Acquire(int64(len(state)))
		if err != nil {
			return err
		}
		defer buffer.Release()
		copy(buffer.Bytes(), state)
		return giveBytes(buffer, versioned, out)
	})
}

//export fg_history_restore
func fg_history_restore(h *C.fg_loader, data unsafe.Pointer, nBytes C.int64_t, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		if nBytes < 0 || nBytes > 0 && data == nil {
			return invalid("%d bytes at %p", nBytes, data)
		}
		state := unsafe.Slice((*byte)(data), nBytes) // as long as the caller says
		return l.alone(func() error { return l.loader.RestoreHistory(state) })
	})
}
