package mem

import "freshgo/core/internal/invariants"

// Small blocks come and go thousands of times a second where plans and packs pass through a file. To map and unmap
// each, with a fault for every page, took a tenth of a loader's processor time, so that some are kept. The largest are
// records of a batch of 300,000 rows: a fifth of a loader's system time was theirs.
const (
	mostSmall = 2 << 20 // the largest of them
	mostKept  = 8 << 20 // of maps of a budget that nobody uses. Arbitrary
)

// recycles reports whether blocks of n bytes are used again. With the tag invariants none are, so that an access after
// Free stays a fault.
func recycles(n int) bool { return n > 0 && n <= mostSmall && !invariants.Enabled }

// mapZeroed returns n bytes of zeros; the capacity is the size of their map.
func (b *Budget) mapZeroed(n int64) ([]byte, error) {
	if n > mostSmall || !recycles(int(n)) {
		return mapAnonymous(n)
	}
	data, err := b.spare.take(n)
	if err != nil {
		return nil, err
	}
	data = data[:n]
	clear(data)
	return data, nil
}

// keep takes back n bytes counted by Reserve and keeps their map for another block, where that may be. Else it does
// nothing and returns false.
func (b *Budget) keep(p Purpose, n int64, data []byte) bool {
	if !recycles(len(data)) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used == n || b.limit > 0 && b.spare.kept()+int64(len(data)) > b.limit-b.used+n || !b.spare.keep(data) {
		return false
	}
	b.release(p, n)
	return true
}
