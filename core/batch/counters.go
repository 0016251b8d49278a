package batch

import (
	"sync/atomic"
	"time"
)

// Counters are the running sums of the work at batches, of all goroutines.
type Counters struct {
	Batches, Rows, Hits, Misses, Packed, Held, Filled, Edges atomic.Int64
	Padded                                                   atomic.Int64
	Resampled, PackErrors                                    atomic.Int64
	TableRows, TableRowsLate                                 atomic.Int64 // of tables that training changes
	Opening, Sampling, Planning, Reading, Gathering, Waiting Timer
	FirstBatch, Epoch                                        Timer // of the last one
}

// Timer sums time.
type Timer struct{ nanoseconds atomic.Int64 }

// Since adds the time from start on.
func (t *Timer) Since(start time.Time) { t.nanoseconds.Add(int64(time.Since(start))) }

// Set replaces the sum.
func (t *Timer) Set(d time.Duration) { t.nanoseconds.Store(int64(d)) }

func (t *Timer) Total() time.Duration { return time.Duration(t.nanoseconds.Load()) }

func (t *Timer) Seconds() float64 { return t.Total().Seconds() }
