package window

import "freshgo/core/sizing"

// firstSuperbatches are the lengths of the first superbatches: the first batch
// does not wait for others, the next is long enough for its rows to be worth a
// scan, and then they grow by four, so that sampling the next one, which takes
// a batch a hundredth of the time of reading it, never waits. Arbitrary beyond.
var firstSuperbatches = []int64{1, 16, 64, 256, 1024, 4096}

// manySuperbatches is the number of superbatches in an epoch from which on the first ones also grow where plans are in
// the scratch file. What a short superbatch reads, the next reads again: each of the short ones adds at most a scan to
// the scans of the epoch. Arbitrary.
const manySuperbatches = 8

// firstLengths returns the lengths of the first superbatches; the others are as long as they come.
func firstLengths(split *sizing.Split, epochBatches int64) []int64 {
	if split.Stored && epochBatches/manySuperbatches < split.Superbatch {
		return firstSuperbatches[:1]
	}
	return firstSuperbatches
}

// looksAhead reports whether superbatch k is planned with the batches after it. The first batch waits for nothing else.
// Where plans are in the scratch file, the second waits for superbatch 1 alone, which may be an epoch: the one after it
// is sampled while the rows of superbatch 1 are read. Where training changes rows it is known: else all that superbatch
// 1 has changed would go back to the files, which would be read and written for it as a whole, and be stale in what was
// read early.
func looksAhead(k int, split *sizing.Split, trains bool) bool {
	return k > 1 || k == 1 && (trains || !split.Stored)
}

// superbatchLength returns the length of superbatch k, which is sampled next. Where it is an epoch, it ends with the
// epoch: batches of two epochs share no reads of lists.
func (in *inspector) superbatchLength(k int) int64 {
	c, at := in.cache, in.placeOf(in.sampledTo)
	room := c.fileRoom()
	n, _ := c.draw.Split.Within(room)
	c.noteShort(n, room)
	if left := in.turnsOf(at.epoch).Count - at.position; n == in.whole.Count && left > 0 {
		n = min(n, left)
	}
	if k < len(c.lengths) {
		n = min(n, c.lengths[k])
	}
	return n
}
