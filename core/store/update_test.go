package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// change draws what Update does to one node type and one edge type, and does it to the graph.
func (g *heteroGraph) change(rng *rand.Rand) Changes {
	i, j := rng.IntN(len(g.NodeTypes)), rng.IntN(len(g.EdgeTypes))
	node, edge := &g.NodeTypes[i], &g.EdgeTypes[j]
	n := NodeChange{Name: node.Name, Splits: map[string]Source{}}
	n.Tensors, n.Drop = g.changeTensors(rng, node.Name+".", "x", &node.Tensors, node.NumNodes)
	if _, has := node.Splits["train"]; has && rng.IntN(3) == 0 {
		n.Undo = []string{"train"}
		delete(node.Splits, "train")
	} else if node.NumNodes > 0 {
		ids := []int64{rng.Int64N(node.NumNodes)}
		node.Splits["train"] = Dense(manifest.DType_INT64, []int64{1}, int64Bytes(ids))
		n.Splits["train"], g.splits[node.Name+".train"] = node.Splits["train"], ids
	}
	e := EdgeChange{Source: edge.Source, Relation: edge.Relation, Target: edge.Target}
	label := edgeLabel(e.Source, e.Relation, e.Target)
	e.Tensors, e.Drop = g.changeTensors(rng, label, "w", &edge.Tensors, int64(len(g.edges[j][0])))
	return Changes{Nodes: []NodeChange{n}, Edges: []EdgeChange{e}}
}

// changeTensors replaces, drops and adds tensors of a type.
func (g *heteroGraph) changeTensors(
	rng *rand.Rand, label, letter string, have *[]NamedSource, rows int64,
) (given []NamedSource, drop []string) {
	var stay []NamedSource
	for _, t := range *have {
		switch rng.IntN(4) {
		case 0:
			drop = append(drop, t.Name)
			continue
		case 1:
			t = g.tensor(rng, label, t.Name, rows)
			given = append(given, t)
		}
		stay = append(stay, t)
	}
	free := func(name string) bool {
		return !slices.ContainsFunc(*have, func(t NamedSource) bool { return t.Name == name })
	}
	if name := fmt.Sprint(letter, rng.IntN(9)); rng.IntN(2) == 0 && free(name) {
		t := g.tensor(rng, label, name, rows)
		given, stay = append(given, t), append(stay, t)
	}
	*have = stay
	return given, drop
}

// TestUpdatesAreConversions: after any sequence of updates a store holds what a conversion would have written, whatever
// becomes of the stores before it, and in whatever order its rows are.
func TestUpdatesAreConversions(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(explore.Rounds(50)) {
		rng := explore.Rand(t, 61, seed)
		g := newHeteroGraph(rng.Uint64(), 60)
		path := filepath.Join(t.TempDir(), "s")
		require.NoError(t, Convert(ctx, ssd.OS, g.Input, path, ConvertOptions{}))
		if seed%3 == 0 {
			scores := randomScores(seed, g.numNodes())
			opts := RelayoutOptions{Order: Hot, Scores: scores, Overwrite: true}
			require.NoError(t, Relayout(ctx, mustOpen(t, path), path, opts))
		}
		for step := range 3 {
			next := path
			if rng.IntN(2) == 0 {
				next = fmt.Sprint(path, step)
			}
			refuse := faultfs.New(ssd.OS)
			if rng.IntN(2) == 0 {
				refuse.Arm(faultfs.Fault{Op: faultfs.Share, Errno: syscall.EXDEV, Times: faultfs.Forever, Nth: 1 + rng.IntN(4)})
			}
			src, err := Open(refuse, path)
			require.NoError(t, err)
			err = Update(ctx, src, next, g.change(rng), ConvertOptions{Overwrite: true})
			require.NoError(t, err, "seed %d step %d", seed, step)
			if next != path {
				require.NoError(t, os.RemoveAll(path))
			}
			path = next
			s := mustOpen(t, path)
			requireHetero(t, g, s)
			require.NoError(t, s.Verify(ctx, nil))
			require.NotEqual(t, src.UUID(), s.UUID())
			require.NoError(t, src.Close())
		}
	}
}

// TestFilesOfAStoreStayAsTheyAre: what shares files with a store never changes them. Hard links depend on it.
func TestFilesOfAStoreStayAsTheyAre(t *testing.T) {
	ctx := context.Background()
	rng := explore.Rand(t, 61, 100)
	g := newHeteroGraph(3, 60)
	for g.NodeTypes[0].NumNodes == 0 {
		g = newHeteroGraph(rng.Uint64(), 60)
	}
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, Convert(ctx, ssd.OS, g.Input, path, ConvertOptions{}))
	before := readFiles(t, path)
	other := path + "2"
	require.NoError(t, Update(ctx, mustOpen(t, path), other, Changes{}, ConvertOptions{}))
	a, err := mustOpen(t, other).BeginAddition()
	require.NoError(t, err)
	w, err := a.Create("sums", manifest.DType_FLOAT32, 1, 64<<10, mem.NewBudget(0))
	require.NoError(t, err)
	rows := g.NodeTypes[0].NumNodes
	require.NoError(t, w.WriteRows(make([]byte, 4*rows)))
	_, in, err := w.Finish(rows)
	require.NoError(t, err)
	a.Set(0, "sums", in, &manifest.Aggregate{Tensor: "x", Reduce: "sum", Hop: 1, Parts: []*manifest.AggregatePart{{
		Source: g.EdgeTypes[0].Source, Relation: g.EdgeTypes[0].Relation, Target: g.EdgeTypes[0].Target, Columns: 1,
	}}})
	_ = a.Publish(ctx) // it may be refused: what matters is what it writes
	again := ConvertOptions{Overwrite: true}
	require.NoError(t, Update(ctx, mustOpen(t, other), other, Changes{}, again))
	scores := randomScores(1, g.numNodes())
	opts := RelayoutOptions{Order: Hot, Scores: scores, Overwrite: true}
	require.NoError(t, Relayout(ctx, mustOpen(t, other), other, opts))
	require.NoError(t, Convert(ctx, ssd.OS, g.Input, other, again))
	require.Equal(t, before, readFiles(t, path))
}

// requireFaults fails each call of a change of the store at path to one at path+"2": there is an error, nothing at the
// path, and the source as it was.
func requireFaults(t *testing.T, path string, change func(src *Store) error, whole func(s *Store)) {
	t.Helper()
	before := readFiles(t, path)
	for nth := explore.First(t, ""); ; nth += explore.Stride() {
		fs := faultfs.New(ssd.OS)
		src, err := Open(fs, path)
		require.NoError(t, err)
		calls := fs.Calls(faultfs.Any)
		fs.Arm(faultfs.Fault{Op: faultfs.Any, Nth: nth, Errno: []syscall.Errno{syscall.EIO, syscall.ENOSPC}[nth%2]})
		err = change(src)
		fs.Clear()
		require.NoError(t, src.Close())
		require.Equal(t, before, readFiles(t, path), nth)
		if _, missing := os.Stat(path + "2"); missing == nil { // what failed came behind the publication
			whole(mustOpen(t, path+"2"))
			require.NoError(t, os.RemoveAll(path+"2"))
		} else {
			require.Error(t, err, nth)
		}
		require.Less(t, nth, 5000)
		if err == nil && fs.Calls(faultfs.Any)-calls < nth {
			break
		}
	}
}

func TestUpdateFaults(t *testing.T) {
	rng := explore.Rand(t, 61, 101)
	g := newHeteroGraph(rng.Uint64(), 40)
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, Convert(context.Background(), ssd.OS, g.Input, path, ConvertOptions{}))
	changes := g.change(rng)
	requireFaults(t, path, func(src *Store) error {
		return Update(context.Background(), src, path+"2", changes, ConvertOptions{})
	}, func(s *Store) { requireHetero(t, g, s) })
}

func TestUpdateBadInput(t *testing.T) {
	ctx := context.Background()
	path := sampleStore(t)
	rows := mustOpen(t, path).NodeTypes()[0].Count
	tensor := func(name string, rows int64) []NamedSource {
		return []NamedSource{{name, Dense(manifest.DType_FLOAT32, []int64{rows}, make([]byte, 4*rows))}}
	}
	have := mustOpen(t, path).NodeTypes()[0].Tensors[0].Name
	for name, tc := range map[string]struct {
		changes Changes
		err     error
		text    string
	}{
		"rows":         {Changes{Nodes: []NodeChange{{Tensors: tensor("z", rows-1)}}}, ErrInvalid, "expected"},
		"unknown type": {Changes{Nodes: []NodeChange{{Name: "paper"}}}, ErrNotFound, "paper"},
		"unknown edge": {Changes{Edges: []EdgeChange{{Relation: "r"}}}, ErrNotFound, "edge type"},
		"unknown drop": {Changes{Nodes: []NodeChange{{Drop: []string{"none"}}}}, ErrInvalid, `no tensor "none" to drop`},
		"both": {
			Changes{Nodes: []NodeChange{{Drop: []string{have}, Tensors: tensor(have, rows)}}}, ErrInvalid, "both",
		},
		"edge rows": {Changes{Edges: []EdgeChange{{Tensors: tensor("z", 1)}}}, ErrInvalid, "the number of edges"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Update(ctx, mustOpen(t, path), path+"2", tc.changes, ConvertOptions{})
			require.ErrorIs(t, err, tc.err)
			require.ErrorContains(t, err, tc.text)
			require.NoFileExists(t, path+"2")
		})
	}
	require.ErrorIs(t, Update(ctx, mustOpen(t, path), path, Changes{}, ConvertOptions{}), ErrExists)
	err := Update(ctx, mustOpen(t, path), path+"2", Changes{}, ConvertOptions{Memory: 1})
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	require.NoError(t, Update(ctx, mustOpen(t, path), path+"2", Changes{}, ConvertOptions{Memory: short.Need}))
	require.NoError(t, mustOpen(t, path+"2").Verify(ctx, nil))
}
