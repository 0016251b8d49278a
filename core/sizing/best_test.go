package sizing

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/ssd"
)

// shape is a graph on disk whose memory is to be divided, and the batches that are drawn from it.
type shape struct {
	rows    int64
	width   int
	batches int64 // of an epoch
	nodes   int64 // of a batch, about
	skew    float64
	memory  []int64
}

// shapes are graphs of wide rows, of narrow ones, and in between.
func shapes() map[string]*shape {
	return map[string]*shape{
		"rows of 512 bytes":  {500_000, 512, 128, 5000, 3, []int64{90 << 20, 130 << 20, 230 << 20}},
		"rows of 128 bytes":  {500_000, 128, 32, 21_500, 1, []int64{60 << 20, 80 << 20}},
		"rows of 4096 bytes": {60_000, 4096, 64, 2500, 2, []int64{90 << 20, 150 << 20}},
	}
}

func (s *shape) graph() Graph {
	return Graph{
		OnDisk: true, Nodes: s.rows, Types: []int64{s.rows}, Stamp: 4 * s.rows,
		Tensors: []Tensor{{Width: s.width, Rows: s.rows, Used: true, Span: max(s.width, ssd.PageBytes)}},
		Fixed:   8 * s.rows,
	}
}

func (s *shape) costs() Costs {
	nodes := s.nodes * margin / 8
	return Costs{
		Nodes: nodes, NodesOfType: []int64{nodes}, Batch: nodes * int64(s.width+40), Lookup: 100 * nodes,
		Worker: 20 * nodes, StampWorker: 20*nodes + 4*s.rows, ResidentSlot: 4, PlannedSlot: 4,
	}
}

func (s *shape) request(memory int64) Request {
	r := auto(memory, "belady")
	r.Scratch, r.Reorder, r.EpochBatches = Auto, 0, s.batches
	return r
}

// trace is two epochs of batches and the first batches of a third.
func (s *shape) trace() []plan.Batch {
	rng := rand.New(rand.NewPCG(uint64(s.rows), uint64(s.width))) // constant: divisions are compared on one trace
	place := rng.Perm(int(s.rows))
	batches := make([]plan.Batch, 4*s.batches)
	for b := range batches {
		batch := make(plan.Batch, s.nodes)
		for i := range batch {
			u := 1.0
			for range int(s.skew) {
				u *= rng.Float64()
			}
			batch[i] = uint32(place[int(float64(s.rows)*u)])
		}
		slices.Sort(batch)
		batches[b] = slices.Compact(batch)
	}
	return batches
}

// seconds predicts the disk time of an epoch after the first with a division and in windows of the given number of
// batches, by the plans that the loader would make.
func (s *shape) seconds(t *testing.T, trace []plan.Batch, window int64, by *Split) float64 {
	c := s.config(by, "auto")
	c.PackFile, c.Early = s.rows*int64(s.width)*storedPacks, true
	if !by.Stored {
		c.PackMemory = by.Packs / 4 * 3 // what the buffers of the scratch file leave
	}
	return s.laterEpochs(t, trace, window, c, func(of *plan.Superplan) float64 { return of.Choice.DeviceSeconds })
}

// config returns a planner's configuration for a division, without packs.
func (s *shape) config(by *Split, transfer string) plan.Config {
	return plan.Config{
		NumRows: s.rows, Capacity: by.CacheRows, CarryOver: true, Transfer: transfer, RowBytes: s.width, Depth: 2,
		Tables: []ssd.Layout{{RowBytes: s.width, NumRows: s.rows}},
		Device: ssd.Device{
			RequestSeconds: 12e-6, PageSeconds: 1.5e-6, ReadBytesPerSecond: 2e9, WriteBytesPerSecond: 2e9,
		},
		SlotBytes: MinSlot,
	}
}

// laterEpochs plans three epochs in windows, and returns what the plans of the last two take, by batches, in the mean:
// a scan may serve two windows.
func (s *shape) laterEpochs(
	t *testing.T, trace []plan.Batch, window int64, c plan.Config, takes func(of *plan.Superplan) float64,
) (sum float64) {
	p, err := plan.New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer p.Close()
	for first := int64(0); first < 3*s.batches; first += window {
		end := min(first+window, int64(len(trace)))
		ahead := trace[end:min(end+window, int64(len(trace)))]
		of, err := p.Plan(context.Background(), first, plan.InMemory(trace[first:end]), plan.InMemory(ahead))
		require.NoError(t, err)
		if part := min(end, 3*s.batches) - max(first, s.batches); part > 0 {
			sum += takes(of) * float64(part) / float64(end-first) / 2
		}
		of.Release()
	}
	return sum
}

// TestDivisionsAreNearTheBest: what is chosen takes at most a tenth longer than the best of the shares of memory for
// packs that a user could have asked for, whatever the rows: wide, narrow (a batch touches three quarters of all
// pages), and in between. Divisions with another number of batches or reads in flight are not compared, since the time
// that the disk takes does not say what those hide.
func TestDivisionsAreNearTheBest(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred plans")
	}
	for name, s := range shapes() {
		t.Run(name, func(t *testing.T) {
			trace := s.trace()
			for _, memory := range s.memory {
				auto, err := Divide(s.request(memory), s.graph(), s.costs())
				require.NoError(t, err)
				got := s.seconds(t, trace, auto.window(newDivision(s.request(memory), s.graph(), s.costs())), auto)
				best := got
				for _, share := range []int64{32, 16, 8, 4} { // of the memory, for packs: which bounds windows
					r := s.request(memory)
					r.BufferMemory = memory / share
					by, err := Divide(r, s.graph(), s.costs())
					if errors.Is(err, mem.ErrBudget) {
						continue // it does not fit
					}
					require.NoError(t, err)
					if by.Working != auto.Working {
						continue
					}
					window := by.window(newDivision(r, s.graph(), s.costs()))
					took := s.seconds(t, trace, window, by)
					t.Logf("%d MiB: windows of %d batches and %d rows take %.0f ms, those chosen, of %d and %d, %.0f ms", memory>>20,
						window, by.CacheRows, took*1e3, auto.Superbatch, auto.CacheRows, got*1e3)
					best = min(best, took)
				}
				require.LessOrEqual(t, got, 1.1*best, "%d bytes of memory", memory)
			}
		})
	}
}
