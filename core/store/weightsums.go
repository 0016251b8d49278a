package store

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// summer makes the sums of Weights from weights that come by position. It follows the lists along indptr and keeps a
// few of its pages.
type summer struct {
	ends  *words                             // indptr from its second row on
	emit  func(row int64, sum float64) error // called with rising rows
	begin int64                              // of the list at hand
	end   int64                              // of the list at hand
	at    int64                              // position of the next weight
	sum   float64                            // of the list's weights so far
}

// newSummer begins at the first list.
func newSummer(indptr *words, emit func(row int64, sum float64) error) (*summer, error) {
	_, err := indptr.next() // where the first list begins
	return &summer{ends: indptr, emit: emit}, err
}

// add takes the weights that follow.
func (s *summer) add(weights []float64) error {
	for _, w := range weights {
		for s.at == s.end {
			end, err := s.ends.next()
			if err != nil {
				return err
			}
			s.begin, s.end, s.sum = s.end, int64(end), 0
		}
		s.sum += w
		s.at++
		if n := s.at - s.begin; n%WeightBlock == 0 {
			if err := s.emit(s.begin/WeightBlock+n/WeightBlock-1, s.sum); err != nil {
				return err
			}
		}
	}
	return nil
}

// wordsBytes is the part of a file that words keeps in memory. Arbitrary.
const wordsBytes = 64 << 10

// words reads the rows of a column of eight bytes each, in order. It belongs to one goroutine.
type words struct {
	ctx    context.Context
	reader *rangeReader
	buffer *mem.Block
	left   []uint64 // of what was read
	next64 int64    // row to read next
}

// wordsMemory returns the memory of words over this array.
func wordsMemory(a *Array) int64 { return a.CRCBytes() + wordsBytes }

// newWords opens a column. It charges wordsMemory to the budget until close.
func newWords(ctx context.Context, a *Array, budget *mem.Budget) (*words, error) {
	r, err := newRangeReader(ctx, a, budget)
	if err != nil {
		return nil, err
	}
	block, err := budget.Alloc(mem.Convert, wordsBytes)
	if err != nil {
		r.close()
		return nil, err
	}
	return &words{ctx: ctx, reader: r, buffer: block}, nil
}

func (w *words) close() {
	w.buffer.Free()
	w.reader.close()
}

// next returns the following row. There must be one.
func (w *words) next() (uint64, error) {
	if len(w.left) == 0 {
		n := min(w.reader.array.Rows-w.next64, wordsBytes/8)
		if n <= 0 {
			return 0, &CorruptError{Path: w.reader.array.Path, Reason: "ends before the edges do"}
		}
		data, err := w.reader.read(w.ctx, w.buffer.Bytes(), w.next64*8, (w.next64+n)*8) // begins with a page
		if err != nil {
			return 0, err
		}
		w.left = mem.View[uint64](data)
		w.next64 += n
	}
	v := w.left[0]
	w.left = w.left[1:]
	return v, nil
}

var _ = [1]struct{}{}[wordsBytes%ssd.PageBytes] // reads begin with a page
