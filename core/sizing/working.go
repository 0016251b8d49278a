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

// inFlight is how many batches are being made at a time.
func inFlight(w Working) int64 { return int64(max(w.Prefetch, 1)) }

// holds is how many batches the consumer holds at a time.
func (z *division) holds() int64 { return int64(max(z.ask.Holds, 1)) }

// slot is the size of one buffer of the read engine: it takes the pages of the largest row.
func (z *division) slot() int {
	slot := MinSlot
	for i := range z.graph.Tensors {
		slot = max(slot, z.graph.Tensors[i].Span)
	}
	return slot
}

// generous is how the caller asks to work.
func generous(r *Request) Working {
	return Working{Workers: r.Workers, Prefetch: r.Prefetch, Stamp: true, Depth: fullDepth}
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
	for w.Depth > minDepth && int64(w.Depth*z.slot()) > z.ask.Memory/modest {
		w.Depth /= 2
	}
	ladder := []Working{w}
	for w.Prefetch > 1 {
		w.Prefetch /= 2
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

// workers is what the sampling workers take.
func (z *division) workers(w Working) int64 {
	if w.Stamp {
		return int64(w.Workers) * z.costs.StampWorker
	}
	return int64(w.Workers) * z.costs.Worker
}

// cost is the working set of a way to work, without caches.
func (z *division) cost(w Working) int64 {
	running := z.graph.Order + (inFlight(w)+z.holds())*z.costs.Batch + z.workers(w) + inFlight(w)*z.costs.Prune
	// Nodes are scored when the workers are there and nothing runs.
	running = max(running, z.workers(w)+z.costs.Score)
	if !z.graph.OnDisk {
		return z.graph.Fixed + z.graph.Held + running
	}
	running += inFlight(w) * z.costs.Lookup
	if z.ask.History.Ahead > 0 {
		running += int64(w.Workers) * z.costs.Prune // each worker's batch waits to be foreseen
	}
	// What is loaded whole is loaded before anything runs.
	return z.graph.Fixed + z.graph.Checks + z.engine(w.Depth) + max(running, z.graph.Loading)
}

// engine is what the buffers of the read engine take.
func (z *division) engine(depth int) int64 { return int64(depth * z.slot()) }

// worthFewer is how many times as many bytes an epoch must move with more batches in flight than with those that move
// least for fewer to be better. Arbitrary: what is moved less is certain, and one batch in flight hides most of what
// several do.
const worthFewer = 1.25

// ways picks the most generous way to work that leaves half of the memory to the caches, or else any that fits, and
// after it those with fewer batches in flight.
func (z *division) ways(s *Split) ([]Working, error) {
	ladder := z.ladder()
	last := slices.MinFunc(ladder, func(a, b Working) int { return cmp.Compare(z.cost(a), z.cost(b)) })
	s.Smallest = z.cost(last) + z.explicit()
	if short := s.Smallest + z.worthwhile(s) - z.ask.Memory; short > 0 && z.ask.Cache == "auto" && s.reserved > 0 {
		s.unplanned(fmt.Sprintf("planning needs about %d MiB more", (short+1<<20-1)>>20))
	}
	if s.Smallest += s.reserved; z.ask.Memory < s.Smallest {
		is := "is"
		if z.costs.Estimated {
			is = "is estimated at"
		}
		return nil, fmt.Errorf("the smallest memory that works with these options %s %d bytes: %w", is, s.Smallest,
			&mem.BudgetError{Purpose: mem.Batch, Need: s.Smallest, Free: z.ask.Memory, Limit: z.ask.Memory})
	}
	for _, share := range []int64{2, 1} {
		room := (z.ask.Memory - z.explicit() - s.reserved) / share
		if i := slices.IndexFunc(ladder, func(w Working) bool { return z.cost(w) <= room }); i >= 0 {
			return fewerInFlight(ladder[i:]), nil
		}
	}
	return []Working{last}, nil
}

// fewerInFlight is the first way to work and those after it that differ from it in nothing else.
func fewerInFlight(ladder []Working) []Working {
	end := slices.IndexFunc(ladder, func(w Working) bool {
		w.Prefetch = ladder[0].Prefetch
		return w != ladder[0]
	})
	if end < 0 {
		return ladder
	}
	return ladder[:end]
}
