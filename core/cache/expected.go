package cache

import (
	"context"
	"math"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// Sampling holds the parameters of draws, as in sample.Config.
type Sampling struct {
	Seeds     []int64 // with repetitions; nil: every node once
	BatchSize int64
	Replace   bool
}

// Relation holds the edges of one type, from which hops draw separately: from nodes Source, Source+1, ... to nodes
// Target, Target+1, ... of the graph.
type Relation struct {
	Edges          Adjacency // sources and targets are numbered within their types
	Source, Target int64
	NumSources     int64
	Fanouts        []int64 // nearest the seeds first, the same number for all relations; -1 takes all in-edges, 0 none
	Weights        Weights // nil: draws are uniform
}

// Adjacency gives the metrics the in-edges of every node, as sample.Graph has them, in an order that a disk can
// deliver. Sampling reads the row of the source of an in-edge.
type Adjacency interface {
	NumNodes() int64
	// Indptr delimits the in-edges of each node; it is not changed.
	Indptr() *offsets.Table
	// Scan calls visit with all elements of the index array in order, in pieces of any size that begin at position
	// first. The sources are in [0, NumNodes), which the implementation checks, and valid only during the call. It
	// stops at an error of visit, which it returns, and when ctx ends.
	Scan(ctx context.Context, visit func(first int64, sources []int64) error) error
}

// ExpectedBytes returns the memory that Expected takes from the budget while it runs; its result keeps a fifth.
func ExpectedBytes(numNodes int64) int64 { return 5 * numNodes * scoreBytes }

// Expected scores a node by the expected number of batches of an epoch that need
// its row, calculated rather than sampled: the count that PreSC estimates (FGNN,
// section 6.2), without its noise.
//
// It follows sampling hop by hop. A node is expanded once in a batch, in the hop
// after the one that first reached it, and then draws each in-edge with a
// probability p that its degree and the fanout give. Let n_l(t) be the probability
// that hop l is the first to reach t. A node u that no hop to l has reached is
// reached by the next one unless every target t that has u as a source fails to
// draw it:
//
//	n_{l+1}(u) = (1 - n_0(u) - ... - n_l(u)) (1 - prod_t (1 - n_l(t) p_l(t)))
//
// This takes the events of different targets for independent, and there is one
// case in which they surely are not: where the graph is symmetric, t may have been
// reached because u drew it, and then u is there already. So on a symmetric graph,
// which the first pass recognises, n_l(t) is less by n_{l-1}(u) p_{l-1}(u). That
// takes the sum over all nodes from 3 to 10 % above the truth to 1 to 3 %.
//
// With weights the p of an edge is nearly the probability of race.go in core/sample: see chance.
//
// What remains is dense communities, in which a batch comes to the same nodes
// again and again. The order suffers little from it in generated graphs with
// communities of 300 nodes and more: 98.3 % and more of the hits of the optimal
// static cache. Where communities are small PreSC is better: of a graph of 34,493
// authors, on which a batch of three hops needs a seventh of all rows, it has
// 99.3 % against 94.8 % (coauthor-physics at 10 % in bench/policies).
//
// A node draws along all relations that end at its type, by the fanouts and weights of each. Two relations that are
// each other's reverse are treated as a symmetric graph.
//
// It reads the adjacency once for each hop.
func Expected(
	ctx context.Context, budget *mem.Budget, numNodes int64, relations []Relation, s Sampling,
) (*Vector, error) {
	result, err := NewVector(budget, numNodes)
	if err != nil {
		return nil, err
	}
	scratch, err := budget.Alloc(mem.FeatureCache, ExpectedBytes(numNodes)-numNodes*scoreBytes)
	if err != nil {
		result.Close()
		return nil, err
	}
	defer scratch.Free()
	memory, floats := scratch.Bytes(), numNodes*scoreBytes
	e := expectation{
		Sampling: s, relations: relations, reached: result.Hotness,
		latest: mem.View[float32](memory[:floats]), before: mem.View[float32](memory[floats : 2*floats]),
		sources: mem.View[source](memory[2*floats:]), mirrors: make([]mirror, len(relations)),
	}
	batches := e.seed()
	hops := 0
	for i := range relations {
		hops = len(relations[i].Fanouts)
	}
	for hop := range hops {
		if err := e.hop(ctx, hop, hops); err != nil {
			result.Close()
			return nil, err
		}
	}
	for node := range e.reached {
		e.reached[node] *= float32(batches)
	}
	return result, nil
}

// expectation holds probabilities of one batch.
type expectation struct {
	Sampling
	relations []Relation
	reached   []float32 // that a hop so far has reached the node
	latest    []float32 // that the latest hop was the first to reach it
	before    []float32 // that the one before was
	sources   []source
	mirrors   []mirror // of the edges of each relation, complete after the first hop
}

// source holds the state of a node that its out-edges need, in one cache line.
type source struct {
	log  float32 // the logarithm of the product over the targets so far
	drew float32 // the probability that the expansion of the node drew a given edge of the reversed relation
}

// seed sets the probabilities of being a seed, which are equal in all batches, and returns the number of batches.
func (e *expectation) seed() float64 {
	numSeeds := int64(len(e.Seeds))
	if e.Seeds == nil {
		numSeeds = int64(len(e.reached))
		for node := range e.latest {
			e.latest[node] = 1
		}
	}
	for _, node := range e.Seeds {
		e.latest[node]++
	}
	batches := float64((numSeeds + e.BatchSize - 1) / e.BatchSize)
	for node, times := range e.latest {
		if times > 0 {
			e.latest[node] = float32(-math.Expm1(float64(times) * math.Log1p(-1/batches)))
		}
	}
	copy(e.reached, e.latest)
	return batches
}

// hop propagates from the nodes that the hop before reached.
func (e *expectation) hop(ctx context.Context, hop, hops int) error {
	for i := range e.relations {
		e.look(i, hop)
		if err := e.along(ctx, i, hop, hop == 0 && hops > 1); err != nil {
			return err
		}
	}
	copy(e.before, e.latest)
	for node := range e.sources {
		s := &e.sources[node]
		// Expm1 keeps the digits of small probabilities, which are the usual ones.
		before := float64(e.reached[node])
		now := (1 - before) * -math.Expm1(float64(s.log))
		e.latest[node], e.reached[node] = float32(now), float32(before+now)
		s.log = 0
	}
	return nil
}

// look sets for the sources of a relation the draws along it in the previous hop.
func (e *expectation) look(i, hop int) {
	r := &e.relations[i]
	sources := e.sources[r.Source : r.Source+r.NumSources]
	against := e.reversal(i)
	if hop == 0 || against == nil {
		for u := range sources {
			sources[u].drew = 0
		}
		return
	}
	indptr := against.Edges.Indptr()
	for u := range sources {
		sources[u].drew = 0
		if q := e.before[r.Source+int64(u)]; q > 0 {
			sources[u].drew = q * float32(draws(indptr.Degree(int64(u)), against.Fanouts[hop-1], e.Replace))
		}
	}
}

// reversal returns the relation that has the edges of relation i reversed: where it can, the relation itself; nil where
// there is none. Where draws are weighted an edge was not drawn as often as any other, and nothing is taken off.
func (e *expectation) reversal(i int) *Relation {
	r := &e.relations[i]
	for _, j := range append([]int{i}, places(len(e.relations))...) {
		other := &e.relations[j]
		swapped := other.Source == r.Target && other.Target == r.Source && other.NumSources == r.Edges.NumNodes()
		if swapped && e.mirrors[i].reverses(&e.mirrors[j]) && r.Weights == nil && other.Weights == nil {
			return other
		}
	}
	return nil
}

func places(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// along propagates along the edges of a relation.
func (e *expectation) along(ctx context.Context, i, hop int, observe bool) error {
	r := &e.relations[i]
	fanout := r.Fanouts[hop]
	if fanout == 0 && !observe {
		return nil
	}
	indptr, nodes := r.Edges.Indptr(), e.sources[r.Source:r.Source+r.NumSources]
	reached := e.latest[r.Target : r.Target+r.Edges.NumNodes()]
	w := window{weights: r.Weights, end: indptr.NumEdges()}
	target := int64(0)
	return r.Edges.Scan(ctx, func(first int64, edges []int64) error {
		asm.Prefetch(nodes, edges[:min(ahead, len(edges))])
		for len(edges) > 0 {
			block := min(ahead, len(edges))
			asm.Prefetch(nodes, edges[block:min(2*ahead, len(edges))])
			for part, at := edges[:block], first; len(part) > 0; {
				for indptr.End(target) <= at {
					target++
				}
				begin, end := indptr.Range(target)
				n := min(end-at, int64(len(part)))
				switch q := reached[target]; {
				case q == 0 || fanout == 0:
				case r.Weights == nil:
					drawEach(nodes, q, draws(end-begin, fanout, e.Replace), part[:n])
				default:
					if err := w.begin(ctx, begin, end, fanout, e.Replace); err != nil {
						return err
					}
					weights, err := w.at(ctx, at, at+n)
					if err != nil {
						return err
					}
					drawWeighted(nodes, float64(q), w.chance, part[:n], weights)
				}
				if observe {
					e.mirrors[i].add(target, part[:n])
				}
				at, part = at+n, part[n:]
			}
			first, edges = first+int64(block), edges[block:]
		}
		return nil
	})
}

// drawEach multiplies the products of sources of a target that was reached with probability q and draws each with p.
func drawEach(nodes []source, q float32, p float64, sources []int64) {
	usual := float32(math.Log1p(-float64(q) * p))
	for _, node := range sources {
		s := &nodes[node]
		if s.drew == 0 {
			s.log += usual
		} else if rest := float64(q-s.drew) * p; rest > 0 {
			s.log += float32(math.Log1p(-rest))
		}
	}
}

// drawWeighted is drawEach for edges with individual probabilities.
func drawWeighted(nodes []source, q float64, c chance, sources []int64, weights []float64) {
	for i, node := range sources {
		if p := c.of(weights[i]); p > 0 {
			nodes[node].log += float32(math.Log1p(-q * p))
		}
	}
}

// draws returns the probability that a given one of deg in-edges is drawn.
func draws(deg, fanout int64, replace bool) float64 {
	switch {
	case fanout < 0:
		return 1
	case deg == 0 || fanout == 0: // of one in-edge, no draws would be 0 times the logarithm of 0
		return 0
	case replace:
		return -math.Expm1(float64(fanout) * math.Log1p(-1/float64(deg)))
	}
	return min(1, float64(fanout)/float64(deg))
}

// mirror compares the edges of relations with reversals of edges as multisets: it
// sums a hash of each, so the order does not matter. Different multisets agree with a
// probability of 2^-64.
type mirror struct {
	edges   int64
	there   uint64
	andBack uint64
}

func (m *mirror) add(target int64, sources []int64) {
	m.edges += int64(len(sources))
	for _, source := range sources {
		m.there += scramble(scramble(uint64(source)) + uint64(target))
		m.andBack += scramble(scramble(uint64(target)) + uint64(source))
	}
}

func (m *mirror) reverses(other *mirror) bool {
	return m.edges > 0 && m.edges == other.edges && m.there == other.andBack
}
