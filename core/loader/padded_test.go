package loader

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// TestPaddedBatches is the metamorphic test of padding: without what pads them, batches equal the batches of a loader
// that pads none, from memory and from disk, under every cache policy, with rows in any order and with repeated seeds.
func TestPaddedBatches(t *testing.T) {
	for _, f := range forms(someDataset()) {
		g, sources := f.sources(t)
		base := f.shortWindows()
		if len(f.names) == 1 {
			rng := explore.Rand(t, 3, 9)
			for range 900 {
				base.Seeds = append(base.Seeds, rng.Int64N(300)) // some repeat within a batch
			}
		}
		plain := open(t, g, base)
		want := append(epochOf(t, plain, 0), epochOf(t, plain, 1)...)
		kinds := some(f, "belady", "none", "degree", "lru")
		for _, kind := range explore.Part(t, fmt.Sprint(f), kinds) {
			for source, src := range sources {
				t.Run(fmt.Sprintf("%s, %s %s", f, kind, source), func(t *testing.T) {
					o := base
					o.Pad, o.Cache, o.Transpose = true, kind, false
					l := open(t, src, o)
					got := append(epochOf(t, l, 0), epochOf(t, l, 1)...)
					require.Len(t, got, len(want))
					padded := 0
					for i, b := range got {
						if f.unpad(t, l, b) {
							padded++
						}
						one := maps.Clone(want[i].arrays)
						f.dropCounts(l, one)
						for name, array := range one {
							require.True(t, bytes.Equal(array, b.arrays[name]), "%s of batch %d", name, i)
						}
						require.Len(t, b.arrays, len(one))
					}
					st := l.Stats()
					require.EqualValues(t, padded, st.Padded)
					require.Greater(t, 10*padded, 9*len(got), "%v", st.Envelope)
					require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses, "%+v", st)
					require.Equal(t, plain.Stats().Rows, st.Rows)
					require.Equal(t, plain.Stats().Edges, st.Edges)
				})
			}
		}
	}
}

// dropCounts removes the counts by hop, which padding changes.
func (f *form) dropCounts(l *Loader, arrays map[string][]byte) (all draw.Envelope) {
	s := l.draw.Parts.Schema
	for typ := range f.names {
		name := s.NodeName(typ, "num_sampled_nodes")
		all = append(all, mem.View[int64](arrays[name])...)
		delete(arrays, name)
	}
	for i := range f.edges {
		name := s.EdgeName(i, "num_sampled_edges")
		all = append(all, mem.View[int64](arrays[name])...)
		delete(arrays, name)
	}
	return all
}

// unpad removes what pads a batch, and returns whether anything did.
func (f *form) unpad(t *testing.T, l *Loader, b *seen) bool {
	t.Helper()
	s := l.draw.Parts.Schema
	counts := f.dropCounts(l, b.arrays)
	var places [][]int64 // of the rows of each type; -1: it pads
	pads := 0
	for typ := range f.names {
		var keep []bool
		var place []int64
		n := int64(0)
		for _, v := range b.int64s(s.NodeName(typ, "n_id")) {
			if keep = append(keep, v >= 0); v >= 0 {
				place, n = append(place, n), n+1
			} else {
				place, pads = append(place, -1), pads+1
			}
		}
		places = append(places, place)
		b.keepRows(t, s.NodeName(typ, "n_id"), keep, false)
		for _, tensor := range f.nodes[typ] {
			b.keepRows(t, s.NodeName(typ, tensor.Name), keep, true)
		}
	}
	for i := range f.edges {
		r := s.Relations[i]
		index, ptr := b.int64s(s.EdgeName(i, "edge_index")), b.int64s(s.EdgeName(i, "ptr"))
		edges := len(index) / 2
		var keep []bool
		var sources, targets []int64
		for e := range edges {
			from, to := places[r.Source][index[e]], places[r.Target][index[edges+e]]
			require.Equal(t, from < 0, to < 0, "edge %d joins the graph and what pads it", e)
			if keep = append(keep, from >= 0); from >= 0 {
				sources, targets = append(sources, from), append(targets, to)
			}
		}
		starts := []int64{0}
		for target := range len(ptr) - 1 {
			for e := ptr[target]; e < ptr[target+1]; e++ {
				require.EqualValues(t, target, index[int64(edges)+e])
			}
			if places[r.Target][target] >= 0 {
				starts = append(starts, starts[len(starts)-1]+ptr[target+1]-ptr[target])
			}
		}
		b.arrays[s.EdgeName(i, "edge_index")] = append([]byte{}, mem.Bytes(append(sources, targets...))...)
		b.arrays[s.EdgeName(i, "ptr")] = mem.Bytes(starts)
		b.keepRows(t, s.EdgeName(i, "e_id"), keep, false)
		for _, tensor := range f.edges[i].Tensors {
			b.keepRows(t, s.EdgeName(i, tensor.Name), keep, true)
		}
	}
	require.Equal(t, pads > 0, slices.Equal(counts, l.Stats().Envelope))
	return pads > 0
}

// keepRows removes rows of an array, which are zero, or -1.
func (s *seen) keepRows(t *testing.T, name string, keep []bool, zero bool) {
	t.Helper()
	rows := []byte{}
	for i, kept := range keep {
		width := len(s.arrays[name]) / len(keep)
		row := s.arrays[name][i*width : (i+1)*width]
		if kept {
			rows = append(rows, row...)
			continue
		}
		for _, b := range row {
			require.Equal(t, zero, b == 0, "row %d of %s", i, name)
		}
	}
	s.arrays[name] = rows
}

// TestEnvelope holds that an envelope depends on the batches alone, and that batches keep within the one that is given.
func TestEnvelope(t *testing.T) {
	d := someDataset()
	o := plain()
	o.Pad = true
	learned := open(t, d.graph(t), o).Stats().Envelope
	o.Workers, o.Prefetch, o.Memory, o.Cache = 1, 0, 64<<20, "lru"
	l := open(t, draw.OpenStore(someStore(t, ssd.OS)), o)
	require.Equal(t, learned, l.Stats().Envelope)

	o.Envelope = slices.Clone(learned)
	o.Envelope[len(learned)-1] = 1
	l = open(t, d.graph(t), o)
	batches := epochOf(t, l, 0)
	require.Zero(t, l.Stats().Padded)
	for _, b := range batches {
		require.NotContains(t, b.int64s("n_id"), int64(-1))
	}
	for i := range learned {
		o.Envelope = slices.Clone(learned)
		o.Envelope[i] = 0
		require.Zero(t, func() int64 {
			l := open(t, d.graph(t), o)
			epochOf(t, l, 0)
			return l.Stats().Padded
		}(), "size %d", i)
	}
	for _, wrong := range []draw.Envelope{{1, 2}, slices.Repeat([]int64{-1}, len(learned)), append(learned, 7)} {
		o.Envelope = wrong
		_, err := Open(context.Background(), d.graph(t), o, mem.NewAllocator())
		require.ErrorIs(t, err, draw.ErrOption)
		require.ErrorContains(t, err, "envelope")
	}
}

// TestPaddedBatchesInTheLeastMemory holds that batches with their padding have room in the smallest memory that the
// loader says works, also where few seeds make their sizes differ most.
func TestPaddedBatchesInTheLeastMemory(t *testing.T) {
	s := draw.OpenStore(someStore(t, ssd.OS))
	for _, size := range []int64{1, 4, 64} {
		for _, kind := range []string{"none", "belady"} {
			o := plain()
			o.Pad, o.Cache, o.BatchSize, o.Memory = true, kind, size, 1
			o.Seeds = slices.Collect(func(yield func(int64) bool) {
				for v := int64(0); v < 40*size && v < someNodes && yield(v); v++ {
				}
			})
			o.Memory = leastMemory(t, s, o)
			l := open(t, s, o)
			batches := epochOf(t, l, 0)
			require.Greater(t, 10*l.Stats().Padded, int64(8*len(batches)), "%d seeds, %s", size, kind)
			require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
		}
	}
}
