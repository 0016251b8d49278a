package mem

import "freshgo/core/internal/invariants"

// Small blocks come and go thousands of times a second where plans and packs pass through a file. To map and unmap
// each, with a fault for every page, took a tenth of a loader's processor time, so that some are kept. The largest are
// records of a batch of 300,000 rows: a fifth of a loader's system time was theirs.
const (
	mostSmall = 2 << 20 // the largest of them
	mostKept  = 8 << 20 // of maps that nobody uses; no budget counts them. Arbitrary
)

// small is the spare maps of the blocks of all budgets.
var small = spareMaps{most: mostKept}

// recycles reports whether blocks of n bytes are used again. With the tag invariants none are, so that an access after
// Free stays a fault.
func recycles(n int) bool { return n > 0 && n <= mostSmall && !invariants.Enabled }

// mapZeroed returns n bytes of zeros; the capacity is the size of their map.
func mapZeroed(n int64) ([]byte, error) {
	if n > mostSmall || !recycles(int(n)) {
		return mapAnonymous(n)
	}
	data, err := small.take(n)
	if err != nil {
		return nil, err
	}
	data = data[:n]
	clear(data)
	return data, nil
}

// unmapZeroed gives back what mapZeroed returned.
func unmapZeroed(data []byte) {
	if recycles(cap(data)) {
		small.give(data[:cap(data)])
	} else {
		unmap(data[:cap(data)])
	}
}
