package plan

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/bitset"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// disk is a storage outside of the budget. left is how many calls succeed before one fails.
type disk struct {
	mu     sync.Mutex  // guards all below but budget
	budget *mem.Budget // of what is loaded; nil: it is not counted
	left   int
	open   int // records that are not freed
	loaded int // and loads that are not released
	put    int // bytes
}

var errDisk = errors.New("the disk has failed")

func newDisk(budget *mem.Budget) *disk { return &disk{budget: budget, left: math.MaxInt} }

func (d *disk) fails() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	return d.left < 0
}

func (d *disk) count(of *int, by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*of += by
}

func (d *disk) Put(pieces ...[]byte) (Record, error) {
	if d.fails() {
		return nil, errDisk
	}
	d.count(&d.open, 1)
	data := slices.Concat(pieces...)
	d.count(&d.put, len(data))
	return &onDisk{d, data}, nil
}

type onDisk struct {
	disk *disk
	data []byte
}

func (r *onDisk) Load(context.Context) ([]byte, func(), error) {
	if r.disk.fails() {
		return nil, nil, errDisk
	}
	if r.disk.budget == nil {
		return slices.Clone(r.data), func() {}, nil
	}
	block, err := r.disk.budget.Alloc(mem.Trace, int64(len(r.data)))
	if err != nil {
		return nil, nil, err
	}
	r.disk.count(&r.disk.loaded, 1)
	copy(block.Bytes(), r.data)
	return block.Bytes(), func() { block.Free(); r.disk.count(&r.disk.loaded, -1) }, nil
}

func (r *onDisk) Free() {
	r.disk.count(&r.disk.open, -1)
	r.data = nil
}

// stored is a batch whose rows are on a disk.
type stored struct {
	*onDisk
	n int
}

func (s stored) Len() int { return s.n }

func (s stored) Load(ctx context.Context) (Batch, func(), error) {
	data, release, err := s.onDisk.Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	return mem.View[uint32](data), release, nil
}

func (d *disk) store(batches []Batch) []Rows {
	rows := make([]Rows, len(batches))
	for i, b := range batches {
		rows[i] = stored{&onDisk{d, mem.Bytes(b)}, len(b)}
	}
	return rows
}

// TestPlansOnDiskAreThoseInMemory holds whole windows, in the storage, to what short plans in memory are.
func TestPlansOnDiskAreThoseInMemory(t *testing.T) {
	for seed := range uint64(90) {
		rng := explore.Rand(t, seed, 21)
		numRows := 1 + rng.IntN(3000)
		trace := makeTrace(rng, 1+rng.IntN(40), 1+rng.IntN(200), numRows, float64(1+rng.IntN(4)))
		c := testConfig(int64(numRows), int64(rng.IntN(numRows+20)), Transfers()[seed%uint64(len(Transfers()))])
		c.PackMemory, c.PackFile = int64(rng.IntN(100))*620, int64(rng.IntN(1000))*620
		size := 1 + rng.IntN(len(trace))
		var plans [2][]wholePlan
		for i := range plans {
			d := newDisk(nil)
			if i == 1 {
				c.Storage = d
			}
			p, err := New(mem.NewBudget(0), c)
			require.NoError(t, err)
			for first := 0; first < len(trace); first += size {
				end := min(first+size, len(trace))
				ahead := min(end+size, len(trace))
				s, err := p.Plan(context.Background(), int64(first), d.store(trace[first:end]), d.store(trace[end:ahead]))
				require.NoError(t, err)
				w, err := whole(s)
				require.NoError(t, err)
				s.Release()
				w.plan = nil
				plans[i] = append(plans[i], *w)
			}
			p.Close()
			require.Zero(t, d.open, "seed %d", seed)
		}
		require.Equal(t, plans[0], plans[1], "seed %d", seed)
	}
}

// TestStoredPlansFitTheirMemory: beside words for rows and slots, a plan takes memory for a batch, and a constant,
// whatever it chooses and however long its window is.
func TestStoredPlansFitTheirMemory(t *testing.T) {
	const numRows, capacity, width = 1 << 18, 20_000, 3000
	rng := explore.Rand(t, 22, 22)
	for _, batches := range []int{10, 100, 400} {
		trace := wide(rng, batches, width, numRows)
		for _, name := range []string{"random", "auto", "pack+forward", "page-once+forward"} {
			c := testConfig(numRows, capacity, name)
			c.PackMemory, c.PackFile = 0, 1<<40
			accesses := int64(batches * width)
			known := KnownBytes(numRows, accesses, capacity)
			budget := mem.NewBudget(StateBytes(numRows, capacity) + known + StoredBytes(accesses, width))
			d := newDisk(budget)
			c.Storage = d
			p, err := New(budget, c)
			require.NoError(t, err)
			s, err := p.Plan(context.Background(), 0, d.store(trace[:batches/2]), d.store(trace[batches/2:]))
			require.NoError(t, err, "%d batches, %s", batches, name)
			require.NotContains(t, s.Choice.Why, "memory", "%d batches, %s", batches, name)
			var step Step
			for i := range s.Len() {
				require.NoError(t, s.Step(context.Background(), i, &step))
			}
			require.NoError(t, s.ReadAhead(context.Background(), 1000, func([]Fill, []Extra) error { return nil }))
			s.Release()
			p.Close()
			require.Zero(t, d.open+d.loaded)
			require.Zero(t, budget.Used())
		}
	}
	for _, rows := range []int64{1 << 20, 4_000_000, 111_000_000} {
		most := 12*rows + 100*width + 64<<20
		needs := StateBytes(rows, rows/4) + KnownBytes(rows, 1<<25, rows/4) + StoredBytes(1<<25, width)
		require.LessOrEqual(t, needs, most)
	}
}

// TestRowsOfBatchesAheadAreNotStored: to find what is read along, a plan stores the cold rows of its superbatch once,
// and those of the batches ahead not at all.
func TestRowsOfBatchesAheadAreNotStored(t *testing.T) {
	const batches, width, half = 4, 30_000, 1 << 17
	var trace []Batch
	for b := range 2 * batches {
		batch := make(Batch, width)
		for i := range batch {
			batch[i] = uint32(b/batches*half + (b%batches*width+i)%half)
		}
		trace = append(trace, batch)
	}
	var put []int
	for _, ahead := range []int{0, batches} {
		d := newDisk(nil)
		c := testConfig(2*half, 0, "page-once")
		c.PackMemory, c.PackFile, c.Storage = 0, 1<<40, d
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		s, err := p.Plan(context.Background(), 0, d.store(trace[:batches]), d.store(trace[batches:][:ahead]))
		require.NoError(t, err)
		s.Release()
		p.Close()
		put = append(put, d.put)
	}
	require.Equal(t, put[0], put[1])
	const most = 4 + 4 + 8 + 1 // a row's next use, its record as a cold row, its entry of a spread, and bits
	require.Less(t, put[1], batches*width*most)
}

// TestPacksAheadAreCounted: what a planner knows of the packs of batches ahead is in its budget. Where there is no
// memory for that, the next plan reads those rows.
func TestPacksAheadAreCounted(t *testing.T) {
	const numRows, capacity, width = 1 << 13, 500, 3000
	trace := wide(explore.Rand(t, 24, 24), 8, width, numRows)
	var misses []int64
	for _, full := range []bool{false, true} {
		c, budget := testConfig(numRows, capacity, "pack+forward"), mem.NewBudget(1<<30)
		d := newDisk(mem.NewBudget(0))
		c.PackMemory, c.PackFile, c.Storage = 0, 1<<40, d
		p, err := New(budget, c)
		require.NoError(t, err)
		s, err := p.Plan(context.Background(), 0, d.store(trace[:4]), d.store(trace[4:]))
		require.NoError(t, err)
		s.Release()
		p.buffers.release()
		require.Equal(t, StateBytes(numRows, capacity)+4*bitset.Bytes(width), budget.Used())
		if full {
			for _, k := range p.packed.batches {
				k.free()
				k.held = nil
			}
		}
		s, err = p.Plan(context.Background(), 4, d.store(trace[4:]), nil)
		require.NoError(t, err)
		misses = append(misses, s.Choice.ColdRows)
		s.Release()
		p.Close()
		require.Zero(t, budget.Used())
	}
	require.Less(t, misses[0], misses[1])
}

// TestPlansThatLoseTheirStorageLeaveThePlannerAsItWas: a plan that fails at any call of its storage is made again, as
// though it had not been tried.
func TestPlansThatLoseTheirStorageLeaveThePlannerAsItWas(t *testing.T) {
	rng := explore.Rand(t, 23, 23)
	trace := makeTrace(rng, 20, 60, 300, 2)
	batch := func(i int64) Batch { return trace[i] }
	for _, name := range []string{"random", "auto", "pack+forward", "page-once+forward"} {
		completed := false
		for n := 0; !completed; n += 1 + n/20 {
			c := testConfig(300, 60, name)
			d := newDisk(nil)
			c.Storage = d
			budget := mem.NewBudget(0)
			p, err := New(budget, c)
			require.NoError(t, err)
			e := newExecutor(t, 60, c.Depth)
			run := func(first int) bool {
				current, ahead := d.store(trace[first:first+5]), d.store(trace[first+5:first+10])
				s, err := p.Plan(context.Background(), int64(first), current, ahead)
				if err != nil {
					require.ErrorIs(t, err, errDisk)
					require.Zero(t, d.open)
					return false
				}
				d.left = math.MaxInt
				w, err := whole(s)
				require.NoError(t, err)
				e.run(w, batch, 5)
				s.Release()
				e.checkAgainst(p)
				return true
			}
			require.True(t, run(0))
			d.left = n
			if completed = run(5); !completed {
				d.left = math.MaxInt
				e.dropPacks() // the planner no longer counts on them
				require.True(t, run(5))
			}
			require.True(t, run(10))
			p.Close()
			require.Zero(t, budget.Used())
		}
	}
}
