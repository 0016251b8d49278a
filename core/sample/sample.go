// Package sample draws k-hop neighbourhoods of a graph in CSC form.
//
// It guarantees
//   - exact uniform draws: without replacement every in-edge of a target is drawn with probability min(1, k/degree), with
//     replacement the k draws are independent; a fanout of -1 takes all in-edges in order;
//   - or what Config asks for instead: draws in proportion to weights (weighted), layer by layer (Labor), random walks (Walk);
//   - PyG's directional layout: the in-edges of a node are drawn once, in the hop after the one that first reached it;
//   - that a batch is a pure function of graph, Config, Key and seeds: it is the same for any number of threads, for either
//     id map, and whether the adjacency is in memory or fetched (see stream for the random numbers).
//
// The loader calls it: one Sampler for a graph, one Worker for each batch in preparation.
//
// Cost: bound by the latency of about 2.2 cache misses for an edge (indptr, indices, id map), hidden by drawing in small
// units whose misses are prefetched one stage ahead (see hop). Graph arrays and scratch should lie in huge pages, worth
// 1.1 to 1.5 times the speed: the scratch does, by mem; for the graph it is up to the caller, who gets it from mem.Budget too.
package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"freshgo/core/mem"
)

// Errors of this package wrap one of these, or context.Canceled and the like, mem.ErrBudget, or what Adjacency.Fetch returned.
var (
	ErrGraph    = errors.New("inconsistent graph")
	ErrFanout   = errors.New("invalid fanout")
	ErrSeed     = errors.New("seed out of range")
	ErrTooLarge = errors.New("batch too large")
	ErrConfig   = errors.New("invalid sampler")
	ErrNegative = errors.New("no negative to draw")
)

const (
	// All as a fanout takes every in-edge.
	All = -1
	// maxLocals is the number of nodes of a batch: local ids are below 2^31, so that they fit int32 and leave the upper half
	// of a stamp for generations.
	maxLocals = math.MaxInt32
	// maxEdges of a batch keeps sums of edges, and their bytes, far from overflow. Arbitrary.
	maxEdges = 1 << 40
)

// Key selects the random numbers of a batch.
type Key struct{ Seed, Epoch, Batch uint64 }

// Graph is the in-edges of NumNodes nodes in compressed sparse columns: the sources of the in-edges of node v are at the
// positions Indptr[v] to Indptr[v+1] of the index array.
//
// That array is exactly one of Indices32 and Indices64 or, when it is not in memory, Adjacency (a graph without edges may
// leave all three nil). Indptr must not decrease and all sources must be in [0, NumNodes); the store proves both as it loads.
// A Graph that breaks this is stopped by a bounds check and never reaches memory outside its arrays.
type Graph struct {
	NumNodes  int64
	Indptr    []int64
	Indices32 []int32
	Indices64 []int64
	Adjacency Adjacency
}

// Adjacency is an index array that is not in memory.
type Adjacency interface {
	// Fetch sets out[i] to element d.Pos[i] of the index array, each in [0, NumNodes), which the implementation checks. It is
	// called once in a hop with all edges of that hop, and by several Workers at a time. d is valid during the call only and
	// must not be changed.
	Fetch(ctx context.Context, d Drawn, out []int64) error
}

// Drawn is edges by target: those of Targets[i] are at the positions Pos[Ptr[i]-Ptr[0]:Ptr[i+1]-Ptr[0]] of the index array,
// in no particular order. So whoever keeps lists of single targets looks each target up once and not each edge.
type Drawn struct {
	Targets []int64 // global ids
	Ptr     []int64 // len(Targets)+1 of them
	Pos     []int64 // Ptr[len(Targets)]-Ptr[0] of them
}

// Config says what is drawn.
type Config struct {
	Fanouts []int64 // in-edges drawn for a target, nearest the seeds first: positive, or All; none: a batch is its seeds
	Replace bool    // draw with replacement

	Weights *Weights // draw in proportion to these; nil: uniformly
	Labor   *Labor   // draw layer by layer
	Walks   []Walk   // for each hop, find neighbours by random walks; Fanouts is how many of them a target keeps

	Subgraph SubgraphType // which edges among its nodes a batch has
	Temporal *Temporal    // draw what was there at the times of the seeds; batches are disjoint
	Disjoint bool         // every seed has a tree of its own, see Subgraph.Tree
}

// Sampler is a checked Graph and Config. It is immutable and safe for concurrent use.
type Sampler struct {
	graph   Graph
	fanouts []int64
	replace bool
	method  method // nil: uniform draws
	widest  int64  // the longest list, where a method has to know

	subgraph SubgraphType
	temporal *Temporal // nil: without times
	disjoint bool
}

// New checks the shape of g (in constant time: see Graph for what it trusts; with a sampler that is not uniform it looks for
// the longest list)
// and the Config. The arrays stay the caller's
// and must not change while the Sampler is in use.
func New(g Graph, cfg Config) (*Sampler, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	for hop, k := range cfg.Fanouts {
		if k < All || k == 0 {
			return nil, fmt.Errorf("sample: fanout %d of hop %d, want a positive number or -1 for all: %w", k, hop, ErrFanout)
		}
	}
	if err := cfg.checkSubgraph(); err != nil {
		return nil, err
	}
	s := &Sampler{
		graph: g, fanouts: slices.Clone(cfg.Fanouts), replace: cfg.Replace, subgraph: cfg.Subgraph,
		temporal: cfg.Temporal, disjoint: cfg.Disjoint || cfg.Temporal != nil,
	}
	if err := s.setMethod(cfg, &g); err != nil {
		return nil, err
	}
	return s, nil
}

// setMethod takes the method of the Config, for lists of g.
func (s *Sampler) setMethod(cfg Config, g *Graph) (err error) {
	if s.method, err = cfg.method(g); err != nil || s.method == nil {
		return err
	}
	for v := range g.NumNodes {
		s.widest = max(s.widest, g.Indptr[v+1]-g.Indptr[v])
	}
	return nil
}

func (g *Graph) check() error {
	if g.NumNodes < 0 || int64(len(g.Indptr)) != g.NumNodes+1 {
		return fmt.Errorf("sample: indptr has %d elements for %d nodes, want one more than nodes: %w", len(g.Indptr), g.NumNodes, ErrGraph)
	}
	if g.Indptr[0] != 0 {
		return fmt.Errorf("sample: indptr starts with %d, want 0: %w", g.Indptr[0], ErrGraph)
	}
	edges, arrays := g.Indptr[g.NumNodes], 0
	for _, present := range []bool{g.Indices32 != nil, g.Indices64 != nil, g.Adjacency != nil} {
		if present {
			arrays++
		}
	}
	if arrays > 1 || arrays == 0 && edges != 0 {
		return fmt.Errorf("sample: %d index arrays, want one of Indices32, Indices64 and Adjacency: %w", arrays, ErrGraph)
	}
	if have := int64(len(g.Indices32) + len(g.Indices64)); g.Adjacency == nil && have != edges {
		return fmt.Errorf("sample: %d indices, want %d as indptr ends: %w", have, edges, ErrGraph)
	}
	return nil
}

// Subgraph is one batch. Its slices are views of the Worker that made it, valid until that Worker's next Sample or Close.
// Local ids index Nodes. Hops follow one another in every slice.
type Subgraph struct {
	// Nodes holds global ids: the seeds as given, then every other node in order of discovery. A seed that is repeated keeps
	// each of its places, with a copy of the same draws for each; as a source it is its first place.
	Nodes []int64
	// Ptr delimits the in-edges of the expanded nodes, which are the locals 0 to len(Ptr)-2: local t has edges Ptr[t] to Ptr[t+1].
	// Of another type than Directional these are all nodes.
	Ptr []int64
	// Row is the local id of the source of each edge, below 2^31.
	Row []uint32
	// Pos is the position of each edge in the index array, from which the caller gets the user's edge id. It is nil for walks.
	Pos []int64
	// Weight is what the sampler says of each edge; nil for uniform and weighted draws, and of another type than Directional.
	// See Labor and Walk.
	Weight []float32
	// Room is the number of edges that a Demand for this batch counts: more than there are where targets had fewer
	// neighbours than was known before they were looked at.
	Room int64
	// Tree is, of a disjoint batch, the place of the seed in whose tree each node is; nil of others. Nodes may then hold a
	// node several times, but once for each tree.
	Tree []uint32
	// Rooms is that of each relation, of a batch with types (see flat); else nil.
	Rooms []int64
	// NodesPerHop counts the seeds and the nodes first reached in each hop; EdgesPerHop the edges drawn in each hop.
	NodesPerHop, EdgesPerHop []int64
}

// StampBytes is the size of a Worker's id map as a stamp array.
func StampBytes(numNodes int64) int64 { return numNodes * stampSize }

// NewWorker returns a Worker that draws with the given number of threads, its caller's included. With stamp its id map is an
// array over all nodes of the graph (StampBytes), else a hash map over those of a batch, which takes less memory and about a
// quarter more time; disjoint batches always have the latter. Its memory comes from budget.
func (s *Sampler) NewWorker(budget *mem.Budget, stamp bool, threads int) (*Worker, error) {
	if threads < 1 {
		return nil, fmt.Errorf("sample: %d threads, want at least 1", threads)
	}
	w := &Worker{sampler: s, budget: budget, threads: make([]thread, threads)}
	if err := s.initIDs(&w.ids, budget, stamp); err != nil {
		return nil, err
	}
	return w, nil
}
