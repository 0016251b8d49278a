package sample

import (
	"fmt"
	"slices"

	"freshgo/core/mem"
)

// This file and the others named hetero draw k-hop neighbourhoods of graphs with types of nodes and edges. They guarantee of every type of
// edges what the package does of the edges of a homogeneous graph, and that a batch does not depend on threads, although types are sampled
// at the same time.
//
// The order of work is that of PyG (pyg-lib's hetero_neighbor_sample): in every hop the nodes that the hop before reached, of all types, are
// expanded along every type of edges that ends at theirs, types of edges in the order of the graph; nodes of a type are numbered in the order
// in which they are discovered, after its seeds. Types of edges that begin at the same type of nodes number one after the other; those that
// begin at different ones share nothing and run at the same time.
//
// The graph is never put together to a homogeneous one: a hop is a hop of a Worker for its type of edges, which for that time holds the id map
// and the nodes of the type that it numbers. The loader is to call it. Cost: as of the hops it is made of; a copy of the ids of the nodes that a
// hop expands, and two goroutine switches for each type of nodes and hop.

// HeteroGraph is a graph with types. Node types and relations (types of edges) are known by their places in these lists.
type HeteroGraph struct {
	NumNodes  []int64 // of each node type
	Relations []Relation
}

// Relation is the edges of one type, by target as in Graph: the sources of the in-edges of node v of type Target are at positions Indptr[v] to
// Indptr[v+1], nodes of type Source. Indptr has one more element than Target has nodes.
type Relation struct {
	Source, Target int
	Indptr         []int64
	Indices32      []int32
	Indices64      []int64
	Adjacency      Adjacency
}

// HeteroConfig says what is drawn.
type HeteroConfig struct {
	// Fanouts of each relation, one for each hop, as many of all: in-edges drawn for a target, nearest the seeds first: positive, All, or 0 for
	// none.
	Fanouts [][]int64
	Replace bool // draw with replacement

	Weights []*Weights // of each relation, nil where it draws uniformly; or none at all
	Labor   *Labor     // draw layer by layer, every relation by itself

	Disjoint bool        // every seed has a tree of its own over all types, see HeteroSubgraph.Trees
	Temporal []*Temporal // of each relation, nil where edges have no times and all may be drawn; or none at all. Batches are disjoint

	Subgraph SubgraphType // which edges among its nodes a batch has, of every relation
	// Reverse is, with Bidirectional, the relation whose edges go against those of each, from its target's type to its source's, perhaps
	// itself; -1 where there is none, and nothing is added.
	Reverse []int

	// Metapaths are where neighbours come from instead. In a batch and in Fanouts they are in the place of relations.
	Metapaths []Metapath
}

// HeteroSampler is a checked HeteroGraph and HeteroConfig. It is immutable and safe for concurrent use.
type HeteroSampler struct {
	types     []*Sampler // of each node type; holds the number of its nodes only
	relations []heteroRelation
	groups    [][]int // for each node type, the relations that number its nodes, in order
	hops      int

	disjoint bool
	timed    bool // trees have times
	subgraph SubgraphType
	reverse  []int // as HeteroConfig.Reverse
}

// Edges is the sampler of a relation's edges, which strict negatives are looked up in; it draws nothing by itself.
func (s *HeteroSampler) Edges(relation int) *Sampler { return s.relations[relation].Sampler }

// heteroRelation is a relation and what it draws.
type heteroRelation struct {
	*Sampler
	source, target int
	degree         int64 // of a target, on average, rounded up

	steps []int64 // of a metapath: those of the walks of a target, in each hop
}

// NewHetero checks the shape of g, in constant time for a relation, and the fanouts. The arrays stay the caller's and must not change while the
// HeteroSampler is in use.
func NewHetero(g HeteroGraph, cfg HeteroConfig) (*HeteroSampler, error) {
	if len(cfg.Metapaths) > 0 {
		return newMetapaths(g, cfg)
	}
	if len(cfg.Fanouts) != len(g.Relations) {
		return nil, fmt.Errorf("sample: fanouts of %d relations, want %d as there are: %w", len(cfg.Fanouts), len(g.Relations), ErrFanout)
	}
	if len(g.Relations) == 0 {
		return nil, fmt.Errorf("sample: no relations, want one at least: %w", ErrGraph)
	}
	if len(cfg.Weights) != 0 && len(cfg.Weights) != len(g.Relations) {
		return nil, fmt.Errorf("sample: weights of %d relations, want %d as there are, or none: %w", len(cfg.Weights), len(g.Relations), ErrConfig)
	}
	if len(cfg.Temporal) != 0 && len(cfg.Temporal) != len(g.Relations) {
		return nil, fmt.Errorf("sample: times of %d relations, want %d as there are, or none: %w", len(cfg.Temporal), len(g.Relations), ErrConfig)
	}
	if err := cfg.checkReverse(&g); err != nil {
		return nil, err
	}
	s := &HeteroSampler{
		groups: make([][]int, len(g.NumNodes)), hops: len(cfg.Fanouts[0]),
		disjoint: cfg.Disjoint || len(cfg.Temporal) > 0, timed: len(cfg.Temporal) > 0, subgraph: cfg.Subgraph, reverse: cfg.Reverse,
	}
	if err := s.addTypes(g); err != nil {
		return nil, err
	}
	for i, r := range g.Relations {
		graph, err := g.lists(i)
		if err != nil {
			return nil, fmt.Errorf("sample: %w", err)
		}
		if err := checkHeteroFanouts(i, cfg.Fanouts[i], s.hops); err != nil {
			return nil, err
		}
		one := cfg.of(i)
		one.Disjoint = s.disjoint
		if err := one.checkSubgraph(); err != nil {
			return nil, err
		}
		sampler := &Sampler{
			fanouts: slices.Clone(cfg.Fanouts[i]), replace: cfg.Replace, disjoint: s.disjoint, temporal: one.Temporal, subgraph: cfg.Subgraph,
		}
		if err := sampler.setMethod(one, &graph); err != nil {
			return nil, fmt.Errorf("sample: relation %d: %w", i, err)
		}
		degree := graph.Indptr[graph.NumNodes]/max(graph.NumNodes, 1) + 1
		graph.NumNodes = g.NumNodes[r.Source] // those that are numbered
		sampler.graph = graph
		s.relations = append(s.relations, heteroRelation{Sampler: sampler, source: r.Source, target: r.Target, degree: degree})
		s.groups[r.Source] = append(s.groups[r.Source], i)
	}
	return s, nil
}

// addTypes checks the numbers of nodes.
func (s *HeteroSampler) addTypes(g HeteroGraph) error {
	for t, n := range g.NumNodes {
		if n < 0 {
			return fmt.Errorf("sample: %d nodes of type %d: %w", n, t, ErrGraph)
		}
		s.types = append(s.types, &Sampler{graph: Graph{NumNodes: n}, disjoint: s.disjoint})
	}
	return nil
}

// lists is the edges of a relation by target, checked; its nodes are the targets.
func (g *HeteroGraph) lists(relation int) (Graph, error) {
	r := &g.Relations[relation]
	if r.Source < 0 || r.Source >= len(g.NumNodes) || r.Target < 0 || r.Target >= len(g.NumNodes) {
		return Graph{}, fmt.Errorf("relation %d from node type %d to %d, want types below %d: %w", relation, r.Source, r.Target, len(g.NumNodes), ErrGraph)
	}
	graph := Graph{NumNodes: g.NumNodes[r.Target], Indptr: r.Indptr, Indices32: r.Indices32, Indices64: r.Indices64, Adjacency: r.Adjacency}
	if err := graph.check(); err != nil {
		return Graph{}, fmt.Errorf("relation %d: %w", relation, err)
	}
	return graph, nil
}

// of is the Config of one relation.
func (c *HeteroConfig) of(relation int) Config {
	one := Config{Fanouts: c.Fanouts[relation], Replace: c.Replace, Labor: c.Labor, Subgraph: c.Subgraph}
	if len(c.Temporal) > 0 {
		one.Temporal = c.Temporal[relation]
	}
	if len(c.Weights) > 0 {
		one.Weights = c.Weights[relation]
	}
	return one
}

func checkHeteroFanouts(relation int, fanouts []int64, hops int) error {
	if len(fanouts) != hops || hops == 0 {
		return fmt.Errorf("sample: %d fanouts of relation %d and %d of relation 0, want one for each hop: %w", len(fanouts), relation, hops, ErrFanout)
	}
	for hop, k := range fanouts {
		if k < All {
			return fmt.Errorf("sample: fanout %d of relation %d, hop %d, want a positive number, 0 for none or -1 for all: %w", k, relation, hop, ErrFanout)
		}
	}
	return nil
}

// HeteroSubgraph is one batch. Its slices are views of the HeteroWorker that made it, valid until that one's next Sample or Close. Types that the
// batch does not reach are there, and empty.
type HeteroSubgraph struct {
	// Nodes holds the global ids of each node type, as Subgraph.Nodes does: seeds as given, then in order of discovery.
	Nodes [][]int64
	// NodesPerHop counts, for each node type, the seeds and the nodes first reached in each hop.
	NodesPerHop [][]int64
	// Trees is, of a disjoint batch, the tree of each node of each type; nil of others. Trees are numbered by their seeds: those of the first
	// type, then those of the second, and so on. A tree has nodes of any type.
	Trees [][]uint32
	// Relations holds the edges of each relation.
	Relations []RelationEdges
}

// RelationEdges is the edges of one relation in a batch: as in Subgraph, but for Row, which holds local ids of the source's type, and Ptr, which
// delimits the in-edges of the expanded nodes of the target's type: all that were reached before the last hop; of another type of subgraph than
// Directional all nodes. Pos is -1 of an edge that goes against one of another relation.
type RelationEdges struct {
	Ptr         []int64
	Row         []uint32
	Pos         []int64
	Weight      []float32
	EdgesPerHop []int64
}

// NewWorker returns a HeteroWorker that draws with the given number of threads. stamp says for each node type which id map it has, as of
// Sampler.NewWorker, disjoint batches included. Its memory comes from budget.
func (s *HeteroSampler) NewWorker(budget *mem.Budget, stamp []bool, threads int) (*HeteroWorker, error) {
	if threads < 1 {
		return nil, fmt.Errorf("sample: %d threads, want at least 1", threads)
	}
	if len(stamp) != len(s.types) {
		return nil, fmt.Errorf("sample: id maps of %d node types, want %d as there are", len(stamp), len(s.types))
	}
	w := &HeteroWorker{sampler: s, budget: budget, threads: threads}
	for i, r := range s.relations {
		w.relations = append(w.relations, relationWorker{heteroRelation: &s.relations[i], Worker: &Worker{sampler: r.Sampler, budget: budget}})
	}
	for t, of := range s.types {
		n := &nodeWorker{Worker: &Worker{sampler: of, budget: budget}}
		w.types = append(w.types, n)
		if err := of.initIDs(&n.ids, budget, stamp[t]); err != nil {
			w.Close()
			return nil, err
		}
	}
	for i := range w.relations {
		w.relations[i].scratch = make([]thread, threads)
	}
	return w, nil
}
