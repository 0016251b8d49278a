// Command hetero compares core/sample's sampler on a heterogeneous graph with a straightforward C++ loop that draws the
// same batches.
//
// The graph is generated: papers that cite papers, authors, institutions, with power-law degrees. All contestants take
// turns in one process; the figures are medians over the rounds. Every batch is compared element by element with that
// of the C++ loop before anything is timed.
//
//	go run ./bench/hetero                          # 2 M papers, 2 M authors, 56 M edges: 0.3 GB
//	go run ./bench/hetero -papers 200000           # a quick look
package main

/*
#cgo CXXFLAGS: -O3 -march=native -std=c++17
#include <stdlib.h>

#include "rivals.h"
*/
import "C"

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
	"unsafe"

	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

var (
	papers    = flag.Int64("papers", 2_000_000, "papers, and authors; a hundredth as many institutions")
	batchSize = flag.Int("batch", 1000, "seeds of a batch, papers")
	batches   = flag.Int("batches", 10, "batches in a turn")
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
	graph, err := newGraph(mem.NewBudget(0), *papers)
	if err != nil {
		return err
	}
	edges := 0
	for _, r := range graph.Relations {
		edges += len(r.Indices32)
	}
	fmt.Printf("nodes %v, %d edges in %d relations, batch %d, %d batches a turn, median of %d turns, GOMAXPROCS %d\n",
		graph.NumNodes, edges, len(graph.Relations), *batchSize, *batches, *rounds, runtime.GOMAXPROCS(0))
	rng := rand.New(rand.NewPCG(3, 4))
	seeds := make([][]int64, *batches)
	for i := range seeds {
		for have := map[int64]bool{}; len(seeds[i]) < *batchSize; {
			if v := rng.Int64N(*papers); !have[v] {
				have[v] = true
				seeds[i] = append(seeds[i], v)
			}
		}
	}
	for _, fanouts := range [][]int64{{10, 5, 5}, {15, 10}} {
		if err := compare(graph, fanouts, seeds); err != nil {
			return err
		}
	}
	return nil
}

// newGraph makes the graph, outside of the Go heap.
func newGraph(budget *mem.Budget, papers int64) (sample.Graph, error) {
	g := sample.Graph{NumNodes: []int64{papers, papers, papers / 100}, Named: true}
	for i, r := range []struct {
		source, target int
		degree         float64
	}{{0, 0, 12}, {1, 0, 6}, {0, 1, 6}, {2, 1, 2}, {1, 2, 200}} {
		block, err := budget.Alloc(mem.Topology, 8*(g.NumNodes[r.target]+1))
		if err != nil {
			return g, err
		}
		indptr, rng := mem.Slice[int64](block), rand.New(rand.NewPCG(1, uint64(i)))
		for v := range g.NumNodes[r.target] {
			// The mean of x^(-2/3) for uniform x, 3, is stretched to the wished one.
			deg := r.degree / 3 * math.Pow(1-rng.Float64(), -2./3)
			indptr[v+1] = indptr[v] + min(int64(deg+rng.Float64()), papers/10)
		}
		if block, err = budget.Alloc(mem.Topology, 4*indptr[len(indptr)-1]); err != nil {
			return g, err
		}
		indices, n := mem.Slice[int32](block), g.NumNodes[r.source]
		for e := range indices {
			x := rng.Float64()
			indices[e] = int32(uint64(float64(n)*x*x) * 0x9e3779b97f4a7c15 >> 20 % uint64(n)) // popular ids lie anywhere
		}
		g.Relations = append(g.Relations, sample.Relation{Source: r.source, Target: r.target, Indptr: offsets.Of(indptr),
			Indices32: indices})
	}
	return g, nil
}

// A contestant draws all batches and returns the number of edges.
type contestant struct {
	name string
	turn func() int64
}

func compare(graph sample.Graph, fanouts []int64, seeds [][]int64) error {
	cfg := sample.Config{}
	for range graph.Relations {
		cfg.Fanouts = append(cfg.Fanouts, fanouts)
	}
	sampler, err := sample.New(graph, cfg)
	if err != nil {
		return err
	}
	hash, stamps := newRival(graph, cfg, true), newRival(graph, cfg, false)
	defer C.hetero_rival_free(hash.c)
	defer C.hetero_rival_free(stamps.c)
	contestants := []contestant{
		{"C++ simple, hash maps", func() int64 { return hash.turn(seeds) }},
		{"C++ simple, arrays", func() int64 { return stamps.turn(seeds) }},
	}
	for _, c := range []struct {
		name    string
		stamp   bool
		threads int
	}{
		{"freshgo, hash maps", false, 1},
		{"freshgo", true, 1},
		{"freshgo, 2 threads, hash maps", false, 2},
		{"freshgo, 2 threads", true, 2},
	} {
		w, err := sampler.NewWorker(mem.NewBudget(0), c.stamp, c.threads)
		if err != nil {
			return err
		}
		defer w.Close()
		if err := verify(stamps, graph, w, seeds); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		contestants = append(contestants, contestant{c.name, func() int64 { return turn(w, seeds) }})
	}
	if err := verify(hash, graph, nil, seeds); err != nil {
		return err
	}
	rates := make([][]float64, len(contestants))
	for range *rounds {
		for i, c := range contestants {
			start := time.Now()
			n := c.turn()
			rates[i] = append(rates[i], float64(n)/time.Since(start).Seconds()/1e6)
		}
	}
	median := func(x []float64) float64 { x = slices.Sorted(slices.Values(x)); return x[len(x)/2] }
	ratio := func(i, to int) float64 { // within a round, where both sides saw the same machine
		var x []float64
		for round := range rates[i] {
			x = append(x, rates[i][round]/rates[to][round])
		}
		return median(x)
	}
	fmt.Printf("\nfanouts %v of every relation\n", fanouts)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tM edges/s\tof C++ with hash maps\tof C++ with arrays")
	for i, c := range contestants {
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%.2f\n", c.name, median(rates[i]), ratio(i, 0), ratio(i, 1))
	}
	return w.Flush()
}

func key(i int) sample.Key { return sample.Key{Seed: 5, Epoch: 6, Batch: uint64(i)} }

// turn draws the batches and returns the number of edges.
func turn(w *sample.Worker, seeds [][]int64) (edges int64) {
	for i := range seeds {
		var sub sample.Subgraph
		if err := w.Sample(context.Background(), key(i), seeds[i], &sub); err != nil {
			log.Fatal(err)
		}
		edges += int64(len(sub.Row))
	}
	return edges
}

// verify compares the batches of a worker with those of a rival. Without a worker the rival only draws.
func verify(r rival, g sample.Graph, w *sample.Worker, seeds [][]int64) error {
	for i := range seeds {
		r.sample(i, seeds[i])
		if w == nil {
			continue
		}
		var got sample.Subgraph
		if err := w.Sample(context.Background(), key(i), seeds[i], &got); err != nil {
			return err
		}
		first, at := int64(0), 0
		for t, n := range g.NumNodes {
			for _, v := range r.nodes(t) {
				if got.Nodes[at] != first+v {
					return fmt.Errorf("batch %d: nodes of type %d differ from the C++ loop's", i, t)
				}
				at++
			}
			first += n
		}
		edges := 0
		for k := range g.Relations {
			pos, row := r.edges(k)
			end := edges + len(pos)
			if end > len(got.Pos) || !slices.Equal(pos, got.Pos[edges:end]) || !slices.Equal(row, got.Row[edges:end]) {
				return fmt.Errorf("batch %d: edges of relation %d differ from the C++ loop's", i, k)
			}
			edges = end
		}
		if at != len(got.Nodes) || edges != len(got.Row) {
			return fmt.Errorf("batch %d: %d nodes and %d edges, the C++ loop has %d and %d", i, len(got.Nodes), len(got.Row), at,
				edges)
		}
	}
	return nil
}

// rival is the C++ loop.
type rival struct{ c *C.hetero_rival }

func newRival(g sample.Graph, cfg sample.Config, hash bool) rival {
	// unsafe: the graph lies outside the Go heap and outlives the rival; the rest is copied by the call. The relations
	// lie in C memory, as they hold pointers.
	n := len(g.Relations)
	relations := (*C.hetero_relation)(C.malloc(C.size_t(n) * C.sizeof_hetero_relation))
	defer C.free(unsafe.Pointer(relations))
	var fanouts []int64
	for i, r := range g.Relations {
		indptr := unsafe.Slice((*int64)(C.malloc(C.size_t(r.Indptr.NumNodes()+1)*8)), r.Indptr.NumNodes()+1)
		for v := range indptr {
			indptr[v] = r.Indptr.Begin(int64(v))
		}
		unsafe.Slice(relations, n)[i] = C.hetero_relation{
			source: C.int32_t(r.Source), target: C.int32_t(r.Target),
			indptr: (*C.int64_t)(unsafe.SliceData(indptr)), indices: (*C.int32_t)(unsafe.SliceData(r.Indices32)),
		}
		fanouts = append(fanouts, cfg.Fanouts[i]...)
	}
	with := C.int32_t(0)
	if hash {
		with = 1
	}
	return rival{C.hetero_rival_new((*C.int64_t)(unsafe.SliceData(g.NumNodes)), C.int32_t(len(g.NumNodes)), relations,
		C.int32_t(n),
		(*C.int64_t)(unsafe.SliceData(fanouts)), C.int32_t(len(cfg.Fanouts[0])), with)}
}

func (r rival) sample(i int, seeds []int64) int64 {
	k := key(i) // unsafe: the call only reads the seeds
	return int64(C.hetero_rival_sample(r.c, C.uint64_t(k.Seed), C.uint64_t(k.Epoch), C.uint64_t(k.Batch), 0,
		(*C.int64_t)(unsafe.SliceData(seeds)), C.int64_t(len(seeds))))
}

func (r rival) turn(seeds [][]int64) (edges int64) {
	for i := range seeds {
		edges += r.sample(i, seeds[i])
	}
	return edges
}

func (r rival) nodes(t int) []int64 {
	var nodes *C.int64_t
	n := C.hetero_rival_nodes(r.c, C.int32_t(t), &nodes)
	return unsafe.Slice((*int64)(nodes), n)
}

func (r rival) edges(relation int) ([]int64, []uint32) {
	var pos *C.int64_t
	var row *C.uint32_t
	n := C.hetero_rival_edges(r.c, C.int32_t(relation), &pos, &row)
	return unsafe.Slice((*int64)(pos), n), unsafe.Slice((*uint32)(row), n)
}
