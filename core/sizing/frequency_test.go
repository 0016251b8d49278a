package sizing

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

// TestSpreadExplainsWhatIsRead: pages that lie evenly over the spread predict the number of pages read.
func TestSpreadExplainsWhatIsRead(t *testing.T) {
	rng := explore.Rand(t, 9, 1)
	for range 1000 {
		pages := 100 * math.Pow(1e5, rng.Float64())
		wanted := pages * math.Pow(10, 1-5*rng.Float64())
		for _, over := range []float64{1, 0.5, 0.1} {
			read := pagesRead(wanted, over*pages)
			got := SpreadOf(wanted, read, pages)
			require.InEpsilon(t, read, pagesRead(wanted, got*pages), 1e-3, "%v of %v", wanted, over*pages)
			if read > 1.001*wanted && over*pages > 8*wanted {
				require.InEpsilon(t, over, got, 0.05, "%v of %v", wanted, over*pages)
			}
		}
	}
}

// skewed holds the probability of each row to be in a batch: large for few rows, small for most.
type skewed struct{ rates []float64 }

func newSkewed(rng *rand.Rand, rows int, drawn float64) *skewed {
	s := &skewed{make([]float64, rows)}
	power, sum := 0.3+0.9*rng.Float64(), 0.0
	for i := range s.rates {
		s.rates[i] = math.Pow(float64(i+1), -power)
		sum += s.rates[i]
	}
	for i := range s.rates {
		s.rates[i] = min(1, s.rates[i]*drawn/sum)
	}
	return s
}

// seen counts the rows that are in one batch, in two, and so on.
func (s *skewed) seen(rng *rand.Rand, batches int) []int64 {
	counts := make([]int64, batches)
	for _, rate := range s.rates {
		times := 0
		for range batches {
			if rng.Float64() < rate {
				times++
			}
		}
		if times > 0 {
			counts[times-1]++
		}
	}
	return counts
}

// TestFrequenciesPredict: a few batches that drew a row in four predict, within a tenth of all draws, what caches of
// any size answer: a fixed one of the rows drawn most, and a planned one, as if the rate of each row were known.
func TestFrequenciesPredict(t *testing.T) {
	rng := explore.Rand(t, 10, 1)
	for range 20 {
		const batches, rows = 8, 50_000
		drawn := 2000 * math.Pow(8, rng.Float64())
		s := newSkewed(rng, rows, drawn)
		o := Observed{Batches: batches, Rows: [][]int64{s.seen(rng, batches)}}
		var known frequencies
		for _, rate := range s.rates {
			known = append(known, frequency{1, rate})
		}
		epoch := rows / known.drawn() * 4
		got := o.frequenciesOf(0, rows, known.drawn(), epoch)
		require.InEpsilon(t, known.drawn(), got.drawn(), 0.02)
		require.InEpsilon(t, known.total(), got.total(), 0.001)
		for _, cached := range []float64{rows / 100, rows / 30, rows / 10, rows / 3, rows / 2, rows} {
			require.InDelta(t, known.fixed(cached), got.fixed(cached), 0.1, "%v rows", cached)
			for _, ahead := range []float64{4, 30, 300} {
				require.InDelta(t, known.planned(cached, ahead), got.planned(cached, ahead), 0.1, "%v, %v", cached, ahead)
			}
		}
		for _, n := range []float64{1, 8, epoch} {
			require.InEpsilon(t, known.distinct(n), got.distinct(n), 0.15, "%v batches", n)
		}
	}
}

// TestFrequenciesOfAlikeRows: rows that are drawn alike are found to be, and nothing observed means that they are.
func TestFrequenciesOfAlikeRows(t *testing.T) {
	rng := explore.Rand(t, 11, 1)
	s := &skewed{make([]float64, 20_000)}
	for i := range s.rates {
		s.rates[i] = 0.1
	}
	o := Observed{Batches: 8, Rows: [][]int64{s.seen(rng, 8)}}
	got, unknown := o.frequenciesOf(0, 20_000, 2000, 10), new(Observed).frequenciesOf(0, 20_000, 2000, 10)
	require.Equal(t, frequencies{{20_000, 0.1}}, unknown)
	for _, cached := range []float64{200, 2000, 15_000} {
		require.InDelta(t, unknown.fixed(cached), got.fixed(cached), 0.1)
		require.InDelta(t, unknown.planned(cached, 20), got.planned(cached, 20), 0.1)
	}
}
