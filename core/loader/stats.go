package loader

import (
	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
	"freshgo/core/window"
)

// Stats counts the work of a loader since Open. Seconds are summed over threads, except for SecondsWaiting, which is
// the consumer's.
type Stats struct {
	Batches   int64 `json:"batches"`    // handed over
	Rows      int64 `json:"rows"`       // node rows gathered
	Hits      int64 `json:"hits"`       // of those, found in memory or in the cache
	Packed    int64 `json:"packed"`     // of those, put aside earlier for this batch, or left to it by the batch before
	Misses    int64 `json:"misses"`     // of those, read from disk for this batch
	Held      int64 `json:"held"`       // of those, left to the consumer, which holds them
	Filled    int64 `json:"filled"`     // rows read into the cache before a batch needed them
	Edges     int64 `json:"edges"`      // sampled
	Padded    int64 `json:"padded"`     // batches that were padded
	BytesRead int64 `json:"bytes_read"` // from the device, to fill caches too, but not to calibrate it
	Requests  int64 `json:"requests"`   // to the device
	Retries   int64 `json:"retries"`    // requests repeated after short or interrupted reads

	SecondsOpening  float64 `json:"seconds_opening"`  // topology, measuring, filling caches
	SecondsSampling float64 `json:"seconds_sampling"` // with reads of neighbour lists
	SecondsReading  float64 `json:"seconds_reading"`  // feature rows from disk
	SecondsGather   float64 `json:"seconds_gathering"`
	SecondsWaiting  float64 `json:"seconds_waiting"` // of the consumer for a batch
	SecondsPlanning float64 `json:"seconds_planning"`
	SecondsFirst    float64 `json:"seconds_first_batch"` // of the last epoch: from its start to its first batch
	SecondsEpoch    float64 `json:"seconds_epoch"`       // of the last epoch that was consumed whole

	Engine    string `json:"engine"` // "io_uring", "pread", "buffered" or "memory"
	EngineWhy string `json:"engine_why,omitempty"`

	Envelope draw.Envelope `json:"envelope,omitempty"` // that batches are padded to

	Cache           string           `json:"cache"`
	CacheWhy        string           `json:"cache_why,omitempty"` // why that, where the loader chose
	CachedRows      int64            `json:"cached_rows"`
	CacheCapacity   int64            `json:"cache_capacity"`        // rows
	Superbatch      int64            `json:"superbatch"`            // batches planned together at most; 0: not planned
	PredictionError float64          `json:"prediction_error"`      // of plans: the median of |measured/predicted - 1|
	NeighborHits    int64            `json:"neighbor_hits"`         // sampled edges whose neighbour was in memory
	NeighborMisses  int64            `json:"neighbor_misses"`       // and those read from disk
	Resampled       int64            `json:"resampled"`             // batches whose trace was lost and drawn again
	PackErrors      int64            `json:"pack_errors"`           // packs that could not be read
	ScratchWritten  int64            `json:"scratch_written"`       // bytes, to the scratch file
	ScratchRead     int64            `json:"scratch_read"`          // and from it; they are in BytesRead too
	ScratchWhy      string           `json:"scratch_why,omitempty"` // why the scratch file is out of use, or too short
	TableRows       int64            `json:"table_rows"`            // of tables that learn: see window.TableStats
	TableRowsLate   int64            `json:"table_rows_late"`       // likewise, as the following
	TableRead       int64            `json:"table_bytes_read"`      // also in BytesRead, but for what changing rows read
	TableWritten    int64            `json:"table_bytes_written"`
	TableReturned   int64            `json:"table_bytes_returned"`
	TopologyOnDisk  bool             `json:"topology_on_disk"`
	IDMap           string           `json:"id_map"` // "stamp" or "hash"
	Workers         int              `json:"num_workers"`
	Prefetch        int              `json:"prefetch"`
	MemoryLimit     int64            `json:"memory_limit"` // 0: unlimited
	MemorySmallest  int64            `json:"memory_smallest"`
	MemoryUsed      int64            `json:"memory_used"`
	MemoryPeak      int64            `json:"memory_peak"`
	MemoryByPurpose map[string]int64 `json:"memory"`
	PeakByPurpose   map[string]int64 `json:"memory_peaks"`
}

// Stats returns the figures so far. It may be called at any time, also after Close.
func (l *Loader) Stats() Stats {
	c, split := &l.counters, &l.draw.Split
	s := Stats{
		Batches: c.Batches.Load(), Rows: c.Rows.Load(), Hits: c.Hits.Load(), Packed: c.Packed.Load(),
		Misses: c.Misses.Load(), Held: c.Held.Load(), Filled: c.Filled.Load(), Edges: c.Edges.Load(),
		Padded: c.Padded.Load(), Envelope: l.draw.Options.Envelope,
		SecondsOpening:  c.Opening.Seconds(),
		SecondsSampling: c.Sampling.Seconds(),
		SecondsReading:  c.Reading.Seconds(),
		SecondsGather:   c.Gathering.Seconds(),
		SecondsWaiting:  c.Waiting.Seconds(),
		SecondsPlanning: c.Planning.Seconds(),
		SecondsFirst:    c.FirstBatch.Seconds(),
		SecondsEpoch:    c.Epoch.Seconds(),
		Engine:          l.draw.EngineName, EngineWhy: l.draw.EngineWhy,
		Cache: split.Cache, CacheWhy: split.CacheWhy, CachedRows: l.rows.Resident.Count.Load(),
		CacheCapacity: split.CacheRows,
		Resampled:     c.Resampled.Load(), PackErrors: c.PackErrors.Load(),
		TopologyOnDisk: !split.Neighbors || !split.EdgeIDs,
		IDMap:          "hash",
		Workers:        split.Workers, Prefetch: split.Prefetch,
		MemoryLimit: l.draw.Options.Memory, MemorySmallest: split.Smallest,
		MemoryUsed: l.draw.Budget.Used(), MemoryPeak: l.draw.Budget.Peak(),
		MemoryByPurpose: byPurpose(l.draw.Budget.Live()), PeakByPurpose: byPurpose(l.draw.Budget.Peaks()),
	}
	if split.Stamp && !l.draw.Parts.Disjoint {
		s.IDMap = "stamp"
	}
	s.NeighborHits, s.NeighborMisses = l.draw.NeighborCounts(c.Edges.Load())
	reads := l.draw.EngineStats()
	s.BytesRead, s.Requests, s.Retries = reads.Bytes, reads.Requests, reads.Retries
	l.cache.addStats(&s)
	return s
}

func byPurpose(bytes [mem.NumPurposes]int64) map[string]int64 {
	named := make(map[string]int64, mem.NumPurposes)
	for p, n := range bytes {
		named[mem.Purpose(p).String()] = n
	}
	return named
}

// Plan explains how a loader works: the division of its memory, and for the last planned windows the predicted cost of
// each way to read, the chosen one, and the measured cost.
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
	Tables       *window.TableStats     `json:"tables,omitempty"` // that training changes
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
