package sample

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"freshgo/core/internal/guard"
	"freshgo/core/internal/invariants"
	"freshgo/core/mem"
)

// Worker draws batches of one Sampler, one at a time: it is not safe for concurrent use. It owns an id map per node
// type, the memory of a Subgraph, and scratch memory, which are kept from batch to batch and grow to the largest batch.
//
// Relations whose sources are of one type number them one relation after another; others share nothing and run
// concurrently.
type Worker struct {
	sampler *Sampler
	budget  *mem.Budget
	threads int
	nodes   []*nodeSet
	edges   []*edgeSet
	order   []task // tasks of the current hop
	flat    flat
}

// minGroupEdges is the number of edges from which a hop works on several groups at a time: below it, starting a
// goroutine costs as much as it saves. Arbitrary: some tens of microseconds.
const minGroupEdges = 4096

// Request holds the seeds of a batch, and the edges that it excludes.
type Request struct {
	Seeds []int64 // global numbers of nodes, of all types, in any order
	Times []int64 // with Temporal, by seed, else nil
	// Exclude lists for each relation the edges that are not drawn although their targets are seeds, with all copies: ids
	// within their types, by target, then by source. Empty: none.
	Exclude [][]Link
	LastHop LastHop // nil: all lists are needed
}

// StampBytes returns the size of a Worker's id map of a node type as a stamp array.
func StampBytes(numNodes int64) int64 { return numNodes * stampSize }

// NewWorker returns a Worker that draws with the given number of threads, including the caller's. With stamp its id
// maps are arrays over all nodes of the graph (StampBytes), else hash maps over the nodes of a batch, which take less
// memory and about a quarter more time; disjoint batches always use hash maps. Its memory comes from budget.
func (s *Sampler) NewWorker(budget *mem.Budget, stamp bool, threads int) (*Worker, error) {
	if threads < 1 {
		return nil, fmt.Errorf("sample: %d threads, expected at least 1", threads)
	}
	w := &Worker{sampler: s, budget: budget, threads: threads}
	for i := range s.relations {
		w.edges = append(w.edges, &edgeSet{
			relation: &s.relations[i], place: i, budget: budget, scratch: make([]thread, threads),
		})
	}
	for t := range s.numTypes() {
		n := &nodeSet{budget: budget, numNodes: s.numNodes(t), disjoint: s.disjoint, moved: s.moved[t]}
		w.nodes = append(w.nodes, n)
		if err := n.initIDs(stamp); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// Close frees the Worker's memory. Subgraphs that it filled become invalid.
func (w *Worker) Close() {
	for _, n := range w.nodes {
		n.free()
	}
	for _, e := range w.edges {
		e.free()
	}
	freeAll(w.flat.rooms(flatRoom{}))
}

// Draw draws the batch of key for a request and sets out. It returns ErrSeed if a seed is not a node, ErrConfig,
// ErrTooLarge, mem.ErrBudget, the error of ctx, or an error of Adjacency.Fetch; out is then unchanged and the Worker
// remains usable. After ErrDeferred all relations of the hop have requested their neighbours, and a Draw of the same
// request requests the same. A graph that violates Relation gives a *guard.PanicError. Draw checks ctx at least every
// few milliseconds.
func (w *Worker) Draw(ctx context.Context, key Key, r Request, out *Subgraph) error {
	return guard.Run(func() error {
		if err := w.begin(ctx, &r); err != nil {
			return err
		}
		for hop := range w.sampler.hops {
			if err := w.hop(ctx, key, &r, hop); err != nil {
				return err
			}
		}
		if err := w.complete(ctx); err != nil {
			return err
		}
		if err := w.flatten(out); err != nil {
			return err
		}
		if invariants.Enabled {
			w.check(out)
		}
		return nil
	})
}

// Sample is Draw for seeds alone.
func (w *Worker) Sample(ctx context.Context, key Key, seeds []int64, out *Subgraph) error {
	return w.Draw(ctx, key, Request{Seeds: seeds}, out)
}

// begin validates the request and numbers the seeds. The times of r become the times of the trees.
func (w *Worker) begin(ctx context.Context, r *Request) error {
	want := 0
	if w.sampler.timed {
		want = len(r.Seeds)
	}
	if len(r.Times) != want || r.Times != nil && !w.sampler.timed {
		return fmt.Errorf("sample: times of %d seeds, expected %d: %w", len(r.Times), want, ErrConfig)
	}
	if err := w.checkExclude(r.Exclude); err != nil {
		return err
	}
	seeds, err := w.splitSeeds(r)
	if err != nil {
		return err
	}
	for _, n := range w.nodes { // also types without seeds, as trees have nodes of all types
		if !w.sampler.disjoint {
			break
		}
		if err := n.checkTrees(len(r.Seeds)); err != nil {
			return err
		}
	}
	trees := 0
	for t, n := range w.nodes {
		if err := n.begin(ctx, seeds[t], trees, w.sampler.hops); err != nil {
			return err
		}
		trees += len(seeds[t])
	}
	for _, e := range w.edges {
		if err := e.begin(w.sampler.hops); err != nil {
			return err
		}
	}
	return nil
}

// hop expands the nodes that the previous hop reached.
func (w *Worker) hop(ctx context.Context, key Key, r *Request, hop int) error {
	for _, n := range w.nodes {
		if err := n.beginHop(); err != nil {
			return err
		}
	}
	var deferred atomic.Bool
	err := w.share(hop, func(group, threads int) error {
		for _, i := range w.sampler.groups[group] {
			err := w.expand(ctx, key, r, hop, i, threads)
			if errors.Is(err, ErrDeferred) {
				deferred.Store(true)
				continue
			}
			if err != nil {
				return w.sampler.in(i, err)
			}
		}
		return nil
	})
	if err == nil && deferred.Load() {
		return ErrDeferred
	}
	if err != nil {
		return err
	}
	for _, n := range w.nodes {
		if err := n.endHop(); err != nil {
			return err
		}
	}
	return nil
}

// task lists the relations that number the nodes of one type, in one hop.
type task struct {
	group int
	edges int64 // approximate
}

// share runs work for every node type with sources of edges in the hop, several at a time. Each gets threads in
// proportion to its edges, so that one large type gets all of them and equal ones get one each; concurrent tasks never
// have more threads than the Worker. It returns after all have ended, with the error of one of them.
func (w *Worker) share(hop int, work func(group, threads int) error) error {
	total := w.plan(hop)
	if w.threads == 1 || len(w.order) == 1 || total < minGroupEdges {
		for _, t := range w.order {
			if err := work(t.group, w.threads); err != nil {
				return err
			}
		}
		return nil
	}
	idle := make(chan struct{}, w.threads) // one token per thread
	for range w.threads {
		idle <- struct{}{}
	}
	var tasks guard.Group
	for i := range w.order {
		t := &w.order[i]
		threads := min(max(1, int((t.edges*int64(w.threads)+total/2)/total)), w.threads)
		for range threads {
			<-idle // every task returns its tokens
		}
		tasks.Start(func() error {
			defer func() {
				for range threads {
					idle <- struct{}{}
				}
			}()
			return work(t.group, threads)
		})
	}
	return tasks.Wait()
}

// plan lists the tasks of a hop, the largest first, and returns their approximate number of edges.
func (w *Worker) plan(hop int) (total int64) {
	w.order = w.order[:0]
	for group, relations := range w.sampler.groups {
		if len(relations) == 0 {
			continue
		}
		edges := int64(0)
		for _, i := range relations {
			r := &w.sampler.relations[i]
			k, targets := r.fanouts[hop], w.nodes[r.Target]
			if k == All || k > r.degree && !r.replace {
				k = r.degree
			}
			if r.steps != nil {
				k = r.steps[hop] // for any number of neighbours that targets keep
			}
			edges += int64(targets.end-targets.first) * min(k, maxEdges/maxLocals)
		}
		w.order = append(w.order, task{group: group, edges: edges})
		total += edges
	}
	slices.SortStableFunc(w.order, func(a, b task) int { return cmp.Compare(b.edges, a.edges) })
	return total
}

// expand draws the edges of one relation in one hop. No other goroutine uses the relation and the nodes of its source
// type meanwhile; of its target type it reads the targets.
func (w *Worker) expand(ctx context.Context, key Key, r *Request, hop, relation, threads int) error {
	e := w.edges[relation]
	source, target := w.nodes[e.relation.Source], w.nodes[e.relation.Target]
	first, end, k := target.first, target.end, e.relation.fanouts[hop]
	if k == 0 || first == end {
		return e.drawNone(first, end)
	}
	e.threads = e.scratch[:threads]
	b := batch{edgeSet: e, ctx: ctx, source: source, target: target, times: r.Times, last: r.LastHop}
	b.key = w.sampler.keyOf(key, relation)
	if len(r.Exclude) > 0 {
		b.exclude = r.Exclude[relation]
	}
	n, err := b.hop(hop, first, end, k)
	if err != nil {
		return err
	}
	e.perHop = append(e.perHop, n)
	return nil
}

// relationKey returns the key of a relation's separate streams: hop and node follow as in hopKey.
func relationKey(k Key, relation int) Key {
	k.Seed = absorb(absorb(absorb(0, domainRelation), uint64(relation)), k.Seed)
	return k
}
