package plan

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// benchTrace makes batches of distinct rows, 20M accesses in all.
func benchTrace(numRows, width, total int, skew float64) []Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := make([]int32, numRows)
	var trace []Batch
	for b := int32(1); total > 0; b++ {
		batch := make(Batch, 0, width)
		for len(batch) < width {
			row := uint32(float64(numRows) * math.Pow(rng.Float64(), skew))
			// spread the hot rows over the file
			row = uint32(uint64(row) * 2654435761 % uint64(numRows))
			if seen[row] != b {
				seen[row] = b
				batch = append(batch, row)
			}
		}
		trace = append(trace, batch)
		total -= width
	}
	return trace
}

func BenchmarkPlan(b *testing.B) {
	const numRows, width, total = 4_000_000, 39_000, 20_000_000
	for _, skew := range []float64{3, 1} {
		trace := benchTrace(numRows, width, total, skew)
		for _, size := range []int{4, 16, 1 << 20} {
			for _, share := range []float64{0.1, 0.3} {
				for _, name := range []string{"random", "auto"} {
					b.Run(fmt.Sprintf("skew=%g/superbatch=%d/cache=%g/%s", skew, size, share, name), func(b *testing.B) {
						c := Config{
							NumRows: numRows, Capacity: int64(share * numRows), CarryOver: true, Transfer: name,
							RowBytes: 512, PackMemory: 64 << 20, PackFile: 4 << 30, Depth: 3, SlotBytes: 64 << 10,
						}
						if name == "auto" {
							c.Device = testDevice()
							c.Tables = []ssd.Layout{{RowBytes: 512, RowsPerPage: 8, NumRows: numRows}}
						}
						for b.Loop() {
							benchPlans(b, c, trace, size)
						}
					})
				}
			}
		}
	}
}

// processorTime returns the processor time of this thread. A clock would count the work of others on a shared machine.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// perMillion reports the least and the median of the times of parts of a run, for a million accesses.
func perMillion(b *testing.B, times []float64) {
	slices.Sort(times)
	b.ReportMetric(times[0], "least-ms/Maccess")
	b.ReportMetric(times[len(times)/2], "median-ms/Maccess")
}

func benchPlans(b *testing.B, c Config, trace []Batch, size int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	budget := mem.NewBudget(0)
	p, err := New(budget, c)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	chosen := map[string]int{}
	var times []float64
	widest := 0
	for first := 0; first < len(trace); first += size {
		end := min(first+size, len(trace))
		ahead := min(end+size, len(trace))
		start := processorTime()
		s, err := p.Plan(context.Background(), int64(first), InMemory(trace[first:end]), InMemory(trace[end:ahead]))
		if err != nil {
			b.Fatal(err)
		}
		took := processorTime() - start
		chosen[s.Choice.Chosen]++
		accesses := 0
		for _, t := range trace[first:end] {
			accesses += len(t)
		}
		widest = max(widest, accesses)
		if ahead-end == size || len(trace) <= size { // an ordinary one
			times = append(times, took.Seconds()*1e9/float64(accesses))
		}
		s.Release()
	}
	perMillion(b, times)
	b.ReportMetric(float64(budget.Peak()-StateBytes(c.NumRows, c.Capacity))/float64(widest), "B/access")
	b.Log(chosen)
}

// BenchmarkLimit measures what a plan cannot do without: for each access one word of the table of rows is prefetched,
// read and written.
func BenchmarkLimit(b *testing.B) {
	const numRows, width, total = 4_000_000, 39_000, 4_000_000
	trace := benchTrace(numRows, width, total, 3)
	table, err := mem.NewBudget(0).Alloc(mem.FeatureCache, numRows*4)
	if err != nil {
		b.Fatal(err)
	}
	defer table.Free()
	rows, next := mem.Slice[uint32](table), make([]uint32, width)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times []float64
	for b.Loop() {
		for _, batch := range trace {
			start := processorTime()
			for lo := 0; lo < len(batch); lo += stride {
				hi := min(lo+stride, len(batch))
				asm.Prefetch(rows, batch[min(lo+reach, len(batch)):min(hi+reach, len(batch))])
				for i, row := range batch[lo:hi] {
					next[lo+i] = rows[row]
					rows[row] = uint32(lo + i)
				}
			}
			times = append(times, (processorTime()-start).Seconds()*1e9/float64(len(batch)))
		}
	}
	perMillion(b, times)
}
