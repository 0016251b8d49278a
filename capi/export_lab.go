package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"freshgo/core/draw"
	"freshgo/core/plan"
	"freshgo/core/store"
)

//export fg_simulate
func fg_simulate(in *C.fg_simulation, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		o, err := sized(in, "fg_simulation")
		if err != nil {
			return err
		}
		s := simulation{seed: uint64(o.hotness_seed), fill: (*int64)(o.fill)}
		s.Simulation = plan.Simulation{
			NumRows: int64(o.num_nodes), Capacity: int64(o.capacity), Policy: text(o.policy, "belady"),
			Superbatch: int(min(o.superbatch, o.num_batches)), CarryOver: o.carry_over != 0, Lookahead: o.lookahead != 0,
		}
		var t taker
		s.Hotness = list[float32](&t, o.hotness, int64(o.num_hotness), "scores")
		if o.num_batches < 0 || (o.num_batches > 0 &&
			(o.trace == nil || o.reads == nil || o.hits == nil || o.swaps == nil)) || o.fill == nil {
			return invalid("%d batches at %p, and room for what comes out at %p, %p, %p, %p", o.num_batches, o.trace, o.reads,
				o.hits, o.swaps, o.fill)
		}
		if t.err != nil {
			return t.err
		}
		// All as long as the caller says and unchanged until the job is closed.
		n := o.num_batches
		s.reads, s.hits, s.swaps = unsafe.Slice((*int64)(o.reads), n), unsafe.Slice((*int64)(o.hits), n),
			unsafe.Slice((*int64)(o.swaps), n)
		s.sources = make([]store.Source, n)
		for i := range s.sources {
			if s.sources[i], err = source(&unsafe.Slice(o.trace, n)[i], fmt.Sprintf("trace[%d]", i)); err != nil {
				return err
			}
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) { return result{}, s.run(ctx) })
		return nil
	})
}

//export fg_hotness
func fg_hotness(s *C.fg_store, g *C.fg_graph, in *C.fg_loader_options, scores *C.float, n C.int64_t, out **C.fg_job,
	err *C.fg_error) C.int32_t {
	return export(err, func() error {
		if scores == nil || n < 0 {
			return invalid("room for %d scores at %p", n, scores)
		}
		from, err := openedSource(s, g)
		if err != nil {
			return err
		}
		o, err := options(in, from.homogeneous)
		if err != nil {
			from.drop()
			return err
		}
		room := unsafe.Slice((*float32)(scores), n) // as long as the caller says; unchanged until the job is closed
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			defer from.drop()
			return result{}, draw.Hotness(ctx, from.source, o, room)
		})
		return nil
	})
}
