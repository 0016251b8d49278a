// Command ssd measures the read engines on random reads against a plain C loop over liburing, on the same file,
// interleaved round by round.
//
//	go run -tags liburing ./bench/ssd -file /path/on/the/disk/bench.bin -gib 8
//
// It reports requests per second, processor time per request and the ratios to the first contender, and the rate of
// sequential writing against a loop of direct writes. Every page read is checked. Without the tag (it needs liburing's
// header and library) only the engines are measured.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"freshgo/bench/record"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

type config struct {
	path     string
	pages    int64
	block    int
	depth    int
	requests int
	rounds   int
	callers  int
	busy     int
}

// sample is one round of one contender.
type sample struct {
	seconds    float64
	cpuSeconds float64
}

type contender struct {
	name string
	read func(offsets []int64) error
	runs []sample
}

func main() {
	log.SetFlags(0)
	var c config
	var gib float64
	flag.StringVar(&c.path, "file", "ssd-bench.bin", "file to read; made when it is missing or has another size")
	flag.Float64Var(&gib, "gib", 4, "its size in GiB; larger than the memory that a disk or a host may cache with")
	flag.IntVar(&c.block, "block", 4096, "bytes of a request")
	flag.IntVar(&c.depth, "depth", 128, "requests in flight")
	flag.IntVar(&c.requests, "requests", 100_000, "requests of a round")
	flag.IntVar(&c.rounds, "rounds", 5, "rounds; the median counts")
	flag.IntVar(&c.callers, "callers", 2, "goroutines that call Read")
	flag.IntVar(&c.busy, "busy", 0, "goroutines that compute meanwhile, as samplers do")
	flag.Parse()
	c.pages = int64(gib * (1 << 30) / ssd.PageBytes)
	if err := run(c); err != nil {
		log.Fatal(err)
	}
}

func run(c config) error {
	if err := prepare(c); err != nil {
		return err
	}
	var contenders []*contender
	if rivalRead != nil {
		contenders = append(contenders,
			&contender{name: "C liburing", read: func(o []int64) error { return rivalRead(c, o, false) }},
			&contender{name: "C liburing, registered", read: func(o []int64) error { return rivalRead(c, o, true) }})
	}
	budget := mem.NewBudget(0)
	for _, kind := range []ssd.Kind{ssd.IOUring, ssd.Pread, ssd.Buffered} {
		engine, err := ssd.NewEngine(ssd.Options{Kind: kind, Depth: c.depth, FS: ssd.OS, Budget: budget},
			filepath.Dir(c.path))
		if err != nil {
			log.Printf("left out: %v", err)
			continue
		}
		defer engine.Close()
		handle, err := engine.Open(c.path)
		if err != nil {
			return err
		}
		defer handle.Close()
		contenders = append(contenders, &contender{name: "freshgo " + string(kind), read: func(o []int64) error {
			return readAll(c, engine, handle, o)
		}})
	}
	stop := keepBusy(c.busy)
	defer stop()
	for round := range c.rounds {
		offsets := randomOffsets(c, uint64(round))
		for _, who := range contenders {
			if err := dropCache(c.path); err != nil {
				return err
			}
			before, start := cpuSeconds(), time.Now()
			if err := who.read(offsets); err != nil {
				return fmt.Errorf("%s: %w", who.name, err)
			}
			who.runs = append(who.runs, sample{time.Since(start).Seconds(), cpuSeconds() - before})
		}
	}
	report(c, contenders)
	return compareWriting(c)
}

func report(c config, contenders []*contender) {
	fmt.Printf(
		"%s/%s, %d processors, GOMAXPROCS %d; %d-byte reads of %.1f GiB, depth %d, "+
			"%d busy goroutines; median of %d rounds of %d\n",
		runtime.GOOS,
		runtime.GOARCH,
		runtime.NumCPU(),
		runtime.GOMAXPROCS(0),
		c.block,
		float64(c.pages)*ssd.PageBytes/(1<<30),
		c.depth,
		c.busy,
		c.rounds,
		c.requests,
	)
	fmt.Printf("%-24s %12s %14s %12s %12s\n", "", "IOPS", "CPU us/request", "IOPS ratio", "CPU ratio")
	first := contenders[0]
	for _, who := range contenders {
		n := float64(c.requests)
		record.Times("ssd", fmt.Sprintf("%d random reads of %d bytes", c.requests, c.block), who.name, secondsOf(who.runs))
		iops := func(s sample) float64 { return n / s.seconds }
		cpu := func(s sample) float64 { return s.cpuSeconds / n * 1e6 }
		fmt.Printf("%-24s %12.0f %14.2f %12.2f %12.2f\n", who.name, median(who.runs, iops), median(who.runs, cpu),
			medianRatio(who.runs, first.runs, iops), medianRatio(who.runs, first.runs, cpu))
	}
}

func secondsOf(runs []sample) (seconds []float64) {
	for _, s := range runs {
		seconds = append(seconds, s.seconds)
	}
	return seconds
}

func median(runs []sample, of func(sample) float64) float64 {
	values := make([]float64, len(runs))
	for i, s := range runs {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// medianRatio compares round by round, so that a disk that changes its speed disturbs little.
func medianRatio(runs, base []sample, of func(sample) float64) float64 {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = of(runs[i]) / of(base[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// prepare writes the file: each page begins with its own number.
func prepare(c config) error {
	if info, err := os.Stat(c.path); err == nil && info.Size() == c.pages*ssd.PageBytes {
		return nil
	}
	w, err := ssd.NewWriter(ssd.OS, c.path, mem.NewBudget(0), 4<<20)
	if err != nil {
		return err
	}
	defer w.Abort()
	page := make([]byte, ssd.PageBytes)
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range page {
		page[i] = byte(noise.Uint32())
	}
	for i := range c.pages {
		binary.LittleEndian.PutUint64(page, uint64(i))
		if _, err := w.Write(page); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return nil
}

func randomOffsets(c config, seed uint64) []int64 {
	r := rand.New(rand.NewPCG(seed, 3))
	offsets := make([]int64, c.requests)
	for i := range offsets {
		offsets[i] = r.Int64N(c.pages-int64(c.block/ssd.PageBytes)+1) * ssd.PageBytes
	}
	return offsets
}

// readAll reads as the loader does: several callers, each with lists of some thousand ranges.
func readAll(c config, e *ssd.Engine, h *ssd.Handle, offsets []int64) error {
	const list = 4096
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, c.callers)
	for caller := range c.callers {
		wg.Go(func() {
			ranges := make([]ssd.Range, 0, list)
			for {
				begin := int(next.Add(list)) - list
				if begin >= len(offsets) || errs[caller] != nil {
					return
				}
				ranges = ranges[:0]
				for _, off := range offsets[begin:min(begin+list, len(offsets))] {
					ranges = append(ranges, ssd.Range{Off: off, Len: int32(c.block)})
				}
				errs[caller] = e.Read(context.Background(), h, ranges, func(i int, data []byte) error {
					if got, want := binary.LittleEndian.Uint64(data), uint64(ranges[i].Off/ssd.PageBytes); got != want {
						return fmt.Errorf("page %d holds %d", want, got)
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func keepBusy(n int) (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for !done.Load() {
			}
		})
	}
	return func() {
		done.Store(true)
		wg.Wait()
	}
}

func dropCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const dontNeed = 4
	if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
		return fmt.Errorf("dropping the page cache of %s: %w", path, errno)
	}
	return nil
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
