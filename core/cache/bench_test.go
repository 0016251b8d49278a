package cache

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"freshgo/core/mem"
)

// BenchmarkStep replays batches of 40,000 rows out of 4 M, skewed as the graph of
// bench/loader is (N u^3), and reports the time of an access.
func BenchmarkStep(b *testing.B) {
	const numRows, batchRows, batches = 4_000_000, 40_000, 250
	rng := rand.New(rand.NewPCG(1, 2))
	trace := make([][]uint32, batches)
	last := make([]int, numRows)
	for i := range trace {
		for len(trace[i]) < batchRows {
			f := rng.Float64()
			if row := uint32(f * f * f * numRows); last[row] != i+1 {
				last[row] = i + 1
				trace[i] = append(trace[i], row)
			}
		}
	}
	counter, err := NewCounter(mem.NewBudget(0), numRows)
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range trace {
		counter.Add(rows)
	}
	top := slices.Collect(counter.Hotness(1).Top(numRows / 10))
	for _, name := range append(OnlineNames(), "static") {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var step Step
			var spent time.Duration
			misses, accesses := 0, 0
			for range b.N {
				var policy Policy
				if name == "static" {
					policy, err = NewStatic(mem.NewBudget(0), numRows, slices.Values(top))
				} else {
					policy, err = New(name, mem.NewBudget(0), numRows, numRows/10)
				}
				if err != nil {
					b.Fatal(err)
				}
				for _, rows := range trace { // the cache is full afterwards
					policy.Step(rows, &step)
				}
				for _, rows := range trace {
					start := processorTime(b)
					policy.Step(rows, &step)
					spent += processorTime(b) - start
					accesses += len(rows)
					for _, slot := range step.Slots {
						if slot == Miss {
							misses++
						}
					}
				}
				policy.Close()
			}
			b.ReportMetric(float64(misses)/float64(accesses), "misses/access")
			b.ReportMetric(float64(spent.Nanoseconds())/float64(accesses), "cpu-ns/access")
		})
	}
}

// processorTime returns the processor time of the thread: other work may run on
// the machine.
func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
