package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

func draftGraph() *randomGraph {
	g := newRandomGraph(41, 3000, 9000, map[string][]int64{"x": {200}, "z": {}}, manifest.DType_FLOAT32)
	g.Splits["train"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{0, 7}))
	return g
}

// bytesIn adds up the files of a directory.
func bytesIn(t *testing.T, dir string) (total int64) {
	t.Helper()
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, name := range names {
		if info, err := name.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// TestDraft: a conversion with a relayout in place gives the files that one after the other gives, in a path that
// appears at the end, and needs disk space for one more tensor at most.
func TestDraft(t *testing.T) {
	ctx, g := context.Background(), draftGraph()
	scores := randomScores(3, 3000)
	want := mustRelayout(t, mustConvert(t, g.Input, 0), RelayoutOptions{Order: HotCommunity, Scores: scores, HotRows: -1})
	path := filepath.Join(t.TempDir(), "g")
	d, err := ConvertDraft(ctx, ssd.OS, g.Input, path, HotCommunity, ConvertOptions{})
	require.NoError(t, err)
	_, err = Open(ssd.OS, path)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = Open(ssd.OS, path+partialSuffix)
	require.Error(t, err, "a draft is no store for others")
	require.ErrorIs(t, convertTiny(path, 1, true), ErrBusy)
	requireGraph(t, g, d.Store())
	require.NoError(t, d.Store().Verify(ctx, nil))

	whole, most := bytesIn(t, path+partialSuffix), int64(0)
	require.NoError(t, d.Relayout(ctx,
		RelayoutOptions{Order: HotCommunity, Scores: scores, HotRows: -1, Progress: func(string, int64, int64) {
			most = max(most, bytesIn(t, path+partialSuffix))
		}}))
	x := want.NodeTypes()[0].Tensors[0]
	require.LessOrEqual(t, most, whole+x.Bytes+x.CRCBytes()+want.NodeTypes()[0].Order.Bytes+2*ssd.PageBytes)
	require.ErrorIs(t, d.Relayout(ctx, RelayoutOptions{}), ErrClosed)
	require.NoError(t, d.Discard(), "what is published stays")
	require.ErrorIs(t, d.Store().Verify(ctx, nil), ErrClosed)
	one, two := readFiles(t, want.Path()), readFiles(t, path)
	delete(one, manifest.Name)
	delete(two, manifest.Name)
	require.Equal(t, one, two)
	requireReordered(t, g, mustOpen(t, path))
}

func TestDraftThatIsDiscarded(t *testing.T) {
	ctx, g, dir := context.Background(), draftGraph(), t.TempDir()
	path := filepath.Join(dir, "g")
	draft := func() *Draft {
		d, err := ConvertDraft(ctx, ssd.OS, g.Input, path, Hot, ConvertOptions{})
		require.NoError(t, err)
		return d
	}
	empty := func() {
		requireNothing(t, dir)
	}
	d := draft()
	require.NoError(t, d.Discard())
	require.NoError(t, d.Discard())
	empty()
	d = draft()
	require.ErrorIs(t, d.Relayout(ctx, RelayoutOptions{Order: Hot}), ErrInvalid)
	empty()
	d = draft()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, d.Relayout(cancelled, RelayoutOptions{Order: Hot, Scores: randomScores(1, 3000)}), context.Canceled)
	empty()
	d = draft()
	require.NoError(t, d.site.lock.Close()) // as the end of the process does
	require.NoError(t, convertTiny(path, 1, false))
	requireNodes(t, path, 1)
}

// TestDraftIsRefusedEarly: a relayout that cannot be is refused before the conversion.
func TestDraftIsRefusedEarly(t *testing.T) {
	ctx, g, dir := context.Background(), draftGraph(), t.TempDir()
	path := filepath.Join(dir, "g")
	_, err := ConvertDraft(ctx, ssd.OS, g.Input, path, "warm", ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	huge := Input{NumNodes: maxOrdered + 1, EdgeIndex: edgesOf(nil, nil)}
	_, err = ConvertDraft(ctx, ssd.OS, huge, path, Hot, ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)

	// A graph for which the order needs more memory than the conversion.
	nodes := Input{NumNodes: 1 << 20, EdgeIndex: edgesOf(nil, nil),
		NodeTensors: []NamedSource{{"x", Dense(manifest.DType_UINT8, []int64{1 << 20}, make([]byte, 1<<20))}}}
	memory := smallestBudget(t, nodes)
	_, err = ConvertDraft(ctx, ssd.OS, nodes, path, Community, ConvertOptions{Memory: memory})
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	require.ErrorContains(t, err, fmt.Sprint(short.Need))
	requireNothing(t, dir)
	d, err := ConvertDraft(ctx, ssd.OS, nodes, path, Community, ConvertOptions{Memory: short.Need})
	require.NoError(t, err)
	budget := mem.NewBudget(short.Need)
	require.NoError(t, d.relayout(ctx, RelayoutOptions{Order: Community}, budget))
	require.LessOrEqual(t, budget.Peak(), short.Need)
	require.NoError(t, mustOpen(t, path).Verify(ctx, nil))
}

// TestDraftFaults fails calls of the relayout in place. An old tensor that cannot be removed ends it, as there may be
// no space for more.
func TestDraftFaults(t *testing.T) {
	ctx, g := context.Background(), draftGraph()
	for _, op := range []faultfs.Op{faultfs.Remove, faultfs.Read, faultfs.Write, faultfs.Rename, faultfs.OpenDirect} {
		for nth := 1; ; nth += 1 + nth/2 {
			dir := t.TempDir()
			fs := faultfs.New(ssd.OS)
			d, err := ConvertDraft(ctx, fs, g.Input, filepath.Join(dir, "g"), Hot, ConvertOptions{})
			require.NoError(t, err)
			before := fs.Calls(op)
			fs.Arm(faultfs.Fault{Op: op, Nth: nth, Errno: syscall.EIO})
			err = d.Relayout(ctx, RelayoutOptions{Order: Hot, Scores: randomScores(1, 3000)})
			require.Zero(t, fs.OpenFiles())
			if err == nil {
				if op != faultfs.Remove { // what cannot be removed once the store is published stays for the next
					require.Less(t, fs.Calls(op)-before, nth)
				}
				requireReordered(t, g, mustOpen(t, filepath.Join(dir, "g")))
				break
			}
			require.ErrorIs(t, err, syscall.EIO)
			requireNothing(t, dir)
		}
	}
}
