package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/internal/explore"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// someHistory adds a random history, and a hop.
func someHistory(rng *rand.Rand, o draw.Options) draw.Options {
	policies, prefetch := []string{history.Gradient, history.Performance, history.All}, o.Prefetch
	o = (&form{}).withHistory(o, policies[rng.IntN(len(policies))])
	o.Prefetch, o.History.Lag = prefetch, []int{0, 1, 2, 5}[rng.IntN(4)]
	o.History.GradFraction, o.History.ProbeEvery = []float64{0.7, 1}[rng.IntN(2)], []int64{0, 0, 5}[rng.IntN(3)]
	return o
}

// trainerOf returns the trainer of a loader with a history or without one.
func trainerOf(t *testing.T, l *Loader) *trainer {
	if l.draw.Options.History == nil {
		return &trainer{T: t, l: l}
	}
	return (&form{}).train(t, l)
}

// trainTables trains the tables of a batch, which a history may have pruned, and returns the batch as it came.
func (r *trainer) trainTables(t *testing.T, rng *rand.Rand, b *batch.Batch, tables []*tableModel) *seen {
	t.Helper()
	s := look(b)
	for place, m := range tables {
		typ := r.l.draw.Options.Tables[place].Type
		name := r.l.draw.Parts.Schema.NodeName(typ, "n_id")
		m.trainLoaded(t, rng, b, place, name, r.loaded(s, r.levels(s), typ))
	}
	return s
}

// writeFeatures compares the features of a batch with the dataset, and then writes to them, as a training may.
func (r *trainer) writeFeatures(t *testing.T, d *dataset, b *batch.Batch, s *seen) {
	t.Helper()
	x, loaded := s.float32s("x"), r.loaded(s, r.levels(s), 0)
	for i, v := range s.int64s("n_id") {
		if loaded == nil || loaded[i] {
			require.Equal(t, d.x[v*width:][:width], x[i*width:][:width], "batch %d, features of node %d", b.Index, v)
			require.Equal(t, d.wide[v*wideWidth:][:wideWidth], s.arrays["wide"][i*wideWidth:][:wideWidth])
		}
	}
	for _, name := range []string{"x", "wide"} {
		clear(b.Array(name).Buffer.Bytes())
	}
}

// TestTrainedRowsOfTypes trains tables of two node types, one of them twice, whose rows wait in the same packs when
// epochs are left, with a history and without one.
func TestTrainedRowsOfTypes(t *testing.T) {
	_, in := heteroInputs()
	path := filepath.Join(t.TempDir(), "graph")
	require.NoError(t, store.Convert(context.Background(), ssd.OS, in, path, store.ConvertOptions{}))
	s := opened(t, ssd.OS, path)
	types := s.NodeTypes()
	for _, of := range []*draw.HistoryOptions{nil, {
		GradFraction: 0.7, Stale: draw.Span{Count: 20}, Policy: history.Performance, Memory: 60000, Lag: 1,
	}} {
		var tables []*tableModel
		o := plain()
		o.Cache, o.Transfer, o.Fanouts, o.History = "auto", "auto", []int64{3, 3}, of
		o.Seeds, o.BatchSize, o.FeatureCache, o.Scratch = nil, 16, 80_000, t.TempDir()
		for _, typ := range []int{0, 1, 0} {
			m := newTableModel(t, ssd.OS, types[typ].Count)
			tables = append(tables, m)
			o.Tables = append(o.Tables, draw.Trained{Table: m.table, Type: typ})
		}
		l := open(t, draw.OpenStore(s), o)
		rng, r := explore.Rand(t, 48, 0), trainerOf(t, l)
		for epoch := range int64(2) {
			require.NoError(t, l.Start(epoch, 0, Train))
			for {
				b, err := step(context.Background(), l)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				r.update(r.trainTables(t, rng, b, tables))
				b.Release()
				if rng.IntN(10) == 0 {
					require.NoError(t, l.Settle())
					for _, m := range tables {
						m.check(t)
					}
					require.NoError(t, l.Start(epoch, b.Index+1, Train))
				}
			}
		}
		require.Equal(t, of != nil, r.hits > 0)
		require.NoError(t, l.Close())
		for _, m := range tables {
			m.check(t)
		}
	}
}

// TestPrunedRowsThatWait trains a table whose rows wait in packs for batches that no longer have them: plans forward
// every row that has no slot.
func TestPrunedRowsThatWait(t *testing.T) {
	s := someStore(t, ssd.OS)
	for seed := range uint64(2) {
		m := newTableModel(t, ssd.OS, someNodes)
		o := (&form{}).withHistory(belady(), history.Gradient)
		o.Tables, o.Transfer, o.FeatureCache = []draw.Trained{{Table: m.table}}, "forward", rowsFor(10)
		o.Superbatch, o.Prefetch, o.History.Lag = 16, int(seed), 1
		l := open(t, draw.OpenStore(s), o)
		rng, r := explore.Rand(t, 53, seed), trainerOf(t, l)
		for epoch := range int64(2) {
			eachBatch(t, l, epoch, func(b *batch.Batch) { r.update(r.trainTables(t, rng, b, []*tableModel{m})) })
		}
		require.Positive(t, r.hits)
		require.Positive(t, l.Stats().Packed)
		require.NoError(t, l.Close())
		m.check(t)
	}
}

// TestUpdatesOfTrainedRowsGoOn holds that no update waits for a batch that waits for it, however short windows are and
// however many batches are pruned before an update.
func TestUpdatesOfTrainedRowsGoOn(t *testing.T) {
	s := someStore(t, ssd.OS)
	for i, prefetch := range []int{0, 1, 5} {
		for _, workers := range []int{1, 8} {
			for _, superbatch := range []int64{1, 3, 16} {
				m := newTableModel(t, ssd.OS, someNodes)
				o := (&form{}).withHistory(belady(), history.Performance)
				o.Tables, o.Transfer = []draw.Trained{{Table: m.table}}, []string{"scan", "auto", "pack+forward+ahead"}[i]
				o.Prefetch, o.Workers, o.Superbatch, o.History.Lag = prefetch, workers, superbatch, 5
				o.FeatureCache, o.Memory = []int64{rowsFor(10), rowsFor(2500)}[workers/8], 128<<20
				o.Scratch, o.BufferMemory, o.ScratchBytes = t.TempDir(), 8<<20, 64<<20 // where prologues could run early
				l := open(t, draw.OpenStore(s), o)
				rng, r := explore.Rand(t, 54, uint64(i)), trainerOf(t, l)
				t.Run(fmt.Sprint(prefetch, workers, superbatch), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
					defer cancel()
					require.NoError(t, l.Start(0, 0, Train))
					for range 25 { // the epoch is left with batches that are pruned
						b, err := step(ctx, l)
						require.NoError(t, err)
						s := r.trainTables(t, rng, b, []*tableModel{m})
						b.Release()
						if rng.IntN(4) > 0 {
							r.updateWithin(ctx, s)
						}
					}
				})
				require.NoError(t, l.Close())
				m.check(t)
			}
		}
	}
}
