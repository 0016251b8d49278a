package loader

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/internal/guard"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// The schedule of a loader on a machine with more cores than this one: the loader's own preparers, queues, gate and
// limits of threads, in virtual time, over stages that sleep for the processor time that they take.

// stages are the processor times of a batch, in the order of its life.
type stages struct {
	draw    time.Duration
	number  time.Duration // the part of draw that one thread does at a time
	tensors time.Duration
	edgeIDs time.Duration
	rows    time.Duration
}

const (
	simulatedRows  = 450_000
	simulatedBytes = 285 << 20
)

// The stages of BenchmarkBatch, by its profile: the quietest of three runs. A device that reads the rows leaves the
// others to the loader.
var (
	withRows    = stages{draw: 23e6, number: 8e6, tensors: 12e6, edgeIDs: 9e6, rows: 70e6}
	withoutRows = stages{draw: 23e6, number: 8e6, tensors: 12e6, edgeIDs: 9e6}
)

// machine has cores that sleep.
type machine struct {
	cores chan struct{}
	busy  atomic.Int64
}

func (m *machine) work(d time.Duration) {
	m.cores <- struct{}{}
	time.Sleep(d)
	m.busy.Add(int64(d))
	<-m.cores
}

// sleeper is a nowDrawer whose stages sleep.
type sleeper struct {
	*nowDrawer
	machine *machine
	stages  stages
}

func (d *sleeper) make(p *preparer, b *batch.Batch, worker *sample.Worker) error {
	defer d.epoch.loader.draw.GiveBack(worker)
	rng := rand.New(rand.NewPCG(1, uint64(b.Index)))
	some := func(mean time.Duration) time.Duration { return mean*4/5 + time.Duration(rng.Int64N(int64(mean)*2/5+1)) }
	number, others := some(d.stages.number), some(d.stages.draw-d.stages.number)
	tensors, edgeIDs, gather := some(d.stages.tensors), some(d.stages.edgeIDs), some(d.stages.rows)
	m := &p.loader.draw
	_, threads := m.Concurrency()
	first := max(0, (number+others)/time.Duration(threads)-number) // of others, by the thread that numbers
	if threads == 1 {
		first = others
	}
	err := guard.All(threads, func(i int) error {
		part := number + first
		if i > 0 {
			part = (others - first) / time.Duration(threads-1)
		}
		return m.Compute(d.epoch.ctx, func() { d.machine.work(part) })
	})
	if err != nil {
		return err
	}
	err = p.copyWhenRoom(b, simulatedBytes, func(*batch.Batch) error {
		d.machine.work(tensors)
		return nil
	})
	if err != nil {
		return err
	}
	if err := m.Compute(d.epoch.ctx, func() { d.machine.work(edgeIDs) }); err != nil {
		return err
	}
	return p.filler.Timed(func() {
		draw.Spread(m, simulatedRows, 4096, func(lo, hi int) {
			d.machine.work(gather * time.Duration(hi-lo) / simulatedRows)
		})
	})
}

// busy returns the share of the cores that are busy in an epoch of a loop that computes nothing.
func busy(t *testing.T, cores, prefetch int, of stages) (share float64) {
	synctest.Test(t, func(t *testing.T) {
		g := newDataset(2000, 100).graph(t)
		o := plain()
		o.Workers, o.Prefetch, o.BatchSize = cores, prefetch, 8
		l := open(t, g, o)
		e, err := newEpoch(l, 0, 0, Train)
		require.NoError(t, err)
		defer e.stop()
		m := &machine{cores: make(chan struct{}, cores)}
		e.drawer = &sleeper{e.drawer.(*nowDrawer), m, of}
		start := time.Now()
		e.begin()
		for range e.count {
			b, err := e.next(context.Background())
			require.NoError(t, err)
			b.Release()
		}
		_, err = e.next(context.Background())
		require.True(t, errors.Is(err, io.EOF))
		share = float64(m.busy.Load()) / float64(time.Since(start)) / float64(cores)
		t.Logf("%d cores, prefetch %d: %.2f busy", cores, l.draw.Split.Prefetch, share)
	})
	return share
}

// TestCoresAreBusy holds that a loader that chooses the batches ahead keeps the cores busy while the loop waits, also
// with half as many batches if they have rows, and that a quarter as many do not.
func TestCoresAreBusy(t *testing.T) {
	for _, of := range []stages{withRows, withoutRows} {
		for _, cores := range []int{2, 4, 8, 16, 32} {
			require.Greater(t, busy(t, cores, draw.Auto, of), 0.85)
		}
		require.Less(t, busy(t, 16, 4, of), 0.85)
	}
	require.Greater(t, busy(t, 16, 8, withRows), 0.85)
}

// pool keeps the buffers of batches, as the loader's pool in C does.
type pool struct {
	mem.Allocator
	kept map[int64][]mem.Buffer
}

type pooled struct {
	mem.Buffer
	pool    pool
	n, size int64
}

func (p pool) Acquire(n int64) (mem.Buffer, error) {
	size := int64(4096)
	for size < n {
		size += size / 4
	}
	if of := p.kept[size]; len(of) > 0 {
		p.kept[size] = of[:len(of)-1]
		return pooled{of[len(of)-1], p, n, size}, nil
	}
	buffer, err := p.Allocator.Acquire(size)
	return pooled{buffer, p, n, size}, err
}

func (b pooled) Bytes() []byte { return b.Buffer.Bytes()[:b.n] }
func (b pooled) Release()      { b.pool.kept[b.size] = append(b.pool.kept[b.size], b.Buffer) }

// BenchmarkBatch makes batches of a million nodes in memory with one thread. Its profile tells what each stage takes:
//
//	go test ./core/loader -run '^$' -bench Batch -benchtime 60x -cpuprofile FILE
func BenchmarkBatch(b *testing.B) {
	const nodes, edges, columns = 1_000_000, 15_000_000, 128
	rng, ends, x := rand.New(rand.NewPCG(1, 2)), make([]int64, 2*edges), make([]byte, nodes*columns*4)
	for i := range edges {
		u := rng.Float64()
		ends[i], ends[edges+i] = int64(nodes*u*u), rng.Int64N(nodes)
	}
	for i := 0; i < len(x); i += 4096 {
		x[i] = 1 // the system gives it memory of its own
	}
	g, err := draw.NewGraph(context.Background(), draw.GraphInput{
		NodeTypes: []draw.GraphNodes{{NumNodes: nodes, Tensors: []draw.GraphTensor{
			{Name: "x", DType: manifest.DType_FLOAT32, RowShape: []int64{columns}, Rows: x},
		}}},
		EdgeTypes: []draw.GraphEdges{{EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, edges}, mem.Bytes(ends))}},
	})
	require.NoError(b, err)
	defer g.Close()
	o := plain()
	o.Fanouts, o.BatchSize, o.Workers, o.Prefetch, o.Transpose = []int64{15, 10, 5}, 1024, 1, 0, true
	l, err := Open(context.Background(), g, o, pool{mem.NewAllocator(), map[int64][]mem.Buffer{}})
	require.NoError(b, err)
	defer l.Close()
	require.NoError(b, l.Start(0, 0, Train))
	for b.Loop() {
		made, err := l.Next(context.Background())
		require.NoError(b, err)
		made.Release()
	}
}
