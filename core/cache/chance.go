package cache

import (
	"context"
	"math"
)

// Weights reads the weights of edges for a ranking, finite and not negative, as sample.Weights has them for draws.
type Weights interface {
	// Fetch sets out[i] to the weight of the edge at position first+i of the index array.
	Fetch(ctx context.Context, first int64, out []float64) error
}

// windowWeights is the number of weights that are fetched at a time. Arbitrary: they stay in the second-level cache.
const windowWeights = 1 << 14

// window holds some of the weights, and their statistics for the current list.
type window struct {
	weights Weights
	end     int64 // of all positions
	first   int64 // position of the first in held
	held    []float64
	buffer  []float64

	list   int64 // 1 + the start of the current list: 0 before the first
	chance chance
}

// at returns the weights of positions from to to, at most windowWeights.
func (w *window) at(ctx context.Context, from, to int64) ([]float64, error) {
	if from < w.first || to > w.first+int64(len(w.held)) {
		if w.buffer == nil {
			w.buffer = make([]float64, windowWeights)
		}
		w.first, w.held = from, w.buffer[:min(windowWeights, w.end-from)]
		if err := w.weights.Fetch(ctx, from, w.held); err != nil {
			w.held = nil
			return nil, err
		}
	}
	return w.held[from-w.first : to-w.first], nil
}

// each calls visit with the weights of a list, which are fetched once where they fit into the window.
func (w *window) each(ctx context.Context, from, to int64, visit func(weights []float64)) error {
	for ; from < to; from = min(from+windowWeights, to) {
		part, err := w.at(ctx, from, min(from+windowWeights, to))
		if err != nil {
			return err
		}
		visit(part)
	}
	return nil
}

// chance is the probability that an edge of a list is drawn, by its weight.
type chance struct {
	largest float64 // of the weights, which the rate is in units of
	rate    float64 // infinite: every edge with a weight is drawn
	draws   float64 // that are independent; 0: they are without replacement
}

// Where k edges of a list are drawn one after the other, each in proportion to its weight among the remaining ones, an
// edge of weight w is drawn with a probability near 1 - exp(-w t), where t makes these sum to k: the drawn edges are
// the ones whose exponential clocks of rates w ring first, and the k-th rings near time t (Rosen, Asymptotic theory for
// order sampling, 1997). It is exact for equal weights; in lists of 10 to 40 it was off by at most 0.035 for the one
// edge that has nearly all the weight, else 0.02 (TestChance). A single draw is exact.

// begin prepares for the list from position from to position to.
func (w *window) begin(ctx context.Context, from, to, fanout int64, replace bool) error {
	if w.list == from+1 {
		return nil
	}
	w.list = from + 1
	largest, positive := 0., int64(0)
	err := w.each(ctx, from, to, func(weights []float64) {
		for _, x := range weights {
			if x > 0 {
				largest = max(largest, x)
				positive++
			}
		}
	})
	if err != nil {
		w.list = 0
		return err
	}
	c := &w.chance
	*c = chance{largest: largest, rate: math.Inf(1)}
	if positive == 0 || fanout < 0 || positive <= fanout && !replace {
		return nil
	}
	sum := 0.
	err = w.each(ctx, from, to, func(weights []float64) {
		for _, x := range weights {
			sum += x / largest
		}
	})
	if replace || fanout == 1 {
		c.rate, c.draws = 1/sum, float64(fanout)
	} else if err == nil {
		err = w.solve(ctx, from, to, float64(fanout), float64(fanout)/sum)
	}
	if err != nil {
		w.list = 0
	}
	return err
}

// solve finds the rate by Newton's method. The sum is concave in the rate, and the start is too low, so the rate grows
// at every step and never exceeds the solution.
func (w *window) solve(ctx context.Context, from, to int64, k, rate float64) error {
	largest := w.chance.largest
	for range mostSteps {
		sum, slope := 0., 0.
		err := w.each(ctx, from, to, func(weights []float64) {
			for _, x := range weights {
				x /= largest
				left := math.Exp(-x * rate)
				sum += 1 - left
				slope += x * left
			}
		})
		if err != nil {
			return err
		}
		step := (k - sum) / slope
		if !(step > exactEnough*rate) || rate+step > math.MaxFloat64 {
			break
		}
		rate += step
	}
	w.chance.rate = rate
	return nil
}

const (
	exactEnough = 1e-3 // of the rate; the formula is no better
	mostSteps   = 64   // weights of all magnitudes take 30
)

// of returns the chance of an edge of this weight.
func (c chance) of(weight float64) float64 {
	switch x := weight / c.largest; {
	case weight <= 0:
		return 0
	case math.IsInf(c.rate, 1):
		return 1
	case c.draws > 0:
		return -math.Expm1(c.draws * math.Log1p(-min(1, x*c.rate)))
	default:
		return -math.Expm1(-x * c.rate)
	}
}
