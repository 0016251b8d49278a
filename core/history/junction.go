package history

import "sort"

// junction is where embeddings and features meet in the buffer (section 4.2): slot s lies at [s*rowBytes,
// (s+1)*rowBytes), feature k at [Bytes-end(k+1), Bytes-end(k)), where end(k) is what the k hottest take. The features
// are the hottest that do not reach into slots below top.
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
	return j.config.featuresWithin(j.config.Bytes - int64(slots)*j.rowBytes)
}

// featuresWithin is how many of the hottest features so many bytes have room for.
func (c *Config) featuresWithin(bytes int64) int64 {
	if c.FeatureEnds == nil {
		return min(c.NumFeatures, bytes/c.FeatureBytes)
	}
	return int64(sort.Search(int(c.NumFeatures), func(k int) bool { return c.FeatureEnds[k+1] > bytes }))
}

// featureEnd is what the hottest features take.
func (c *Config) featureEnd(count int64) int64 {
	if c.FeatureEnds == nil {
		return count * c.FeatureBytes
	}
	return c.FeatureEnds[count]
}

// endsFit says whether FeatureEnds is what it should be.
func (c *Config) endsFit() bool {
	if int64(len(c.FeatureEnds)) != c.NumFeatures+1 || c.FeatureEnds[0] != 0 {
		return false
	}
	for k, end := range c.FeatureEnds[1:] {
		if end <= c.FeatureEnds[k] {
			return false
		}
	}
	return true
}

// FeatureRoom is how many of the hottest features fit beside the embeddings now. It changes with Update, Unpin, Pin
// after Restore, and Restore.
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
