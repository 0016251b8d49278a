// Package sample draws k-hop neighbourhoods of a graph in CSC form.
//
// A graph has node types and, between them, relations: edge types, each with the in-edges of its targets. A homogeneous
// graph is one node type and one relation, both without names.
//
// The package guarantees
//   - exact uniform draws: without replacement every in-edge of a target is drawn with probability min(1, k/degree),
//     with replacement the k draws are independent; a fanout of -1 takes all in-edges in order;
//   - or what Config asks for instead, see kinds: draws by weight, by time, layer by layer, random walks;
//   - PyG's directional layout: the in-edges of a node are drawn once, in the hop after the one that first reached it;
//   - pyg-lib's order of work: in every hop the nodes that the hop before reached, of all types, are expanded along
//     every relation that ends at theirs, in the order of the graph, and nodes of a type are numbered as they are
//     discovered, after its seeds;
//   - that a batch is a pure function of graph, Config, Key and seeds: it is the same for any number of threads, for
//     either id map, and whether the adjacency is in memory or fetched (see stream for the random numbers).
//
// The loader calls it: one Sampler for a graph, one Worker for each batch in preparation.
//
// Cost: bound by the latency of about 2.2 cache misses for an edge (indptr, indices, id map), hidden by drawing in
// small units whose misses are prefetched one stage ahead (see hop). Graph arrays and scratch should lie in huge pages,
// worth 1.1 to 1.5 times the speed: the scratch does, by mem; for the graph it is up to the caller, who gets it from
// mem.Budget too. A heterogeneous graph costs, besides, two goroutine switches for each node type and hop, and a copy
// of each batch.
package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Errors of this package wrap one of these, or context.Canceled and the like, mem.ErrBudget, or what Adjacency.Fetch
// returned.
var (
	ErrGraph    = errors.New("inconsistent graph")
	ErrFanout   = errors.New("invalid fanout")
	ErrSeed     = errors.New("seed out of range")
	ErrTooLarge = errors.New("batch too large")
	ErrConfig   = errors.New("invalid sampler")
	ErrNegative = errors.New("no negative to draw")
	// ErrDeferred is returned by an Adjacency.Fetch that collects the request and has no neighbours yet: see
	// Worker.Draw.
	ErrDeferred = errors.New("neighbours are read later")
)

const (
	// All as a fanout takes every in-edge.
	All = -1
	// maxLocals is the number of nodes of a batch: local ids are below 2^31, so that they fit int32 and leave the upper
	// half of a stamp for generations.
	maxLocals = math.MaxInt32
	// maxEdges of a batch keeps sums of edges, and their bytes, far from overflow. Arbitrary.
	maxEdges = 1 << 40
)

// Key selects the random numbers of a batch.
type Key struct{ Seed, Epoch, Batch uint64 }

// Graph is node types and the relations between them, both known by their places in these lists.
type Graph struct {
	NumNodes  []int64 // of each node type
	Relations []Relation
	// Named means that node types and relations have names, as in a heterogeneous graph. Every relation then has random
	// numbers of its own, and messages give its place. A graph without names has one node type and one relation.
	Named bool
}

// Relation is the in-edges of the nodes of type Target in compressed sparse columns: their sources, nodes of type
// Source, are for node v at the positions Indptr[v] to Indptr[v+1] of the index array.
//
// That array is exactly one of Indices32 and Indices64 or, when it is not in memory, Adjacency (a relation without
// edges may leave all three nil). Indptr has one more element than Target has nodes and must not decrease, and all
// sources must be nodes; the store proves both as it loads. A Relation that breaks this is stopped by a bounds check
// and never reaches memory outside its arrays.
type Relation struct {
	Source, Target int // places of node types
	Indptr         []int64
	Indices32      []int32
	Indices64      []int64
	Adjacency      Adjacency
}

// Adjacency is an index array that is not in memory.
type Adjacency interface {
	// Fetch sets out[i] to element d.Pos[i] of the index array, each the number of a node, which the implementation
	// checks. It is called once in a hop with all edges of that hop, and by several Workers at a time. d is valid
	// during the call only and must not be changed. After ErrDeferred the other relations of the hop are fetched too.
	Fetch(ctx context.Context, d Drawn, out []int64) error
}

// Drawn is edges by target: those of Targets[i] are at the positions Pos[Ptr[i]-Ptr[0]:Ptr[i+1]-Ptr[0]] of the index
// array, in no particular order. So whoever keeps lists of single targets looks each target up once and not each edge.
type Drawn struct {
	Targets []int64 // global ids
	Ptr     []int64 // len(Targets)+1 of them
	Pos     []int64 // Ptr[len(Targets)]-Ptr[0] of them
}

// Config selects the draws of a Sampler.
type Config struct {
	// Fanouts of each relation, one for each hop, as many of all: in-edges drawn for a target, nearest the seeds first:
	// positive, All or, in a graph with names, 0 for none. Without names there may be no hop: a batch is then its
	// seeds.
	Fanouts [][]int64
	Replace bool // draw with replacement

	Weights []*Weights // of each relation: draw in proportion to these, or uniformly where it has nil; or none at all
	Sampler Named      // a sampler that is chosen by its name, such as Labor; nil: what the other fields imply
	// Metapaths draw neighbours by random walks instead. They take the place of relations in a batch and in Fanouts,
	// which then gives the number of neighbours that a target keeps.
	Metapaths []Metapath

	Disjoint bool // every seed has a tree of its own over all node types, see Subgraph.Tree
	// Temporal is, of each relation, how to draw what was there at the times of the seeds, nil where edges have no
	// times and all may be drawn; or none at all. Batches are then disjoint.
	Temporal []*Temporal

	Subgraph SubgraphType // which edges among its nodes a batch has, of every relation
	// Reverse is, with Bidirectional, the relation whose edges go against those of each, from its target's type to its
	// source's, perhaps itself; -1 where there is none, and nothing is added.
	Reverse []int
}

// Sampler is a checked Graph and Config. It is immutable and safe for concurrent use.
type Sampler struct {
	first     []int64 // as of First
	relations []relation
	groups    [][]int // for each node type, the relations that number its nodes, in order
	moved     []bool  // node types whose nodes may move while others are expanded from them
	hops      int

	named    bool
	disjoint bool
	timed    bool // trees have times
	subgraph SubgraphType
	reverse  []int // as Config.Reverse
	kind     *Kind
	asked    Capability
}

// New checks the shape of g (in constant time for a relation: see Relation for what it trusts; with a sampler that is
// not uniform it looks for the longest list) and the Config. The arrays stay the caller's and must not change while the
// Sampler is in use.
func New(g Graph, cfg Config) (*Sampler, error) {
	if !g.Named && (len(g.NumNodes) != 1 || len(g.Relations) != 1) {
		return nil, fmt.Errorf("sample: %d node types and %d relations without names, expected one of each: %w",
			len(g.NumNodes), len(g.Relations), ErrGraph)
	}
	if err := cfg.check(&g); err != nil {
		return nil, err
	}
	s := &Sampler{
		first: []int64{0}, groups: make([][]int, len(g.NumNodes)), moved: make([]bool, len(g.NumNodes)),
		hops: len(cfg.Fanouts[0]), named: g.Named, subgraph: cfg.Subgraph, reverse: cfg.Reverse,
		disjoint: cfg.Disjoint || len(cfg.Temporal) > 0, timed: len(cfg.Temporal) > 0,
	}
	if err := s.choose(&cfg, &g); err != nil {
		return nil, err
	}
	for t, n := range g.NumNodes {
		if n < 0 {
			return nil, fmt.Errorf("sample: %d nodes of type %d: %w", n, t, ErrGraph)
		}
		s.first = append(s.first, s.first[t]+n)
	}
	for i := range cfg.Fanouts {
		if err := s.add(&g, &cfg, i); err != nil {
			return nil, err
		}
	}
	for _, r := range s.relations {
		if r.Source != r.Target && len(s.groups[r.Target]) > 0 {
			s.moved[r.Target] = true
		}
	}
	return s, nil
}

// check checks what does not depend on single relations.
func (c *Config) check(g *Graph) error {
	of, want := "relations", len(g.Relations)
	if len(c.Metapaths) > 0 {
		of, want = "metapaths", len(c.Metapaths)
	}
	switch {
	case len(c.Fanouts) != want:
		return fmt.Errorf("sample: fanouts of %d %s, expected %d as there are: %w", len(c.Fanouts), of, want, ErrFanout)
	case want == 0:
		return fmt.Errorf("sample: no relations, expected one at least: %w", ErrGraph)
	case len(c.Weights) != 0 && len(c.Weights) != len(g.Relations):
		return fmt.Errorf("sample: weights of %d relations, expected %d as there are, or none: %w",
			len(c.Weights), len(g.Relations), ErrConfig)
	case len(c.Temporal) != 0 && len(c.Temporal) != len(g.Relations):
		return fmt.Errorf("sample: times of %d relations, expected %d as there are, or none: %w",
			len(c.Temporal), len(g.Relations), ErrConfig)
	}
	if c.Subgraph > Induced {
		return fmt.Errorf("sample: subgraph type %d, expected %d to %d: %w", c.Subgraph, Directional, Induced, ErrConfig)
	}
	return c.checkReverse(g)
}

// add adds what is drawn along a relation or a metapath.
func (s *Sampler) add(g *Graph, cfg *Config, i int) error {
	named := func(of string, err error) error {
		if !g.Named {
			return fmt.Errorf("sample: %w", err)
		}
		return fmt.Errorf("sample: %s %d: %w", of, i, err)
	}
	r := relation{replace: cfg.Replace, disjoint: s.disjoint, subgraph: s.subgraph}
	if len(cfg.Metapaths) > 0 {
		if err := s.checkFanouts(i, cfg.Fanouts[i]); err != nil {
			return err
		}
		if err := r.walk(g, cfg.Metapaths[i], s.hops); err != nil {
			return named("metapath", err)
		}
	} else {
		r.Relation = g.Relations[i]
		if err := r.check(g); err != nil {
			return named("relation", err)
		}
		if err := s.checkFanouts(i, cfg.Fanouts[i]); err != nil {
			return err
		}
		if err := r.setMethod(s.kind, cfg, i); err != nil {
			return s.in(i, err)
		}
	}
	r.numSources, r.fanouts = g.NumNodes[r.Source], slices.Clone(cfg.Fanouts[i])
	r.degree = r.numEdges()/max(r.numTargets(), 1) + 1
	s.relations = append(s.relations, r)
	s.groups[r.Source] = append(s.groups[r.Source], i)
	return nil
}

// FetchesOnce reports whether every relation that fetches neighbours does so once in a hop, when it knows which, and
// nothing else is fetched except for the edges that requests exclude.
func (s *Sampler) FetchesOnce() bool {
	return s.subgraph == Directional && !slices.ContainsFunc(s.relations, func(r relation) bool {
		return r.method != nil && !r.method.once()
	})
}

// in is an error of a relation, which it names where relations have names.
func (s *Sampler) in(relation int, err error) error {
	if err == nil || !s.named {
		return err
	}
	return fmt.Errorf("sample: relation %d: %w", relation, err)
}

func (s *Sampler) checkFanouts(relation int, fanouts []int64) error {
	if s.named && len(fanouts) != s.hops {
		return fmt.Errorf("sample: %d fanouts of relation %d and %d of relation 0, expected one for each hop: %w",
			len(fanouts), relation, s.hops, ErrFanout)
	}
	for hop, k := range fanouts {
		if k < All {
			return fmt.Errorf("sample: fanout %d of relation %d, hop %d, expected a positive number, 0 for none or -1 for "+
				"all: %w", k, relation, hop, ErrFanout)
		}
	}
	return nil
}

// First returns the global number of the first node of each type, and how many nodes there are in all: node v of type t
// has the number First[t]+v. Of a homogeneous graph these are its node ids.
func (s *Sampler) First() []int64 { return slices.Clone(s.first) }

// Relation is the edges that are drawn along.
func (s *Sampler) Relation(i int) *Relation { return &s.relations[i].Relation }

func (s *Sampler) numTypes() int { return len(s.groups) }

func (s *Sampler) numNodes(t int) int64 { return s.first[t+1] - s.first[t] }
