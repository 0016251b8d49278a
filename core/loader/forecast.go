package loader

import (
	"context"
	"fmt"

	"freshgo/core/draw"
	"freshgo/core/internal/guard"
	"freshgo/core/prune"
	"freshgo/core/sample"
)

// forecast is one of an epoch, as far as it has come.
type forecast struct {
	epoch, first  int64
	order         *draw.SeedOrder
	shareSchedule draw.ShareSchedule
	at            int64
	of            *prune.Forecaster
}

// ForecastHistory predicts the work of the history in an epoch that begins now with batch first: it draws all of its
// batches. Where ctx ends first, the next call with the same arguments goes on.
//
// Errors: ErrOption, the errors of prune.Pruner.Forecast and of drawing, and the error of ctx.
func (l *Loader) ForecastHistory(ctx context.Context, epoch, first int64) (prune.Forecast, error) {
	var found prune.Forecast
	if err := l.usable(); err != nil {
		return found, err
	}
	err := guard.Run(func() error {
		f, err := beginForecast(ctx, l, epoch, first)
		if err != nil {
			return err
		}
		for ; f.at < f.shareSchedule.Count; f.at++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f.one(l); err != nil {
				l.dropForecast()
				return err
			}
		}
		found = f.of.Found()
		l.dropForecast()
		return nil
	})
	return found, err
}

// beginForecast returns the one that has begun, or a new one.
func beginForecast(ctx context.Context, l *Loader, epoch, first int64) (*forecast, error) {
	if f := l.forecast; f != nil && f.epoch == epoch && f.first == first {
		return f, nil
	}
	l.dropForecast()
	switch {
	case l.draw.Split.Reorder != 0:
		return nil, fmt.Errorf("%w: a forecast needs reorder=0: which batch comes next is not known before it is planned",
			prune.ErrCall)
	case epoch < 0 || first < 0 || first > l.NumBatches():
		return nil, fmt.Errorf("%w: epoch must be at least 0 and the first batch within [0, %d], got epoch %d, batch %d",
			draw.ErrOption, l.NumBatches(), epoch, first)
	}
	f := &forecast{epoch: epoch, first: first}
	f.shareSchedule, f.at = l.turnsFrom(first)
	var err error
	if f.of, err = l.history.pruner.Forecast(l.draw.Budget, f.at, f.shareSchedule.Count); err != nil {
		return nil, err
	}
	if f.order, err = l.draw.NewSeedOrder(ctx, l.draw.EpochKey(epoch)); err != nil {
		f.of.Close()
		return nil, err
	}
	l.forecast = f
	return f, nil
}

// one draws the next batch of a forecast and prunes it. It is not ended in between.
func (f *forecast) one(l *Loader) error {
	ctx, number := context.Background(), f.shareSchedule.Number(f.at)
	var r draw.Request
	if err := f.order.Batch(ctx, number, &r); err != nil {
		return err
	}
	worker := <-l.draw.Workers
	defer func() { l.draw.Workers <- worker }()
	var drawn sample.Subgraph
	if err := l.draw.Draw(ctx, worker, f.order.BatchKey(number), &r, &drawn); err != nil {
		return fmt.Errorf("loader: forecast of batch %d: %w", f.at, err)
	}
	_, err := f.of.Next(ctx, &drawn, int64(len(r.Inputs)), l.draw.Parts.RowCost())
	return err
}

// dropForecast ends one that has begun.
func (l *Loader) dropForecast() {
	if f := l.forecast; f != nil {
		f.of.Close()
		f.order.Free()
		l.forecast = nil
	}
}
