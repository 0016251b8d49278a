package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// flatBatch returns a random flat batch of a random graph with the given numbers of node types and relations. Positions
// of edges are unique.
func flatBatch(rng *rand.Rand, types, relations, hops int) (Shape, *sample.Subgraph) {
	shape := Shape{First: []int64{0}}
	for t := range types {
		shape.First = append(shape.First, shape.First[t]+1+rng.Int64N(40))
	}
	for range relations {
		shape.Relations = append(shape.Relations, Relation{Source: rng.IntN(types), Target: rng.IntN(types)})
	}
	local := make([]map[int64]uint32, types) // by type and global number: the place in the batch
	nodes := make([][]int64, types)
	g := &sample.Subgraph{NodesPerHop: make([]int64, types*(hops+1)), EdgesPerHop: make([]int64, relations*hops)}
	add := func(typ, hop int, v int64) uint32 {
		at, found := local[typ][v]
		if !found {
			at = uint32(len(nodes[typ]))
			local[typ][v] = at
			nodes[typ] = append(nodes[typ], v)
			g.NodesPerHop[typ*(hops+1)+hop]++
		}
		return at
	}
	pick := func(typ int) int64 { return shape.First[typ] + rng.Int64N(shape.First[typ+1]-shape.First[typ]) }
	for typ := range types {
		local[typ] = map[int64]uint32{}
		for range rng.IntN(4) {
			add(typ, 0, pick(typ))
		}
	}
	ptr, row := make([][]int64, relations), make([][]uint32, relations)
	expanded := make([]int, types)
	for hop := range hops {
		end := make([]int, types)
		for typ := range types {
			end[typ] = len(nodes[typ])
		}
		for i, r := range shape.Relations {
			for range end[r.Target] - expanded[r.Target] {
				ptr[i] = append(ptr[i], int64(len(row[i])))
				for range rng.IntN(4) {
					row[i] = append(row[i], add(r.Source, hop+1, pick(r.Source)))
					g.EdgesPerHop[i*hops+hop]++
				}
			}
		}
		expanded = end
	}
	g.Nodes = slices.Concat(nodes...)
	for i := range relations {
		g.Ptr = append(append(g.Ptr, ptr[i]...), int64(len(row[i])))
		g.Row = append(g.Row, row[i]...)
	}
	for e := range g.Row {
		g.Pos = append(g.Pos, int64(1000+e))
	}
	return shape, g
}

// flatEdge is an edge of a flat batch, its ends by global number.
type flatEdge struct {
	relation                 int
	position, source, target int64
}

// edgesOf lists the edges of a flat batch by target, relation after relation.
func edgesOf(s *Shape, g *sample.Subgraph) map[int64][]flatEdge {
	var at layout
	at.set(s, g)
	all := map[int64][]flatEdge{}
	for i, r := range s.Relations {
		ptr := g.Ptr[at.ptr[i]:at.ptr[i+1]]
		for k := range len(ptr) - 1 {
			target := g.Nodes[at.nodes[r.Target]+int64(k)]
			for e := at.edges[i] + ptr[k]; e < at.edges[i]+ptr[k+1]; e++ {
				source := g.Nodes[at.nodes[r.Source]+int64(g.Row[e])]
				all[target] = append(all[target], flatEdge{i, g.Pos[e], source, target})
			}
		}
	}
	return all
}

func sortedEdges(edges []flatEdge) []flatEdge {
	return slices.SortedFunc(slices.Values(edges), func(a, b flatEdge) int { return cmp.Compare(a.position, b.position) })
}

// hopOf returns the nodes of a hop of a flat batch, type after type.
func hopOf(s *Shape, g *sample.Subgraph, hop int) (nodes []int64) {
	var at layout
	at.setNodes(s, g)
	hops := len(g.NodesPerHop) / s.Types()
	for typ := range s.Types() {
		before := at.nodes[typ] + sum(g.NodesPerHop[typ*hops:][:hop])
		nodes = append(nodes, g.Nodes[before:][:g.NodesPerHop[typ*hops+hop]]...)
	}
	return nodes
}

// TestBatchPrunesBreadthFirst: what is left is the part of the batch that a search from the seeds reaches over all
// relations, layer by layer, whatever the node types and relations are.
func TestBatchPrunesBreadthFirst(t *testing.T) {
	budget := mem.NewBudget(0)
	for seed := range uint64(600) {
		rng := explore.Rand(t, seed, 2)
		types, relations, hops := 1+rng.IntN(3), 1+rng.IntN(4), 1+rng.IntN(3)
		shape, g := flatBatch(rng, types, relations, hops)
		lookup := slots(seed, float64(seed%4)/4)
		if seed%4 == 3 {
			lookup = slots(seed, 1)
		}
		t.Run(fmt.Sprintf("seed %d, %d types, %d relations, %d hops", seed, types, relations, hops), func(t *testing.T) {
			b := NewBatch(budget, shape)
			defer b.Close()
			b.Merge(g)
			seeds := hopOf(&shape, g, 0)
			require.NoError(t, b.Decide(int64(len(seeds)), Each(lookup)))
			b.Build()
			requireReached(t, b, &shape, g, lookup)
		})
	}
	require.Zero(t, budget.Used())
}

// requireReached compares a batch that was pruned with a search through the batch that was drawn.
func requireReached(t *testing.T, b *Batch, shape *Shape, g *sample.Subgraph, lookup single) {
	drawn, hops := edgesOf(shape, g), b.hops
	computed := map[int64]bool{}
	for _, v := range hopOf(shape, g, 0) {
		computed[v] = true
	}
	loaded, expanded, left := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	for v := range computed {
		loaded[v], left[v] = true, true
	}
	for l := hops - 1; l >= 0; l-- {
		reads := map[int64]bool{}
		var edges []flatEdge
		for v := range computed {
			reads[v], expanded[v] = true, true
			edges = append(edges, drawn[v]...)
			for _, e := range drawn[v] {
				reads[e.source] = true
			}
		}
		nodes := tableNodes(b, shape, l)
		for v := range reads {
			left[v] = true
			loaded[v] = loaded[v] || l == 0
		}
		require.Equal(t, len(reads), len(nodes))
		for at, v := range nodes {
			typ := sample.TypeOf(shape.First, v)
			require.True(t, reads[v])
			require.True(t, b.Tables[l].First[typ] <= int64(at) && int64(at) < b.Tables[l].First[typ+1])
			require.Equal(t, computed[v], int64(at)-b.Tables[l].First[typ] < b.Tables[l].Targets[typ], "targets come first")
		}
		require.Equal(t, sortedEdges(edges), sortedEdges(layerEdges(b, shape, l+1, nodes)))
		computed = map[int64]bool{}
		if l == 0 {
			break
		}
		table := &b.Tables[l]
		require.Equal(t, len(nodes), len(table.Computed)+len(table.Hits))
		require.True(t, slices.IsSorted(table.Computed) && slices.IsSorted(table.Hits))
		for _, at := range table.Computed {
			require.EqualValues(t, Miss, lookup(l, nodes[at]))
			computed[nodes[at]] = true
		}
		for k, at := range table.Hits {
			require.Equal(t, lookup(l, nodes[at]), table.Slots[k])
		}
	}
	var edges []flatEdge
	for v := range expanded {
		edges = append(edges, drawn[v]...)
	}
	got := []flatEdge{}
	for _, of := range edgesOf(shape, b.Graph()) {
		got = append(got, of...)
	}
	require.Equal(t, append([]flatEdge{}, sortedEdges(edges)...), append([]flatEdge{}, sortedEdges(got)...))
	requireNodes(t, b, shape, g, left, loaded)
}

// tableNodes are the global numbers of the rows of a table.
func tableNodes(b *Batch, shape *Shape, l int) (nodes []int64) {
	for typ := range shape.Types() {
		for _, v := range b.Tables[l].Nodes[b.Tables[l].First[typ]:b.Tables[l].First[typ+1]] {
			nodes = append(nodes, b.Graph().Nodes[b.left.nodes[typ]+int64(v)])
		}
	}
	return nodes
}

// layerEdges are the edges of a layer over all relations, which reads a table of these nodes.
func layerEdges(b *Batch, shape *Shape, l int, nodes []int64) (edges []flatEdge) {
	table := &b.Tables[l-1]
	for i, r := range shape.Relations {
		layer := b.Layer(l, i)
		for target := range layer.NumDst {
			for e := layer.Ptr[target]; e < layer.Ptr[target+1]; e++ {
				edges = append(edges, flatEdge{
					i, b.Graph().Pos[b.left.edges[i]+int64(layer.Edge[e])],
					nodes[table.First[r.Source]+int64(layer.Source[e])], nodes[table.First[r.Target]+target],
				})
			}
		}
	}
	return edges
}

// requireNodes holds that nodes keep their order, with the nodes of the last hop in the order in which edges name them,
// and that features are read for the seeds and the nodes of level 0.
func requireNodes(t *testing.T, b *Batch, shape *Shape, g *sample.Subgraph, left, loaded map[int64]bool) {
	for hop := range b.hops {
		var want []int64
		for _, v := range hopOf(shape, g, hop) {
			if left[v] {
				want = append(want, v)
			}
		}
		require.Equal(t, want, hopOf(shape, b.Graph(), hop), "hop %d", hop)
	}
	named, leaves := edgesOf(shape, b.Graph()), make([][]int64, shape.Types())
	inLast := map[int64]bool{}
	for _, v := range hopOf(shape, g, b.hops) {
		inLast[v] = true
	}
	for _, v := range hopOf(shape, b.Graph(), b.hops-1) {
		for _, e := range named[v] {
			if inLast[e.source] {
				inLast[e.source] = false
				typ := sample.TypeOf(shape.First, e.source)
				leaves[typ] = append(leaves[typ], e.source)
			}
		}
	}
	require.Equal(t, slices.Concat(leaves...), hopOf(shape, b.Graph(), b.hops))

	places, count := make([]int32, len(g.Nodes)), 0
	b.Places(places)
	for at, to := range places {
		require.Equal(t, loaded[g.Nodes[at]], to >= 0)
		if to >= 0 {
			require.Equal(t, g.Nodes[at], b.Graph().Nodes[to])
			require.Contains(t, b.Loaded(), to)
		}
	}
	counts := b.Counts(nil)
	require.Equal(t, []int64{int64(len(b.Loaded())), int64(len(g.Nodes)), int64(len(g.Row))}, counts[:3])
	require.Len(t, counts, b.numCounts()-1)
	for typ := range shape.Types() {
		of, first := b.LoadedOf(typ)
		for _, node := range of {
			require.Equal(t, typ, sample.TypeOf(shape.First, b.Graph().Nodes[node]))
			require.GreaterOrEqual(t, node, first)
		}
		require.EqualValues(t, len(of), counts[3+2*typ])
		count += len(of)
	}
	require.Len(t, b.Loaded(), count)
	require.True(t, slices.IsSorted(b.Loaded()))
}

// TestOneRelationIsNotCopied: with one node type and one relation a batch is merged and split by doing nothing.
func TestOneRelationIsNotCopied(t *testing.T) {
	g := drawn(t, 5, []int64{3, 3, 2}, 20)
	b := NewBatch(mem.NewBudget(0), Shape{First: []int64{0, 1000}, Relations: []Relation{{}}})
	defer b.Close()
	b.Merge(g)
	require.Same(t, g, b.Merged())
	require.NoError(t, b.Decide(20, Each(slots(1, .4))))
	b.Build()
	require.Same(t, &b.out.Graph, b.Graph())
	for l, level := range b.out.Levels {
		require.Equal(t, level, b.Tables[l].Level)
		require.Same(t, &b.out.Layers[l], b.Layer(l+1, 0))
	}
	degrees, loops, ok := b.Degrees()
	require.True(t, ok)
	require.Equal(t, b.out.Degree, degrees)
	want := make([]int32, len(degrees))
	for n, v := range b.out.Kept {
		for _, source := range inEdges(g, int(v)) {
			if source == int(v) {
				want[n]++
			}
		}
	}
	require.Positive(t, slices.Max(want))
	require.Equal(t, want, loops)
}

// TestSavesFollowTheTables: what rows save is the same however nodes and edges are divided into types.
func TestSavesFollowTheTables(t *testing.T) {
	for seed := range uint64(50) {
		shape, g := flatBatch(explore.Rand(t, seed, 3), 3, 4, 3)
		b := NewBatch(mem.NewBudget(0), shape)
		b.Merge(g)
		require.NoError(t, b.Decide(int64(len(hopOf(&shape, g, 0))), Each(slots(seed, .3))))
		merged, hits := &sample.Subgraph{}, slots(seed, .3)
		*merged = *b.Merged()
		b.Build()
		saves := make([][]float32, 2)
		for l := range saves {
			saves[l] = make([]float32, len(b.Tables[l+1].Computed))
		}
		require.NoError(t, b.Saves(one, saves))

		p, out := newPruner(t)
		require.NoError(t, p.Prune(merged, merged.NodesPerHop[0], Each(hits), out))
		want := roomForSaves(out)
		require.NoError(t, p.Saves(out, one, want))
		for l := range saves {
			of, nodes := map[int64]float32{}, tableNodes(b, &shape, l+1)
			for k, at := range out.Levels[l+1].Computed {
				of[out.Graph.Nodes[out.Levels[l+1].Nodes[at]]] = want[l][k]
			}
			for k, at := range b.Tables[l+1].Computed {
				require.Equal(t, of[nodes[at]], saves[l][k])
			}
		}
		b.Close()
	}
}

// TestBytesOfBatches: what is said of a batch beforehand is no less than what it takes when nothing is pruned.
func TestBytesOfBatches(t *testing.T) {
	for seed := range uint64(50) {
		rng := explore.Rand(t, seed, 4)
		shape, g := flatBatch(rng, 1+rng.IntN(3), 1+rng.IntN(4), 2+rng.IntN(2))
		budget := mem.NewBudget(0)
		b := NewBatch(budget, shape)
		b.Merge(g)
		require.NoError(t, b.Decide(int64(len(hopOf(&shape, g, 0))), Each(misses)))
		b.Build()
		require.LessOrEqual(t, budget.Peak(), shape.BatchBytes(g.NodesPerHop, g.EdgesPerHop))
		b.Close()
		require.Zero(t, budget.Used())
	}
}
