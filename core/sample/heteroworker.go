package sample

import (
	"context"
	"fmt"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// HeteroWorker draws batches of one HeteroSampler, one at a time: it is not safe for concurrent use. It owns an id map for each node type, the
// memory that a HeteroSubgraph shows, and scratch, all kept from batch to batch.
type HeteroWorker struct {
	sampler   *HeteroSampler
	budget    *mem.Budget
	threads   int
	types     []*nodeWorker
	relations []relationWorker
	order     []task // of the current hop

	flat  flat
	first []int64 // as of First, once a flat batch was asked for
}

// nodeWorker is the nodes of one type: the id map and the nodes of its Worker.
type nodeWorker struct {
	*Worker
	n          int           // nodes numbered
	first, end int           // those that the current hop expands
	front      buffer[int64] // their global ids: nodes may move while others of the type are numbered
	perHop     []int64
}

// relationWorker is the edges of one relation: all of its Worker but id map and nodes, which it borrows.
type relationWorker struct {
	*heteroRelation
	*Worker
	scratch []thread // of each thread
	perHop  []int64
	room    int64 // as Subgraph.Room
}

// Close frees the memory. HeteroSubgraphs that it filled become invalid.
func (w *HeteroWorker) Close() {
	for _, t := range w.types {
		t.Close()
		t.front.free()
	}
	for _, r := range w.relations {
		r.threads = r.scratch
		r.Close()
	}
	w.flat.free()
}

// Sample draws the batch of key for the seeds of each node type and sets out. It fails as Worker.Sample does; out is then untouched and the
// HeteroWorker remains usable.
func (w *HeteroWorker) Sample(ctx context.Context, key Key, seeds [][]int64, out *HeteroSubgraph) error {
	return guard.Run(func() error {
		if err := w.begin(ctx, seeds); err != nil {
			return err
		}
		for hop := range w.sampler.hops {
			if err := w.hop(ctx, key, hop); err != nil {
				return err
			}
		}
		*out = w.subgraph()
		return nil
	})
}

// begin numbers the seeds.
func (w *HeteroWorker) begin(ctx context.Context, seeds [][]int64) error {
	if len(seeds) != len(w.types) {
		return fmt.Errorf("sample: seeds of %d node types, want %d as there are: %w", len(seeds), len(w.types), ErrSeed)
	}
	for i, t := range w.types {
		b := batch{Worker: t.Worker, ctx: ctx}
		if err := b.begin(seeds[i]); err != nil {
			return fmt.Errorf("sample: node type %d: %w", i, err)
		}
		t.n, t.first, t.end = b.n, 0, b.n
		t.perHop = append(make([]int64, 0, w.sampler.hops+1), int64(b.n))
	}
	for i := range w.relations {
		r := &w.relations[i]
		if err := r.ptr.grow(w.budget, mem.Trace, 1, 0); err != nil {
			return err
		}
		r.ptr.data[0] = 0
		r.perHop, r.room = make([]int64, 0, w.sampler.hops), 0
	}
	return nil
}

// hop expands what the hop before reached.
func (w *HeteroWorker) hop(ctx context.Context, key Key, hop int) error {
	for _, t := range w.types {
		targets := t.nodes.data[t.first:t.end]
		if err := t.front.grow(w.budget, mem.Trace, int64(len(targets)), 0); err != nil {
			return err
		}
		copy(t.front.data, targets)
	}
	err := w.share(hop, func(group, threads int) error {
		for _, i := range w.sampler.groups[group] {
			if err := w.expand(ctx, key, hop, i, threads); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range w.types {
		t.perHop = append(t.perHop, int64(t.n-t.end))
		t.first, t.end = t.end, t.n
	}
	return nil
}

// expand draws the edges of one relation in one hop. Only this goroutine uses the relation and the nodes of its source type; of those of its
// target type it reads the front.
func (w *HeteroWorker) expand(ctx context.Context, key Key, hop, relation, threads int) error {
	r := &w.relations[relation]
	source, target := w.types[r.source], w.types[r.target]
	first, end, k := target.first, target.end, r.heteroRelation.fanouts[hop]
	if k == 0 || first == end {
		return w.skip(r, first, end)
	}
	r.Worker.ids, r.Worker.nodes, r.threads = source.ids, source.nodes, r.scratch[:threads]
	b := batch{Worker: r.Worker, ctx: ctx, key: relationKey(key, relation), n: source.n, targets: target.front.data[:end-first], targetsAt: first}
	defer func() {
		source.ids, source.nodes, source.n = r.Worker.ids, r.Worker.nodes, b.n
		r.Worker.ids, r.Worker.nodes = idMap{}, buffer[int64]{}
	}()
	n, err := b.hop(hop, first, end, k)
	if err != nil {
		return fmt.Errorf("sample: relation %d: %w", relation, err)
	}
	r.perHop, r.room = append(r.perHop, n), max(r.room, b.roomFor)
	return nil
}

// skip gives the targets no edges.
func (w *HeteroWorker) skip(r *relationWorker, first, end int) error {
	if err := r.ptr.grow(w.budget, mem.Trace, int64(end)+1, int64(first)+1); err != nil {
		return err
	}
	ptr := r.ptr.data[first : end+1]
	for i := range ptr {
		ptr[i] = ptr[0]
	}
	r.perHop = append(r.perHop, 0)
	return nil
}

// subgraph shows what was drawn.
func (w *HeteroWorker) subgraph() HeteroSubgraph {
	var out HeteroSubgraph
	for _, t := range w.types {
		out.Nodes = append(out.Nodes, t.nodes.data[:t.n])
		out.NodesPerHop = append(out.NodesPerHop, t.perHop)
	}
	for i := range w.relations {
		r := &w.relations[i]
		expanded := w.types[r.target].first // what the last hop reached is not
		total := r.ptr.data[expanded]
		edges := RelationEdges{Ptr: r.ptr.data[:expanded+1], Row: r.row.data[:total], EdgesPerHop: r.perHop}
		if r.HasPositions() {
			edges.Pos = r.pos.data[:total]
		}
		if r.HasWeights() {
			edges.Weight = r.weight.data[:total]
		}
		out.Relations = append(out.Relations, edges)
	}
	return out
}

// relationKey gives every relation streams of its own: hop and node follow as in hopKey.
func relationKey(k Key, relation int) Key {
	k.Seed = absorb(absorb(absorb(0, domainRelation), uint64(relation)), k.Seed)
	return k
}
