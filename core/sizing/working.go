package sizing

import (
	"cmp"
	"fmt"
	"slices"

	"freshgo/core/mem"
)

// The working set: what the parts other than caches take while batches are made.

const (
	fullDepth, minDepth = 128, 8 // reads in flight

	// FewAhead is the least number of batches that Auto prepares ahead. Arbitrary: a loop that varies finds a batch ready.
	FewAhead = 4
	// aheadShare bounds the memory of more batches than FewAhead, as a divisor. Arbitrary: the rest is for caches.
	aheadShare = 4

	// MinSlot is the bytes of the smallest buffer of the read engine.
	MinSlot = 64 << 10
)

// Working is a way to work.
type Working struct {
	Workers  int  // sampling threads
	Prefetch int  // batches prepared ahead of the consumer
	Stamp    bool // id maps are of the fast kind
	Depth    int  // reads in flight
}

// inFlight returns the number of batches that are being made at a time.
func inFlight(w Working) int64 { return int64(max(w.Prefetch, 1)) }

// holds returns the number of batches that the consumer holds at a time.
func (r *Request) holds() int64 { return int64(max(r.Holds, 1)) }

// slot is the size of one buffer of the read engine: it takes the pages of the largest row.
func (g *Graph) slot() int {
	slot := MinSlot
	for i := range g.Tensors {
		slot = max(slot, g.Tensors[i].Span)
	}
	return slot
}

// generous returns the way to work that the caller asks for. Auto prepares a batch ahead for each thread, because parts
// of a batch are computed by one thread: with fewer batches, others are idle meanwhile.
func generous(r *Request) Working {
	w := Working{Workers: r.Workers, Prefetch: r.Prefetch, Stamp: true, Depth: fullDepth}
	if r.Prefetch == Auto {
		w.Prefetch = max(r.Workers, FewAhead)
	}
	return w
}

// fewer halves the batches ahead, by way of FewAhead where Auto chooses them.
func (r *Request) fewer(prefetch int) int {
	if r.Prefetch == Auto && prefetch > FewAhead {
		return max(prefetch/2, FewAhead)
	}
	return prefetch / 2
}

// AsAsked reports whether the memory suffices for working as the caller asks.
func (s *Split) AsAsked(r *Request) bool {
	w := generous(r)
	return s.Workers == w.Workers && s.Prefetch == w.Prefetch && s.Stamp
}

// ladder lists ways to work from the most generous to the smallest.
func (z *division) ladder() []Working {
	w := generous(&z.ask)
	w.Stamp = int64(w.Workers)*z.graph.Stamp <= z.ask.Memory/modest
	for w.Depth > minDepth && int64(w.Depth*z.graph.slot()) > z.ask.Memory/modest {
		w.Depth /= 2
	}
	for z.ask.Prefetch == Auto && w.Prefetch > FewAhead && inFlight(w)*z.costs.Batch > z.ask.Memory/aheadShare {
		w.Prefetch = z.ask.fewer(w.Prefetch)
	}
	ladder := []Working{w}
	for w.Prefetch > 1 {
		w.Prefetch = z.ask.fewer(w.Prefetch)
		ladder = append(ladder, w)
	}
	for w.Workers > 1 {
		w.Workers /= 2
		ladder = append(ladder, w)
	}
	w.Depth = minDepth
	for _, w.Stamp = range []bool{true, false} {
		ladder = append(ladder, w)
	}
	return ladder
}

// workers returns the memory of the sampling workers.
func (c *Costs) workers(w Working) int64 {
	if w.Stamp {
		return int64(w.Workers) * c.StampWorker
	}
	return int64(w.Workers) * c.Worker
}

// cost is the working set of a way to work, without caches.
func (z *division) cost(w Working) int64 {
	running := z.graph.Order + (inFlight(w)+z.ask.holds())*z.costs.Batch + z.costs.workers(w) + inFlight(w)*z.costs.Prune
	// Nodes are scored when the workers are there and nothing runs.
	running = max(running, z.costs.workers(w)+z.costs.Score)
	if !z.graph.OnDisk {
		return z.graph.Fixed + z.graph.Held + running
	}
	running += inFlight(w) * z.costs.Lookup
	if z.ask.History.Ahead > 0 {
		running += int64(w.Workers) * z.costs.Prune // each worker's batch waits to be forecast
	}
	// What is loaded whole is loaded before anything runs.
	return z.graph.Fixed + z.graph.Checks + z.graph.engine(w.Depth) + max(running, z.graph.Loading)
}

// engine returns the memory of the read engine's buffers.
func (g *Graph) engine(depth int) int64 { return int64(depth * g.slot()) }

// unreserved returns the smallest memory that works, without what planning or an order takes.
func unreserved(z *division) int64 {
	least := slices.MinFunc(z.ladder(), func(a, b Working) int { return cmp.Compare(z.cost(a), z.cost(b)) })
	return z.cost(least) + z.ask.explicit() + moreForRanking(z)
}

// grown returns the smallest memory that works, where need would be the smallest if what grows with the memory took as
// much as with the given one.
func (g *Graph) grown(need, memory int64) int64 {
	if g.Growing == nil {
		return need
	}
	need -= g.Growing(memory)
	smallest := need
	for next := need + g.Growing(smallest); next > smallest; next = need + g.Growing(smallest) {
		smallest = next // by a share of the last step
	}
	return smallest
}

// check returns an error with the smallest memory that works, unless the memory is enough.
func (z *division) check(s *Split) error {
	s.Smallest = unreserved(z)
	if z.ask.Cache != "auto" {
		s.Smallest += s.reserved
	}
	s.Smallest = z.graph.grown(s.Smallest, z.ask.Memory)
	if z.ask.Memory >= s.Smallest {
		return nil
	}
	need := "need at least"
	if z.costs.Estimated { // from parts of batches: a whole one did not fit
		need = "need about"
	}
	return short(mem.Batch, s.Smallest, z.ask.Memory, fmt.Sprintf("memory=%s is too small: these options %s %s",
		given(z.ask.Memory), need, atLeast(s.Smallest)))
}
