package sample

import (
	"cmp"
	"slices"
	"sync/atomic"

	"freshgo/core/internal/guard"
)

const (
	// minThreadPieces is the least work worth a thread: starting one takes a few microseconds, a piece three to ten.
	minThreadPieces = 8
	// minGroupEdges is the number of edges from which a hop works on several groups at a time: below it, starting a
	// goroutine for each costs as much as it saves. Arbitrary: some tens of microseconds.
	minGroupEdges = 4096
)

// share runs work on the relation's threads, or on fewer where there are few pieces. Each takes pieces by taken.Add
// until they are used up. The result is an error of one of the threads; a panic is one. All have ended when it returns.
func (e *edgeSet) share(taken *atomic.Int64, pieces int, work func(t *thread) error) error {
	threads := min(len(e.threads), max(1, pieces/minThreadPieces))
	if threads == 1 {
		return work(&e.threads[0])
	}
	return guard.All(threads, func(i int) error {
		err := guard.Run(func() error { return work(&e.threads[i]) })
		if err != nil {
			taken.Store(int64(pieces)) // the others need not go on
		}
		return err
	})
}

// task is the relations that number the nodes of one type, in one hop.
type task struct {
	group int
	edges int64 // about
}

// share runs work once for every node type that edges of the hop begin at, several at a time. Each gets threads of its
// own in proportion to its edges, so that one large type has all of them and equal ones have one each; those of the
// tasks that run together are never more than the Worker has. The result is an error of one of them; all have ended
// when it returns.
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
	idle := make(chan struct{}, w.threads) // a token for each thread
	for range w.threads {
		idle <- struct{}{}
	}
	var tasks guard.Group
	for i := range w.order {
		t := &w.order[i]
		threads := min(max(1, int((t.edges*int64(w.threads)+total/2)/total)), w.threads)
		for range threads {
			<-idle // tasks give theirs back whatever happens
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

// plan lists the tasks of a hop, the largest first, and returns about how many edges they draw.
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
				k = r.steps[hop] // whatever the targets keep
			}
			edges += int64(targets.end-targets.first) * min(k, maxEdges/maxLocals)
		}
		w.order = append(w.order, task{group: group, edges: edges})
		total += edges
	}
	slices.SortStableFunc(w.order, func(a, b task) int { return cmp.Compare(b.edges, a.edges) })
	return total
}
