package store

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// numNodes is the number of nodes of all types.
func (g *heteroGraph) numNodes() (n int64) {
	for _, t := range g.NodeTypes {
		n += t.NumNodes
	}
	return n
}

// simpleOrders computes an order by its definition: one order over all nodes, cut by node type.
func (g *heteroGraph) simpleOrders(order string, scores []float32, hotRows int) map[string][]uint32 {
	first, n := map[string]int64{}, int64(0)
	for _, t := range g.NodeTypes {
		first[t.Name] = n
		n += t.NumNodes
	}
	var relations [][2][]int64
	for i, e := range g.EdgeTypes {
		var ends [2][]int64
		for side, of := range []string{e.Source, e.Target} {
			for _, id := range g.edges[i][side] {
				ends[side] = append(ends[side], first[of]+id)
			}
		}
		relations = append(relations, ends)
	}
	var all []uint32
	switch order {
	case Hot:
		all = simpleHot(scores)
	case Community:
		all = simpleForest(n, relations, scores)
	default:
		all = simpleBlend(scores, hotRows, simpleForest(n, relations, scores))
	}
	cut := map[string][]uint32{}
	for _, t := range g.NodeTypes {
		cut[t.Name] = []uint32{}
		for _, id := range all {
			if own := int64(id) - first[t.Name]; own >= 0 && own < t.NumNodes {
				cut[t.Name] = append(cut[t.Name], uint32(own))
			}
		}
	}
	return cut
}

// requireTypesReordered compares everything that a store holds with the graph it was made from, its orders with those
// given, and the rows of its files with the orders.
func requireTypesReordered(t *testing.T, g *heteroGraph, orders map[string][]uint32, s *Store) {
	t.Helper()
	requireHetero(t, g, s)
	budget := mem.NewBudget(0)
	for _, typ := range s.NodeTypes() {
		block, err := typ.LoadOrder(context.Background(), budget, mem.Topology)
		require.NoError(t, err)
		order := append([]uint32{}, mem.Slice[uint32](block)...)
		block.Free()
		require.Equal(t, orders[typ.Name], order, typ.Name)
		for _, tensor := range typ.Tensors {
			stored, err := tensor.Load(context.Background(), budget, mem.Batch)
			require.NoError(t, err)
			want, size := g.rows[typ.Name+"."+tensor.Name], tensor.Layout.RowBytes
			for row, id := range order {
				if !bytes.Equal(stored.Bytes()[row*size:][:size], want[int(id)*size:][:size]) {
					require.Fail(t, "wrong row", "row %d of %s.%s, node %d", row, typ.Name, tensor.Name, id)
				}
			}
			stored.Free()
		}
	}
	require.Zero(t, budget.Used())
}

// TestRelayoutOfTypes compares every order of random heterogeneous graphs with its definition.
func TestRelayoutOfTypes(t *testing.T) {
	for seed := range uint64(explore.Rounds(12)) {
		g := newHeteroGraph(seed, 300)
		src := mustConvert(t, g.Input, 0)
		n := g.numNodes()
		scores := randomScores(seed, n)
		hot := int(n / defaultHotShare)
		for _, order := range Orders {
			s := mustRelayout(t, src, RelayoutOptions{Order: order, Scores: scores, HotRows: -1})
			requireTypesReordered(t, g, g.simpleOrders(order, scores, hot), s)
		}
		s := mustRelayout(t, src, RelayoutOptions{Order: Community})
		requireTypesReordered(t, g, g.simpleOrders(Community, nil, 0), s)
	}
}

// TestRelayoutOfTypesTwice: a heterogeneous store that is relaid out again, within the smallest budget, has the files
// of one relaid out once, and a conversion with a relayout in place has them too.
func TestRelayoutOfTypesTwice(t *testing.T) {
	ctx, g := context.Background(), largeHeteroGraph()
	src := mustConvert(t, g.Input, 0)
	scores := randomScores(3, g.numNodes())
	opts := RelayoutOptions{Order: HotCommunity, Scores: scores, HotRows: 100}
	once := mustRelayout(t, src, opts)
	requireTypesReordered(t, g, g.simpleOrders(HotCommunity, scores, 100), once)
	want := readFiles(t, once.Path())
	delete(want, manifest.Name)

	first := mustRelayout(t, src, RelayoutOptions{Order: Hot, Scores: scores})
	opts.Memory = 1
	var short *mem.BudgetError
	require.ErrorAs(t, Relayout(ctx, first, filepath.Join(t.TempDir(), "r"), opts), &short)
	opts.Memory = short.Need
	twice := readFiles(t, mustRelayout(t, first, opts).Path())
	delete(twice, manifest.Name)
	require.Equal(t, want, twice)

	path := filepath.Join(t.TempDir(), "g")
	d, err := ConvertDraft(ctx, ssd.OS, g.Input, path, HotCommunity, ConvertOptions{})
	require.NoError(t, err)
	requireHetero(t, g, d.Store())
	opts.Memory = 0
	require.NoError(t, d.Relayout(ctx, opts))
	inPlace := readFiles(t, path)
	delete(inPlace, manifest.Name)
	require.Equal(t, want, inPlace)
}

// TestRelayoutOfTypesBadInput: messages about scores name the node type.
func TestRelayoutOfTypesBadInput(t *testing.T) {
	g := largeHeteroGraph()
	src := mustConvert(t, g.Input, 0)
	path := filepath.Join(t.TempDir(), "r")
	err := Relayout(context.Background(), src, path, RelayoutOptions{Order: Hot, Scores: make([]float32, 4999)})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "4999 scores, expected one for each of 5000 nodes")
	scores := make([]float32, 5000)
	scores[2003] = float32(math.NaN())
	err = Relayout(context.Background(), src, path, RelayoutOptions{Order: Hot, Scores: scores})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "score of node 3 of type \"item\" is NaN")
	many := &Store{nodeTypes: []NodeType{{Name: "a", Count: maxOrdered}, {Name: "b", Count: 1}}}
	_, err = newRelayouter(many, RelayoutOptions{Order: Community}, mem.NewBudget(0), false)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprint("4294967296 nodes, expected at most ", maxOrdered))
}
