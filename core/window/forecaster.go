package window

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"freshgo/core/draw"
	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// If the rows that a history will keep are known in advance (prune.Pruner.Follows), the inspector prunes the sampled
// batches, one after another, with a copy of the history. Plans are then made for the rows that batches will read.
// Nothing depends on it: each batch is pruned by the history itself in its turn, reads its rows then, and skips planned
// rows that it does not need. Once batches need other rows than forecast, because training omitted an update or a row
// was not finite, the next epoch is forecast and planned again.

// follower is a prune.Forecaster, or noFollower.
type follower interface {
	Free() int64
	Next(ctx context.Context, g *sample.Subgraph, numSeeds int64, cost func(node int64) float32) ([]int32, error)
	NextEpoch(ctx context.Context, count int64) error
	Close()
}

// noFollower follows no history, as where there is no memory for that: batches are planned as they are drawn.
type noFollower struct{}

func (noFollower) Free() int64 { return math.MaxInt64 }
func (noFollower) Next(context.Context, *sample.Subgraph, int64, func(int64) float32) ([]int32, error) {
	return nil, mem.ErrBudget
}
func (noFollower) NextEpoch(context.Context, int64) error { return nil }
func (noFollower) Close()                                 {}

// forecaster predicts for the inspector the rows that the history will keep. One goroutine at a time uses it.
type forecaster struct {
	of    follower
	cost  func(node int64) float32
	wrong *atomic.Int64 // counts deviations: of rows, or of training from the forecast
}

// forecasting reports whether the epoch that has begun is one whose pruning is known ahead.
func (c *Cache) forecasting() bool {
	return c.draw.Split.Reorder == 0 && !c.prunesTrained() && c.history.Follows()
}

// forecast begins with the epoch that has begun, where that is possible and there is memory for it.
func (c *Cache) forecast(wrong *atomic.Int64) forecaster {
	f := forecaster{of: noFollower{}, cost: c.draw.Parts.RowCost(), wrong: wrong}
	if c.forecasting() {
		if of, err := c.history.Follow(c.draw.Budget); err == nil {
			f.of = of
		}
	}
	return f
}

// end frees its memory; the other batches are planned as they are drawn. A lack of memory is taken to be permanent.
func (f *forecaster) end(why error) {
	if why != nil && !errors.Is(why, mem.ErrBudget) {
		f.wrong.Add(1)
	}
	f.of.Close()
	f.of = noFollower{}
}

// free returns the number of batches, of n, whose pruning can be predicted without waiting for training.
func (f *forecaster) free(n int64) int64 {
	return min(n, f.of.Free())
}

// next prunes the next batch, and returns the place of each drawn node, or -1. The slice is nil if the pruning is
// unknown, or if the batch is not pruned; known distinguishes these.
func (f *forecaster) next(ctx context.Context, g *sample.Subgraph, numSeeds int64) (places []int32, known bool) {
	places, err := f.of.Next(ctx, g, numSeeds, f.cost)
	if err != nil {
		f.end(err)
	}
	return places, err == nil
}

// nextEpoch goes on with an epoch of count batches.
func (f *forecaster) nextEpoch(ctx context.Context, count int64) {
	if err := f.of.NextEpoch(ctx, count); err != nil {
		f.end(err)
	}
}

// EpochForecast counts the rows that the history leaves of an epoch's batches, as far as they are sampled.
type EpochForecast struct {
	Epoch          int64 `json:"epoch"`
	Batches        int64 `json:"batches"`
	DrawnRows      int64 `json:"drawn_rows"`      // of the batches as they are drawn
	PlannedRows    int64 `json:"planned_rows"`    // of them, those that are forecast to be read, and planned
	ReadRows       int64 `json:"read_rows"`       // of the batches that were made
	UnforeseenRows int64 `json:"unforeseen_rows"` // read and not planned, or planned and not read
}

// forecasts keeps the EpochForecast of the last epochs, and of epochs ahead. mu guards it.
type forecasts struct {
	mu     sync.Mutex
	epochs []EpochForecast // by rising epoch
}

// keptEpochs is the number of past epochs whose forecasts are kept. Arbitrary.
const keptEpochs = 16

// begin discards the forecasts of an epoch and later ones, which another inspector makes.
func (k *forecasts) begin(epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epochs = slices.DeleteFunc(k.epochs, func(f EpochForecast) bool {
		return f.Epoch >= epoch || f.Epoch < epoch-keptEpochs
	})
}

func (k *forecasts) add(f EpochForecast) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.Batches == 0 { // it is read now
		k.epochs = slices.DeleteFunc(k.epochs, func(of EpochForecast) bool { return of.Epoch < f.Epoch-keptEpochs })
	}
	at := slices.IndexFunc(k.epochs, func(of EpochForecast) bool { return of.Epoch == f.Epoch })
	if at < 0 {
		at = len(k.epochs)
		k.epochs = append(k.epochs, EpochForecast{Epoch: f.Epoch})
	}
	of := &k.epochs[at]
	of.Batches += f.Batches
	of.DrawnRows += f.DrawnRows
	of.PlannedRows += f.PlannedRows
	of.ReadRows += f.ReadRows
	of.UnforeseenRows += f.UnforeseenRows
}

func (k *forecasts) all() []EpochForecast {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.epochs)
}

// forecastRows lists the planned rows of a batch, as positions in its BatchRows before pruning.
type forecastRows struct {
	block *mem.Block // nil: all
	known bool       // whether the batch will read exactly these
}

// planForecast reduces the rows of a batch to those that it will read, and returns their positions. Without memory for
// them, it keeps all rows.
func planForecast(r *draw.BatchRows, budget *mem.Budget, places []int32, known bool) (forecastRows, error) {
	if places == nil {
		return forecastRows{known: known}, nil
	}
	block, err := budget.Alloc(mem.Trace, bitset.Bytes(int64(len(r.Rows))))
	if errors.Is(err, mem.ErrBudget) {
		return forecastRows{}, nil
	}
	if err != nil {
		return forecastRows{}, err
	}
	of, read := forecastRows{block, true}, 0
	set := of.set()
	for pos := range r.Rows {
		if places[r.NodeOf(int32(pos))] >= 0 {
			set.Add(int64(pos))
			read++
		}
	}
	if read == len(r.Rows) { // so that it takes less than it saves, 84 bytes of plans per row
		of.free()
		return of, nil
	}
	r.Keep(set)
	return of, nil
}

// set returns the positions; nil: all.
func (f *forecastRows) set() bitset.Set {
	if f.block == nil {
		return nil
	}
	return mem.View[uint64](f.block.Bytes())
}

func (f *forecastRows) free() {
	if f.block != nil {
		f.block.Free()
		f.block = nil
	}
}
