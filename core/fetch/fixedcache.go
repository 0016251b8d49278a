package fetch

import (
	"context"

	"freshgo/core/batch"
	"freshgo/core/cache"
	"freshgo/core/draw"
)

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
	wanted, first := make([]int64, 0, FillChunk), 0 // the slot of the first of wanted
	read := func() error {
		err := f.readAtOpening(ctx, wanted, func(table, at int, row []byte) {
			copy(f.Slots.Row(f.OnDisk[table].Column, int64(first+at)), row)
		})
		first, wanted = first+len(wanted), wanted[:0]
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
