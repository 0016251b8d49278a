package sizing

const (
	// historyShare is the part of the features' bytes, as a divisor, that the buffer of historical embeddings takes
	// when its size is Auto: the cache ratio at which the papers compare.
	historyShare = 10

	// leastHistory is the smallest buffer that is chosen. Arbitrary: a few thousand embeddings.
	leastHistory = 1 << 20
)

// HistoryBuffer returns the bytes of the buffer of historical embeddings, for the caller's size, or Auto.
func HistoryBuffer(asked int64, tensors []Tensor) int64 {
	if asked != Auto {
		return asked
	}
	var features int64
	for i := range tensors {
		if t := &tensors[i]; !t.ByEdge && t.Width > smallRow {
			features += t.bytes()
		}
	}
	return max(features/historyShare, leastHistory)
}
