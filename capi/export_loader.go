package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"cmp"
	"context"
	"unsafe"

	"freshgo/core/loader"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// options copies a caller's options, but for the seeds, the hotness and what he holds, which stay where they are.
func options(in *C.fg_loader_options) (loader.Options, error) {
	o, err := sized(in, unsafe.Offsetof(in.memory), "fg_loader_options")
	if err != nil {
		return loader.Options{}, err
	}
	byRelation, err := relationFanouts(&o)
	if err != nil {
		return loader.Options{}, err
	}
	if byRelation != nil {
		o.fanouts = nil
	}
	if o.num_hops < 0 || (o.num_hops > 0 && o.fanouts == nil && byRelation == nil) {
		return loader.Options{}, invalid("%d fanouts at %p", o.num_hops, o.fanouts)
	}
	numFanouts := o.num_hops
	if byRelation != nil {
		numFanouts = 0
	}
	out := loader.Options{
		Fanouts:       append([]int64{}, unsafe.Slice((*int64)(o.fanouts), numFanouts)...), // as long as the caller says
		Replace:       o.replace != 0,
		BatchSize:     int64(o.batch_size),
		Shuffle:       o.shuffle != 0,
		DropLast:      o.drop_last != 0,
		Seed:          uint64(o.seed),
		Workers:       int(o.workers),
		Prefetch:      int(o.prefetch),
		Memory:        int64(o.memory),
		FeatureCache:  int64(o.feature_cache),
		NeighborCache: int64(o.neighbor_cache),
		Cache:         textOr(o.cache, "auto"),
		Superbatch:    int64(o.superbatch),
		CarryOver:     o.carry_over != 0,
		Lookahead:     o.lookahead != 0,
		PreSCEpochs:   cmp.Or(int(o.presc_epochs), 1),
		HotnessSeed:   uint64(o.hotness_seed),
		Reorder:       int64(o.reorder),
		ReorderRows:   int64(o.reorder_rows),
		Transfer:      textOr(o.transfer, "auto"),
		TraceMemory:   int64(o.trace_memory),
		BufferMemory:  int64(o.buffer_memory),
		Scratch:       textOr(o.scratch, ""),
		ScratchBytes:  int64(o.scratch_bytes),
		Calibration:   textOr(o.calibration, ""),
		IO:            ssd.Kind(textOr(o.io, string(ssd.Auto))),
		Checksums:     o.checksums != 0,
		Transpose:     o.transpose != 0,
		Holds:         int(o.holds),
		WeightAttr:    textOr(o.weight_attr, ""),
		Subgraph:      sample.SubgraphType(min(uint32(o.subgraph_type), uint32(sample.Induced)+1)), // what is no type stays none

		RelationFanouts: byRelation,
		TimeAttr:        textOr(o.time_attr, ""),
		TimeWindow:      int64(o.time_window),
		TemporalLast:    o.temporal_last != 0,
		Disjoint:        o.disjoint != 0,
	}
	if o.labor != 0 {
		out.Labor = &sample.Labor{LayerDependency: o.layer_dependency != 0, BatchDependency: int64(o.batch_dependency)}
		out.NoEdgeWeight = o.labor == 2
	}
	if out.Metapaths, err = metapaths(&o); err != nil {
		return loader.Options{}, err
	}
	if o.walks != nil && out.Metapaths == nil {
		for _, w := range unsafe.Slice(o.walks, o.num_hops) { // as long as the caller says
			out.Walks = append(out.Walks, walk(w))
		}
	}
	if size := uintptr(in.struct_size); size <= unsafe.Offsetof(in.superbatch) { // a caller from before these options
		out.Superbatch, out.TraceMemory, out.CarryOver, out.Lookahead = loader.Auto, loader.Auto, true, true
	}
	if out.Hotness, err = scores(o.hotness, o.num_hotness); err != nil {
		return loader.Options{}, err
	}
	if out.History, err = historyOptions(o.history); err != nil {
		return loader.Options{}, err
	}
	if o.num_held < 0 || (o.num_held > 0 && o.held == nil) {
		return loader.Options{}, invalid("%d places at %p", o.num_held, o.held)
	}
	out.Held = unsafe.Slice((*int32)(o.held), o.num_held) // as long as the caller says; his until the loader is closed
	if out.Links, err = linkOptions(o.links); err != nil {
		return loader.Options{}, err
	}
	if out.Links != nil {
		out.Links.Relation, out.Links.Reverse = int(o.link_relation), int(o.link_reverse)
	}
	if o.num_input_time < 0 || (o.num_input_time > 0 && o.input_time == nil) {
		return loader.Options{}, invalid("%d times of seeds at %p", o.num_input_time, o.input_time)
	}
	out.SeedTimes = unsafe.Slice((*int64)(o.input_time), o.num_input_time) // as above
	if o.all_nodes != 0 {
		return out, nil
	}
	if o.num_seeds < 0 || (o.num_seeds > 0 && o.seeds == nil) {
		return loader.Options{}, invalid("%d seeds at %p", o.num_seeds, o.seeds)
	}
	out.Seeds = unsafe.Slice((*int64)(o.seeds), o.num_seeds) // as long as the caller says; his until the loader is closed
	if out.Seeds == nil {
		out.Seeds = []int64{} // no seeds, which is not every node
	}
	return out, nil
}

// relationFanouts copies a caller's fanouts of each edge type, nil where he gives none.
func relationFanouts(o *C.fg_loader_options) ([][]int64, error) {
	if o.relation_fanouts == nil && o.num_relations == 0 {
		return nil, nil
	}
	if o.relation_fanouts == nil || o.num_relations < 1 || o.num_hops < 1 {
		return nil, invalid("fanouts of %d edge types and %d hops at %p", o.num_relations, o.num_hops, o.relation_fanouts)
	}
	out := make([][]int64, o.num_relations)
	for i := range out {
		row := unsafe.Add(unsafe.Pointer(o.relation_fanouts), i*int(o.num_hops)*8) // a row of the caller's matrix
		out[i] = append([]int64{}, unsafe.Slice((*int64)(row), o.num_hops)...)     // as long as the caller says
	}
	return out, nil
}

// scores is a caller's vector of scores, which is nil where there is none and stays where it is.
func scores(p *C.float, n C.int64_t) ([]float32, error) {
	if n < 0 || (n > 0 && p == nil) {
		return nil, invalid("%d scores at %p", n, p)
	}
	return unsafe.Slice((*float32)(p), n), nil // as long as the caller says; his until the job or the loader is closed
}

// textOr is a C string, or what NULL stands for.
func textOr(text *C.char, missing string) string {
	if text == nil {
		return missing
	}
	return C.GoString(text)
}

//export fg_loader_open
func fg_loader_open(s *C.fg_store, g *C.fg_graph, in *C.fg_loader_options, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		o, err := options(in)
		if err != nil {
			return err
		}
		from, used, numTensors, err := loaderSource(s, g)
		if err != nil {
			return err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			h, err := openLoader(ctx, from, used, numTensors, o)
			if err != nil {
				return result{}, err
			}
			p := handles.add(h)
			return result{pointer: p, discard: func() { discard[*loaderHandle](p, func() { _ = h.close() }) }}, nil
		})
		return nil
	})
}

// loaderSource finds the one source that is given and begins to use it.
func loaderSource(s *C.fg_store, g *C.fg_graph) (loader.Source, *shared, int, error) {
	if (s == nil) == (g == nil) {
		return nil, nil, 0, invalid("expected a store or a graph")
	}
	if s != nil {
		h, err := useStore(s)
		if err != nil {
			return nil, nil, 0, err
		}
		return loader.OpenStore(h.store), h.shared, storeTensors(h.store), nil
	}
	h, err := find[*graphHandle](handles, unsafe.Pointer(g))
	if err != nil {
		return nil, nil, 0, err
	}
	return h.source, h.shared, h.numTensors, h.use()
}

//export fg_loader_info
func fg_loader_info(h *C.fg_loader, out *C.fg_loader_details, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := find[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		*out = C.fg_loader_details{num_batches: C.int64_t(l.loader.NumBatches()), max_tensors: C.int32_t(l.maxTensors)}
		return nil
	})
}

//export fg_loader_start
func fg_loader_start(h *C.fg_loader, epoch, firstBatch C.int64_t, mode C.int32_t, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := find[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		modes := map[C.int32_t]loader.Mode{C.FG_TRAIN: loader.Train, C.FG_TRACE: loader.Trace, C.FG_PLAIN: loader.Plain}
		as, known := modes[mode]
		if !known {
			return invalid("mode is %d, expected one of FG_TRAIN, FG_TRACE, FG_PLAIN", mode)
		}
		return l.alone(func() error { return l.loader.Start(int64(epoch), int64(firstBatch), as) })
	})
}

//export fg_loader_next
func fg_loader_next(h *C.fg_loader, timeoutMS C.int32_t, out *C.fg_batch, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := find[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		out.num_tensors = 0
		if int(out.capacity) < l.maxTensors || out.tensors == nil {
			return invalid("fg_batch.capacity is %d, expected at least %d", out.capacity, l.maxTensors)
		}
		b, err := l.next(int32(timeoutMS))
		if err != nil {
			return err
		}
		tensors, err := exported(b, out.versioned != 0)
		if err != nil {
			return err
		}
		slots := unsafe.Slice(out.tensors, out.capacity) // as long as the caller says
		for i, t := range tensors {
			slots[i] = C.fg_tensor{name: (*C.char)(t.Name), managed: t.Managed}
		}
		out.num_tensors = C.int32_t(len(tensors))
		out.index, out.num_seeds = C.int64_t(b.Index), C.int64_t(b.NumSeeds)
		return nil
	})
}

//export fg_loader_stop
func fg_loader_stop(h *C.fg_loader, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := find[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		return l.alone(func() error {
			l.loader.Stop()
			return nil
		})
	})
}

//export fg_loader_stats
func fg_loader_stats(h *C.fg_loader, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := find[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		n, err := writeJSON(l.loader.Stats(), unsafe.Pointer(out), int64(capacity))
		*nBytes = C.int64_t(n)
		return err
	})
}

//export fg_loader_plan
func fg_loader_plan(h *C.fg_loader, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := find[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		n, err := writeJSON(l.loader.Plan(), unsafe.Pointer(out), int64(capacity))
		*nBytes = C.int64_t(n)
		return err
	})
}

//export fg_loader_close
func fg_loader_close(h *C.fg_loader, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		l, err := remove[*loaderHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		return l.close()
	})
}
