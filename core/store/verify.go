package store

import (
	"context"
	"sync"

	"freshgo/core/mem"
)

// Verify reads every file of the store at the device's sequential rate, compares every page with its checksum and checks every offset and id, and
// that an order of the rows is a permutation. The first damage found is a *CorruptError. progress, which may be nil, is called with the bytes read
// so far and those there are.
// It needs a few MiB, a thousandth of the largest file for its checksums, and a bit for each node where there is an order.
func (s *Store) Verify(ctx context.Context, progress func(done, total int64)) error {
	m := meter{report: func(_ string, done, total int64) {
		if progress != nil {
			progress(done, total)
		}
	}}
	for _, a := range s.arrays() {
		m.total += a.Bytes
	}
	m.add(0)
	budget := mem.NewBudget(0)
	limits := s.idLimits()
	offsets := newIndptrCheck(s.topology.Indptr, s.topology.NumEdges)
	var order *orderCheck
	if s.order != nil {
		var err error
		if order, err = newOrderCheck(s.order, budget); err != nil {
			return err
		}
		defer order.close()
	}
	for _, a := range s.arrays() {
		check := anyValue
		if limit, ok := limits[a]; ok {
			check = idCheck(a, limit)
		} else if a == s.topology.Indptr {
			check = offsets.visit
		} else if order != nil && a == s.order {
			check = order.visit
		}
		err := s.scan(ctx, a, nil, budget, func(off int64, piece []byte) error {
			defer m.add(int64(len(piece)))
			return check(off, piece)
		})
		if err != nil {
			return err
		}
	}
	return offsets.finish()
}

// idLimits gives, for each array that holds ids, the number that all of them are below.
func (s *Store) idLimits() map[*Array]int64 {
	limits := map[*Array]int64{s.topology.Indices: s.topology.NumNodes}
	if s.topology.EdgeIDs != nil {
		limits[s.topology.EdgeIDs] = s.topology.NumEdges
	}
	for i := range s.splits {
		limits[&s.splits[i].Array] = s.topology.NumNodes
	}
	return limits
}

// meter adds up the progress of one stage and reports it, one report at a time and never falling. mu guards done and orders the reports.
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
