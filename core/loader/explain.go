package loader

import (
	"freshgo/core/sizing"
	"freshgo/core/ssd"
	"freshgo/core/window"
)

// Plan explains how a loader works: how it divided the memory, and for the
// windows planned last what each way to read would have cost, which was chosen,
// and what it took.
type Plan struct {
	Cache        string                 `json:"cache"`
	Why          string                 `json:"why,omitempty"`
	Split        map[string]int64       `json:"split"` // bytes by purpose
	CapacityRows int64                  `json:"capacity_rows"`
	Superbatch   int64                  `json:"superbatch"`
	Reorder      int64                  `json:"reorder"`
	ReorderRows  int64                  `json:"reorder_rows"` // capacity that orders are judged with
	ScratchLimit int64                  `json:"scratch_limit"`
	MoreMemory   []sizing.Offer         `json:"more_memory,omitempty"` // this memory first
	Engine       string                 `json:"engine"`
	Device       *ssd.Device            `json:"device,omitempty"`
	Windows      []window.Outcome       `json:"windows"`
	MedianError  float64                `json:"median_error"`
	History      []window.EpochForecast `json:"history,omitempty"`
	// Timeline is, by activity, the last spans: the number of the batch since planning began, of a window its first,
	// and when it began and ended, in seconds since the loader was opened.
	Timeline map[string][]window.Span `json:"timeline,omitempty"`
}

// Plan reports. It may be called at any time, also after Close.
func (l *Loader) Plan() Plan {
	s := &l.draw.Split
	p := Plan{
		Cache: s.Cache, Why: s.CacheWhy, Engine: l.draw.EngineName,
		CapacityRows: s.CacheRows,
		Split: map[string]int64{
			"topology": s.Shares.Topology, "neighbor_cache": s.Shares.NeighborCache, "held_whole": s.Shares.Held,
			"feature_cache": s.Shares.FeatureCache, "traces": s.Traces, "packs": s.Packs,
			"buffers_kept": s.Pool, "working_set": s.Shares.Working,
		},
	}
	l.cache.addPlan(&p)
	return p
}
