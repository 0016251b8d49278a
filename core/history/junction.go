package history

// junction is where embeddings and features meet in the buffer (section 4.2): slot s lies at [s*rowBytes, (s+1)*rowBytes), feature k at
// [Bytes-(k+1)*FeatureBytes, Bytes-k*FeatureBytes). The features are the hottest that do not reach into slots below top.
type junction struct {
	config   *Config
	rowBytes int64 // 0: not known yet
	numSlots int32 // that fit into the buffer and the tables
}

func (j *junction) setRow(nBytes int64) {
	j.rowBytes, j.numSlots = nBytes, int32(j.config.numSlots(nBytes))
}

// numSlots is how many rows of a size fit.
func (c *Config) numSlots(rowBytes int64) int64 {
	if rowBytes == 0 {
		return 0
	}
	return min(c.Bytes/rowBytes, c.slotLimit())
}

// featureRoom is how many features there is room for beside so many slots.
func (j *junction) featureRoom(slots int32) int64 {
	if !j.config.places() {
		return 0
	}
	return min(j.config.NumFeatures, (j.config.Bytes-int64(slots)*j.rowBytes)/j.config.FeatureBytes)
}

// FeatureRoom is how many of the hottest features fit beside the embeddings now. It changes with Update, Unpin, Pin after Restore, and
// Restore.
func (h *History) FeatureRoom() int64 { return h.featureRoom(h.top) }

// grow adds a slot to the region, or returns -1 when it ends at the buffer's end.
func (h *History) grow() int32 {
	if h.top >= h.numSlots {
		return -1
	}
	h.top++
	h.counts.Displaced += h.featureRoom(h.top-1) - h.featureRoom(h.top)
	return h.top - 1
}
