package window

import (
	"fmt"
	"slices"
	"time"

	"freshgo/core/sizing"
)

// Sampled batches wait in the scratch file, and so do plans and packs. When a window is sampled, it is as long as the
// file has room for. Where others fill the disk meanwhile, the window ends before the first batch whose records found
// no room: the batches from there on are sampled again for the next window. A plan that finds no room waits until
// executed batches have freed their part of the file, or is made of fewer batches.

const (
	// leastWindow is the number of batches for which a window waits for room in the file. Arbitrary.
	leastWindow = 8

	// sampledShare and planShare are the parts, as divisors, of the room of a batch (sizing.Split.RecordBytes) for its
	// trace and its plan, and for its plan alone: by the larger estimate.
	sampledShare, planShare = 2, 4
)

// fileRoom returns the bytes that the scratch file may take.
func (c *Cache) fileRoom() int64 {
	all, _ := c.pool.FileRoom()
	return all
}

// noteShort records that a window has fewer batches, n, for want of room in the scratch file.
func (c *Cache) noteShort(n, room int64) {
	if split := &c.draw.Split; n < split.Superbatch {
		why := fmt.Sprintf("windows of %d batches need %d bytes in %s, which has room for %d: they have %d batches",
			split.Superbatch, split.Scratch, c.draw.Options.Scratch, room, n)
		c.short.Store(&why)
	}
}

// sampleAhead samples the batches of superbatch k, fewer where their records would take more than the room for them or
// sampling fails. Unplanned is the number of batches before them that are sampled and not planned. If it is 0, at least
// one is sampled.
func (in *inspector) sampleAhead(k, unplanned int) []*sampled {
	n, whole := in.superbatchLength(k), keepsGroups(in, k)
	defer in.cache.timeline.add(spanSampling, in.sampledTo, time.Now())
	in.progress.begin(in.sampledTo, n)
	var batches []*sampled
	room, each := in.cache.draw.Split.WindowRoom()
	for int64(len(batches)) < n && (room > 0 || len(batches) == 0) && in.failed == nil {
		free := in.forecaster.free(n - int64(len(batches)))
		if free == 0 && len(batches) > 0 {
			break // the others wait for training, which waits for these
		}
		stored, first := in.recordRoom(n, unplanned+len(batches)), unplanned+len(batches) == 0
		if stored == 0 && !first {
			break
		}
		var some []*sampled
		fit := max(1, min(stored, room/each(sizing.InWindow(in.cache.draw.Demand.Nodes))))
		some, in.failed = in.blocks.take(min(max(1, free), fit), whole)
		kept := recorded(in, some, first)
		for _, b := range some[:kept] {
			room -= each(b.nodes)
		}
		batches = append(batches, some[:kept]...)
		in.sampledTo += int64(kept)
		if kept < len(some) && in.returns(in.sampledTo) {
			freeAll(some[kept:])
			in.failed = nil // a batch that failed is sampled again
			break
		}
	}
	return batches
}

// recordRoom returns the number of batches, of n, for whose records the scratch file has room beside the plans of
// others. While the file may be as large as memory was divided for, that is all.
func (in *inspector) recordRoom(n int64, unplanned int) int64 {
	c := in.cache
	each, split := c.draw.Split.RecordBytes(), &c.draw.Split
	if all := c.fileRoom(); !split.Stored || all >= split.Scratch || all == 0 || each == 0 {
		return n
	}
	if unplanned == 0 {
		in.awaitRoom(min(leastWindow, n)*each/sampledShare, in.sampledTo)
	}
	_, left := c.pool.FileRoom()
	return min(n, max(0, left-int64(unplanned)*each/planShare)*sampledShare/each)
}

// keepsGroups reports whether batches that share reads with the last ones of superbatch k wait for the next one: in the
// scratch file, where it may be as large as memory was divided for, and no forecast follows the batches. The first ones
// are short for those who wait for them.
func keepsGroups(in *inspector, k int) bool {
	c := in.cache
	return k >= len(c.lengths) && c.draw.Split.Stored && !in.forecasting && c.fileRoom() >= c.draw.Split.Scratch
}

// recorded returns the number of batches before the first whose records found no room; if they are first, at least one.
func recorded(in *inspector, some []*sampled, first bool) int {
	if !in.cache.draw.Split.Stored || in.forecasting {
		return len(some)
	}
	kept := slices.IndexFunc(some, func(b *sampled) bool { return b.trace == lost{} || b.rows == lost{} })
	if kept < 0 {
		return len(some)
	}
	if first {
		kept = max(kept, 1)
	}
	return kept
}

// returns makes the stream go on at batch n, which has been sampled, and reports whether it can: not where a forecast
// has followed the batches.
func (in *inspector) returns(n int64) bool {
	if in.forecasting || in.cache.draw.Split.Reorder > 0 {
		return false
	}
	in.blocks.returnTo(in.placeOf(n))
	in.sampledTo = n
	return true
}

// awaitRoom waits until the scratch file has room for n bytes, as batches that are executed free theirs, or until the
// executor asks for batch first. It reports whether it has waited and there is room.
func (in *inspector) awaitRoom(n, first int64) bool {
	if !in.cache.draw.Split.Stored {
		return false
	}
	again := time.NewTicker(buffersPause)
	defer again.Stop()
	for waited := false; ; waited = true {
		all, left := in.cache.pool.FileRoom()
		if left >= n || all < n || hasBegun(in, first) {
			return waited && left >= n
		}
		select {
		case <-again.C:
		case <-in.ctx.Done():
			return false
		}
	}
}

// hasBegun reports whether the executor has asked for batch n.
func hasBegun(in *inspector, n int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.begun >= n || in.shut
}
