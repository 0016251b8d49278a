// Package mem accounts for the memory that freshgo uses outside the Go heap.
//
// Everything large lives in anonymous maps, so that the garbage collector neither scans nor moves it and so that it
// returns to the operating system when it is freed. A Budget counts every byte by Purpose and refuses what would exceed
// its limit: a budget that is too small is an error at once, never growth. All packages of core allocate through it;
// the loader makes one Budget and hands it down.
//
// An Alloc costs one or two system calls and, later, a page fault per page touched: it is for tables and pools, not for
// rows. A budget keeps up to 8 MiB of freed blocks of at most 2 MiB for the next ones, as long as anything is in use.
// It keeps none that would not fit beside what is in use, and gives them up for what does not fit beside them.
package mem

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// Purpose is the use of a piece of memory. Statistics are kept per purpose.
type Purpose uint8

// The purposes, in the order of Live and Peaks.
const (
	Topology      Purpose = iota // indptr, indices and edge ids held in memory
	NeighborCache                // neighbour lists cached from disk
	FeatureCache                 // feature rows cached from disk
	IDMap                        // the samplers' maps from global to local ids
	Staging                      // buffers that the device reads into and writes from
	Batch                        // tensors of batches not yet given back
	Trace                        // sampled batches waiting for their features
	Convert                      // scratch of a conversion
	// rows set aside for the batch that needs them, and the buffers through which they go to a file
	Pack
	History            // buffer and tables of historical embeddings
	NumPurposes = iota // number of purposes
)

var purposeNames = [NumPurposes]string{
	"topology", "neighbor_cache", "feature_cache", "id_map", "staging", "batch", "trace", "convert", "packs", "history",
}

// String returns the name used in statistics and messages.
func (p Purpose) String() string {
	if int(p) >= NumPurposes {
		return fmt.Sprintf("purpose(%d)", uint8(p))
	}
	return purposeNames[p]
}

// ErrBudget is wrapped by every error that says that the memory budget is too small.
var ErrBudget = errors.New("memory budget exceeded")

// BudgetError reports a request that the budget could not meet. Nothing was allocated.
type BudgetError struct {
	Purpose Purpose
	Need    int64 // requested bytes
	Free    int64 // bytes that were left
	Limit   int64 // the whole budget
}

// Minimum returns the smallest budget that would have met the request.
func (e *BudgetError) Minimum() int64 {
	used := e.Limit - e.Free
	return used + min(e.Need, math.MaxInt64-used)
}

// Error names the purpose, the three sizes, and the smallest sufficient budget if more is needed for the whole.
func (e *BudgetError) Error() string {
	give := ""
	if least := e.Minimum(); least != e.Need {
		give = fmt.Sprintf("give memory of at least %d bytes: ", least)
	}
	return fmt.Sprintf("mem: %s needs %d bytes, %d of the budget's %d are left: %s%v", e.Purpose, e.Need, e.Free, e.Limit,
		give, ErrBudget)
}

// Unwrap makes errors.Is(err, ErrBudget) hold.
func (e *BudgetError) Unwrap() error { return ErrBudget }

// Budget is a limit on memory with a count per purpose. It is safe for concurrent use; mu guards all counters.
//
// One lock instead of atomics: allocations are rare and large, and the sum over the purposes must agree with the total
// at any time.
type Budget struct {
	limit int64 // <= 0: unlimited

	mu    sync.Mutex
	used  int64
	peak  int64
	live  [NumPurposes]int64
	peaks [NumPurposes]int64
	spare spareMaps // of freed blocks, within the limit beside used
}

// NewBudget returns a budget of limit bytes. With limit <= 0 nothing is refused, and everything is still counted.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit, spare: spareMaps{most: mostKept}} }

// Reserve counts n bytes that the caller allocates elsewhere, or returns a *BudgetError and counts nothing.
func (b *Budget) Reserve(p Purpose, n int64) error {
	if n < 0 {
		panic(fmt.Sprintf("mem: negative size %d for %s", n, p))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit > 0 && n > b.limit-b.used {
		return &BudgetError{Purpose: p, Need: n, Free: b.limit - b.used, Limit: b.limit}
	}
	b.used += n
	if b.limit > 0 {
		b.spare.trim(b.limit - b.used)
	}
	b.live[p] += n
	b.peak = max(b.peak, b.used)
	b.peaks[p] = max(b.peaks[p], b.live[p])
	return nil
}

// Release takes back n bytes counted by Reserve under the same purpose.
func (b *Budget) Release(p Purpose, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(p, n)
}

// release is Release with mu held.
func (b *Budget) release(p Purpose, n int64) {
	if n < 0 || n > b.live[p] {
		panic(fmt.Sprintf("mem: releasing %d bytes of %s, %d are live", n, p, b.live[p]))
	}
	b.used -= n
	b.live[p] -= n
	if b.used == 0 {
		b.spare.trim(0)
	}
}

// Limit returns the budget in bytes, or 0 when it is unlimited.
func (b *Budget) Limit() int64 { return max(b.limit, 0) }

// Used returns the bytes counted now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Free returns the bytes left, or the largest int64 when the budget is unlimited.
func (b *Budget) Free() int64 {
	if b.limit <= 0 {
		return 1<<63 - 1
	}
	return b.limit - b.Used()
}

// Peak returns the highest value that Used has had.
func (b *Budget) Peak() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// Live returns the bytes counted now, by purpose.
func (b *Budget) Live() [NumPurposes]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

// Peaks returns the highest value of each element of Live. They need not have occurred at the same time.
func (b *Budget) Peaks() [NumPurposes]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peaks
}
