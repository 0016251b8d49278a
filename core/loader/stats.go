package loader

import (
	"sync/atomic"
	"time"

	"freshgo/core/mem"
)

// Stats is what a loader has done since Open. Seconds are summed over threads,
// but for Waiting, which is the consumer's.
type Stats struct {
	Batches   int64 `json:"batches"`    // handed over
	Rows      int64 `json:"rows"`       // node rows gathered
	Hits      int64 `json:"hits"`       // of those, found in memory
	Misses    int64 `json:"misses"`     // of those, read from disk
	Edges     int64 `json:"edges"`      // sampled
	BytesRead int64 `json:"bytes_read"` // by the device, cache fills included
	Requests  int64 `json:"requests"`   // to the device
	Retries   int64 `json:"retries"`    // requests repeated after short or interrupted reads

	SecondsOpening  float64 `json:"seconds_opening"`  // topology, measuring, filling caches
	SecondsSampling float64 `json:"seconds_sampling"` // with reads of neighbour lists
	SecondsReading  float64 `json:"seconds_reading"`  // feature rows from disk
	SecondsGather   float64 `json:"seconds_gathering"`
	SecondsWaiting  float64 `json:"seconds_waiting"` // of the consumer for a batch

	Engine    string `json:"engine"` // "io_uring", "pread", "buffered" or "memory"
	EngineWhy string `json:"engine_why,omitempty"`

	Cache           string           `json:"cache"`
	CachedRows      int64            `json:"cached_rows"`
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

// counters are the running sums behind Stats.
type counters struct {
	batches, rows, hits, misses, edges             atomic.Int64
	opening, sampling, reading, gathering, waiting atomic.Int64 // nanoseconds
}

// since adds the time from start on to a sum.
func since(sum *atomic.Int64, start time.Time) { sum.Add(int64(time.Since(start))) }

// Stats returns the figures so far. It may be called at any time, also after Close.
func (l *Loader) Stats() Stats {
	c := &l.counters
	s := Stats{
		Batches: c.batches.Load(), Rows: c.rows.Load(), Hits: c.hits.Load(), Misses: c.misses.Load(), Edges: c.edges.Load(),
		SecondsOpening:  seconds(&c.opening),
		SecondsSampling: seconds(&c.sampling),
		SecondsReading:  seconds(&c.reading),
		SecondsGather:   seconds(&c.gathering),
		SecondsWaiting:  seconds(&c.waiting),
		Engine:          l.engineName, EngineWhy: l.engineWhy,
		Cache: l.options.Cache, CachedRows: l.cachedRows,
		TopologyOnDisk: !l.split.neighbors || !l.split.edgeIDs,
		IDMap:          "hash",
		Workers:        l.split.workers, Prefetch: l.split.prefetch,
		MemoryLimit: l.options.Memory, MemorySmallest: l.split.smallest,
		MemoryUsed: l.budget.Used(), MemoryPeak: l.budget.Peak(),
		MemoryByPurpose: byPurpose(l.budget.Live()), PeakByPurpose: byPurpose(l.budget.Peaks()),
	}
	if l.split.stamp {
		s.IDMap = "stamp"
	}
	reads := l.engineStats()
	s.BytesRead, s.Requests, s.Retries = reads.Bytes, reads.Requests, reads.Retries
	return s
}

func seconds(sum *atomic.Int64) float64 { return time.Duration(sum.Load()).Seconds() }

func byPurpose(bytes [mem.NumPurposes]int64) map[string]int64 {
	named := make(map[string]int64, mem.NumPurposes)
	for p, n := range bytes {
		named[mem.Purpose(p).String()] = n
	}
	return named
}
