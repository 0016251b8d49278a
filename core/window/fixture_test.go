package window

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/internal/guard"
	"freshgo/core/internal/skewed"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/prune"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// shared is a directory of the whole run: the store of all tests, and what the disk can do.
var shared string

func TestMain(m *testing.M) { os.Exit(skewed.RunIn(m, &shared)) }

const (
	numNodes   = 3000
	numEdges   = 40000
	width      = skewed.Width
	wideWidth  = skewed.WideWidth
	batchSize  = 64
	numBatches = (numNodes + batchSize - 1) / batchSize
)

// writeStore converts a skewed graph, without labels.
var writeStore = sync.OnceValue(func() error {
	g := skewed.New(numNodes, numEdges)
	tensor := func(name string, dtype manifest.DType, rows []byte, shape ...int64) store.NamedSource {
		return store.NamedSource{Name: name, Source: store.Dense(dtype, shape, rows)}
	}
	ends := append(append([]int64{}, g.Sources...), g.Targets...)
	return store.Convert(context.Background(), ssd.OS, store.Input{
		NumNodes:  numNodes,
		EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, numEdges}, mem.Bytes(ends)),
		NodeTensors: []store.NamedSource{
			tensor("wide", manifest.DType_UINT8, g.Wide, numNodes, wideWidth),
			tensor("x", manifest.DType_FLOAT32, mem.Bytes(g.X), numNodes, width),
		},
		EdgeTensors: []store.NamedSource{
			tensor("edge_attr", manifest.DType_INT32, mem.Bytes(g.EdgeAttr), numEdges, 2),
		},
	}, filepath.Join(shared, "store"), store.ConvertOptions{})
})

func options() draw.Options {
	return draw.Options{
		Fanouts: []int64{4, 3}, BatchSize: batchSize, Seed: 5, Shuffle: true, Prefetch: 2,
		FeatureCache: 250_000, NeighborCache: draw.Auto, Cache: "belady", IO: ssd.Auto, Superbatch: 10,
		CarryOver: true, Lookahead: true, ReorderRows: draw.Auto, Transfer: "random", TraceMemory: draw.Auto,
		BufferMemory: draw.Auto, ScratchBytes: draw.Auto, Calibration: filepath.Join(shared, "devices.json"),
	}
}

// rig is a cache over the store, with preparers in the place of a loader.
type rig struct {
	*testing.T
	sampling draw.Sampling
	features fetch.Features
	counters batch.Counters
	alloc    *mem.MapAllocator
	cache    *Cache
	drawn    map[int64][][]int64 // the nodes of the batches of an epoch
}

// open opens a cache, with changes to the division of memory. It is closed with the test, after which no memory may be
// left.
func open(t *testing.T, fs ssd.FS, o draw.Options, change func(*sizing.Split)) *rig {
	t.Helper()
	require.NoError(t, writeStore())
	s, err := store.Open(fs, filepath.Join(shared, "store"))
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	r := &rig{T: t, sampling: draw.New(o, draw.OpenStore(s)), alloc: mem.NewAllocator(), drawn: map[int64][][]int64{}}
	t.Cleanup(r.close)
	m := &r.sampling
	require.NoError(t, m.Check())
	m.Budget = mem.NewBudget(0)
	topology := draw.NewTopology(m)
	for _, step := range []func(context.Context) error{
		topology.OpenIndptr,
		m.OpenSeeds,
		func(context.Context) error {
			m.BoundBatch()
			g := draw.SizesOf(m)
			split, err := sizing.Divide(draw.RequestOf(m, &g), g, sizing.Costs{
				Nodes: 1000, NodesOfType: []int64{1000}, Edges: 1000, PlannedSlot: fetch.ResidentBytes,
			})
			if err == nil {
				m.Split = *split
				change(&m.Split)
			}
			return err
		},
		func(context.Context) error { return m.OpenEngine() },
		topology.OpenLists,
		draw.NewLists(m).Open,
		func(ctx context.Context) error { return r.features.Open(ctx, m, mem.NewAllocator()) },
		m.OpenSampler,
		func(ctx context.Context) (err error) {
			r.cache, err = Open(ctx, Config{
				Sampling: m, Features: &r.features, Counters: &r.counters, History: prune.None{},
				Schedule: func(first int64) (draw.ShareSchedule, int64) { return draw.Share{}.Schedule(numBatches, first) },
				Fail:     func(p *guard.PanicError) { panic(p) },
			})
			return err
		},
	} {
		require.NoError(t, step(context.Background()))
	}
	return r
}

// close may be called twice.
func (r *rig) close() {
	if r.cache != nil {
		r.cache.Stop()
	}
	r.sampling.Close()
	buffers, bytes := r.alloc.Live()
	require.Zero(r, buffers, "%d bytes of batches are left", bytes)
	require.Zero(r, r.sampling.Budget.Used(), "memory is left")
}

// requireNodes requires that a sampled batch has these nodes.
func (r *rig) requireNodes(want []int64, b *sampled) {
	r.Helper()
	rows, release, err := b.Load(context.Background())
	require.NoError(r, err)
	defer release()
	nodes := []int64{}
	for _, row := range rows {
		nodes = append(nodes, int64(row))
	}
	require.ElementsMatch(r, want, nodes)
}

// nodesOf draws the batches of an epoch.
func (r *rig) nodesOf(epoch int64) [][]int64 {
	r.Helper()
	if found := r.drawn[epoch]; found != nil {
		return found
	}
	m, ctx := &r.sampling, context.Background()
	order, err := m.NewSeedOrder(ctx, m.EpochKey(epoch))
	require.NoError(r, err)
	defer order.Free()
	worker, err := m.Lease(ctx)
	require.NoError(r, err)
	defer m.GiveBack(worker)
	all := make([][]int64, numBatches)
	for i := range all {
		var request draw.Request
		var g sample.Subgraph
		require.NoError(r, order.Batch(ctx, int64(i), &request))
		require.NoError(r, m.Draw(ctx, worker, order.BatchKey(int64(i)), &request, &g))
		all[i] = append([]int64{}, g.Nodes...)
	}
	r.drawn[epoch] = all
	return all
}

// pass is an epoch whose batches several preparers make ahead of the consumer.
type pass struct {
	*rig
	want  [][]int64 // the nodes of each batch
	epoch *Epoch
	turns fetch.Turns
	end   context.CancelFunc
	done  sync.WaitGroup
	made  []chan made // by preparer
	next  int64       // the batch that the consumer takes next
}

type made struct {
	batch *batch.Batch
	err   error
}

// start begins an epoch at batch first.
func (r *rig) start(epoch, first int64) *pass {
	r.Helper()
	p := &pass{rig: r, want: r.nodesOf(epoch), next: first}
	schedule, first := draw.Share{}.Schedule(numBatches, first)
	p.epoch = r.cache.Begin(epoch, first, schedule)
	p.turns.Ctx, p.end = context.WithCancel(context.Background())
	p.turns.Cache = fetch.NewTurnstile(first)
	p.made = make([]chan made, max(1, r.sampling.Split.Prefetch))
	for i := range p.made {
		p.made[i] = make(chan made)
	}
	for i := range int64(len(p.made)) {
		p.done.Add(1)
		guard.Go(func() {
			defer p.done.Done()
			p.prepare(first + i)
		}, func(failed *guard.PanicError) { panic(failed) })
	}
	return p
}

// prepare makes every batch of one preparer, from batch i on.
func (p *pass) prepare(i int64) {
	r, to := p.rig, p.made[i%int64(len(p.made))]
	var w Batch
	drawn := batch.Drawn{
		Parts: &r.sampling.Parts, Counters: &r.counters, CachedTypes: &r.features.CachedTypes, Cut: new(prune.Cut),
	}
	drawn.SetInputs(r.sampling.Inputs())
	f := &fetch.Filler{
		Sampling: &r.sampling, Features: &r.features, Counters: &r.counters, Drawn: &drawn, Source: &w, Turns: p.turns,
	}
	for ; i < numBatches; i += int64(len(p.made)) {
		b := batch.NewBatch(i, r.alloc)
		err := p.make(f, &w, b)
		select {
		case to <- made{b, err}:
		case <-p.turns.Ctx.Done():
			b.Release()
			return
		}
	}
}

func (p *pass) make(f *fetch.Filler, w *Batch, b *batch.Batch) error {
	if err := w.Begin(f, p.epoch, b.Index, int64(len(p.made))); err != nil {
		return err
	}
	d := f.Drawn
	d.Take(&d.Graph)
	d.BatchRows.Fill(d.CachedTypes, d.Graph.Nodes, &d.TypeOffsets)
	if err := w.Prologue(f, b.Index); err != nil {
		return err
	}
	b.NumSeeds = int64(len(d.Request.Inputs))
	if err := d.CopyOut(b); err != nil {
		return err
	}
	return f.Fill(b)
}

// take takes the next batches, and compares them with the batches that are drawn.
func (p *pass) take(count int64) {
	p.Helper()
	for range count {
		of := <-p.made[p.next%int64(len(p.made))]
		require.NoError(p, of.err)
		nodes := mem.View[int64](of.batch.Array("n_id").Buffer.Bytes())
		require.Equal(p, p.want[p.next], nodes)
		x, wide := of.batch.Array("x").Buffer.Bytes(), of.batch.Array("wide").Buffer.Bytes()
		for i, v := range nodes {
			for j := range width {
				got := math.Float32frombits(binary.LittleEndian.Uint32(x[4*(i*width+j):]))
				if want := skewed.X(v, j); got != want {
					require.Equal(p, want, got, "batch %d, node %d, column %d of x", p.next, v, j)
				}
			}
			for j, got := range wide[i*wideWidth : (i+1)*wideWidth] {
				if want := byte(v + int64(j)); got != want {
					require.Equal(p, want, got, "batch %d, node %d, column %d of wide", p.next, v, j)
				}
			}
		}
		edges := mem.View[int64](of.batch.Array("e_id").Buffer.Bytes())
		attr := mem.View[int32](of.batch.Array("edge_attr").Buffer.Bytes())
		for i, e := range edges {
			if attr[2*i] != int32(-e) {
				require.EqualValues(p, -e, attr[2*i], "batch %d, edge %d", p.next, e)
			}
		}
		of.batch.Release()
		p.next++
	}
}

// stop ends the epoch, and the inspection unless the epoch was consumed whole.
func (p *pass) stop() {
	p.Helper()
	whole := p.next == numBatches
	p.end()
	p.turns.Cache.Shutdown()
	if !whole {
		p.epoch.Abandon()
	}
	p.done.Wait()
	p.epoch.End(whole)
}

// whole takes a whole epoch.
func (r *rig) whole(epoch int64) {
	r.Helper()
	p := r.start(epoch, 0)
	p.take(numBatches)
	p.stop()
}
