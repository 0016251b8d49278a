package main

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"freshgo/core/cache"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/store"
)

// trace is the ids of batches in the form that policies take, outside the Go heap.
type trace struct {
	batches []plan.Batch
	block   *mem.Block
}

func (t *trace) free() {
	if t.block != nil {
		t.block.Free()
	}
}

// readTrace copies the ids of a caller's batches. An id that is not in [0, numNodes), or twice in a batch, is an error
// that names its place.
func readTrace(ctx context.Context, sources []store.Source, numNodes int64, budget *mem.Budget) (*trace, error) {
	total := int64(0)
	for i := range sources {
		if err := checkBatch(i, &sources[i]); err != nil {
			return nil, err
		}
		total += sources[i].Shape[0]
	}
	marks, err := budget.Alloc(mem.Trace, numNodes*4)
	if err != nil {
		return nil, err
	}
	defer marks.Free()
	block, err := budget.Alloc(mem.Trace, max(total, 1)*4)
	if err != nil {
		return nil, err
	}
	t := &trace{batches: make([]plan.Batch, len(sources)), block: block}
	seen, free := mem.Slice[uint32](marks), mem.Slice[uint32](block)
	for i, s := range sources {
		err := ctx.Err()
		n := s.Shape[0]
		t.batches[i], free = free[:n:n], free[n:]
		switch {
		case err != nil:
		case s.DType == manifest.DType_INT32:
			err = copyBatch(i, t.batches[i], unsafe.Slice((*int32)(s.Mem), n), seen) // as long as the caller says
		default:
			err = copyBatch(i, t.batches[i], unsafe.Slice((*int64)(s.Mem), n), seen) // as long as the caller says
		}
		if err != nil {
			t.free()
			return nil, err
		}
	}
	return t, nil
}

// checkBatch accepts what readTrace reads: int32 or int64, one dimension without gaps, in memory.
func checkBatch(i int, s *store.Source) error {
	if s.DType != manifest.DType_INT32 && s.DType != manifest.DType_INT64 {
		return fmt.Errorf("%w: trace[%d] holds %v, expected int32 or int64", errDType, i, s.DType)
	}
	if len(s.Shape) != 1 {
		return invalid("trace[%d] has shape %v, expected one dimension", i, s.Shape)
	}
	if _, err := denseBytes(*s); err != nil {
		return fmt.Errorf("%w: trace[%d]", err, i)
	}
	return nil
}

// copyBatch narrows the ids of batch i. seen[id] is one more than the last batch that had the id.
func copyBatch[I int32 | int64](i int, out []uint32, ids []I, seen []uint32) error {
	mark := uint32(i) + 1
	for at, id := range ids {
		if uint64(id) >= uint64(len(seen)) {
			return invalid("trace[%d][%d] is %d, expected an id in [0, %d): is it the trace of another graph?",
				i, at, id, len(seen))
		}
		if seen[id] == mark {
			return invalid("trace[%d] has the id %d twice, expected the distinct ids of a batch", i, id)
		}
		seen[id] = mark
		out[at] = uint32(id)
	}
	return nil
}

// simulation is a cache to try on a trace, and room for what comes out.
type simulation struct {
	plan.Simulation
	seed    uint64 // of "random"
	sources []store.Source

	reads, hits, swaps []int64 // of each batch
	fill               *int64
}

// run fills the outputs in.
func (s *simulation) run(ctx context.Context) error {
	if s.NumRows < 1 || s.NumRows >= math.MaxUint32 {
		return invalid("there are %d nodes, expected 1 to %d", s.NumRows, math.MaxUint32-1)
	}
	s.Capacity = min(s.Capacity, s.NumRows, math.MaxInt32)
	budget := mem.NewBudget(0)
	t, err := readTrace(ctx, s.sources, s.NumRows, budget)
	if err != nil {
		return err
	}
	defer t.free()
	scores, err := cache.RankTrace(s.Policy, budget, s.NumRows, s.Hotness, s.seed, t.batches)
	if err != nil {
		return err
	}
	defer scores.Close()
	s.Hotness = scores.Hotness
	*s.fill, err = plan.Simulate(ctx, budget, t.batches, s.Simulation, func(i int, c plan.Counts) {
		s.reads[i], s.hits[i], s.swaps[i] = c.Reads, c.Hits, c.Swaps
	})
	return err
}
