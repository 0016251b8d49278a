package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// handMade opens an array of ids as the loader does, of either width.
func handMade(t *testing.T, ids []int64, width int, limit int64, slot int) *IDs {
	t.Helper()
	var data []byte
	for _, id := range ids {
		if width == 4 {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		} else {
			data = binary.LittleEndian.AppendUint64(data, uint64(id))
		}
	}
	data = append(data, make([]byte, (ssd.PageBytes-len(data)%ssd.PageBytes)%ssd.PageBytes)...)
	path := filepath.Join(t.TempDir(), "ids")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "probe"), make([]byte, ssd.PageBytes), 0o600))
	engine, err := ssd.NewEngine(ssd.Options{FS: ssd.OS, Budget: mem.NewBudget(0), SlotBytes: slot}, filepath.Dir(path))
	require.NoError(t, err)
	t.Cleanup(func() { engine.Close() })
	handle, err := engine.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { handle.Close() })
	layout := ssd.Layout{RowBytes: width, RowsPerPage: ssd.PageBytes / width, NumRows: int64(len(ids))}
	return &IDs{limit: limit, disk: &Rows{engine: engine, handle: handle, layout: layout, slot: slot}}
}

// Ids of four and of eight bytes, beyond 2^32 too, from cached lists and from disk.
func TestListsOfBothWidths(t *testing.T) {
	const nodes = 900
	for _, width := range []int{4, 8} {
		rng := rand.New(rand.NewPCG(uint64(width), 5))
		limit := int64(1 << 32)
		if width == 8 {
			limit = 1 << 40
		}
		indptr, ids, importance := []int64{0}, []int64{}, make(cache.Hotness, nodes)
		for v := range nodes {
			for range rng.IntN(1 + rng.IntN(150)) {
				ids = append(ids, rng.Int64N(limit))
			}
			indptr = append(indptr, int64(len(ids)))
			importance[v] = rng.Float32()
		}
		total := int64(len(ids))
		a := handMade(t, ids, width, limit, 64<<10)
		for _, capacity := range []int64{1, total / 10, total / 2, total} {
			all := cache.Lists{Indptr: offsets.Of(indptr), Wanted: importance, Widths: []int{a.Width()}}
			room := cache.NeighborTableBytes(nodes) + capacity*int64(width) + cache.ColumnsBytes(1)
			chosen, err := cache.NewNeighbors(context.Background(), mem.NewBudget(0), []cache.Lists{all}, room)
			require.NoError(t, err)
			lists := chosen[0]
			column, err := lists.AddColumn(a.Width())
			require.NoError(t, err)
			c := &listColumn{lists: lists, column: column, indptr: offsets.Of(indptr)}
			require.NoError(t, fillColumn(context.Background(), mem.NewBudget(0), a, a.disk, c))
			cached := *a
			cached.lists, cached.counts = c, new(Counts)
			scratch := new(Scratch)
			for range 5 {
				drawn := sample.Drawn{Ptr: []int64{1000}} // offsets count from the batch's first edge
				var want []int64
				for range rng.IntN(300) {
					v := rng.Int64N(nodes)
					drawn.Targets = append(drawn.Targets, v)
					for range rng.IntN(5) {
						if indptr[v] < indptr[v+1] {
							p := indptr[v] + rng.Int64N(indptr[v+1]-indptr[v])
							drawn.Pos, want = append(drawn.Pos, p), append(want, ids[p])
						}
					}
					drawn.Ptr = append(drawn.Ptr, 1000+int64(len(drawn.Pos)))
				}
				out := make([]int64, len(want))
				require.NoError(t, cached.Gather(context.Background(), scratch, drawn, out))
				require.Equal(t, append([]int64{}, want...), out)
				// In place, as edge numbers are.
				require.NoError(t, cached.Gather(context.Background(), scratch, drawn, drawn.Pos))
				require.Equal(t, out, append([]int64{}, drawn.Pos...))
			}
			if capacity == total {
				require.Zero(t, cached.counts.Misses.Load())
			}
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			err = cached.Gather(gone, scratch, sample.Drawn{Targets: []int64{0}, Ptr: []int64{0, 0}}, nil)
			require.ErrorIs(t, err, context.Canceled)
			lists.Close()
		}
	}
}

func TestPageRangesCoverTheRunsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		l := []ssd.Layout{{RowBytes: 4}, {RowBytes: 8, RowsPerPage: 512}, {RowBytes: 5, RowsPerPage: 819}}[rng.IntN(3)]
		slot := ssd.PageBytes << (4 + rng.IntN(2))
		var runs []cache.Run
		wanted := map[int64]bool{}
		at := int64(0)
		for range rng.IntN(30) {
			at += rng.Int64N(1 + rng.Int64N(20000))
			r := cache.Run{From: at, To: at + 1 + rng.Int64N(1+rng.Int64N(60000))}
			runs = append(runs, r)
			for p := r.From; p < r.To; p++ {
				wanted[l.Offset(p)/ssd.PageBytes] = true
			}
			at = r.To
		}
		end, unwanted := int64(0), int64(0)
		for r := range pageRanges(slices.Values(runs), l, slot) {
			require.GreaterOrEqual(t, r.Off, end)
			require.Positive(t, r.Len)
			require.LessOrEqual(t, int(r.Len), slot)
			for p := r.Off / ssd.PageBytes; p < (r.Off+int64(r.Len))/ssd.PageBytes; p++ {
				if !wanted[p] {
					unwanted++
				}
				delete(wanted, p)
			}
			end = r.Off + int64(r.Len)
		}
		require.Empty(t, wanted)
		require.LessOrEqual(t, unwanted, int64(MaxHolePages*(len(runs)+1)))
	}
}

func TestScanVisitsEveryIDInOrder(t *testing.T) {
	const count = 3*ScanPiece/4 + 12345 // three pieces and a part of one, of four bytes
	ids := make([]int64, count)
	for i := range ids {
		ids[i] = int64(i) * 5 % 99991
	}
	narrow := make([]uint32, count)
	for i, id := range ids {
		narrow[i] = uint32(id)
	}
	for name, a := range map[string]*IDs{
		"disk, 4 bytes":    handMade(t, ids, 4, 99991, 64<<10),
		"disk, 8 bytes":    handMade(t, ids, 8, 99991, 128<<10),
		"disk, none":       handMade(t, nil, 4, 99991, 64<<10),
		"memory, 4 bytes":  {narrow: narrow},
		"memory, 8 bytes":  {wide: ids},
		"memory, one page": {wide: ids[:1024]},
	} {
		t.Run(name, func(t *testing.T) {
			budget := mem.NewBudget(0)
			var got []int64
			stream := (&Lists{Indptr: offsets.Of([]int64{0, count}), Neighbors: *a}).Edges(budget)
			require.NoError(t, stream.Scan(context.Background(), func(first int64, piece []int64) error {
				require.EqualValues(t, len(got), first)
				got = append(got, piece...)
				return nil
			}))
			require.Equal(t, append([]int64(nil), ids[:len(got)]...), got)
			require.Zero(t, budget.Used())
			require.LessOrEqual(t, budget.Peak(), int64(2*ScanPiece))
			enough := errors.New("enough")
			for stop := int64(0); stop < int64(len(got)); stop += 1 + int64(len(got))/3 {
				err := stream.Scan(context.Background(), func(first int64, piece []int64) error {
					if first+int64(len(piece)) > stop {
						return enough
					}
					return nil
				})
				require.ErrorIs(t, err, enough)
			}
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			if len(got) > 0 {
				require.ErrorIs(t, stream.Scan(gone, func(int64, []int64) error { return nil }), context.Canceled)
			}
			require.Zero(t, budget.Used())
		})
	}
}

// TestScanSomeVisitsEveryOtherBuffer: whole buffers, each third of them, by their positions.
func TestScanSomeVisitsEveryOtherBuffer(t *testing.T) {
	const every, slot = 3, 64 << 10
	for width, count := range map[int]int{4: every*ScanPiece/4*2 + 12345, 8: 8 * slot / 8} {
		ids := make([]int64, count)
		for i := range ids {
			ids[i] = int64(i) * 5 % 99991
		}
		a, budget, at := handMade(t, ids, width, 99991, slot), mem.NewBudget(0), int64(0)
		require.NoError(t, a.ScanSome(context.Background(), budget, every, func(first int64, piece []int64) error {
			require.Equal(t, at, first)
			require.Equal(t, ids[first:first+int64(len(piece))], piece)
			at += int64(len(piece))
			if at%int64(slot/width) == 0 {
				at += (every - 1) * int64(slot/width)
			}
			return nil
		}))
		require.GreaterOrEqual(t, at, int64(count))
		require.Zero(t, budget.Used())
		require.LessOrEqual(t, budget.Peak(), int64(2*ScanPiece))
	}
}

// TestEachRangeVisitsAllOnce: ranges of two lengths, of a file that readers take in runs and of small ones.
func TestEachRangeVisitsAllOnce(t *testing.T) {
	const slot = 64 << 10
	for _, count := range []int{100, slot, 3*ScanPiece/4 + 99, readers*runBytes/4 + 12345} {
		ids := make([]int64, count)
		for i := range ids {
			ids[i] = int64(i) * 5 % 99991
		}
		a, budget := handMade(t, ids, 4, 99991, slot), mem.NewBudget(0)
		var ranges []ssd.Range
		end := a.disk.layout.FileBytes()
		for off := int64(0); off < end; off += int64(ranges[len(ranges)-1].Len) {
			n := []int64{slot, ssd.PageBytes}[len(ranges)%2]
			ranges = append(ranges, ssd.Range{Off: off, Len: int32(min(n, end-off))})
		}
		var mu sync.Mutex
		visited := make([]int, count)
		require.NoError(t, a.disk.eachRange(context.Background(), budget, ranges, func(off int64, rows []byte) error {
			mu.Lock()
			defer mu.Unlock()
			for i, id := range mem.View[uint32](rows) {
				at := off/4 + int64(i)
				if int64(id) == ids[at] {
					visited[at]++
				}
			}
			return nil
		}))
		require.Equal(t, -1, slices.IndexFunc(visited, func(n int) bool { return n != 1 }), "an id of %d", count)
		require.Zero(t, budget.Used())
		require.LessOrEqual(t, budget.Peak(), int64(2*ScanPiece))
	}
}

// TestScanSomeOfMemory: the same with ids in memory, in pieces of its own.
func TestScanSomeOfMemory(t *testing.T) {
	const every, count = 3, 10*ScanIDs + 77
	ids, narrow := make([]int64, count), make([]uint32, count)
	for i := range ids {
		ids[i], narrow[i] = int64(i)*5, uint32(i)*5
	}
	for _, a := range []*IDs{{narrow: narrow}, {wide: ids}} {
		var firsts []int64
		require.NoError(t, a.ScanSome(context.Background(), nil, every, func(first int64, piece []int64) error {
			firsts = append(firsts, first)
			require.Equal(t, ids[first:min(first+ScanIDs, count)], piece)
			return nil
		}))
		require.Equal(t, []int64{0, 3 * ScanIDs, 6 * ScanIDs, 9 * ScanIDs}, firsts)
	}
}

func TestScanRefusesIDsBeyondTheLimit(t *testing.T) {
	ids := make([]int64, 50000)
	ids[49999] = 10
	for _, width := range []int{4, 8} {
		a := handMade(t, ids, width, 10, 64<<10)
		err := a.Scan(context.Background(), mem.NewBudget(0), func(int64, []int64) error { return nil })
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, "id 10 at position 49999, expected an id in [0, 10)")
	}
}
