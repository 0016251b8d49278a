package store

import (
	"sort"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
	// bufferRecords is the unit of the buffers of the partitioning pass. Records are a multiple of four bytes, so 1024
	// of them are whole pages.
	bufferRecords = 1024
	// cachedBufferRecords is the size of such a buffer where it is copied to memory: those of all partitions then stay
	// in the second-level cache.
	cachedBufferRecords = 64
	// maxBufferBytes bounds such a buffer: beyond it a write is no faster.
	maxBufferBytes = 1 << 20
	// goodBufferBytes is aimed at on disk: 128 KiB costs a third more per byte than 1 MiB, and allows eight times the
	// partitions.
	goodBufferBytes = 128 << 10
	// spareBuffers is the number of buffers that the partitioning pass fills while others are on their way to the disk.
	spareBuffers = 16
	// cachedRecords is the size of partition aimed at, so that one is sorted within a core's second-level cache (1 to 2
	// MiB).
	cachedRecords = 64 << 10
	// maxPartitions bounds the streams that are written at the same time; more would miss in the translation buffers at
	// every record.
	maxPartitions = 2048
	// maxBuckets bounds the ranges of targets that are counted to find the partitions. 64 Ki counters of 8 bytes fit
	// the second-level cache.
	maxBuckets = 64 << 10
	// maxThreads bounds the threads of a conversion: the disk is slower than a few of them.
	maxThreads = 8
)

// edgePlan is the plan to sort the edges within a budget: in one pass they are spread over partitions (ranges of
// targets), in the next each partition is sorted by counting. Between the passes they are in memory or on disk.
type edgePlan struct {
	threads  int   // of the first pass
	workers  int   // of the second, one of them waiting for a read
	chunk    int   // of the array writers
	scanRows int64 // edges read at a time, by each thread
	shift    uint  // a bucket is 1<<shift targets
	buckets  int
	inMemory bool
	work     int64 // bytes for the buffers of the first pass, and again for the second
	target   int64 // bytes with which a worker sorts a partition, which is made to fit
	record   int64 // size of an edge between the passes
	cost     int64 // record, and its share of the result
}

// profile is a choice between speed and memory.
type profile struct {
	threads  int
	chunk    int
	scanRows int64
}

var frugal = profile{threads: 1, chunk: 64 << 10, scanRows: 4 << 10}

// planEdges returns the fastest plan that fits the memory (unlimited where it is not positive), or a *mem.BudgetError
// with the smallest that does.
func planEdges(edges edgeList, numSources, numTargets, memory int64, threads int) (edgePlan, error) {
	threads = min(max(threads, 1), maxThreads)
	small := frugal
	small.threads = threads
	for _, choice := range []profile{{threads, 1 << 20, 32 << 10}, small, frugal} {
		if plan, ok := choice.fit(edges, numSources, numTargets, memory); ok {
			return plan, nil
		}
	}
	return edgePlan{}, &mem.BudgetError{Purpose: mem.Convert, Need: smallestPlan(edges, numSources, numTargets),
		Free: memory, Limit: memory}
}

// smallestPlan is the smallest memory for which there is a plan.
func smallestPlan(edges edgeList, numSources, numTargets int64) int64 {
	high := int64(1 << 20)
	for {
		if _, ok := frugal.fit(edges, numSources, numTargets, high); ok {
			break
		}
		high *= 2
	}
	const unit = 64 << 10 // precise enough for a message
	steps := sort.Search(int(high/unit), func(i int) bool {
		_, ok := frugal.fit(edges, numSources, numTargets, int64(i)*unit)
		return ok && i > 0
	})
	return int64(steps) * unit
}

// fit makes a plan for this memory, or returns false.
func (c profile) fit(edges edgeList, numSources, numTargets, memory int64) (edgePlan, bool) {
	p := edgePlan{threads: c.threads, chunk: c.chunk, scanRows: c.scanRows}
	for (numTargets-1)>>p.shift >= maxBuckets {
		p.shift++
	}
	p.buckets = int((numTargets-1)>>p.shift) + 1
	source, id := int64(indicesType(numSources).Size()), int64(edgeIDType(edges.count).Size())
	p.record = recordBytes(source, id)
	p.cost = p.record + source + id
	threads := int64(p.threads)
	fixed := 3*arrayWriterBytes(p.chunk) + threads*(edgeReaderBytes(edges, p.scanRows)+int64(p.buckets)*8) +
		int64(p.buckets)*2
	total := edges.count*p.cost + numTargets*8
	least := int64(8)<<p.shift + bufferRecords*p.cost
	cached := max(cachedRecords*p.cost, total/(maxPartitions/2), least)

	p.inMemory, p.target, p.workers = true, cached, c.threads
	p.work = max(p.bufferBytes(total, cachedBufferRecords*p.record), threads*p.workerBytes())
	spill := edges.count*p.record + threads*p.partitionBound(total)*ssd.PageBytes
	if memory <= 0 || fixed+spill+p.work <= memory {
		return p, true
	}

	p.inMemory, p.workers = false, c.threads+1
	workers := int64(p.workers)
	p.work = memory - fixed
	if p.work <= 0 {
		return p, false
	}
	// Larger partitions are fewer, so that their buffers are larger; but every worker needs a whole one.
	p.target = max(cached, (2*total/p.work+1)*threads*goodBufferBytes)
	if workers*p.workerBytes() > p.work {
		p.target = p.work/workers - p.slack()
	}
	return p, p.target >= least && p.bufferBytes(total, bufferRecords*p.record) <= p.work
}

// partitionBound is the most partitions that grouping can give: of two neighbours together, none fits the target.
func (p edgePlan) partitionBound(total int64) int64 {
	return min(2*total/p.target+1, int64(p.buckets))
}

// bufferBytes is the memory of the first pass with buffers of this size.
func (p edgePlan) bufferBytes(total, buffer int64) int64 {
	return (int64(p.threads)*p.partitionBound(total) + spareBuffers) * buffer
}

// slack returns the memory that alignment adds to a worker: a page for each run of a partition and each of its arrays.
func (p edgePlan) slack() int64 { return int64(p.threads+4) * ssd.PageBytes }

// workerBytes is the memory of a worker of the second pass.
func (p edgePlan) workerBytes() int64 { return p.target + p.slack() }

// recordBytes is the size of a record with a source and an edge number of these sizes, as the compiler lays it out.
func recordBytes(source, id int64) int64 {
	return roundUp(roundUp(roundUp(4, source)+source, id)+id, max(source, id))
}
