package fetch

import (
	"context"

	"freshgo/core/batch"
	"freshgo/core/cache"
	"freshgo/core/draw"
)

// AllInMemory is the cache of a loader that reads no rows from disk.
type AllInMemory struct{}

func (AllInMemory) Fill(f *Filler, _ int64, tensors [][]byte) error {
	f.Counters.Hits.Add(f.countRows())
	return f.ReadTables(tensors, nil)
}

// Uncached is the cache of a loader that reads every row for the batch that needs it.
type Uncached struct{}

func (Uncached) Fill(f *Filler, _ int64, tensors [][]byte) error {
	if err := f.readMissing(nil, tensors); err != nil {
		return err
	}
	return f.Timed(func() { f.CopyCached(tensors) })
}

// Fixed holds the rows of the nodes that a metric ranks first, from opening on (FGNN, section 6).
type Fixed struct {
	policy *cache.Static
}

func (c *Fixed) Fill(f *Filler, _ int64, tensors [][]byte) error {
	c.policy.Step(f.Drawn.BatchRows.Rows, &f.Step.Step)
	if err := f.readMissing(f.Step.Slots, tensors); err != nil {
		return err
	}
	return f.Timed(func() { f.CopyCached(tensors) })
}

// OpenFixed ranks the nodes and reads the rows of the hottest. The reads count as I/O in the statistics.
func OpenFixed(ctx context.Context, m *draw.Sampling, f *Features, c *batch.Counters) (Source, error) {
	if m.Split.CacheRows == 0 {
		return Uncached{}, nil
	}
	ranked, err := rankForCache(ctx, m, f)
	if err != nil {
		return nil, err
	}
	policy := ranked.Static(m.Split.CacheRows)
	m.OnClose(policy.Close)
	if err := f.OpenSlots(m, policy.Len()); err != nil {
		return nil, err
	}
	f.Slots.Populate()
	wanted, first := make([]int64, 0, FillChunk), 0 // first is the slot of the first of wanted
	read := func() error {
		err := f.readAtOpening(ctx, wanted, func(table, at int, row []byte) {
			copy(f.Slots.Row(f.OnDisk[table].Column, int64(first+at)), row)
		})
		first, wanted = first+len(wanted), wanted[:0]
		m.Options.Progress.Report("filling the cache", int64(first), policy.Len())
		return err
	}
	for _, row := range policy.Rows() {
		if wanted = append(wanted, int64(row)); len(wanted) == FillChunk {
			if err := read(); err != nil {
				return nil, err
			}
		}
	}
	if err := read(); err != nil {
		return nil, err
	}
	f.Resident.Count.Store(policy.Len())
	c.Filled.Add(policy.Len())
	return &Fixed{policy: policy}, nil
}

// FillChunk is the number of rows that are requested at once while the cache is filled: enough to keep the engine busy,
// few enough that the read plan stays small.
const FillChunk = 1 << 16

// Online is the cache of a policy that decides from the batches so far. Batches decide one after the other, and
// then change the slots one after the other; between the two they read side by side.
type Online struct {
	sampling *draw.Sampling
	features *Features
	kind     string
	policy   cache.Policy // nil: it was dropped, and the cache is empty
}

func OpenOnline(m *draw.Sampling, f *Features) (*Online, error) {
	f.Movers = m.Split.Workers // batches take turns at the cache
	c := &Online{sampling: m, features: f, kind: m.Split.Cache}
	if err := c.restart(); err != nil {
		return nil, err
	}
	m.OnClose(c.drop)
	if err := f.OpenResident(m); err != nil {
		return nil, err
	}
	if err := f.OpenSlots(m, m.Split.CacheRows); err != nil {
		return nil, err
	}
	f.Slots.Populate()
	return c, nil
}

// restart begins with an empty cache.
func (c *Online) restart() (err error) {
	m := c.sampling
	c.policy, err = cache.New(c.kind, m.Budget, m.Parts.NumNodes, m.Split.CacheRows)
	return err
}

// drop discards the policy's decisions.
func (c *Online) drop() {
	if c.policy != nil {
		c.policy.Close()
		c.policy = nil
	}
}

// Begin begins an epoch, with an empty cache where the policy was dropped.
func (c *Online) Begin() error {
	if c.policy != nil {
		return nil
	}
	return c.restart()
}

// Empty forgets everything: batches decided and were not made.
func (c *Online) Empty() {
	c.drop()
	c.features.Resident.empty()
}

func (c *Online) Fill(f *Filler, i int64, tensors [][]byte) error {
	if err := f.Turns.Policy.Enter(i); err != nil {
		return err
	}
	c.policy.Step(f.Drawn.BatchRows.Rows, &f.Step.Step)
	f.Turns.Policy.Leave()
	if err := f.readMissing(f.Step.Slots, tensors); err != nil {
		return err
	}
	if err := f.Turns.Cache.Enter(i); err != nil {
		return err
	}
	defer f.Turns.Cache.Leave()
	return f.Timed(func() {
		f.CopyCached(tensors)
		f.EnterRows(tensors)
	})
}

// rankForCache ranks the rows of the cached types. Rows that the consumer holds come last, and nodes of types that have
// no rows on disk.
func rankForCache(ctx context.Context, m *draw.Sampling, f *Features) (*cache.Vector, error) {
	scores, err := draw.RankForCache(ctx, m, m.Split.Cache, &f.CachedTypes)
	if err != nil {
		return nil, err
	}
	for node, at := range m.Options.Held {
		if at >= 0 {
			scores.Hotness[f.CachedTypes.RowOf(int64(node))] = 0
		}
	}
	first := m.Parts.Schema.First
	for t, cached := range f.CachedTypes.Listed {
		if !cached {
			clear(scores.Hotness[first[t]:first[t+1]])
		}
	}
	return scores, nil
}
