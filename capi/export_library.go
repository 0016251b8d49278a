package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"unsafe"

	"freshgo/csrc"
)

//export fg_version
func fg_version(out *C.fg_version_info, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		*out = C.fg_version_info{
			abi:                  C.FG_ABI_VERSION,
			size_error:           C.sizeof_fg_error,
			size_counters_info:   C.sizeof_fg_counters_info,
			size_array:           C.sizeof_fg_array,
			size_tensor:          C.sizeof_fg_tensor,
			size_progress:        C.sizeof_fg_progress,
			size_graph_input:     C.sizeof_fg_graph_input,
			size_convert_input:   C.sizeof_fg_convert_input,
			size_loader_options:  C.sizeof_fg_loader_options,
			size_loader_details:  C.sizeof_fg_loader_details,
			size_batch:           C.sizeof_fg_batch,
			size_python_api:      C.sizeof_fg_python_api,
			size_simulation:      C.sizeof_fg_simulation,
			size_relayout_input:  C.sizeof_fg_relayout_input,
			size_history_options: C.sizeof_fg_history_options,
			size_history_layer:   C.sizeof_fg_history_layer,
			size_node_type:       C.sizeof_fg_node_type,
			size_edge_type:       C.sizeof_fg_edge_type,
		}
		return nil
	})
}

//export fg_counters
func fg_counters(out *C.fg_counters_info, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		live, liveBytes, pooledBytes := csrc.Counters()
		*out = C.fg_counters_info{
			stores:       C.int64_t(handles.count((*storeHandle)(nil).kind())),
			graphs:       C.int64_t(handles.count((*graphHandle)(nil).kind())),
			loaders:      C.int64_t(handles.count((*loaderHandle)(nil).kind())),
			jobs:         C.int64_t(handles.count((*job)(nil).kind())),
			buffers:      C.int64_t(live),
			buffer_bytes: C.int64_t(liveBytes),
			pooled_bytes: C.int64_t(pooledBytes),
		}
		return nil
	})
}

//export fg_job_wait
func fg_job_wait(h *C.fg_job, timeoutMS C.int32_t, out *C.fg_progress, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(j *job) error {
		p, result, err := j.wait(int32(timeoutMS))
		writeProgress(out, p)
		out.result = result
		return err
	})
}

func writeProgress(out *C.fg_progress, p progress) {
	*out = C.fg_progress{done: C.int64_t(p.done), total: C.int64_t(p.total)}
	writeText(unsafe.Slice((*byte)(unsafe.Pointer(&out.stage)), len(out.stage)), p.stage) // the array of this struct
}

//export fg_job_cancel
func fg_job_cancel(h *C.fg_job, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(j *job) error {
		j.cancel()
		return nil
	})
}

//export fg_job_close
func fg_job_close(h *C.fg_job, err *C.fg_error) C.int32_t {
	return closing(unsafe.Pointer(h), err, (*job).close)
}
