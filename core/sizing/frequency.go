package sizing

import (
	"cmp"
	"math"
	"slices"
)

// How frequently batches draw the rows of a graph. A few batches are sampled before memory is divided. The numbers of
// rows in one of them, in two, and so on, show how unequal the rows are: equal rows would hardly repeat.

// Observed holds the draws of the sampled batches. The zero value is unknown: all rows are then assumed to be drawn
// alike and to be anywhere.
type Observed struct {
	Batches int64
	Rows    [][]int64 // by node type: at k-1, the number of rows that k of the batches had
	Spread  []float64 // by tensor: the share of its pages from which a batch draws rows evenly; 0: unknown
	Lists   float64   // the same for neighbour lists
}

// spread returns the share of the pages of a tensor of nodes that a batch draws rows from.
func (o *Observed) spread(tensor int) float64 {
	if tensor >= len(o.Spread) {
		return 1
	}
	return known(o.Spread[tensor])
}

// known returns a share of pages, 1 if it is unknown.
func known(share float64) float64 {
	if share == 0 {
		return 1
	}
	return share
}

// frequency is a number of rows that batches draw alike: each is in a batch with the probability rate.
type frequency struct{ rows, rate float64 }

// frequencies are the rows of a graph, by falling rate.
type frequencies []frequency

const (
	// nearRates is the factor between neighbouring rates, and fitRounds the number of rounds that fit weighs them in.
	// Arbitrary: with finer rates and more rounds predictions differ by less than a hundredth.
	nearRates = 1.5
	fitRounds = 1000

	// leastDraws is the least rate of rows that are drawn at all: one draw in this many epochs, as a divisor. A batch with
	// a seed draws its neighbours, unless the fanouts omit them. Arbitrary: with lower rates, caches with room for nearly
	// all rows were predicted to miss three times as often as they did.
	leastDraws = 4

	// undrawn is the initial weight of rows that are never drawn, compared with 1 for rows of the mean rate. Arbitrary: of
	// 0, 0.1 and 1 it came nearest to the caches of a web graph and of the demo.
	undrawn = 0.1

	// strayDraws is the share of draws of very rare rows, about which a few batches tell nothing. Arbitrary.
	strayDraws = 0.01

	// fewRows is the share of all draws below which the rows of a rate are merged with the next rate. Arbitrary.
	fewRows = 1e-3
)

// frequenciesOf returns the frequencies of the rows of a node type, scaled to the number that a batch draws. An epoch
// has epochBatches.
func (o *Observed) frequenciesOf(typ int, rows, drawn, epochBatches float64) frequencies {
	if typ >= len(o.Rows) || o.Batches < 2 || rows < 1 {
		return alike(rows, drawn)
	}
	f := fit(o.Rows[typ], o.Batches, rows, 1/(leastDraws*epochBatches))
	mean := f.drawn()
	if mean == 0 {
		return alike(rows, drawn)
	}
	for i := range f {
		f[i].rate = min(1, f[i].rate*drawn/mean)
	}
	return f
}

// alike returns rows that are all drawn alike.
func alike(rows, drawn float64) frequencies { return frequencies{{rows, drawn / max(1, rows)}} }

// fit finds the most likely mixture of binomial distributions for the observed counts, by expectation maximization. It
// starts from rates around the mean: if batches have few of the rows, rows are alike unless the batches show otherwise.
// Rates are at least the given one, except for the rows of strayDraws.
func fit(seen []int64, batches int64, rows, least float64) frequencies {
	counts, draws := make([]float64, batches+1), 0.0
	counts[0] = rows
	for i, n := range seen {
		k := min(int64(i)+1, batches)
		counts[k] += float64(n)
		counts[0] -= float64(n)
		draws += float64(k) * float64(n)
	}
	if draws == 0 {
		return nil
	}
	counts[0] = max(0, counts[0])
	mean := draws / float64(batches) / rows
	f := frequencies{{undrawn, 0}}
	for rate := 1.0; rate > min(least, mean); rate /= nearRates {
		f = append(f, frequency{min(rate/mean, mean/rate), rate})
	}
	chances := make([][]float64, batches+1) // of k draws, by rate
	for k := range chances {
		for _, of := range f {
			misses := float64(batches) - float64(k)
			chances[k] = append(chances[k], binomial(float64(batches), float64(k))*math.Pow(of.rate, float64(k))*
				math.Pow(1-of.rate, misses))
		}
	}
	for range fitRounds {
		next := make(frequencies, len(f))
		for k, n := range counts {
			sum := 0.0
			for i, of := range f {
				sum += of.rows * chances[k][i]
			}
			for i, of := range f {
				if sum > 0 {
					next[i].rows += n * of.rows * chances[k][i] / sum
				}
			}
		}
		for i := range f {
			f[i].rows = next[i].rows
		}
	}
	stray, f := f[0], f[1:].merged()
	if stray.rows > 1 {
		f = append(f, frequency{stray.rows, strayDraws * f.drawn() / stray.rows})
	}
	return f
}

// binomial returns n over k.
func binomial(n, k float64) float64 {
	of := 1.0
	for i := 1.0; i <= k; i++ {
		of *= (n - k + i) / i
	}
	return of
}

// merged merges the rows of a rate with few draws into the next rate, and keeps their draws.
func (f frequencies) merged() (all frequencies) {
	few := fewRows * f.drawn()
	var rest frequency // rows, and their draws
	for i, of := range f {
		rest.rows, rest.rate = rest.rows+of.rows, rest.rate+of.rows*of.rate
		if rest.rate > few || i == len(f)-1 && rest.rows > 0 {
			all = append(all, frequency{rest.rows, rest.rate / rest.rows})
			rest = frequency{}
		}
	}
	return all
}

// byRate returns the rows of several types, by falling rate.
func byRate(types ...frequencies) frequencies {
	all := slices.Concat(types...)
	slices.SortStableFunc(all, func(a, b frequency) int { return cmp.Compare(b.rate, a.rate) })
	return all
}

// drawn returns the number of rows that a batch draws.
func (f frequencies) drawn() (total float64) {
	for _, of := range f {
		total += of.rows * of.rate
	}
	return total
}

// total returns the number of rows.
func (f frequencies) total() (rows float64) {
	for _, of := range f {
		rows += of.rows
	}
	return rows
}

// distinct returns the number of rows that some batches draw together.
func (f frequencies) distinct(batches float64) (rows float64) {
	for _, of := range f {
		rows += of.rows * (1 - math.Exp(-of.rate*batches))
	}
	return rows
}

// fixed returns the share of draws that a cache answers which holds the rows of the highest rates.
func (f frequencies) fixed(cached float64) float64 {
	hits := 0.0
	for _, of := range f {
		held := min(of.rows, cached)
		hits, cached = hits+held*of.rate, cached-held
	}
	return share(hits, f.drawn())
}

// missed returns the share of draws whose lists are not in memory, if a part of all lists is there: lists of the most
// frequent nodes, and of average length.
func (f frequencies) missed(part, lists int64) float64 {
	return 1 - f.fixed(f.total()*float64(part)/float64(max(1, lists)))
}

// planned returns the share of draws that a cache answers which sees a number of batches ahead: the times until the
// next uses of a row are exponential, and it keeps a row until its next use where that is near. What room is left is
// for rows whose next use it does not see.
func (f frequencies) planned(cached, ahead float64) float64 {
	if cached >= f.total() {
		return 1
	}
	room := func(near float64) (rows, rising float64) { // the rows needed by then
		for _, of := range f {
			x := of.rate * near
			far := math.Exp(-x)
			rows, rising = rows+of.rows*(1-far*(1+x)), rising+of.rows*of.rate*x*far
		}
		return rows, rising
	}
	answered := func(near float64) (draws float64) {
		for _, of := range f {
			draws += of.rows * of.rate * (1 - math.Exp(-of.rate*near))
		}
		return draws
	}
	drawn := f.drawn()
	if seen, _ := room(ahead); seen < cached {
		draws := answered(ahead)
		return share(draws+(drawn-draws)*(cached-seen)/(f.total()-seen), drawn)
	}
	squares := 0.0
	for _, of := range f {
		squares += of.rows * of.rate * of.rate
	}
	// By Newton's method within bounds. The first guess is where the square of the series reaches the rows.
	least, most := 0.0, ahead
	at := min(math.Sqrt(2*cached/max(squares, math.SmallestNonzeroFloat64)), ahead)
	for range 50 {
		rows, rising := room(at)
		if rows < cached {
			least = at
		} else {
			most = at
		}
		next := at + (cached-rows)/rising
		if !(next > least && next < most) {
			next = (least + most) / 2
		}
		if math.Abs(next-at) <= 1e-9*next {
			break
		}
		at = next
	}
	return share(answered(at), drawn)
}

// unseen returns the share of draws whose rows none of some batches before drew.
func (f frequencies) unseen(batches float64) float64 {
	draws := 0.0
	for _, of := range f {
		draws += of.rows * of.rate * math.Exp(-of.rate*batches)
	}
	return share(draws, f.drawn())
}

// share returns a part of a whole, 1 of nothing.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 1
	}
	return min(1, part/whole)
}

// SpreadOf returns a share of the pages of an array: batches whose pages lie evenly over that share read the measured
// number of pages, including holes. If two shares do, it returns the larger.
func SpreadOf(wanted, read, pages float64) float64 {
	// Most pages are read if every fourth page is needed. With fewer pages more of them are needed twice, with more pages
	// more holes are skipped.
	const densest = 4
	least, most := read, min(densest*wanted, pages)
	rises := pagesRead(wanted, pages) > read
	if !rises {
		least, most = most, pages
	}
	for range 60 {
		at := (least + most) / 2
		if (pagesRead(wanted, at) < read) == rises {
			least = at
		} else {
			most = at
		}
	}
	return most / pages
}
