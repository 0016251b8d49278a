package loader

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// locker is an allocator that locks memory of up to `most` bytes together.
type locker struct {
	*mem.MapAllocator
	most, now int64
	calls     int
	locked    map[unsafe.Pointer]bool
}

func newLocker(most int64) *locker {
	return &locker{MapAllocator: mem.NewAllocator(), most: most, locked: map[unsafe.Pointer]bool{}}
}

func (a *locker) Lock(data []byte) (unlock func()) {
	at, n := unsafe.Pointer(unsafe.SliceData(data)), int64(len(data))
	if a.calls++; a.locked[at] || a.now+n > a.most {
		return nil
	}
	a.locked[at] = true
	a.now += n
	return func() {
		delete(a.locked, at)
		a.now -= n
	}
}

// openLocking opens a loader that leaves rows to the consumer. Nothing is locked once it is closed.
func openLocking(t *testing.T, src draw.Source, o draw.Options, alloc *locker) *Loader {
	t.Helper()
	o.RowsByID = true
	l, err := Open(context.Background(), src, o, alloc)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.Empty(t, alloc.locked)
		require.Zero(t, l.draw.Budget.Used())
		buffers, _ := alloc.Live()
		require.Zero(t, buffers)
	})
	return l
}

// readByID adds the rows that batches leave out, and returns how many tensors have left any.
func readByID(l *Loader, b *seen) (tensors int) {
	for _, t := range l.Tables() {
		if _, there := b.arrays[t.Label]; there {
			panic(t.Label + " is in the batch")
		}
		ids := b.int64s(l.draw.Parts.Schema.NodeName(t.Type, "n_id"))
		rows := []byte{}
		for _, v := range ids {
			if v < 0 {
				rows = append(rows, make([]byte, t.Width)...)
			} else {
				rows = append(rows, t.Memory[int(v)*t.Width:][:t.Width]...)
			}
		}
		b.arrays[t.Label], b.shapes[t.Label] = rows, append([]int64{int64(len(ids))}, t.RowShape...)
		tensors++
	}
	return tensors
}

// TestRowsByID: with the rows that a consumer reads by id, batches equal the batches of a loader that gathers them.
func TestRowsByID(t *testing.T) {
	for _, f := range forms(someDataset()) {
		g, sources := f.sources(t)
		for way, change := range map[string]func(o *draw.Options){
			"":         func(*draw.Options) {},
			", padded": func(o *draw.Options) { o.Pad, o.Links = true, nil },
		} {
			o := f.options()
			o.Cache, o.FeatureCache = "auto", draw.Auto
			change(&o)
			want := epochOf(t, open(t, g, o), 0)
			for source, src := range sources {
				t.Run(fmt.Sprint(f, way, " ", source), func(t *testing.T) {
					l := openLocking(t, src, o, newLocker(1<<40))
					if source == "relaid" { // where batches bring the rows
						require.Empty(t, l.Tables())
						return
					}
					for i, b := range epochOf(t, l, 0) {
						require.Positive(t, readByID(l, b))
						require.Equal(t, want[i].arrays, b.arrays, "batch %d", i)
						require.Equal(t, want[i].shapes, b.shapes)
					}
				})
			}
		}
	}
}

// TestMemoryThatIsNotLocked: where the system refuses, where the rows are in an order of their own, or on disk, batches
// bring them.
func TestMemoryThatIsNotLocked(t *testing.T) {
	d := someDataset()
	s := d.store(t, ssd.OS)
	o := plain()
	want := epochOf(t, open(t, d.graph(t), o), 0)
	cold := o
	cold.FeatureCache = 0
	for name, c := range map[string]struct {
		src   draw.Source
		o     draw.Options
		alloc *locker
	}{
		"refused, graph": {d.graph(t), o, newLocker(0)},
		"refused, store": {draw.OpenStore(s), o, newLocker(0)},
		"relaid":         {draw.OpenStore(relaid(t, s, store.Hot)), o, newLocker(1 << 40)},
		"on disk":        {draw.OpenStore(s), cold, newLocker(1 << 40)},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLocking(t, c.src, c.o, c.alloc)
			require.Empty(t, l.Tables())
			requireSame(t, want, epochOf(t, l, 0))
		})
	}
}

// TestLockedMemoryCounts: the tensors of a graph in memory count in the memory once they are locked, unless it excludes
// the graph. Where it is too small for them, batches bring their rows, and it is as small as ever.
func TestLockedMemoryCounts(t *testing.T) {
	d := someDataset()
	g, o := d.graph(t), plain()
	o.Memory = 1000
	o.Memory = leastMemory(t, g, o)
	without, least := openLocking(t, g, o, newLocker(1<<40)), o.Memory
	require.Empty(t, without.Tables())
	want := epochOf(t, without, 0)
	for o.Memory = least; o.Memory < 64<<20; o.Memory += o.Memory / 2 {
		l := openLocking(t, g, o, newLocker(1<<40))
		locked := int64(0)
		for _, table := range l.Tables() {
			locked += int64(len(table.Memory))
		}
		require.Equal(t, locked, l.draw.Budget.Live()[mem.FeatureCache])
		for i, b := range epochOf(t, l, 0) {
			readByID(l, b)
			require.Equal(t, want[i].arrays, b.arrays)
		}
		require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
	}
	small := withMemory(o, least-1)
	small.RowsByID = true
	_, err := Open(context.Background(), g, small, newLocker(1<<40))
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	require.Equal(t, least, short.Need)
	require.NotEmpty(t, openLocking(t, g, withMemory(o, 64<<20), newLocker(1<<40)).Tables())
	o.Memory, o.Spare = least, true
	l := openLocking(t, g, o, newLocker(1<<40))
	require.NotEmpty(t, l.Tables())
	require.Zero(t, l.draw.Budget.Live()[mem.FeatureCache])
}

func withMemory(o draw.Options, n int64) draw.Options {
	o.Memory = n
	return o
}
