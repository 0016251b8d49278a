package store

import (
	"fmt"
	"sort"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
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
// targets), in the next each partition is sorted by counting. Between the passes they are in memory or on disk. In
// memory, where not all fit, partitions are sorted in several rounds, and each round reads all edges again.
type edgePlan struct {
	threads  int   // of the first pass
	workers  int   // of the second, one of them waiting for a read
	chunk    int   // of the array writers
	scanRows int64 // edges read at a time, by each thread
	shift    uint  // a bucket is 1<<shift targets
	buckets  int
	inMemory bool
	round    int64 // bytes of the records of a round, where they are in memory
	work     int64 // bytes for the buffers of the first pass, and again for the second
	target   int64 // bytes with which a worker sorts a partition, which is made to fit
	record   recordForm
	source   int64     // bytes of a source as it is stored
	number   int64     // bytes of an edge number as it is stored, 0 where none are
	cost     int64     // of an edge to a worker: a record, with its share of what a block leaves free, and of the result
	again    *edgePlan // the same in rounds, beside a plan for the disk; nil where memory is too small
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
	need := smallestMemory(func(memory int64) bool {
		_, ok := frugal.fit(edges, numSources, numTargets, memory)
		return ok
	})
	return edgePlan{}, &mem.BudgetError{Purpose: mem.Convert, Need: need, Free: memory, Limit: memory}
}

// smallestMemory returns the smallest memory for which there is a plan.
func smallestMemory(fits func(memory int64) bool) int64 {
	high := int64(1 << 20)
	for !fits(high) {
		high *= 2
	}
	const unit = 64 << 10 // precise enough for a message
	return unit * int64(sort.Search(int(high/unit), func(i int) bool { return i > 0 && fits(int64(i)*unit) }))
}

// needsMemory returns the error for a run whose smallest plan is larger than the limit.
func needsMemory(run string, need, limit int64) error {
	return fmt.Errorf("store: %s needs a memory budget of at least %d bytes: %w", run, need,
		&mem.BudgetError{Purpose: mem.Convert, Need: need, Free: limit, Limit: limit})
}

// fit makes a plan for this memory, or returns false.
func (c profile) fit(edges edgeList, numSources, numTargets, memory int64) (edgePlan, bool) {
	p := edgePlan{threads: c.threads, chunk: c.chunk, scanRows: c.scanRows}
	for (numTargets-1)>>p.shift >= maxBuckets {
		p.shift++
	}
	p.buckets = int((numTargets-1)>>p.shift) + 1
	p.source = int64(indicesType(numSources).Size())
	sourceBytes, numberField := numberBytes(numSources), int64(0)
	if !edges.unnumbered {
		p.number, numberField = int64(edges.numbers.Size()), numberBytes(edges.count)
	}
	// Of a partition, that is, whose targets fit a field of four bytes: group keeps to it.
	p.record = newRecordForm(min(numberBytes(numTargets), 4), sourceBytes, numberField)
	p.cost = int64(p.record.bytes) + 1 + p.source + p.number
	threads := int64(p.threads)
	fixed := 3*arrayWriterBytes(p.chunk) + threads*(edgeReaderBytes(edges, p.scanRows)+int64(p.buckets)*8) +
		int64(p.buckets)*2
	total := edges.count*p.cost + numTargets*8
	least := p.least()
	cached := max(cachedRecords*p.cost, total/(maxPartitions/2), least)

	p.inMemory, p.target, p.workers = true, cached, c.threads
	p.round = edges.count*int64(p.record.bytes) + recordSlack
	p.work = max(p.bufferBytes(total, p.cachedBuffer()), threads*p.workerBytes())
	if memory <= 0 || fixed+p.round+p.work <= memory {
		return p, true
	}

	p.inMemory, p.round, p.workers = false, 0, c.threads+1
	workers := int64(p.workers)
	p.work = memory - fixed
	if p.work <= 0 {
		return p, false
	}
	p.again = p.inRounds(total, cached)
	// Larger partitions are fewer, so that their buffers are larger; but every worker needs a whole one.
	p.target = max(cached, (2*total/p.work+1)*threads*goodBufferBytes)
	if workers*p.workerBytes() > p.work {
		p.target = p.work/workers - p.slack()
	}
	return p, p.target >= least && p.bufferBytes(total, blockBytes) <= p.work
}

// least returns the least memory with which a worker sorts a partition.
func (p *edgePlan) least() int64 { return int64(8)<<p.shift + p.record.perBlock()*p.cost }

// inRounds returns the plan that keeps records in memory where a plan for the disk writes them, or nil where most of
// the memory would not be for records. total bytes are sorted, and cached is the size of partition aimed at.
func (p edgePlan) inRounds(total, cached int64) *edgePlan {
	p.inMemory, p.workers = true, p.threads
	p.target = max(p.least(), min(cached, p.work/int64(4*p.workers)-p.slack()))
	beside := max(p.bufferBytes(total, p.cachedBuffer()), int64(p.workers)*p.workerBytes())
	if p.round = p.work - beside; p.round < p.work/2 {
		return nil
	}
	p.work = beside
	return &p
}

// cachedBuffer returns the size of a buffer of the first pass where it is copied to memory.
func (p *edgePlan) cachedBuffer() int64 {
	return roundUp(int64(cachedBufferRecords*p.record.bytes)+recordSlack, 64)
}

// partitionBound returns the most partitions that grouping can give: of two neighbours together, none fits the target.
func (p edgePlan) partitionBound(total int64) int64 {
	return min(2*total/p.target+1, int64(p.buckets))
}

// bufferBytes returns the memory of the first pass with buffers of this size.
func (p edgePlan) bufferBytes(total, buffer int64) int64 {
	return (int64(p.threads)*p.partitionBound(total) + spareBuffers) * buffer
}

// slack returns the memory that alignment adds to a worker: a page for each run of a partition and each of its arrays.
func (p edgePlan) slack() int64 { return int64(p.threads+4) * ssd.PageBytes }

// workerBytes returns the memory of a worker of the second pass.
func (p edgePlan) workerBytes() int64 { return p.target + p.slack() }
