package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"freshgo/core/ssd"
	"freshgo/core/store"
)

//export fg_convert_start
func fg_convert_start(in *C.fg_convert_input, path *C.char, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, unsafe.Sizeof(*in), "fg_convert_input")
		if err != nil {
			return err
		}
		input := store.Input{NumNodes: int64(opts.num_nodes)}
		if input.EdgeIndex, err = source(&opts.edge_index, "edge_index"); err != nil {
			return err
		}
		if input.NodeTensors, err = sources(opts.node_tensors, opts.num_node_tensors, "node tensor"); err != nil {
			return err
		}
		if input.EdgeTensors, err = sources(opts.edge_tensors, opts.num_edge_tensors, "edge tensor"); err != nil {
			return err
		}
		splits, err := sources(opts.splits, opts.num_splits, "split")
		if err != nil {
			return err
		}
		input.Splits = make(map[string]store.Source, len(splits))
		for _, s := range splits {
			input.Splits[s.Name] = s.Source
		}
		target, memory, overwrite := C.GoString(path), int64(opts.memory), opts.overwrite != 0
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			return result{}, store.Convert(ctx, ssd.OS, input, target, store.ConvertOptions{
				Memory: memory, Overwrite: overwrite, Progress: report,
			})
		})
		return nil
	})
}
