package store

import (
	"context"
	"sync"

	"freshgo/core/mem"
)

// Verify reads every file of the store at the device's sequential rate, compares every page with its checksum and
// checks every offset and id, that an order of the rows is a permutation, and that weights by position equal the
// weights of their tensor. The first damage found is a *CorruptError. progress, which may be nil, is called with the
// bytes read so far and the bytes in all. Verify needs a few MiB, a thousandth of the largest file for its checksums,
// and a bit for each node where there is an order.
func (s *Store) Verify(ctx context.Context, progress func(done, total int64)) error {
	m := meter{report: func(_ string, done, total int64) {
		if progress != nil {
			progress(done, total)
		}
	}}
	for _, a := range s.arrays() {
		m.total += a.Bytes
	}
	for i := range s.edgeTypes {
		m.total += s.edgeTypes[i].verifiedBytes()
	}
	m.add(0)
	for i := range s.nodeTypes {
		if err := s.nodeTypes[i].verify(ctx, &m); err != nil {
			return err
		}
	}
	for i := range s.edgeTypes {
		if err := s.edgeTypes[i].verify(ctx, &m); err != nil {
			return err
		}
	}
	return verifyAll(ctx, arraysOf(s.attachments), nil, mem.NewBudget(0), &m)
}

// VerifyTopology is Verify of the files that say which edges there are and in which order rows lie: of no tensor and of
// no split.
func (s *Store) VerifyTopology(ctx context.Context) error {
	m := meter{report: func(string, int64, int64) {}}
	for i := range s.nodeTypes {
		if t := (NodeType{Count: s.nodeTypes[i].Count, Order: s.nodeTypes[i].Order}); t.Order != nil {
			if err := t.verify(ctx, &m); err != nil {
				return err
			}
		}
	}
	for i := range s.edgeTypes {
		bare := EdgeType{Topology: s.edgeTypes[i].Topology, Weights: s.edgeTypes[i].Weights}
		if err := bare.verifyFiles(ctx, &m); err != nil {
			return err
		}
	}
	return nil
}

func (t *NodeType) verify(ctx context.Context, m *meter) error {
	budget := mem.NewBudget(0)
	checks := map[*Array]visitor{}
	if t.Order != nil {
		order, err := newOrderCheck(t.Order, budget)
		if err != nil {
			return err
		}
		defer order.close()
		checks[t.Order] = order.visit
	}
	for i := range t.Splits {
		checks[&t.Splits[i].Array] = idCheck(&t.Splits[i].Array, t.Count)
	}
	return verifyAll(ctx, t.arrays(), checks, budget, m)
}

func (e *EdgeType) verify(ctx context.Context, m *meter) error {
	if err := e.verifyFiles(ctx, m); err != nil || e.Weights == nil {
		return err
	}
	return e.verifyWeights(ctx, mem.NewBudget(0), m)
}

// verifyFiles is verify but for what weights by position are compared with.
func (e *EdgeType) verifyFiles(ctx context.Context, m *meter) error {
	offsets := newIndptrCheck(e.Indptr, e.NumEdges)
	checks := map[*Array]visitor{e.Indptr: offsets.visit, e.Indices: idCheck(e.Indices, e.NumSources)}
	if e.EdgeIDs != nil {
		checks[e.EdgeIDs] = idCheck(e.EdgeIDs, e.NumEdges)
	}
	if err := verifyAll(ctx, e.arrays(), checks, mem.NewBudget(0), m); err != nil {
		return err
	}
	return offsets.finish()
}

// visitor takes the pieces of a file, as scan passes them.
type visitor func(off int64, piece []byte) error

// verifyAll reads arrays and passes those that have one to their visitor.
func verifyAll(
	ctx context.Context, arrays []*Array, checks map[*Array]visitor, budget *mem.Budget, m *meter,
) error {
	for _, a := range arrays {
		check, ok := checks[a]
		if !ok {
			check = anyValue
		}
		err := a.scan(ctx, nil, budget, func(off int64, piece []byte) error {
			defer m.add(int64(len(piece)))
			return check(off, piece)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// meter adds up the progress of one stage and reports it, one report at a time and never falling. mu guards done and
// orders the reports.
type meter struct {
	report func(stage string, done, total int64)
	stage  string
	total  int64

	mu   sync.Mutex
	done int64
}

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	m.report(m.stage, m.done, m.total)
}
