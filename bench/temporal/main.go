// Command temporal compares temporal draws of core/sample with a C++ loop of the same semantics, in turns, in one
// process. Where the strategy is "last" nothing is random, and every batch of both must have the same nodes, edges and
// positions.
//
//	go run ./bench/temporal                               # 2 M nodes, 23 M edges: 0.3 GB
//	go run ./bench/temporal -nodes 200000 -edges 2300000  # a quick look
package main

/*
#cgo CXXFLAGS: -O3 -march=native -std=c++17
#include "rival.h"
*/
import "C"

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"freshgo/bench/record"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

var (
	numNodes  = flag.Int64("nodes", 2_000_000, "nodes of the graph")
	numEdges  = flag.Int64("edges", 23_000_000, "edges of the graph, about")
	batchSize = flag.Int("batch", 1000, "seeds of a batch")
	batches   = flag.Int("batches", 20, "batches in a turn")
	rounds    = flag.Int("rounds", 7, "turns of each contestant")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// graph has heavy-tailed degrees and edges at random times, ascending in each list, outside the Go heap.
type graph struct {
	indptr, times []int64
	indices       []int32
}

func newGraph(budget *mem.Budget) (*graph, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	mean, g := float64(*numEdges)/float64(*numNodes), new(graph)
	alloc := func(n int64) *mem.Block {
		block, err := budget.Alloc(mem.Topology, n)
		if err != nil {
			log.Fatal(err)
		}
		return block
	}
	g.indptr = mem.Slice[int64](alloc(8 * (*numNodes + 1)))[:*numNodes+1]
	for v := range *numNodes {
		deg := min(mean/3*math.Pow(1-rng.Float64(), -1/1.5), 1e5) // Pareto, of this mean
		g.indptr[v+1] = g.indptr[v] + int64(deg)
	}
	edges := g.indptr[*numNodes]
	g.indices, g.times = mem.Slice[int32](alloc(4 * edges))[:edges], mem.Slice[int64](alloc(8 * edges))[:edges]
	for e := range edges {
		u := rng.Float64()
		g.indices[e], g.times[e] = int32(u*u*float64(*numNodes)), rng.Int64N(1_000_000)
	}
	for v := range *numNodes {
		slices.Sort(g.times[g.indptr[v]:g.indptr[v+1]])
	}
	return g, nil
}

func run() error {
	budget := mem.NewBudget(0)
	g, err := newGraph(budget)
	if err != nil {
		return err
	}
	fmt.Printf("%d nodes, %d edges, batch %d, %d batches a turn, median of %d turns, GOMAXPROCS %d\n",
		*numNodes, len(g.indices), *batchSize, *batches, *rounds, runtime.GOMAXPROCS(0))
	rng := rand.New(rand.NewPCG(3, 4))
	requests := make([]sample.Request, *batches)
	for i := range requests {
		for range *batchSize {
			requests[i].Seeds = append(requests[i].Seeds, rng.Int64N(*numNodes))
			requests[i].Times = append(requests[i].Times, rng.Int64N(1_000_000))
		}
	}
	for _, fanouts := range [][]int64{{10, 10}, {15, 10, 5}} {
		for _, last := range []bool{false, true} {
			if err := compare(budget, g, fanouts, last, requests); err != nil {
				return err
			}
		}
	}
	return nil
}

// rival draws a batch with the C++ loop and returns its edges, its nodes and the sum of its positions.
func (g *graph) rival(fanouts []int64, last, table bool, i int, r sample.Request) (edges, nodes int64, sum uint64) {
	flag := func(b bool) C.int32_t {
		if b {
			return 1
		}
		return 0
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(fanouts))
	// unsafe: the graph lies outside the Go heap, the fanouts are pinned; the call only reads them and the seeds.
	c := C.rival_graph{
		indptr: (*C.int64_t)(unsafe.SliceData(g.indptr)), indices: (*C.int32_t)(unsafe.SliceData(g.indices)),
		times:   (*C.int64_t)(unsafe.SliceData(g.times)),
		fanouts: (*C.int64_t)(unsafe.SliceData(fanouts)), hops: C.int64_t(len(fanouts)), last: flag(last), table: flag(table),
	}
	var n C.int64_t
	var s C.uint64_t
	e := C.rival_draw(&c, C.uint64_t(i), (*C.int64_t)(unsafe.SliceData(r.Seeds)), (*C.int64_t)(unsafe.SliceData(r.Times)),
		C.int64_t(len(r.Seeds)), &n, &s)
	return int64(e), int64(n), uint64(s)
}

func compare(budget *mem.Budget, g *graph, fanouts []int64, last bool, requests []sample.Request) error {
	graph := sample.Graph{
		NumNodes: []int64{*numNodes}, Relations: []sample.Relation{{Indptr: offsets.Of(g.indptr), Indices32: g.indices}},
	}
	sampler, err := sample.New(graph, sample.Config{
		Fanouts: [][]int64{fanouts}, Temporal: []*sample.Temporal{{Times: &sample.Times{Ascending: g.times}, Last: last}},
	})
	if err != nil {
		return err
	}
	var workers [2]*sample.Worker // of one thread, and of two
	for i := range workers {
		if workers[i], err = sampler.NewWorker(budget, false, i+1); err != nil {
			return err
		}
		defer workers[i].Close()
	}
	draw := func(w *sample.Worker, i int) (sub sample.Subgraph) {
		if err := w.Draw(context.Background(), sample.Key{Batch: uint64(i)}, requests[i], &sub); err != nil {
			log.Fatal(err)
		}
		return sub
	}
	if last {
		for i, r := range requests {
			edges, nodes, sum := g.rival(fanouts, last, true, i, r)
			sub := draw(workers[1], i)
			for _, p := range sub.Pos {
				sum -= uint64(p)
			}
			if edges != int64(len(sub.Row)) || nodes != int64(len(sub.Nodes)) || sum != 0 {
				return fmt.Errorf("batch %d differs from the C++ loop's: %d and %d edges, %d and %d nodes", i, edges, len(sub.Row),
					nodes, len(sub.Nodes))
			}
		}
	}
	contestants := []func(i int) int64{
		func(i int) int64 { edges, _, _ := g.rival(fanouts, last, false, i, requests[i]); return edges },
		func(i int) int64 { edges, _, _ := g.rival(fanouts, last, true, i, requests[i]); return edges },
		func(i int) int64 { return int64(len(draw(workers[0], i).Row)) },
		func(i int) int64 { return int64(len(draw(workers[1], i).Row)) },
	}
	rates := make([][]float64, len(contestants))
	for range *rounds {
		for c, one := range contestants {
			start, edges := time.Now(), int64(0)
			for i := range requests {
				edges += one(i)
			}
			rates[c] = append(rates[c], float64(edges)/time.Since(start).Seconds()/1e6)
		}
	}
	fmt.Printf("\nfanouts %v, last %v\n", fanouts, last)
	for c, name := range []string{"C++, unordered_map", "C++, flat table", "freshgo, 1 thread", "freshgo, 2 threads"} {
		fmt.Printf("%-20s %6.1f M edges/s  %5.2f of the first  %5.2f of the second\n", name,
			record.Median(rates[c]), record.MedianRatio(rates[c], rates[0]), record.MedianRatio(rates[c], rates[1]))
	}
	return nil
}
