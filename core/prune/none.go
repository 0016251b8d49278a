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

// Lend returns a Cut that is never on.
func (None) Lend() *Cut { return &Cut{} }

// Nothing is pruned, so there is nothing to begin, to stop or to follow.

func (None) Prunes() bool               { return false }
func (None) Follows() bool              { return false }
func (None) TakeBack(*Cut)              {}
func (None) SetSpans(_, _ int64)        {}
func (None) Begin(_, _ int64, _ bool)   {}
func (None) Stop()                      {}
func (None) Abandon()                   {}
func (None) Fail(int64)                 {}
func (None) HandOver() error            { return nil }
func (None) Skip(context.Context) error { return nil }

// Calls that are about a history return ErrCall.

func (None) Update(context.Context, int64, int64, []Norms) ([]history.Admitted, error) {
	return nil, errNone
}
func (None) SkipUpdate(context.Context, int64) error { return errNone }
func (None) Save() ([]byte, error)                   { return nil, errNone }
func (None) Restore([]byte, func()) error            { return errNone }
func (None) Stats() (Stats, error)                   { return Stats{}, errNone }

func (None) Forecast(*mem.Budget, int64, int64) (*Forecaster, error) { return nil, errNone }
func (None) Follow(*mem.Budget) (*Forecaster, error)                 { return nil, errNone }
