package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"

	"freshgo/core/propagate"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

//export fg_convert_start
func fg_convert_start(in *C.fg_convert_input, path *C.char, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, "fg_convert_input")
		if err != nil {
			return err
		}
		input, err := convertInput(&opts)
		if err != nil {
			return err
		}
		target, memory, overwrite := C.GoString(path), int64(opts.memory), opts.overwrite != 0
		relayout := opts.relayout != nil
		order := C.GoString(opts.relayout) // empty where it is NULL
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			o := store.ConvertOptions{Memory: memory, Overwrite: overwrite, Progress: report}
			if !relayout {
				return result{}, store.Convert(ctx, ssd.OS, input, target, o)
			}
			draft, err := store.ConvertDraft(ctx, ssd.OS, input, target, order, o)
			if err != nil {
				return result{}, err
			}
			// What cannot be removed is left to the next conversion to the path.
			h := &storeHandle{shared: newShared(func() { _ = draft.Discard() }), store: draft.Store(), draft: draft}
			return opening(h, h.drop), nil
		})
		return nil
	})
}

//export fg_relayout_start
func fg_relayout_start(h *C.fg_store, in *C.fg_relayout_input, path *C.char, out **C.fg_job,
	err *C.fg_error) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		opts, err := sized(in, "fg_relayout_input")
		if err != nil {
			return nil, err
		}
		o := store.RelayoutOptions{
			Order: C.GoString(opts.order), HotRows: int64(opts.hot_rows), Memory: int64(opts.memory),
			Overwrite: opts.overwrite != 0,
		}
		var t taker
		if o.Scores = list[float32](&t, opts.scores, int64(opts.num_scores), "scores"); t.err != nil {
			return nil, t.err
		}
		if (path == nil) != (s.draft != nil) {
			return nil, invalid("the path is %q, expected a path for a published store and NULL for another",
				C.GoString(path))
		}
		target := C.GoString(path)
		return func(ctx context.Context, report report) (result, error) {
			o.Progress = report
			if s.draft != nil {
				return result{}, s.draft.Relayout(ctx, o)
			}
			return result{}, store.Relayout(ctx, s.store, target, o)
		}, nil
	})
}

//export fg_update_start
func fg_update_start(
	h *C.fg_store, in *C.fg_update_input, path *C.char, out **C.fg_job, err *C.fg_error,
) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		opts, err := sized(in, "fg_update_input")
		if err != nil {
			return nil, err
		}
		changes, err := updateChanges(&opts)
		if err != nil {
			return nil, err
		}
		o := store.ConvertOptions{Memory: int64(opts.memory), Overwrite: opts.overwrite != 0}
		target := C.GoString(path)
		return func(ctx context.Context, report report) (result, error) {
			o.Progress = report
			return result{}, store.Update(ctx, s.store, target, changes, o)
		}, nil
	})
}

//export fg_append_start
func fg_append_start(
	h *C.fg_store, in *C.fg_convert_input, path *C.char, out **C.fg_job, err *C.fg_error,
) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		opts, err := sized(in, "fg_convert_input")
		if err != nil {
			return nil, err
		}
		if opts.relayout != nil {
			return nil, invalid("relayout is %q, expected NULL: what is appended comes last", C.GoString(opts.relayout))
		}
		given, err := convertInput(&opts)
		if err != nil {
			return nil, err
		}
		more := store.Growth{Nodes: given.NodeTypes, Edges: given.EdgeTypes, Attachments: given.Attachments}
		o := store.ConvertOptions{Memory: int64(opts.memory), Overwrite: opts.overwrite != 0}
		target := C.GoString(path)
		return func(ctx context.Context, report report) (result, error) {
			o.Progress = report
			return result{}, store.Append(ctx, s.store, target, more, o)
		}, nil
	})
}

//export fg_propagate_start
func fg_propagate_start(h *C.fg_store, in *C.fg_propagate_input, out **C.fg_job, err *C.fg_error) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		opts, err := sized(in, "fg_propagate_input")
		if err != nil {
			return nil, err
		}
		o := propagate.Options{
			Tensor: text(opts.tensor, ""), Reduce: text(opts.reduce, ""), WeightAttr: text(opts.weight_attr, ""),
			Name: text(opts.name, ""), Hops: int(opts.hops), Memory: int64(opts.memory), Overwrite: opts.overwrite != 0,
		}
		var t taker
		relations := list[int64](&t, opts.relations, int64(opts.num_relations), "relations")
		if t.err != nil {
			return nil, t.err
		}
		if opts.relations != nil {
			o.Relations = []int{}
		}
		for _, place := range relations {
			o.Relations = append(o.Relations, int(place))
		}
		return func(ctx context.Context, report report) (result, error) {
			o.Progress = report
			_, err := propagate.Run(ctx, s.store, o)
			return result{}, err
		}, nil
	})
}
