package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// lossy are the works during which the power goes: each writes a store of 90 nodes to path.
func lossy(t *testing.T) map[string]func(fs ssd.FS, path string) error {
	t.Helper()
	ctx := context.Background()
	graph := newRandomGraph(4, 90, 900, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	graph.Splits["train"] = Dense(manifest.DType_INT64, []int64{2}, int64Bytes([]int64{0, 7}))
	source := filepath.Join(t.TempDir(), "source")
	require.NoError(t, Convert(ctx, ssd.OS, graph.Input, source, ConvertOptions{}))
	smaller := newRandomGraph(5, 80, 700, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	require.NoError(t, Convert(ctx, ssd.OS, smaller.Input, source+"80", ConvertOptions{}))
	more := newRandomGraph(6, 10, 60, map[string][]int64{"x": {30}}, manifest.DType_FLOAT32)
	growth := Growth{
		Nodes: []NodeInput{{NumNodes: 10, Tensors: more.NodeTensors}}, Edges: []EdgeInput{{EdgeIndex: more.EdgeIndex}},
	}
	open := func(fs ssd.FS, path string, work func(s *Store) error) error {
		s, err := Open(fs, path)
		if err != nil {
			return err
		}
		return errors.Join(work(s), s.Close())
	}
	from := func(fs ssd.FS, work func(s *Store) error) error { return open(fs, source, work) }
	return map[string]func(fs ssd.FS, path string) error{
		"convert": func(fs ssd.FS, path string) error {
			return Convert(ctx, fs, graph.Input, path, ConvertOptions{Overwrite: true})
		},
		"relayout": func(fs ssd.FS, path string) error {
			return from(fs, func(s *Store) error {
				return Relayout(ctx, s, path, RelayoutOptions{Order: Community, Overwrite: true})
			})
		},
		"update": func(fs ssd.FS, path string) error {
			y := NamedSource{"y", Dense(manifest.DType_UINT8, []int64{90}, make([]byte, 90))}
			changes := Changes{Nodes: []NodeChange{{Tensors: []NamedSource{y}}}}
			return from(fs, func(s *Store) error { return Update(ctx, s, path, changes, ConvertOptions{Overwrite: true}) })
		},
		"append": func(fs ssd.FS, path string) error {
			return open(fs, source+"80", func(s *Store) error {
				return Append(ctx, s, path, growth, ConvertOptions{Overwrite: true})
			})
		},
	}
}

// requireAfterLoss requires that what is at the path after a loss of power is a whole store, the new one or the one of
// 5 nodes before, or none where there was none; that the work, done again, leaves its store there and nothing else; and
// returns what was there.
func requireAfterLoss(t *testing.T, path string, replaces bool, failed error, again func() error) (found string) {
	t.Helper()
	s, err := Open(ssd.OS, path)
	switch {
	case err == nil:
		require.NoError(t, s.Verify(context.Background(), nil))
		nodes := s.EdgeTypes()[0].NumNodes
		require.Contains(t, []int64{5, 90}, nodes)
		require.True(t, nodes == 90 || replaces)
		require.True(t, nodes == 90 || failed != nil, "what was published is gone")
		found = fmt.Sprint(nodes, " nodes")
	default:
		require.ErrorIs(t, err, ErrNotFound)
		require.False(t, replaces, "neither the old store nor the new one is there")
		require.Error(t, failed, "what was published is gone")
		found = "none"
	}
	require.NoError(t, again())
	requireNodes(t, path, 90)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	names := []string{}
	for _, entry := range left {
		if entry.Name() != "lost+found" {
			names = append(names, entry.Name())
		}
	}
	require.Equal(t, []string{filepath.Base(path)}, names)
	return found
}

// callsOf returns how many calls to the file system a work makes.
func callsOf(t *testing.T, work func(fs ssd.FS, path string) error, replaces bool) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g")
	if replaces {
		require.NoError(t, convertTiny(path, 5, false))
	}
	counted := faultfs.New(ssd.OS)
	require.NoError(t, work(counted, path))
	return counted.Calls(faultfs.Any)
}

// TestPowerLoss takes the power away at a call to the file system, at every call with FRESHGO_TEST_POWERLOSS=all
// (make powerloss) and at some drawn ones without. Afterwards there is a whole store at the path: the new one, or the
// one before, or none where there was none. What is left beside it the next conversion removes.
func TestPowerLoss(t *testing.T) {
	rng := explore.Rand(t, 3, 7)
	all := os.Getenv("FRESHGO_TEST_POWERLOSS") == "all"
	for _, kind := range faultfs.DiskKinds() {
		t.Run(kind, func(t *testing.T) {
			d := faultfs.NewDisk(t, kind)
			losses, outcomes := 0, map[string]int{}
			for name, work := range lossy(t) {
				for _, replaces := range []bool{false, true} {
					calls := callsOf(t, work, replaces)
					nths := []int{1 + rng.IntN(calls), calls - rng.IntN(calls/4)} // towards the end it is published
					if all {
						nths = nil
						for nth := 1; nth <= calls; nth++ {
							nths = append(nths, nth, nth) // in both ways
						}
					}
					for i, nth := range nths {
						how := []faultfs.Loss{faultfs.JournalFlushed, faultfs.JournalLost}[i%2]
						losses++
						t.Run(fmt.Sprint(name, " replaces ", replaces, " call ", nth, " journal ", how), func(t *testing.T) {
							d.TB = t
							path := filepath.Join(d.Home(), "g")
							if replaces {
								require.NoError(t, convertTiny(path, 5, false))
							}
							d.Sync()
							var once sync.Once
							fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever,
								Errno: syscall.EIO, Hook: func() { once.Do(func() { d.LosePower(how) }) }})
							failed := work(fs, path)
							d.Again()
							again := func() error { return work(ssd.OS, path) }
							outcomes[requireAfterLoss(t, path, replaces, failed, again)]++
						})
					}
				}
			}
			t.Logf("%d losses of power: %v", losses, outcomes)
		})
	}
}

// TestLostWrites takes the power away from a file system that has kept of each file and directory only what was synced,
// and some of what came after it, with the last write torn: stricter than any disk, and without one. It is done at
// every call with FRESHGO_TEST_POWERLOSS=all, several times, and at drawn ones without.
func TestLostWrites(t *testing.T) {
	rng := explore.Rand(t, 3, 8)
	all := os.Getenv("FRESHGO_TEST_POWERLOSS") == "all"
	losses, lost, outcomes := 0, 0, map[string]int{}
	for name, work := range lossy(t) {
		for _, replaces := range []bool{false, true} {
			calls := callsOf(t, work, replaces)
			rounds := 40
			if all {
				rounds = 20 * calls
			}
			for i := range explore.Rounds(rounds) {
				nth := 1 + i%(calls+1) // the last: after the work has ended
				if !all {
					nth = calls + 1 - int(float64(calls)*rng.Float64()*rng.Float64()) // towards the end it is published
				}
				t.Run(fmt.Sprint(name, " replaces ", replaces, " call ", nth, " round ", i), func(t *testing.T) {
					attic, dir := t.TempDir(), t.TempDir()
					path := filepath.Join(dir, "g")
					if replaces {
						require.NoError(t, convertTiny(path, 5, false))
					}
					disk := faultfs.NewLosing(attic)
					fs := faultfs.New(disk, faultfs.Fault{Op: faultfs.Any, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO})
					failed := work(fs, path)
					n, err := disk.Lose(rng)
					require.NoError(t, err)
					losses, lost = losses+1, lost+n
					again := func() error { return work(ssd.OS, path) }
					outcomes[requireAfterLoss(t, path, replaces, failed, again)]++
				})
			}
		}
	}
	t.Logf("%d losses of power took back %d changes: %v", losses, lost, outcomes)
	require.Positive(t, lost)
}
