// Command sampler compares core/sample with C++ loops that draw the same batches, and with what the machine's memory
// allows.
//
// All contestants work on one generated graph in one process and take turns; the figures are medians over the rounds.
// Every batch is compared element by element with that of the C++ loop before anything is timed.
//
//	go run ./bench/sampler                                    # 10 M nodes, 117 M edges: 1.1 GB
//	go run ./bench/sampler -only methods                      # weighted draws, walks, LABOR: another 0.5 GB
//	go run ./bench/sampler -nodes 1000000 -edges 11700000     # a quick look
package main

/*
#cgo CXXFLAGS: -O3 -march=native -std=c++17
#include "rivals.h"
*/
import "C"

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
	"unsafe"

	"freshgo/bench/record"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

var (
	numNodes  = flag.Int64("nodes", 10_000_000, "nodes of the graph")
	numEdges  = flag.Int64("edges", 117_000_000, "edges of the graph, about")
	batchSize = flag.Int("batch", 1000, "seeds of a batch")
	batches   = flag.Int("batches", 10, "batches in a turn")
	only      = flag.String("only", "", "uniform, or methods: the other samplers")
	rounds    = flag.Int("rounds", 7, "turns of each contestant")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	budget := mem.NewBudget(0)
	indptr, indices, err := newGraph(budget, *numNodes, *numEdges)
	if err != nil {
		return err
	}
	fmt.Printf("%d nodes, %d edges, batch %d, %d batches a turn, median of %d turns, GOMAXPROCS %d\n",
		*numNodes, len(indices), *batchSize, *batches, *rounds, runtime.GOMAXPROCS(0))
	rng := rand.New(rand.NewPCG(3, 4))
	seeds := make([][]int64, *batches)
	for i := range seeds {
		for range *batchSize {
			seeds[i] = append(seeds[i], rng.Int64N(*numNodes))
		}
	}
	for _, fanouts := range [][]int64{{15, 10, 5}, {10, 10, 10}} {
		if *only == "" || *only == "uniform" {
			if err := compare(budget, indptr, indices, fanouts, seeds); err != nil {
				return err
			}
		}
		if *only == "" || *only == "methods" {
			if err := compareMethods(budget, indptr, indices, fanouts, seeds); err != nil {
				return err
			}
		}
	}
	return nil
}

// A contestant draws all batches and returns the number of edges.
type contestant struct {
	name string
	turn func() int64
}

func compare(budget *mem.Budget, indptr []int64, indices []int32, fanouts []int64, seeds [][]int64) error {
	r := newRival(indptr, indices, fanouts)
	defer C.rival_free(r.c)
	sampler, err := sample.New(homogeneous(indptr, indices), sample.Config{Fanouts: [][]int64{fanouts}})
	if err != nil {
		return err
	}
	var workers []*sample.Worker
	newWorker := func(stamp bool, threads int) *sample.Worker {
		w, err := sampler.NewWorker(budget, stamp, threads)
		if err != nil {
			log.Fatal(err)
		}
		workers = append(workers, w)
		return w
	}
	one, hash, two, left, right := newWorker(true, 1), newWorker(false, 1), newWorker(true, 2), newWorker(true, 1),
		newWorker(true, 1)
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	if err := verify(r, workers, seeds); err != nil {
		return err
	}
	contestants := []contestant{
		{"C++ simple", func() int64 { return r.turn(false, seeds) }},
		{"C++ staged", func() int64 { return r.turn(true, seeds) }},
		{"freshgo", func() int64 { return turn(one, seeds, 0, 1) }},
		{"freshgo, hash id map", func() int64 { return turn(hash, seeds, 0, 1) }},
		{"freshgo, 2 threads in a batch", func() int64 { return turn(two, seeds, 0, 1) }},
		{"freshgo, 2 batches at a time", func() int64 {
			var total [2]int64
			var wg sync.WaitGroup
			for i, w := range []*sample.Worker{left, right} {
				wg.Go(func() { total[i] = turn(w, seeds, i, 2) })
			}
			wg.Wait()
			return total[0] + total[1]
		}},
		{"random loads", func() int64 {
			const loads = 20_000_000
			C.random_loads((*C.int32_t)(unsafe.SliceData(indices)), C.int64_t(len(indices)), loads)
			return loads
		}},
	}
	rates := make([][]float64, len(contestants))
	for range *rounds {
		for i, c := range contestants {
			start := time.Now()
			n := c.turn()
			rates[i] = append(rates[i], float64(n)/time.Since(start).Seconds()/1e6)
		}
	}
	report(fanouts, contestants, rates)
	return nil
}

func homogeneous(indptr []int64, indices []int32) sample.Graph {
	lists := sample.Relation{Indptr: offsets.Of(indptr), Indices32: indices}
	return sample.Graph{NumNodes: []int64{*numNodes}, Relations: []sample.Relation{lists}}
}

func report(fanouts []int64, contestants []contestant, rates [][]float64) {
	ratio := func(i, to int) float64 { return record.MedianRatio(rates[i], rates[to]) }
	loads := len(contestants) - 1
	for i, c := range contestants {
		record.Rates("sampler", fmt.Sprintf("Sampling, %v", fanouts), c.name, "M edges/s", rates[i])
	}
	fmt.Printf("\nfanouts %v\n", fanouts)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tM edges/s\tof C++ staged\tof C++ simple\tof freshgo\tof loads/2.2")
	for i, c := range contestants[:loads] {
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\n", c.name, record.Median(rates[i]), ratio(i, 1), ratio(i, 0),
			ratio(i, 2), 2.2*ratio(i, loads))
	}
	w.Flush()
	fmt.Printf("independent random loads: %.1f M/s\n", record.Median(rates[loads]))
}

// turn draws the batches first, first+step, ... and returns the number of edges.
func turn(w *sample.Worker, seeds [][]int64, first, step int) int64 {
	var edges int64
	for i := first; i < len(seeds); i += step {
		var sub sample.Subgraph
		if err := w.Sample(background, key(i), seeds[i], &sub); err != nil {
			log.Fatal(err)
		}
		edges += int64(len(sub.Row))
	}
	return edges
}

var background = context.Background()

func key(i int) sample.Key { return sample.Key{Seed: 5, Epoch: 6, Batch: uint64(i)} }

// verify compares the batches of all contestants.
func verify(r rival, workers []*sample.Worker, seeds [][]int64) error {
	for i := range seeds {
		for _, staged := range []bool{false, true} {
			want := r.sample(staged, i, seeds[i])
			for j, w := range workers {
				var got sample.Subgraph
				if err := w.Sample(context.Background(), key(i), seeds[i], &got); err != nil {
					return err
				}
				if !slices.Equal(want.Nodes, got.Nodes) || !slices.Equal(want.Ptr, got.Ptr) || !slices.Equal(want.Row, got.Row) ||
					!slices.Equal(want.Pos, got.Pos) {
					return fmt.Errorf("batch %d of worker %d differs from the C++ loop's (staged: %v)", i, j, staged)
				}
			}
		}
	}
	return nil
}

// rival is one set of C++ loops.
type rival struct{ c *C.rival }

func newRival(indptr []int64, indices []int32, fanouts []int64) rival {
	// unsafe: the graph lies outside the Go heap and outlives the rival; fanouts are copied by the call.
	return rival{C.rival_new(C.int64_t(*numNodes), (*C.int64_t)(unsafe.SliceData(indptr)),
		(*C.int32_t)(unsafe.SliceData(indices)),
		(*C.int64_t)(unsafe.SliceData(fanouts)), C.int32_t(len(fanouts)), C.int64_t(*batchSize))}
}

func (r rival) sample(staged bool, i int, seeds []int64) sample.Subgraph {
	k := key(i)
	var b C.rival_batch
	draw := func(seed, epoch, batch C.uint64_t, first *C.int64_t, n C.int64_t) {
		if staged {
			C.rival_staged(r.c, seed, epoch, batch, first, n, &b)
		} else {
			C.rival_simple(r.c, seed, epoch, batch, first, n, &b)
		}
	}
	// unsafe: the call only reads the seeds; what it returns stays valid until the next call.
	draw(C.uint64_t(k.Seed), C.uint64_t(k.Epoch), C.uint64_t(k.Batch), (*C.int64_t)(unsafe.SliceData(seeds)),
		C.int64_t(len(seeds)))
	return subgraph(b)
}

// subgraph is a view of a rival's batch, valid until its next.
func subgraph(b C.rival_batch) sample.Subgraph {
	return sample.Subgraph{
		Nodes: unsafe.Slice((*int64)(b.nodes), b.num_nodes),
		Ptr:   unsafe.Slice((*int64)(b.ptr), b.num_targets+1),
		Pos:   unsafe.Slice((*int64)(b.pos), b.num_edges),
		Row:   unsafe.Slice((*uint32)(b.row), b.num_edges),
	}
}

func (r rival) turn(staged bool, seeds [][]int64) int64 {
	var edges int64
	for i := range seeds {
		edges += int64(len(r.sample(staged, i, seeds[i]).Row))
	}
	return edges
}
