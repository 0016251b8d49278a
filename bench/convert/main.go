// Command convert measures the conversion of a graph to a store against what the device and the processor allow.
//
//	go run ./bench/convert -dir /path/on/the/device
//
// Features: a table in memory is converted, and the same number of bytes is written to a plain file in direct writes of
// 1 MiB, interleaved. Edges: a random edge list in memory is converted with everything in memory and within a small
// budget, where the edges pass through the disk, on one processor and on all; where the processors are shared or the
// disk is slow, edges per second of processor time tell what the code costs. Medians are printed. The last store of
// each kind is verified, and its degrees are compared with a count of the input.
//
//	go run ./bench/convert -what changes -nodes 1000000 -edges 10000000 -features 200000000 -dir DIR
//
// Changes: an update of a tensor of a hundredth of the bytes against a conversion, and an append of a hundredth of the
// edges against a copy of the topology; seconds, processor time and bytes written.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"freshgo/bench/record"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

var (
	what     = flag.String("what", "features edges", "what to measure, of features, edges and changes")
	dir      = flag.String("dir", os.TempDir(), "directory on the device to measure")
	nodes    = flag.Int64("nodes", 10_000_000, "nodes of the edge list")
	edges    = flag.Int64("edges", 117_000_000, "edges")
	features = flag.Int64("features", 2<<30, "bytes of features")
	rounds   = flag.Int("rounds", 3, "repetitions; the median counts")
	memory   = flag.Int64("memory", 256<<20, "budget in bytes of the conversion through the disk")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	work, err := os.MkdirTemp(*dir, "bench-convert-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(work)
	if err := os.RemoveAll(work); err != nil {
		log.Print(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(work string) error {
	fmt.Printf("%s %s, %d processors, median of %d\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds)
	for _, part := range []struct {
		name string
		run  func(work string) error
	}{{"features", benchFeatures}, {"edges", benchEdges}, {"changes", benchChanges}} {
		if !strings.Contains(*what, part.name) {
			continue
		}
		if err := part.run(work); err != nil {
			return err
		}
	}
	return nil
}

// benchFeatures compares the conversion of a feature table with plain writes of as many bytes.
func benchFeatures(work string) error {
	const width = 128 // float32
	rows := *features / (width * 4)
	block, err := mem.NewBudget(0).Alloc(mem.Batch, rows*width*4)
	if err != nil {
		return err
	}
	defer block.Free()
	fill(mem.Slice[uint64](block))
	in := store.Input{
		NumNodes:  rows,
		EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, 0}, nil),
		NodeTensors: []store.NamedSource{{
			Name: "x", Source: store.Dense(manifest.DType_FLOAT32, []int64{rows, width}, block.Bytes()),
		}},
	}
	var device, converted []float64
	for range *rounds {
		took, err := writePlain(filepath.Join(work, "plain"), block.Bytes())
		if err != nil {
			return err
		}
		device = append(device, took)
		if took, err = convert(in, filepath.Join(work, "features"), *memory); err != nil {
			return err
		}
		converted = append(converted, took)
	}
	contest := fmt.Sprintf("Features of %d MB", len(block.Bytes())/1e6)
	record.Times("convert", contest, "written directly", device)
	record.Times("convert", contest, "freshgo", converted)
	bytes := float64(len(block.Bytes()))
	plain, ours := bytes/record.Median(device)/1e6, bytes/record.Median(converted)/1e6
	fmt.Printf("features  %6.0f MB: device %5.0f MB/s, conversion %5.0f MB/s, ratio %.2f\n", bytes/1e6, plain, ours,
		ours/plain)
	return verify(filepath.Join(work, "features"), nil)
}

// benchEdges measures edges per second through memory and through the disk.
func benchEdges(work string) error {
	block, err := mem.NewBudget(0).Alloc(mem.Batch, *edges*16)
	if err != nil {
		return err
	}
	defer block.Free()
	list := mem.Slice[int64](block)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range *edges {
		f := rng.Float64()
		list[i] = int64(f * f * f * float64(*nodes)) // skewed sources, uniform targets
		list[*edges+i] = rng.Int64N(*nodes)
	}
	in := store.Input{NumNodes: *nodes, EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, *edges}, block.Bytes())}
	path := filepath.Join(work, "edges")
	all := runtime.GOMAXPROCS(0)
	for _, procs := range slices.Compact([]int{1, all}) {
		for _, budget := range []int64{0, *memory} {
			runtime.GOMAXPROCS(procs)
			var times, busy []float64
			for range *rounds {
				before, err := processorSeconds()
				if err != nil {
					return err
				}
				took, err := convert(in, path, budget)
				if err != nil {
					return err
				}
				after, err := processorSeconds()
				if err != nil {
					return err
				}
				times, busy = append(times, took), append(busy, after-before)
			}
			where := "in memory"
			if budget > 0 {
				where = fmt.Sprintf("within %d MiB", budget>>20)
			}
			record.Times("convert", fmt.Sprintf("%d edges, %d processors", *edges, procs), "freshgo, "+where, times)
			millions := float64(*edges) / 1e6
			fmt.Printf("edges     %6.0f M on %d processors, %s: %.1f M/s, %.1f M per processor second\n",
				millions, procs, where, millions/record.Median(times), millions/record.Median(busy))
		}
	}
	return verify(path, list[*edges:])
}

// convert replaces the store at path and returns the seconds it took.
func convert(in store.Input, path string, budget int64) (float64, error) {
	start := time.Now()
	err := store.Convert(context.Background(), ssd.OS, in, path, store.ConvertOptions{Memory: budget, Overwrite: true})
	return time.Since(start).Seconds(), err
}

// writePlain writes data in direct writes of 1 MiB and returns the seconds it took, fsync included.
func writePlain(path string, data []byte) (float64, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_DIRECT, 0o600)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for chunk := range slices.Chunk(data[:len(data)/4096*4096], 1<<20) {
		if _, err := file.Write(chunk); err != nil {
			return 0, err
		}
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	took := time.Since(start).Seconds()
	if err := file.Close(); err != nil {
		return 0, err
	}
	return took, os.Remove(path)
}

// verify reads a store back and compares its degrees with those of targets.
func verify(path string, targets []int64) error {
	ctx, budget := context.Background(), mem.NewBudget(0)
	s, err := store.Open(ssd.OS, path)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := s.Verify(ctx, nil); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	fmt.Printf("          verified %.0f MB at %.0f MB/s\n", float64(s.Describe().NumBytes)/1e6,
		float64(s.Describe().NumBytes)/took/1e6)
	if targets == nil {
		return nil
	}
	indptr, err := s.EdgeTypes()[0].LoadIndptr(ctx, budget, mem.Topology)
	if err != nil {
		return err
	}
	defer indptr.Free()
	degree := make([]int64, *nodes)
	for _, t := range targets {
		degree[t]++
	}
	for t, n := range degree {
		if indptr.Degree(int64(t)) != n {
			return fmt.Errorf("node %d has %d in-edges in the store, expected %d", t, indptr.Degree(int64(t)), n)
		}
	}
	return nil
}

// processorSeconds is the processor time of this process so far.
func processorSeconds() (float64, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds(), nil
}

func fill(words []uint64) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range words {
		words[i] = rng.Uint64()
	}
}
