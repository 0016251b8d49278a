package scratch_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/scratch"
	"freshgo/core/ssd"
)

// BenchmarkPack fills, seals and reads packs of 32 MiB with rows of 512 bytes, four at a time in the file;
// BenchmarkWrites measures the disk's limit in the same chunks.
func BenchmarkPack(b *testing.B) {
	const rows, rowBytes = 64 << 10, 512
	for name, o := range map[string]scratch.Options{
		"memory": {MemoryBytes: 1 << 30},
		"file":   {MemoryBytes: 8 * mib, FileBytes: 1 << 30},
	} {
		for _, part := range []string{"add", "read"} {
			b.Run(name+"/"+part, func(b *testing.B) {
				r := newRigIn(b, b.TempDir(), ssd.Options{}, o)
				defer r.Close()
				if o.FileBytes > 0 {
					r.fill(o)
				}
				data := row(1, 1, rowBytes)
				b.SetBytes(4 * rows * rowBytes)
				for b.Loop() {
					if part == "read" {
						b.StopTimer()
					}
					var packs [4]*scratch.Pack
					for i := range packs {
						packs[i], _ = r.pool.NewPack(rows, rowBytes)
					}
					for pos := range int32(rows) {
						for _, k := range packs {
							_ = k.Add(pos, data)
						}
					}
					for _, k := range packs {
						if err := k.Seal(); err != nil {
							b.Fatal(err)
						}
					}
					if part == "read" {
						b.StartTimer()
						for _, k := range packs {
							if err := k.Read(context.Background(), func(scratch.Positions, []byte) error { return nil }); err != nil {
								b.Fatal(err)
							}
						}
						b.StopTimer()
					}
					for _, k := range packs {
						k.Close()
					}
					if part == "read" {
						b.StartTimer()
					}
				}
			})
		}
	}
}

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

func BenchmarkWrites(b *testing.B) {
	const total = 128 * mib
	r := newRigIn(b, b.TempDir(), ssd.Options{}, scratch.Options{})
	defer r.Close()
	temp, err := r.engine.CreateTemp(r.dir, r.budget)
	if err != nil {
		b.Fatal(err)
	}
	chunk := r.engine.TempChunk()
	block, err := r.budget.Alloc(mem.Staging, int64(chunk))
	if err != nil {
		b.Fatal(err)
	}
	defer block.Free()
	defer temp.Close()
	if err := temp.Grow(total); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(total)
	for b.Loop() {
		writers := r.engine.TempWriters()
		errs := make(chan error, writers)
		for w := range writers {
			guard.Go(func() {
				var err error
				for off := w * chunk; off < total && err == nil; off += writers * chunk {
					err = temp.Write(block.Bytes(), int64(off))
				}
				errs <- err
			}, func(p *guard.PanicError) { errs <- p })
		}
		for range writers {
			if err := <-errs; err != nil {
				b.Fatal(err)
			}
		}
	}
}
