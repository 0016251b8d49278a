package prune

import (
	"context"
	"fmt"

	"freshgo/core/history"
	"freshgo/core/mem"
)

// None is in the place of a Pruner where there is no history: it prunes nothing, and has no state.
type None struct{}

var errNone = fmt.Errorf("%w: the loader has no history", ErrCall)

// Prunes is false.
func (None) Prunes() bool { return false }

// Lend returns a Cut that is never on.
func (None) Lend() *Cut { return &Cut{} }

// TakeBack does nothing.
func (None) TakeBack(*Cut) {}

// SetSpans does nothing.
func (None) SetSpans(_, _ int64) {}

// Begin does nothing.
func (None) Begin(_, _ int64, _ bool) {}

// Stop does nothing.
func (None) Stop() {}

// Abandon does nothing.
func (None) Abandon() {}

// Fail does nothing.
func (None) Fail(int64) {}

// HandOver does nothing.
func (None) HandOver() {}

// Skip does nothing.
func (None) Skip(context.Context) error { return nil }

// Update returns ErrCall.
func (None) Update(context.Context, int64, int64, []Norms) ([]history.Admitted, error) {
	return nil, errNone
}

// SkipUpdate returns ErrCall.
func (None) SkipUpdate(context.Context, int64) error { return errNone }

// Save returns ErrCall.
func (None) Save() ([]byte, error) { return nil, errNone }

// Restore returns ErrCall.
func (None) Restore([]byte, func()) error { return errNone }

// Stats returns ErrCall.
func (None) Stats() (Stats, error) { return Stats{}, errNone }

// Follows reports that nothing is pruned that could be known ahead.
func (None) Follows() bool { return false }

// Forecast returns ErrCall.
func (None) Forecast(*mem.Budget, int64, int64) (*Forecaster, error) { return nil, errNone }

// Follow returns ErrCall.
func (None) Follow(*mem.Budget) (*Forecaster, error) { return nil, errNone }
