package history

// Stats describes the work and the contents of a history. Rows are counted by layer: embeddings of one node at two
// layers count twice.
type Stats struct {
	Policy string       `json:"policy"`
	Lag    int64        `json:"lag"`
	Layers []LayerStats `json:"layers"`

	Ages []int64 `json:"ages"` // hits by age: element k counts ages from 2^k to 2^(k+1)-1

	Replaced    int64 `json:"replaced"`    // entries whose rows were computed again and entered again
	Evicted     int64 `json:"evicted"`     // because of their gradients
	Overwritten int64 `json:"overwritten"` // because there was no room
	Expired     int64 `json:"expired"`     // because of their age

	RefusedNotFinite int64 `json:"refused_not_finite"` // norms that were not finite, of computed rows and of hits
	// candidates, because batches rely on the entries that would give way
	RefusedPinned int64 `json:"refused_pinned"`
	// because no entry may be evicted: all are from the same iteration, or stay for ever
	RefusedFull  int64 `json:"refused_full"`
	RefusedWorth int64 `json:"refused_worth"` // because what would have given way saves more

	RowBytes       int64 `json:"row_bytes"`       // 0: not known yet
	Slots          int64 `json:"slots"`           // that fit into the buffer
	EmbeddingBytes int64 `json:"embedding_bytes"` // of the embeddings' end of the buffer, free slots included
	Pinned         int64 `json:"pinned"`          // batches that pin slots
}

// LayerStats is one hidden layer.
type LayerStats struct {
	Hits     int64 `json:"hits"`   // that were counted
	Misses   int64 `json:"misses"` // that were counted
	Admitted int64 `json:"admitted"`
	Live     int64 `json:"live"` // entries now
}

// counters are the running sums of Stats. Stats fills in its other fields when it is called.
type counters struct {
	Stats
	layers []LayerStats
	ages   [numAges]int64
}

const numAges = 63 // powers of two that an age can have

// Lookups counts the results of Lookup for a batch. Batches are looked up ahead of their use, and some are never used,
// so the statistics have only the batches passed to Count.
type Lookups struct {
	Hits, Misses []int64        // by hidden layer
	Ages         [numAges]int64 // of the hits, as in Stats
}

// NewLookups returns empty Lookups for batches with the given number of hidden layers.
func NewLookups(layers int) *Lookups {
	return &Lookups{Hits: make([]int64, layers), Misses: make([]int64, layers)}
}

// Count adds the results of a batch's lookups to the counters.
func (h *History) Count(l *Lookups) {
	for k := range h.entries.counts.layers {
		h.entries.counts.layers[k].Hits += l.Hits[k]
		h.entries.counts.layers[k].Misses += l.Misses[k]
	}
	for k, n := range l.Ages {
		h.entries.counts.ages[k] += n
	}
}

// Stats returns the figures so far.
func (h *History) Stats() Stats {
	s := h.entries.counts.Stats
	s.Policy, s.Lag = h.config.Policy, h.config.Lag
	s.Layers = append([]LayerStats{}, h.entries.counts.layers...)
	last := 0
	for k, n := range h.entries.counts.ages {
		if n > 0 {
			last = k + 1
		}
	}
	s.Ages = append([]int64{}, h.entries.counts.ages[:last]...)
	s.RowBytes, s.Slots, s.EmbeddingBytes = h.rowBytes, int64(h.entries.numSlots), int64(h.entries.top)*h.rowBytes
	s.Pinned = int64(len(h.pinned.held))
	return s
}
