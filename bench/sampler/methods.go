package main

/*
#include "rivals.h"
*/
import "C"

import (
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"freshgo/bench/record"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// A pair is a sampler and what it is measured by: a C++ loop that samples the same way or, where there is none, uniform
// draws.
type pair struct {
	name  string
	cfg   sample.Config
	rival func(i int, seeds []int64) sample.Subgraph // nil: uniform draws by freshgo
	same  bool                                       // the rival's batches are equal, element by element
}

var walk = sample.Walk{Walks: 4, Length: 3, Restart: 0.5}

// compareMethods measures the samplers that are not uniform, one thread each, in turns, by the time of that thread.
func compareMethods(budget *mem.Budget, indptr []int64, indices []int32, fanouts []int64, seeds [][]int64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	weights, free, err := newWeights(budget, indptr)
	if err != nil {
		return err
	}
	defer free()
	r := newRival(indptr, indices, fanouts)
	defer C.rival_free(r.c)
	graph := homogeneous(indptr, indices)
	labor, one := &sample.Labor{BatchDependency: 1}, []*sample.Weights{weights}
	walks := []sample.Metapath{{Path: []int{0}, Walks: slices.Repeat([]sample.Walk{walk}, len(fanouts))}}
	pairs := []pair{
		{name: "weighted", cfg: sample.Config{Weights: one}, rival: func(i int, seeds []int64) sample.Subgraph {
			return r.weighted(weights, i, seeds)
		}},
		{name: "walks", cfg: sample.Config{Metapaths: walks}, rival: r.walks, same: true},
		{name: "labor", cfg: sample.Config{Sampler: labor}},
		{name: "labor, weighted", cfg: sample.Config{Sampler: labor, Weights: one}},
	}
	worker := func(cfg sample.Config) (*sample.Worker, error) {
		cfg.Fanouts = [][]int64{fanouts}
		s, err := sample.New(graph, cfg)
		if err != nil {
			return nil, err
		}
		return s.NewWorker(budget, true, 1)
	}
	uniform, err := worker(sample.Config{})
	if err != nil {
		return err
	}
	defer uniform.Close()
	fmt.Printf("\nfanouts %v, walks %+v, one thread\n", fanouts, walk)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\tM edges/s\tof the rival\ttime of uniform per edge\tnodes of uniform")
	for _, p := range pairs {
		w, err := worker(p.cfg)
		if err != nil {
			return err
		}
		if p.same {
			if err := verifyOne(p, w, seeds); err != nil {
				return err
			}
		}
		var rate, ratio, time []float64
		for range *rounds {
			mine, base := timed(func() int64 { return turn(w, seeds, 0, 1) }), timed(func() int64 {
				return turn(uniform, seeds, 0, 1)
			})
			rate, time = append(rate, mine), append(time, base/mine)
			if p.rival != nil {
				ratio = append(ratio, mine/timed(func() int64 {
					var n int64
					for i := range seeds {
						n += int64(len(p.rival(i, seeds[i]).Row))
					}
					return n
				}))
			}
		}
		against := "-"
		if p.rival != nil {
			against = fmt.Sprintf("%.2f", record.Median(ratio))
		}
		fmt.Fprintf(out, "%s\t%.1f\t%s\t%.2f\t%.3f\n", p.name, record.Median(rate), against, record.Median(time),
			float64(nodesIn(w, seeds))/float64(nodesIn(uniform, seeds)))
		w.Close()
	}
	return out.Flush()
}

// timed is millions of edges in a second of the thread's own time: on a busy machine the clock also counts what others
// ran.
func timed(turn func() int64) float64 {
	start := threadTime()
	n := turn()
	return float64(n) / (threadTime() - start).Seconds() / 1e6
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		log.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func nodesIn(w *sample.Worker, seeds [][]int64) (n int) {
	for i := range seeds {
		n += len(batchOf(w, i, seeds[i]).Nodes)
	}
	return n
}

// newWeights gives every edge a weight from 0 to 1.
func newWeights(budget *mem.Budget, indptr []int64) (*sample.Weights, func(), error) {
	edges := indptr[len(indptr)-1]
	weights, err := budget.Alloc(mem.Topology, 4*edges)
	if err != nil {
		return nil, nil, err
	}
	sums, err := budget.Alloc(mem.Topology, 8*max(1, sample.SumsLen(edges)))
	if err != nil {
		weights.Free()
		return nil, nil, err
	}
	w := &sample.Weights{Narrow: mem.Slice[float32](weights), Sums: mem.Slice[float64](sums)[:sample.SumsLen(edges)]}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range w.Narrow {
		w.Narrow[i] = 1 - rng.Float32()
	}
	w.Positive = sample.Sum(offsets.Of(indptr), w.Narrow, w.Sums)
	return w, func() { weights.Free(); sums.Free() }, nil
}

func verifyOne(p pair, w *sample.Worker, seeds [][]int64) error {
	for i := range seeds {
		want, got := p.rival(i, seeds[i]), batchOf(w, i, seeds[i])
		if !slices.Equal(want.Nodes, got.Nodes) || !slices.Equal(want.Ptr, got.Ptr) || !slices.Equal(want.Row, got.Row) {
			return fmt.Errorf("batch %d of %s differs from the C++ loop's", i, p.name)
		}
		for e, times := range want.Pos {
			if got.Weight[e] != float32(times) {
				return fmt.Errorf("batch %d of %s: edge %d has weight %v, the C++ loop %d", i, p.name, e, got.Weight[e], times)
			}
		}
	}
	return nil
}

func batchOf(w *sample.Worker, i int, seeds []int64) sample.Subgraph {
	var g sample.Subgraph
	if err := w.Sample(background, key(i), seeds, &g); err != nil {
		log.Fatal(err)
	}
	return g
}

func (r rival) weighted(weights *sample.Weights, i int, seeds []int64) sample.Subgraph {
	k := key(i)
	var b C.rival_batch
	// unsafe: the weights lie outside the Go heap; the call only reads them and the seeds.
	C.rival_weighted(r.c, (*C.float)(unsafe.SliceData(weights.Narrow)), C.uint64_t(k.Seed), C.uint64_t(k.Epoch),
		C.uint64_t(k.Batch),
		(*C.int64_t)(unsafe.SliceData(seeds)), C.int64_t(len(seeds)), &b)
	return subgraph(b)
}

func (r rival) walks(i int, seeds []int64) sample.Subgraph {
	k := key(i)
	var b C.rival_batch
	// unsafe: the call only reads the seeds.
	C.rival_walks(r.c, C.int64_t(walk.Walks), C.int64_t(walk.Length), C.double(walk.Restart), C.uint64_t(k.Seed),
		C.uint64_t(k.Epoch), C.uint64_t(k.Batch),
		(*C.int64_t)(unsafe.SliceData(seeds)), C.int64_t(len(seeds)), &b)
	return subgraph(b)
}
