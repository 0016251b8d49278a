package scratch_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"freshgo/core/scratch"
	"freshgo/core/ssd"
)

// BenchmarkManyPacks measures the processor time of the thread that adds rows to as many packs as an epoch of
// papers100M has batches, in the order of a scan.
func BenchmarkManyPacks(b *testing.B) {
	const packs, rows, rowBytes = 1178, 4000, 128
	r := newRigIn(b, b.TempDir(), ssd.Options{}, scratch.Options{
		MemoryBytes: 700 * mib, BufferBytes: 690 * mib, FileBytes: 2 << 30,
	})
	defer r.Close()
	order := make([]int32, packs*rows)
	for i := range order {
		order[i] = int32(i % packs)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	data := make([]byte, 8*mib)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	processor := func() int64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return t.Nano()
	}
	took := int64(0)
	for b.Loop() {
		all := make([]*scratch.Pack, packs)
		for i := range all {
			var err error
			if all[i], err = r.pool.NewPack(rows, rowBytes); err != nil {
				b.Fatal(err)
			}
		}
		start := processor()
		for i, to := range order {
			at := i % (len(data) / rowBytes) * rowBytes
			_ = all[to].Add(int32(i), data[at:at+rowBytes])
		}
		took += processor() - start
		for _, k := range all {
			if err := k.Seal(); err != nil {
				b.Fatal(err)
			}
			k.Close()
		}
	}
	b.ReportMetric(float64(took)/float64(b.N*len(order)), "processor-ns/row")
}
