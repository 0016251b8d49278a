package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// graph is in-edges in memory. It is a cache.Adjacency.
type graph struct {
	name    string
	indptr  *offsets.Table
	sources []int32
}

func (g *graph) NumNodes() int64        { return g.indptr.NumNodes() }
func (g *graph) Indptr() *offsets.Table { return g.indptr }

// Scan hands the sources out in pieces that stay in the second-level cache.
func (g *graph) Scan(ctx context.Context, visit func(first int64, sources []int64) error) error {
	piece := make([]int64, 1<<15)
	for lo := 0; lo < len(g.sources); lo += len(piece) {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(piece), len(g.sources)-lo)
		for i, u := range g.sources[lo : lo+n] {
			piece[i] = int64(u)
		}
		if err := visit(int64(lo), piece[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (g *graph) sampled() sample.Graph {
	return sample.Graph{
		NumNodes: []int64{g.NumNodes()}, Relations: []sample.Relation{{Indptr: g.indptr, Indices32: g.sources}},
	}
}

// newGraph sorts edges by target, keeping their order.
func newGraph(name string, numNodes int, from, to []int32) *graph {
	indptr := make([]int64, numNodes+1)
	g := &graph{name: name, sources: make([]int32, len(from))}
	for _, v := range to {
		indptr[v+1]++
	}
	for v := range numNodes {
		indptr[v+1] += indptr[v]
	}
	g.indptr = offsets.Of(indptr)
	at := indptr
	for e, v := range to {
		g.sources[at[v]] = from[e]
		at[v]++
	}
	return g
}

// rmat is R-MAT with the parameters of Graph500: both degrees follow power laws.
func rmat(scale, edges int) *graph {
	rng := rand.New(rand.NewPCG(1, 1))
	from, to := make([]int32, edges), make([]int32, edges)
	for e := range edges {
		for range scale {
			r := rng.Float64()
			from[e], to[e] = from[e]<<1, to[e]<<1
			if r >= 0.57 && r < 0.76 || r >= 0.95 {
				from[e]++
			}
			if r >= 0.76 {
				to[e]++
			}
		}
	}
	// The numbers of R-MAT give its structure away; a store's need not.
	number := rng.Perm(1 << scale)
	for e := range edges {
		from[e], to[e] = int32(number[from[e]]), int32(number[to[e]])
	}
	return newGraph("rmat", 1<<scale, from, to)
}

// communities is symmetric, as a citation graph with its edges in both
// directions: four of five edges stay within a community of about 1000 nodes, and
// a node takes part with a weight that falls with the square root of its rank.
func communities(numNodes, edges int) *graph {
	const size = 1000
	rng := rand.New(rand.NewPCG(2, 2))
	groups := numNodes / size
	from, to := make([]int32, edges), make([]int32, edges)
	ranked := func(n int) int { x := rng.Float64(); return int(x * x * float64(n)) }
	for e := 0; e < edges; e += 2 {
		a, b := ranked(numNodes), ranked(numNodes)
		if rng.IntN(5) > 0 {
			b = ranked(numNodes/groups)*groups + a%groups
		}
		from[e], to[e] = int32(a), int32(b)
		from[e+1], to[e+1] = int32(b), int32(a)
	}
	return newGraph("communities", numNodes, from, to)
}

var npyShape = regexp.MustCompile(`'descr': '<i8', 'fortran_order': False, 'shape': \(2, (\d+)\)`)

// load reads DIR/NAME/edge_index.npy, int64 [2, edges], and the number of nodes
// from its meta.json.
func load(dir, name string) (*graph, error) {
	path := filepath.Join(dir, name, "edge_index.npy")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) < 10 || string(data[:8]) != "\x93NUMPY\x01\x00" {
		return nil, fmt.Errorf("%s: want a .npy file of version 1", path)
	}
	start := 10 + int(binary.LittleEndian.Uint16(data[8:]))
	shape := npyShape.FindSubmatch(data[:min(start, len(data))])
	if shape == nil {
		return nil, fmt.Errorf("%s: want int64 [2, edges], got %s", path, data[10:min(start, len(data))])
	}
	edges, err := strconv.Atoi(string(shape[1]))
	if err != nil || len(data)-start != edges*16 {
		return nil, fmt.Errorf("%s: %d bytes of ids for %s edges", path, len(data)-start, shape[1])
	}
	var meta struct {
		NumNodes int64 `json:"num_nodes"`
	}
	text, err := os.ReadFile(filepath.Join(dir, name, "meta.json"))
	if err == nil {
		err = json.Unmarshal(text, &meta)
	}
	if err != nil {
		return nil, err
	}
	ends := make([]int32, 2*edges)
	for i := range ends {
		id := binary.LittleEndian.Uint64(data[start+8*i:])
		if id >= uint64(meta.NumNodes) || id > 1<<31-1 {
			return nil, fmt.Errorf("%s: id %d, want one below %d", path, id, meta.NumNodes)
		}
		ends[i] = int32(id)
	}
	return newGraph(name, int(meta.NumNodes), ends[:edges], ends[edges:]), nil
}
