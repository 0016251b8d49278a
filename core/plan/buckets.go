package plan

import "freshgo/core/internal/asm"

// entry is the slot of a cached row, and the access that needs the row next, with packedBit, and with touchedBit where
// a step of the plan has read or written the slot.
type entry struct{ slot, use uint32 }

// touchedBit marks uses, and slots, in the pass over the steps.
const touchedBit = 1 << 31

// chunk is a part of a bucket, as large as a cache line: each batch of a horizon has one that no budget counts.
type chunk struct {
	entries [perChunk]entry
	below   uint32 // the chunk that was filled before, or none; chunks below the first are full
	beyond  uint32 // the one below that, which is prefetched meanwhile, or none
}

const perChunk = 7

// numChunks is the number of chunks of the residency: those below the first ones, which are full.
func numChunks(capacity int64) int64 { return capacity/perChunk + 1 }

// buckets holds the slots of cached rows that are needed within the horizon, by the batch that needs them: when a step
// comes to its bucket, it knows its hits, and looks up no row. A bucket is a stack: the last to enter is the first to
// be evicted, so that earlier cached rows stay on ties.
type buckets struct {
	first    []chunk  // by batch
	filled   []uint32 // by batch: entries of its first chunk
	deepest  []uint32 // by batch: the last of the chunks below, if there are any
	chunks   []chunk  // of the residency
	top      uint32   // chunks from here on were never used
	free     uint32   // a chunk that is free, linked by below; or none
	entrants []uint32 // by batch: the misses of the current batch that it needs next and that may enter
	place    []uint32 // by batch: where the next of those that do not enter is listed
	used     maxset   // batches with either
}

func newBuckets(batches int, chunks []chunk) *buckets {
	k := &buckets{
		first: make([]chunk, batches), filled: make([]uint32, batches), deepest: make([]uint32, batches),
		chunks: chunks, free: none, used: newMaxset(batches),
		entrants: make([]uint32, batches), place: make([]uint32, batches),
	}
	for i := range k.first {
		k.first[i].below, k.first[i].beyond = none, none
	}
	return k
}

func (k *buckets) push(e entry, batch uint32) {
	n := k.filled[batch]
	if n == perChunk {
		k.bury(batch)
		n = 0
	}
	if n == 0 {
		k.used.set(batch)
	}
	k.first[batch].entries[n] = e
	k.filled[batch] = n + 1
}

// bury moves the full first chunk of a bucket below.
func (k *buckets) bury(batch uint32) {
	at, c := k.free, &k.first[batch]
	if at == none {
		at = k.top
		k.top++
	} else {
		k.free = k.chunks[at].below
		k.ask(k.chunks[at].beyond)
	}
	if c.below == none {
		k.deepest[batch] = at
	}
	k.chunks[at] = *c
	c.below, c.beyond = at, c.below
}

// pop removes the last entry of a bucket that has one.
func (k *buckets) pop(batch uint32) entry {
	c, n := &k.first[batch], k.filled[batch]-1
	e := c.entries[n]
	if at := c.below; n == 0 && at != none {
		*c, n = k.chunks[at], perChunk
		k.release(at, at)
		k.ask(c.beyond)
	}
	k.filled[batch] = n
	return e
}

// release frees chunks, linked from the first to the last.
func (k *buckets) release(first, last uint32) {
	c := &k.chunks[last]
	c.below, c.beyond = k.free, none
	if k.free != none {
		c.beyond = k.chunks[k.free].below
	}
	k.free = first
}

// ask prefetches a chunk that will be needed, if there is one.
func (k *buckets) ask(at uint32) {
	if at != none {
		asm.Prefetch(k.chunks, []uint32{at})
	}
}

// empty calls visit with all entries of a bucket, in parts, and removes them.
func (k *buckets) empty(batch uint32, visit func(entries []entry)) {
	c := &k.first[batch]
	k.ask(c.below)
	k.ask(c.beyond)
	visit(c.entries[:k.filled[batch]])
	for at := c.below; at != none; at = k.chunks[at].below {
		k.ask(k.chunks[at].beyond)
		visit(k.chunks[at].entries[:])
	}
	if c.below != none {
		k.release(c.below, k.deepest[batch])
	}
	c.below, c.beyond, k.filled[batch] = none, none, 0
	k.used.clear(batch)
}
