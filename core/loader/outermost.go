package loader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"freshgo/core/cache"
	"freshgo/core/history"
	"freshgo/core/ssd"
)

// outermost is the feature side of the history's buffer (FreshGNN, section 4.2):
// the rows of the hottest nodes, the hottest at the very end, as far as embeddings
// leave room. A node's slot is its rank. An embedding that takes the place of a
// feature displaces it; when the room returns, the row comes back with the first
// batch that reads it. With types one ranking has the nodes of all of them, each
// as wide as its rows are.
//
// A batch copies what it finds at once, before it reads the rest, so that nothing
// has to stay.
type outermost struct {
	loader *Loader
	policy *cache.Static
	buffer []byte
	within []int   // by table: where its row begins among those of its node
	widths []int64 // by type: bytes of a node's rows of all tables
	ends   []int64 // by rank: what the ranks before it take, and what all do; nil without types, where all are alike
	count  int64
	worth  []float32 // by rank: how many reads of an iteration the row saves

	mu      sync.RWMutex // writing: to change present, or bytes of the features
	present []bool       // by rank
	room    int64        // ranks below it are the features'; set by past, under its lock too
	held    *atomic.Int64
}

// openOutermost ranks the nodes and reads the rows of the hottest into the far end
// of the buffer.
func (l *Loader) openOutermost(ctx context.Context, buffer []byte) (*outermost, error) {
	f := &outermost{loader: l, buffer: buffer, held: &l.resident.held}
	f.layOut()
	ranked, err := l.rankForCache(ctx)
	if err != nil {
		return nil, err
	}
	defer ranked.Close()
	order, err := f.hottest(ranked)
	if err != nil {
		return nil, err
	}
	if f.worth, err = l.worthOf(ctx, ranked, order); err != nil {
		return nil, err
	}
	if f.policy, err = cache.NewStatic(l.budget, l.parts.numNodes, slices.Values(order)); err != nil {
		return nil, err
	}
	l.onClose(f.policy.Close)
	f.count = int64(len(order))
	f.room = f.count
	f.present = make([]bool, f.count)
	if err := f.fill(ctx, order); err != nil {
		return nil, err
	}
	l.policy = f.policy
	return f, nil
}

// worthOf is how often an iteration needs each of these rows, in descending order
// as far as the ranking is one of use. Scores that count batches of an epoch say it.
func (l *Loader) worthOf(ctx context.Context, ranked *cache.Vector, order []uint32) ([]float32, error) {
	if l.options.History.Policy == history.Performance && !slices.Contains([]string{"presc", "expected", "oracle"}, l.cacheKind) {
		expected, err := l.score(ctx, "expected")
		if err != nil {
			return nil, err
		}
		defer expected.Close()
		if l.order != nil {
			expected.Renumber(l.order)
		}
		ranked = expected
	}
	worth, perIteration := make([]float32, len(order)), 1/float32(l.NumBatches())
	for rank, row := range order {
		worth[rank] = ranked.Hotness[row] * perIteration
	}
	for rank := len(worth) - 2; rank >= 0; rank-- {
		worth[rank] = max(worth[rank], worth[rank+1])
	}
	return worth, nil
}

// fill reads the rows in the order of the file, a piece at a time.
func (f *outermost) fill(ctx context.Context, order []uint32) error {
	l := f.loader
	ranks := make([]int32, len(order))
	for i := range ranks {
		ranks[i] = int32(i)
	}
	slices.SortFunc(ranks, func(a, b int32) int { return cmp.Compare(order[a], order[b]) })
	var m ssd.Merger
	var wanted []int64
	for piece := range slices.Chunk(ranks, fillChunk) {
		wanted = wanted[:0]
		for _, rank := range piece {
			wanted = append(wanted, int64(order[rank]))
		}
		for t, table := range l.onDisk {
			places, rows := l.rowsOf(table, wanted)
			err := table.disk.Read(ctx, &m, rows, func(i int32, row []byte) error {
				at := int64(i)
				if places != nil {
					at = places[i]
				}
				copy(f.row(t, piece[at]), row)
				return nil
			})
			if err != nil {
				return fmt.Errorf("loader: filling the cache from %q: %w", table.name, err)
			}
		}
	}
	for i := range f.present {
		f.present[i] = true
	}
	f.held.Store(f.count)
	l.counters.filled.Add(f.count)
	return nil
}

// take copies the features that are there into the tensors of a batch and makes
// the others misses.
func (f *outermost) take(p *preparer, tensors [][]byte) {
	slots, r := p.step.Slots, &p.roster
	f.mu.RLock()
	defer f.mu.RUnlock()
	for pos, rank := range slots {
		if rank < 0 {
			continue
		}
		if int64(rank) >= f.room || !f.present[rank] {
			slots[pos] = cache.Miss
			continue
		}
		for t, table := range f.loader.onDisk {
			if f.loader.hasRow(table, r.rows[pos]) {
				copy(tensors[table.index][int(r.tensorRow(int32(pos))-p.base(table))*table.width:], f.row(t, rank))
			}
		}
	}
}

// bringBack puts rows that a batch has read into places that are free again.
func (f *outermost) bringBack(p *preparer, tensors [][]byte) {
	r := &p.roster
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held.Load() == f.room {
		return
	}
	for _, pos := range p.lookup.cold {
		rank := f.policy.Slot(r.rows[pos])
		if rank < 0 || int64(rank) >= f.room || f.present[rank] {
			continue
		}
		for t, table := range f.loader.onDisk {
			if f.loader.hasRow(table, r.rows[pos]) {
				copy(f.row(t, rank), tensors[table.index][int(r.tensorRow(pos)-p.base(table))*table.width:][:table.width])
			}
		}
		f.present[rank] = true
		f.held.Add(1)
	}
}

// resize sets the room that embeddings leave.
func (f *outermost) resize(room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for rank := max(0, min(room, f.count)); rank < f.room; rank++ {
		if f.present[rank] {
			f.present[rank] = false
			f.held.Add(-1)
		}
	}
	f.room = min(room, f.count)
}

// has says whether a row's features are there. The caller holds mu.
func (f *outermost) has(row uint32) bool {
	rank := f.policy.Slot(row)
	return rank >= 0 && int64(rank) < f.room && f.present[rank]
}
