// Package sample draws k-hop neighbourhoods of a graph in CSC form.
//
// A graph has node types and, between them, relations: edge types, each with the in-edges of its targets. A homogeneous
// graph is one node type and one relation, both without names.
//
// The package guarantees
//   - exact uniform draws: without replacement every in-edge of a target is drawn with probability
//     min(1, k/degree), with replacement the k draws are independent; a fanout of -1 takes all in-edges in order;
//   - or the draws that Config asks for, see kinds: by weight, by time, layer by layer, by random walks;
//   - PyG's directional layout: the in-edges of a node are drawn once, in the hop after the hop that first reached it;
//   - pyg-lib's order of work: each hop expands the nodes that the previous hop reached, of all types, along every
//     relation that ends at their type, in the order of the graph, and nodes of a type are numbered in order of
//     discovery, after its seeds;
//   - that a batch is a pure function of graph, Config, Key and seeds: equal for any number of threads, for both id
//     maps, and for an adjacency in memory or on disk (see stream for the random numbers).
//
// The loader calls it, with one Sampler for a graph and one Worker for each batch in preparation.
//
// The cost is bound by the latency of about 2.2 cache misses per edge (indptr, indices, id map), which are hidden by
// drawing in small units whose misses are prefetched one stage ahead (see hop). Huge pages for graph arrays and scratch
// memory give 1.1 to 1.5 times the speed: mem provides them for the scratch memory, and for callers who allocate the
// graph by mem.Budget. A heterogeneous graph also costs two goroutine switches per node type and hop, and a copy of
// each batch.
package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"freshgo/core/offsets"
	"freshgo/core/packed"
)

// Errors of this package wrap one of these, a context error, mem.ErrBudget, or an error of Adjacency.Fetch.
var (
	ErrGraph    = errors.New("inconsistent graph")
	ErrFanout   = errors.New("invalid fanout")
	ErrSeed     = errors.New("seed out of range")
	ErrTooLarge = errors.New("batch too large")
	ErrConfig   = errors.New("invalid sampler")
	ErrNegative = errors.New("no negative to draw")
	// ErrDeferred is returned by an Adjacency.Fetch that records the request and has no neighbours yet: see Worker.Draw.
	ErrDeferred = errors.New("neighbours are read later")
)

const (
	// All is the fanout that takes every in-edge.
	All = -1
	// maxLocals bounds the nodes of a batch: local ids are below 2^31, so that they fit int32 and leave the upper half of
	// a stamp for generations.
	maxLocals = math.MaxInt32
	// maxEdges bounds the edges of a batch, so that their sums and bytes do not overflow. Arbitrary.
	maxEdges = 1 << 40
)

// Key selects the random numbers of a batch.
type Key struct{ Seed, Epoch, Batch uint64 }

// Graph lists node types and the relations between them; their numbers are their positions in these lists.
type Graph struct {
	NumNodes  []int64 // by node type
	Relations []Relation
	// Named means that node types and relations have names, as in a heterogeneous graph. Every relation then has separate
	// random numbers, and messages give its number. A graph without names has one node type and one relation.
	Named bool
}

// Relation holds the in-edges of the nodes of type Target in compressed sparse columns: the sources of node v, nodes of
// type Source, are at the positions Indptr.Range(v) of the index array.
//
// The index array is exactly one of Indices32, Indices64 and Packed or, on disk, Adjacency (a relation without edges
// may leave all of them nil). Packed is for kinds that read it, see Kind. Indptr has as many lists as Target has nodes,
// its offsets must not decrease, and all sources must be nodes; the store verifies both as it loads. A Relation that
// breaks this fails at a bounds check and never accesses memory outside its arrays.
type Relation struct {
	Source, Target int // numbers of node types
	Indptr         *offsets.Table
	Indices32      []int32
	Indices64      []int64
	Packed         *packed.Array
	Adjacency      Adjacency
}

// Adjacency is an index array on disk.
type Adjacency interface {
	// Fetch sets out[i] to element d.Pos[i] of the index array, a node number, which the implementation checks. It is
	// called once per hop with all edges of that hop, concurrently by several Workers. d is valid only during the call and
	// must not be changed. After ErrDeferred the other relations of the hop are fetched as well.
	Fetch(ctx context.Context, d Drawn, out []int64) error
}

// Drawn lists edges by target: the edges of Targets[i] are at positions Pos[Ptr[i]-Ptr[0]:Ptr[i+1]-Ptr[0]] of the index
// array, in any order. So an implementation that caches whole lists looks up each target once instead of each edge.
type Drawn struct {
	Targets []int64 // global ids
	Ptr     []int64 // len(Targets)+1 elements
	Pos     []int64 // Ptr[len(Targets)]-Ptr[0] elements
}

// Config selects the draws of a Sampler.
type Config struct {
	// Fanouts has for each relation one number per hop, the same number of hops for all: in-edges drawn for a target,
	// nearest the seeds first: positive, All or, in a graph with names, 0 for none. Without names there may be no hops: a
	// batch is then its seeds.
	Fanouts [][]int64
	Replace bool // draw with replacement

	Weights []*Weights // by relation: draw in proportion to these, or uniformly if nil; empty: all uniformly
	Sampler Named      // a sampler chosen by name, such as Labor; nil: implied by the other fields
	// Metapaths draws neighbours by random walks. Metapaths replace relations in a batch and in Fanouts, which then gives
	// the number of neighbours that a target keeps.
	Metapaths []Metapath

	Disjoint bool // one tree per seed over all node types, see Subgraph.Tree
	// Temporal has for each relation how to draw what existed at the times of the seeds, or nil if its edges have no times
	// and all may be drawn; empty: no times. Batches are then disjoint.
	Temporal []*Temporal

	Subgraph SubgraphType // the edges that a batch has among its nodes, in every relation
	// Reverse has, with Bidirectional, the reverse of each relation, from its target's type to its source's, possibly the
	// relation itself; -1 if there is none, and nothing is added.
	Reverse []int
}

// Sampler is a validated Graph and Config. It is immutable and safe for concurrent use.
type Sampler struct {
	first     []int64 // of each type the global number of its first node, and the number of all nodes
	relations []relation
	groups    [][]int // for each node type, the relations that number its nodes, in order
	moved     []bool  // by node type: whether nodes may move while edges are drawn from them
	hops      int

	named    bool
	disjoint bool
	timed    bool // trees have times
	subgraph SubgraphType
	reverse  []int // like Config.Reverse
	kind     *Kind
	asked    Capability
}

// New validates the shape of g and the Config. It takes constant time for a relation (see Relation for what it trusts),
// except that samplers other than uniform look for the longest list. The arrays stay the caller's and must not change
// while the Sampler is in use.
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

// check validates what does not depend on single relations.
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

// add adds a relation or a metapath with its sampler.
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
		if t := r.temporal; t != nil && t.Times.Nodes != nil {
			if err := t.Times.Nodes.check(g.NumNodes[r.Source]); err != nil {
				return s.in(i, err)
			}
		}
	}
	r.numSources, r.fanouts = g.NumNodes[r.Source], slices.Clone(cfg.Fanouts[i])
	r.degree = r.numEdges()/max(r.numTargets(), 1) + 1
	s.relations = append(s.relations, r)
	s.groups[r.Source] = append(s.groups[r.Source], i)
	return nil
}

// FetchesOnce reports whether every relation on disk fetches neighbours once per hop, after all edges of the hop are
// drawn, and nothing else is fetched except for excluded edges.
func (s *Sampler) FetchesOnce() bool {
	return s.subgraph == Directional && !slices.ContainsFunc(s.relations, func(r relation) bool {
		return r.method != nil && !r.method.once()
	})
}

// in wraps an error of a relation, and names the relation if relations have names.
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

// Relation returns the edges that are drawn along.
func (s *Sampler) Relation(i int) *Relation { return &s.relations[i].Relation }

func (s *Sampler) numTypes() int { return len(s.groups) }

func (s *Sampler) numNodes(t int) int64 { return s.first[t+1] - s.first[t] }
