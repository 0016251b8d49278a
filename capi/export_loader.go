package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"cmp"
	"context"
	"unsafe"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/loader"
	"freshgo/csrc"
)

//export fg_loader_open
func fg_loader_open(s *C.fg_store, g *C.fg_graph, in *C.fg_loader_options, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		from, err := openedSource(s, g)
		if err != nil {
			return err
		}
		o, err := options(in, from.homogeneous)
		if err != nil {
			from.drop()
			return err
		}
		buffers := csrc.Allocator{Locked: in.lock_memory != 0}
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			h, err := openLoader(ctx, from, o, buffers, report)
			if err != nil {
				return result{}, err
			}
			return opening(h, func() { _ = h.close() }), nil
		})
		return nil
	})
}

// openedSource finds the one source that is given and begins to use it.
func openedSource(s *C.fg_store, g *C.fg_graph) (opened, error) {
	if (s == nil) == (g == nil) {
		return opened{}, invalid("expected a store or a graph")
	}
	if s != nil {
		h, err := useStore(s)
		if err != nil {
			return opened{}, err
		}
		return h.opened(), nil
	}
	h, err := find[*graphHandle](handles, unsafe.Pointer(g))
	if err != nil {
		return opened{}, err
	}
	return h.opened, h.use()
}

//export fg_loader_info
func fg_loader_info(h *C.fg_loader, out *C.fg_loader_details, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		*out = C.fg_loader_details{num_batches: C.int64_t(l.loader.NumBatches()), max_tensors: C.int32_t(l.maxTensors)}
		return nil
	})
}

// shareOf returns a caller's share.
func shareOf(s *C.fg_share) (draw.Share, error) {
	if s == nil {
		return draw.Share{}, invalid("share is NULL")
	}
	if s.world_size < 1 {
		return draw.Share{}, invalid("world_size is %d, expected at least 1", s.world_size)
	}
	return draw.Share{
		Rank: int64(s.rank), Ranks: int64(s.world_size), Adjacent: int64(s.adjacent), Uneven: draw.Uneven(s.uneven),
	}, nil
}

//export fg_share_count
func fg_share_count(s *C.fg_share, numBatches, firstBatch C.int64_t, out *C.int64_t, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		share, err := shareOf(s)
		if err != nil {
			return err
		}
		n, err := share.Count(int64(numBatches), int64(firstBatch))
		*out = C.int64_t(n)
		return err
	})
}

//export fg_loader_take
func fg_loader_take(h *C.fg_loader, s *C.fg_share, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		share, err := shareOf(s)
		if err != nil {
			return err
		}
		return l.alone(func() error { return l.loader.Take(share) })
	})
}

//export fg_loader_start
func fg_loader_start(h *C.fg_loader, epoch, firstBatch C.int64_t, mode C.int32_t, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
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
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		if err := checkSlots(out, l.maxTensors); err != nil {
			return err
		}
		b, err := l.next(int32(timeoutMS))
		if err != nil {
			return err
		}
		return handOver(b, out)
	})
}

//export fg_loader_tables
func fg_loader_tables(h *C.fg_loader, out *C.fg_batch, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		if err := checkSlots(out, l.maxTensors); err != nil {
			return err
		}
		tables, err := l.tables()
		if err != nil {
			return err
		}
		return handOver(tables, out)
	})
}

//export fg_loader_list
func fg_loader_list(h *C.fg_loader, relation, list C.int32_t, first, n C.int64_t, out *C.int64_t,
	err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		if n < 0 || out == nil {
			return invalid("%d elements at %p", int64(n), out)
		}
		there, err := loader.ReadList(l.loader, int(relation), int(list), int64(first), unsafe.Slice((*int64)(out), n))
		if err == nil && !there {
			return errEnd
		}
		return err
	})
}

//export fg_loader_stored_lists
func fg_loader_stored_lists(h *C.fg_loader, relation C.int32_t, out *C.fg_stored_lists, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		lists, err := loader.ListsOf(l.loader, int(relation))
		*out = C.fg_stored_lists{
			source: storedList(lists.Source), edge: storedList(lists.Edge),
			weight: storedList(lists.Weight), sum: storedList(lists.Sum),
		}
		return err
	})
}

// storedList passes a list on, whose memory is the loader's and never Go's.
func storedList(list draw.StoredList) C.fg_stored_list {
	out := C.fg_stored_list{n_bytes: C.int64_t(len(list.Data)), bits: C.int32_t(list.Bits)}
	if len(list.Data) > 0 {
		out.data = unsafe.Pointer(unsafe.SliceData(list.Data))
	}
	return out
}

//export fg_loader_lock_lists
func fg_loader_lock_lists(h *C.fg_loader, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		return l.alone(func() error {
			locked, err := loader.LockLists(l.loader)
			if err == nil && !locked {
				return errEnd
			}
			return err
		})
	})
}

// checkSlots returns an error unless the caller has room for the tensors of a batch.
func checkSlots(out *C.fg_batch, most int) error {
	out.num_tensors = 0
	if int(out.capacity) < most || out.tensors == nil {
		return invalid("fg_batch.capacity is %d, expected at least %d", out.capacity, most)
	}
	return nil
}

// handOver gives the tensors of a batch to the caller, who has room for them.
func handOver(b *batch.Batch, out *C.fg_batch) error {
	tensors, err := exported(b, out.versioned != 0)
	if err != nil {
		return err
	}
	slots := unsafe.Slice(out.tensors, out.capacity) // as long as the caller says
	for i, t := range tensors {
		slots[i] = C.fg_tensor{name: (*C.char)(t.Name), managed: t.Managed}
	}
	out.num_tensors = C.int64_t(len(tensors))
	out.index, out.num_seeds = C.int64_t(b.Index), C.int64_t(b.NumSeeds)
	return nil
}

//export fg_loader_sample
func fg_loader_sample(h *C.fg_loader, in *C.fg_ask, out **C.fg_job, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		if in == nil {
			return invalid("ask is NULL")
		}
		var t taker
		var ask loader.OnDemand
		t.members(&ask, in)
		if (in.sources == nil) != (in.targets == nil) {
			t.err = cmp.Or(t.err, invalid("%d links at %p and %p", in.num_links, in.sources, in.targets))
		}
		if t.err != nil {
			return t.err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			b, err := l.loader.Sample(ctx, ask)
			if err != nil {
				return result{}, err
			}
			s := &sampledHandle{batch: b, maxTensors: l.maxTensors}
			return opening(s, s.batch.Release), nil
		})
		return nil
	})
}

//export fg_sampled_take
func fg_sampled_take(h *C.fg_sampled, out *C.fg_batch, err *C.fg_error) C.int32_t {
	return closing(unsafe.Pointer(h), err, func(s *sampledHandle) error {
		if err := checkSlots(out, s.maxTensors); err != nil {
			s.batch.Release()
			return err
		}
		return handOver(s.batch, out)
	})
}

//export fg_loader_stop
func fg_loader_stop(h *C.fg_loader, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		return l.alone(func() error {
			l.loader.Stop()
			return nil
		})
	})
}

//export fg_loader_progress
func fg_loader_progress(h *C.fg_loader, out *C.fg_progress, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		writeProgress(out, l.progress)
		return nil
	})
}

//export fg_loader_stats
func fg_loader_stats(h *C.fg_loader, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return writing(unsafe.Pointer(h), out, capacity, nBytes, err, func(l *loaderHandle) (any, error) {
		return l.loader.Stats(), nil
	})
}

//export fg_loader_plan
func fg_loader_plan(h *C.fg_loader, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return writing(unsafe.Pointer(h), out, capacity, nBytes, err, func(l *loaderHandle) (any, error) {
		return l.loader.Plan(), nil
	})
}

//export fg_loader_close
func fg_loader_close(h *C.fg_loader, err *C.fg_error) C.int32_t {
	return closing(unsafe.Pointer(h), err, (*loaderHandle).close)
}
