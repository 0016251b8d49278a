package loader

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// byType is a batch of the sampler cut by node type and relation.
type byType struct {
	Nodes, NodesPerHop [][]int64 // ids within the type
	Relations          []byRelation
}

type byRelation struct {
	Ptr, Pos, EdgesPerHop []int64
	Row                   []uint32
}

// cutBatch cuts a batch by the counts of its hops.
func cutBatch(g sample.Graph, hops int, sub sample.Subgraph) (out byType) {
	first, reached := int64(0), make([]int64, len(g.NumNodes))
	for typ, n := range g.NumNodes {
		counts := sub.NodesPerHop[typ*(hops+1) : (typ+1)*(hops+1)]
		total := counts[hops]
		for _, k := range counts[:hops] {
			reached[typ] += k
		}
		total += reached[typ]
		var nodes []int64
		for _, v := range sub.Nodes[:total] {
			nodes = append(nodes, v-first)
		}
		out.Nodes, out.NodesPerHop = append(out.Nodes, nodes), append(out.NodesPerHop, counts)
		sub.Nodes, first = sub.Nodes[total:], first+n
	}
	for i, r := range g.Relations {
		e := byRelation{Ptr: sub.Ptr[:reached[r.Target]+1], EdgesPerHop: sub.EdgesPerHop[i*hops : (i+1)*hops]}
		total := e.Ptr[reached[r.Target]]
		e.Row, e.Pos = sub.Row[:total], sub.Pos[:total]
		sub.Ptr, sub.Row, sub.Pos = sub.Ptr[len(e.Ptr):], sub.Row[total:], sub.Pos[total:]
		out.Relations = append(out.Relations, e)
	}
	return out
}

// check compares what an epoch's batch has of the graph with what the sampler draws for its seeds, and everything with
// the user's arrays.
func (f *form) check(t *testing.T, g *draw.Graph, w *sample.Worker, o draw.Options, epoch int64, b *seen) {
	t.Helper()
	types, first := g.Parts().Schema, []int64{0}
	for _, n := range f.counts {
		first = append(first, first[len(first)-1]+n)
	}
	var seeds []int64
	for typ := range f.names {
		for _, at := range b.int64s(types.NodeName(typ, "input_id")) {
			seed := first[typ] + at
			if o.Seeds != nil {
				seed = o.Seeds[f.place(o, typ, at)]
			}
			seeds = append(seeds, seed)
		}
	}
	var sub sample.Subgraph
	key := sample.Key{Seed: o.Seed, Epoch: uint64(epoch), Batch: uint64(b.index)}
	require.NoError(t, w.Sample(context.Background(), key, seeds, &sub))
	want := cutBatch(sampledGraph(g), o.Hops(), sub)
	names := 0
	same := func(name string, want []int64) {
		t.Helper()
		names++
		require.Equal(t, append([]int64{}, want...), b.int64s(name), "%s of batch %d", name, b.index)
	}
	for typ := range f.names {
		same(types.NodeName(typ, "n_id"), want.Nodes[typ])
		same(types.NodeName(typ, "num_sampled_nodes"), want.NodesPerHop[typ])
		names += 1 + len(f.nodes[typ]) // input_id
	}
	for i, r := range want.Relations {
		name := func(of string) string { return types.EdgeName(i, of) }
		same(name("ptr"), r.Ptr)
		same(name("num_sampled_edges"), r.EdgesPerHop)
		edges, ids := make([]int64, 2*len(r.Row)), make([]int64, len(r.Pos))
		for target := range len(r.Ptr) - 1 {
			for e := r.Ptr[target]; e < r.Ptr[target+1]; e++ {
				edges[e], edges[len(r.Row)+int(e)] = int64(r.Row[e]), int64(target)
			}
		}
		same(name("edge_index"), edges)
		csc := g.Edges[i].CSC
		for k, p := range r.Pos {
			switch {
			case csc.EdgeIDs32 != nil:
				ids[k] = int64(csc.EdgeIDs32[p])
			case csc.EdgeIDs64 != nil:
				ids[k] = csc.EdgeIDs64[p]
			default:
				ids[k] = p
			}
		}
		same(name("e_id"), ids)
		names += len(f.edges[i].Tensors)
	}
	if o.Sampler == nil && !o.Transpose {
		require.Len(t, b.arrays, names)
	}
	f.requireRight(t, o, b)
}

// requireRight compares everything in a batch with the user's arrays: seeds, the ends of edges, rows, counts. Plain
// comparisons where there are many: calls of testify take long.
func (f *form) requireRight(t *testing.T, o draw.Options, b *seen) {
	t.Helper()
	nodeName, edgeName := draw.NodeName, draw.EdgeName
	if f.names[0] == "" {
		nodeName = func(_ int, name string) string { return name }
		edgeName = nodeName
	}
	total, ids, first := int64(0), make([][]int64, len(f.names)), int64(0)
	for typ, n := range f.counts {
		input := b.int64s(nodeName(typ, "input_id"))
		ids[typ] = b.int64s(nodeName(typ, "n_id"))
		for i, p := range input {
			seed := first + p
			if o.Seeds != nil {
				seed = o.Seeds[f.place(o, typ, p)]
			}
			require.Equal(t, seed-first, ids[typ][i])
			if !o.Shuffle && len(f.names) == 1 {
				require.Equal(t, b.index*o.BatchSize+int64(i), p)
			}
		}
		total, first = total+int64(len(input)), first+n
		counts := b.int64s(nodeName(typ, "num_sampled_nodes"))
		require.EqualValues(t, len(input), counts[0])
		require.EqualValues(t, len(ids[typ]), sum(counts))
		for _, x := range f.nodes[typ] {
			f.requireRows(t, b, nodeName(typ, x.Name), x, ids[typ])
		}
	}
	require.Equal(t, total, b.numSeeds)
	for i, e := range f.edges {
		name := func(of string) string { return edgeName(i, of) }
		eID, edgeIndex, ptr := b.int64s(name("e_id")), b.int64s(name("edge_index")), b.int64s(name("ptr"))
		sources, targets := f.ends(i)
		from, to := ids[slices.Index(f.names, e.Source)], ids[slices.Index(f.names, e.Target)]
		row, col := edgeIndex[:len(eID)], edgeIndex[len(eID):]
		for k, id := range eID {
			if sources[id] != from[row[k]] || targets[id] != to[col[k]] {
				t.Fatalf("edge %d of relation %d is the user's %d, from %d to %d, got one from %d to %d", k, i, id, sources[id],
					targets[id], from[row[k]], to[col[k]])
			}
		}
		for target := range len(ptr) - 1 {
			for k := ptr[target]; k < ptr[target+1]; k++ {
				if col[k] != int64(target) {
					t.Fatalf("edge %d of relation %d has target %d, ptr has %d", k, i, col[k], target)
				}
			}
		}
		require.EqualValues(t, len(eID), ptr[len(ptr)-1])
		require.EqualValues(t, len(eID), sum(b.int64s(name("num_sampled_edges"))))
		for _, x := range e.Tensors {
			f.requireRows(t, b, name(x.Name), x, eID)
		}
	}
}

func (f *form) requireRows(t *testing.T, b *seen, name string, x draw.GraphTensor, ids []int64) {
	t.Helper()
	got, size := b.arrays[name], rowBytes(x)
	require.Equal(t, append([]int64{int64(len(ids))}, x.RowShape...), b.shapes[name])
	for i, v := range ids {
		if !bytes.Equal(x.Rows[int(v)*size:][:size], got[i*size:][:size]) {
			t.Fatalf("row %d of %s of batch %d, which is %d", i, name, b.index, v)
		}
	}
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

// fanouts returns the fanouts of each relation.
func (f *form) fanouts(o draw.Options) [][]int64 {
	if o.RelationFanouts != nil {
		return o.RelationFanouts
	}
	return slices.Repeat([][]int64{o.Fanouts}, len(f.edges))
}

func (f *form) worker(t *testing.T, g *draw.Graph, o draw.Options) *sample.Worker {
	t.Helper()
	s, err := sample.New(sampledGraph(g), sample.Config{Fanouts: f.fanouts(o), Replace: o.Replace, Sampler: o.Sampler})
	require.NoError(t, err)
	w, err := s.NewWorker(mem.NewBudget(0), false, 1)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// sampled returns the graph of a sampler: node types and relations in the order of the input.
func sampledGraph(g *draw.Graph) sample.Graph {
	out := sample.Graph{Named: !g.Parts().Schema.Homogeneous()}
	for _, t := range g.Nodes {
		out.NumNodes = append(out.NumNodes, t.Count)
	}
	for _, e := range g.Edges {
		out.Relations = append(out.Relations, sample.Relation{
			Source: e.Source, Target: e.Target,
			Indptr: e.CSC.Indptr, Indices32: e.CSC.Indices32, Indices64: e.CSC.Indices64,
		})
	}
	return out
}
