package sample

import "math/bits"

// reference draws a batch as the documentation says, slowly: one edge after the other, with Go maps, without units,
// stages, stamps or threads. It shares no code with the package. Where there are trees, times has the times of each
// relation by position, nil where it has none, and seedTimes the times of the trees.
func (g *testTypes) reference(cfg Config, key Key, seeds, times [][]int64, seedTimes []int64) cutBatch {
	type place struct {
		tree uint32
		node int64
	}
	disjoint := cfg.Disjoint || len(cfg.Temporal) > 0
	var sub cutBatch
	local, first, trees := make([]map[place]int, len(g.nodes)), make([]int, len(g.nodes)), make([][]uint32, len(g.nodes))
	tree := uint32(0)
	for t := range g.nodes {
		local[t], trees[t] = map[place]int{}, []uint32{}
		for i, v := range seeds[t] {
			if _, found := local[t][place{tree, v}]; !found {
				local[t][place{tree, v}] = i
			}
			trees[t] = append(trees[t], tree)
			if disjoint {
				tree++
			}
		}
		sub.Nodes = append(sub.Nodes, append([]int64{}, seeds[t]...))
		sub.NodesPerHop = append(sub.NodesPerHop, []int64{int64(len(seeds[t]))})
	}
	for range g.relations {
		sub.Relations = append(sub.Relations, cutEdges{Ptr: []int64{0}, Row: []uint32{}, Pos: []int64{},
			EdgesPerHop: []int64{}})
	}
	for hop := range cfg.Fanouts[0] {
		end := make([]int, len(g.nodes))
		for t := range end {
			end[t] = len(sub.Nodes[t])
		}
		for i, r := range g.relations {
			out, edges := &sub.Relations[i], len(sub.Relations[i].Row)
			for at := first[r.target]; at < end[r.target]; at++ {
				v, tree := sub.Nodes[r.target][at], trees[r.target][at]
				rng := newReferenceRNG(1, g.key(i, key).Seed, key.Epoch, key.Batch, uint64(hop), uint64(v))
				var positions []int64
				if disjoint {
					rng = newReferenceRNG(1, g.key(i, key).Seed, key.Epoch, key.Batch, uint64(hop), uint64(v), uint64(tree))
				}
				if times != nil && times[i] != nil {
					positions = referenceAllowed(r.indptr, times[i], cfg.Temporal[i], seedTimes[tree], v)
					if k := cfg.Fanouts[i][hop]; cfg.Temporal[i].Last && k >= 0 {
						positions = positions[max(0, int64(len(positions))-k):]
					}
				} else {
					for p := r.indptr[v]; p < r.indptr[v+1]; p++ {
						positions = append(positions, p)
					}
				}
				for _, e := range g.referenceEdges(i, cfg, key, hop, v, rng, positions) {
					u := place{tree, e.source}
					if _, found := local[r.source][u]; !found {
						local[r.source][u] = len(sub.Nodes[r.source])
						sub.Nodes[r.source], trees[r.source] = append(sub.Nodes[r.source], u.node), append(trees[r.source], tree)
					}
					if cfg.Metapaths == nil {
						out.Pos = append(out.Pos, e.pos)
					}
					if cfg.Sampler != nil || cfg.Metapaths != nil {
						out.Weight = append(out.Weight, e.weight)
					}
					out.Row = append(out.Row, uint32(local[r.source][u]))
				}
				out.Ptr = append(out.Ptr, int64(len(out.Row)))
			}
			out.EdgesPerHop = append(out.EdgesPerHop, int64(len(out.Row)-edges))
		}
		for t := range end {
			sub.NodesPerHop[t] = append(sub.NodesPerHop[t], int64(len(sub.Nodes[t])-end[t]))
			first[t] = end[t]
		}
	}
	if disjoint {
		sub.Trees = trees
	}
	return sub
}

// key returns the key of a relation's draws.
func (g *testTypes) key(relation int, key Key) Key {
	if g.named {
		key.Seed = newReferenceRNG(16, uint64(relation), key.Seed).state
	}
	return key
}

// reference draws a batch of a graph without types.
func reference(indptr, indices []int64, cfg plainConfig, key Key, seeds []int64) Subgraph {
	return referenceTrees(indptr, indices, nil, cfg, key, Request{Seeds: seeds})
}

// referenceTrees is reference with times by position.
func referenceTrees(indptr, indices, times []int64, cfg plainConfig, key Key, r Request) Subgraph {
	g, all := plainTypes(&testGraph{indptr: indptr, wide: indices}), [][]int64(nil)
	if cfg.Temporal != nil {
		all = [][]int64{times}
	}
	return g.reference(cfg.config(), key, [][]int64{r.Seeds}, all, r.Times).plain()
}

// plain is a batch of a graph without types.
func (b cutBatch) plain() Subgraph {
	r := b.Relations[0]
	sub := Subgraph{Nodes: b.Nodes[0], NodesPerHop: b.NodesPerHop[0], Ptr: r.Ptr, Row: r.Row, Pos: r.Pos, Weight: r.Weight,
		EdgesPerHop: r.EdgesPerHop}
	if b.Trees != nil {
		sub.Tree = b.Trees[0]
	}
	return sub
}

type referenceEdge struct {
	pos, source int64
	weight      float32
}

// referenceEdges returns the edges that target v gets in a hop along a relation, among the edges at some positions.
func (g *testTypes) referenceEdges(
	relation int, cfg Config, key Key, hop int, v int64, rng *referenceRNG, positions []int64,
) (edges []referenceEdge) {
	r, k := g.relations[relation], cfg.Fanouts[relation][hop]
	begin, end := r.indptr[v], r.indptr[v+1]
	var weights *Weights
	if len(cfg.Weights) > 0 {
		weights = cfg.Weights[relation]
	}
	var offsets []int64
	switch {
	case cfg.Metapaths != nil:
		return referenceWalks(r.indptr, r.wide, cfg.Metapaths[relation].Walks[hop], key, hop, v, k)
	case cfg.Sampler != nil:
		return referenceLabor(r.wide[begin:end], referenceWeights(weights, begin, end), begin, *cfg.Sampler.(*Labor),
			g.key(relation, key), hop, k)
	case weights != nil:
		if k != 0 {
			offsets = referenceWeighted(rng, referenceWeights(weights, begin, end), k, cfg.Replace)
		}
	default:
		offsets = referenceDraw(rng, int64(len(positions)), k, cfg.Replace)
	}
	for _, offset := range offsets {
		edges = append(edges, referenceEdge{pos: positions[offset], source: r.wide[positions[offset]]})
	}
	return edges
}

func referenceDraw(rng *referenceRNG, deg, k int64, replace bool) []int64 {
	var drawn []int64
	switch {
	case k == -1 || !replace && deg <= k:
		for i := range deg {
			drawn = append(drawn, i)
		}
	case replace:
		for i := int64(0); i < k && deg > 0; i++ {
			drawn = append(drawn, rng.below(deg))
		}
	default:
		have := map[int64]bool{}
		for j := deg - k; j < deg; j++ {
			t := rng.below(j + 1)
			if have[t] {
				t = j
			}
			have[t] = true
			drawn = append(drawn, t)
		}
	}
	return drawn
}

// referenceRNG is splitmix64, keyed as the documentation of stream says.
type referenceRNG struct{ state uint64 }

func newReferenceRNG(words ...uint64) *referenceRNG {
	r := &referenceRNG{}
	for _, word := range words {
		r.state ^= word
		r.state = r.next()
	}
	return r
}

func (r *referenceRNG) next() uint64 {
	r.state += 11400714819323198485
	z := r.state
	z ^= z >> 30
	z *= 13787848793156543929
	z ^= z >> 27
	z *= 10723151780598845931
	return z ^ (z >> 31)
}

func (r *referenceRNG) below(n int64) int64 {
	for {
		hi, lo := bits.Mul64(r.next(), uint64(n))
		if lo >= -uint64(n)%uint64(n) {
			return int64(hi)
		}
	}
}
