package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/internal/skewed"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// shared is a directory of the whole run, for what tests need not make again: the store of someDataset, and what the
// disk can do, which takes a planned loader longer to find out than it then runs.
var shared string

func TestMain(m *testing.M) { os.Exit(skewed.RunIn(m, &shared)) }

// dataset is a small graph with skewed sources (see skewed.Graph), in the user's form.
type dataset struct {
	nodes     int64
	sources   []int64
	targets   []int64
	x         []float32
	wide      []byte
	y         []int64 // y[v] = 3v
	edgeAttr  []int32
	extra     []draw.GraphTensor // more edge tensors
	weightsOf string             // the one that stores have by position too
}

const (
	width     = skewed.Width
	wideWidth = skewed.WideWidth // a second tensor too wide to be held whole first, named before x
)

func newDataset(nodes, edges int) *dataset {
	g := skewed.New(nodes, edges)
	d := &dataset{
		nodes: int64(nodes), sources: g.Sources, targets: g.Targets, x: g.X, wide: g.Wide, edgeAttr: g.EdgeAttr,
	}
	for v := range nodes {
		d.y = append(d.y, int64(3*v))
	}
	return d
}

func (d *dataset) edgeIndex() store.Source {
	both := append(append([]int64{}, d.sources...), d.targets...)
	return store.Dense(manifest.DType_INT64, []int64{2, int64(len(d.sources))}, mem.Bytes(both))
}

// someDataset is the graph of someNodes that most tests draw from.
func someDataset() *dataset { return newDataset(someNodes, 40000) }

var writeSome = sync.OnceValue(func() error {
	return store.Convert(context.Background(), ssd.OS, someDataset().form("").input(), filepath.Join(shared, "some"),
		store.ConvertOptions{})
})

// someStore opens the store of someDataset through fs.
func someStore(t *testing.T, fs ssd.FS) *store.Store {
	t.Helper()
	require.NoError(t, writeSome())
	return opened(t, fs, filepath.Join(shared, "some"))
}

func opened(t *testing.T, fs ssd.FS, path string) *store.Store {
	t.Helper()
	s, err := store.Open(fs, path)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func (d *dataset) graph(t *testing.T) *draw.Graph { return d.form("").graph(t) }

// store converts the dataset and opens it through fs.
func (d *dataset) store(t *testing.T, fs ssd.FS) *store.Store { return d.form("").store(t, fs) }

// seen is a batch copied out of its buffers.
type seen struct {
	index    int64
	numSeeds int64
	shapes   map[string][]int64
	arrays   map[string][]byte
}

func (s *seen) int64s(name string) []int64 {
	return append([]int64{}, mem.View[int64](s.arrays[name])...)
}

func (s *seen) float32s(name string) []float32 {
	out := make([]float32, len(s.arrays[name])/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(s.arrays[name][4*i:]))
	}
	return out
}

func look(b *batch.Batch) *seen {
	s := &seen{index: b.Index, numSeeds: b.NumSeeds, shapes: map[string][]int64{}, arrays: map[string][]byte{}}
	for _, a := range b.Arrays {
		s.shapes[a.Name] = a.Shape
		s.arrays[a.Name] = append([]byte{}, a.Buffer.Bytes()...)
	}
	return s
}

// leastMemory is the smallest memory that works, as told by the error of a loader that is given too little.
func leastMemory(t *testing.T, src draw.Source, o draw.Options) int64 {
	t.Helper()
	_, err := Open(context.Background(), src, o, mem.NewAllocator())
	var short *mem.BudgetError
	require.ErrorAs(t, err, &short)
	return short.Need
}

// open opens a loader that is closed with the test, after which nothing it
// allocated may be left.
func open(t *testing.T, src draw.Source, o draw.Options) *Loader {
	t.Helper()
	alloc := mem.NewAllocator()
	l, err := Open(context.Background(), src, o, alloc)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		buffers, bytes := alloc.Live()
		require.Zero(t, buffers, "%d bytes of batches are left", bytes)
		require.Zero(t, l.draw.Budget.Used(), "memory is left after Close")
	})
	return l
}

// rest takes the batches that are left of the running epoch.
func rest(t *testing.T, l *Loader) []*seen {
	t.Helper()
	all, err := left(l)
	require.NoError(t, err)
	return all
}

// step ends the training step of the batch before, waits for the next batch and begins its step.
func step(ctx context.Context, l *Loader) (*batch.Batch, error) {
	if err := EndStep(ctx, l); err != nil {
		return nil, err
	}
	b, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	return b, BeginStep(l)
}

// left returns the batches that are left of the running epoch, or the error that ends it.
func left(l *Loader) (all []*seen, err error) {
	for {
		b, err := step(context.Background(), l)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, look(b))
		b.Release()
	}
}

func epochOf(t *testing.T, l *Loader, epoch int64) []*seen {
	t.Helper()
	require.NoError(t, l.Start(epoch, 0, Train))
	return rest(t, l)
}

func plain() draw.Options {
	return draw.Options{
		Fanouts: []int64{4, 3}, BatchSize: 64, Seed: 5, Shuffle: true, Prefetch: 2,
		FeatureCache: draw.Auto, NeighborCache: draw.Auto, Cache: "none", IO: ssd.Auto,
		Superbatch: draw.Auto, CarryOver: true, Lookahead: true, PreSCEpochs: 1, ReorderRows: draw.Auto, Transfer: "random",
		TraceMemory: draw.Auto, BufferMemory: draw.Auto, ScratchBytes: draw.Auto, Calibration: filepath.Join(shared,
			"devices.json"),
	}
}
