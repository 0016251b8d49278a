package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// batches draws the same batches as a Loader with shuffle=True and seed 0.
type batches struct {
	orders  [][]int64 // of the seeds, by epoch
	size    int
	workers chan *sample.Worker // as many as there are processors
}

func newBatches(c config) (*batches, error) {
	ctx, budget := context.Background(), mem.NewBudget(0)
	st, err := store.Open(ssd.OS, c.store)
	if err != nil {
		return nil, err
	}
	edges := st.EdgeTypes()[0]
	indptr, err := edges.LoadIndptr(ctx, budget, mem.Topology)
	if err != nil {
		return nil, err
	}
	indices, err := edges.Indices.LoadIDs(ctx, edges.NumSources, budget, mem.Topology)
	if err != nil {
		return nil, err
	}
	lists := sample.Relation{Indptr: indptr}
	if edges.Indices.DType == manifest.DType_INT32 {
		lists.Indices32 = mem.Slice[int32](indices)
	} else {
		lists.Indices64 = mem.Slice[int64](indices)
	}
	g := sample.Graph{NumNodes: []int64{st.EdgeTypes()[0].NumNodes}, Relations: []sample.Relation{lists}}
	sampler, err := sample.New(g, sample.Config{Fanouts: [][]int64{c.fanouts}})
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.seeds)
	if err != nil {
		return nil, err
	}
	seeds := make([]int64, len(data)/8)
	for i := range seeds {
		seeds[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
	}
	b := &batches{size: c.batch, workers: make(chan *sample.Worker, runtime.NumCPU())}
	for e := range c.epochs {
		order := slices.Clone(seeds)
		if err := sample.Shuffle(ctx, order, 0, uint64(e)); err != nil {
			return nil, err
		}
		b.orders = append(b.orders, order)
	}
	for range cap(b.workers) {
		w, err := sampler.NewWorker(budget, true, 1)
		if err != nil {
			return nil, err
		}
		b.workers <- w
	}
	return b, nil
}

// count returns the batches of an epoch.
func (b *batches) count() int { return (len(b.orders[0]) + b.size - 1) / b.size }

// draw calls visit with the nodes of a batch, which are the worker's.
func (b *batches) draw(epoch, i int, visit func(nodes []int64) error) error {
	w := <-b.workers
	defer func() { b.workers <- w }()
	seeds := b.orders[epoch][i*b.size : min((i+1)*b.size, len(b.orders[epoch]))]
	var g sample.Subgraph
	if err := w.Sample(context.Background(), sample.Key{Epoch: uint64(epoch), Batch: uint64(i)}, seeds, &g); err != nil {
		return err
	}
	return visit(g.Nodes)
}

// trace returns all batches.
func (b *batches) trace() ([][]plan.Batch, error) {
	epochs := make([][]plan.Batch, len(b.orders))
	for e := range epochs {
		for i := range b.count() {
			err := b.draw(e, i, func(nodes []int64) error {
				rows := make(plan.Batch, len(nodes))
				for j, v := range nodes {
					rows[j] = uint32(v)
				}
				epochs[e] = append(epochs[e], rows)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return epochs, nil
}

// check compares what is drawn again with what was decided about.
func (p *pass) check(nodes []int64) error {
	if len(nodes) != len(p.rows) {
		return fmt.Errorf("a batch has %d nodes, had %d", len(nodes), len(p.rows))
	}
	for i, v := range nodes {
		if uint32(v) != p.rows[i] {
			return fmt.Errorf("node %d of a batch is %d, was %d", i, v, p.rows[i])
		}
	}
	return nil
}
