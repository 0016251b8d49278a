package loader

import "fmt"

// Share is which batches of an epoch a loader makes where several loaders, one for each rank, make them together: of
// those that are left, every Ranks-th from the Rank-th on. A batch is a function of its number among all of them, so
// that the ranks make together what one would make alone. A loader may make the batches of Adjacent ranks, from Rank
// on, in the order of their numbers; 0 is one rank. The zero value is all batches.
type Share struct {
	Rank, Ranks int64
	Adjacent    int64
	Uneven      Uneven
}

// Uneven says what becomes of the last batches where they do not suffice for another one of each rank.
type Uneven int

const (
	Pad  Uneven = iota // the first batches of the epoch come again
	Drop               // no rank makes them
	Join               // some ranks make one batch less than others
)

// Check says what is wrong with a share.
func (s Share) Check() error {
	if s.Ranks < 0 || s.Rank < 0 || s.Rank >= s.ranks() {
		return fmt.Errorf("%w: rank must be in [0, world_size) and world_size at least 1, got %d and %d",
			ErrOption, s.Rank, s.Ranks)
	}
	if s.Adjacent < 0 || s.Adjacent > s.ranks()-s.Rank {
		return fmt.Errorf("%w: the adjacent ranks from rank %d on must be in [0, %d], got %d",
			ErrOption, s.Rank, s.ranks()-s.Rank, s.Adjacent)
	}
	if s.Uneven < Pad || s.Uneven > Join {
		return fmt.Errorf("%w: unknown way %d to share uneven batches", ErrOption, s.Uneven)
	}
	return nil
}

// Take makes the epochs that start from now on those of a share. Another share than the one so far ends the epoch that
// runs. A history counts epochs as the share has them.
func (l *Loader) Take(s Share) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s == l.taken {
		return nil
	}
	l.Stop()
	l.taken = s
	if h := l.options.History; h != nil {
		count := s.count(l.NumBatches())
		l.pruner.SetSpans(h.Stale.iterations(count), h.Start.iterations(count))
	}
	return nil
}

// Count is how many batches are in the share, of an epoch of so many, from a number on.
func (s Share) Count(batches, first int64) (int64, error) {
	if err := s.Check(); err != nil {
		return 0, err
	}
	if batches < 0 || first < 0 || first > batches {
		return 0, fmt.Errorf("%w: the first batch must be within [0, %d], got %d", ErrOption, batches, first)
	}
	return s.count(batches - first), nil
}

// ranks is how many share the batches.
func (s Share) ranks() int64 { return max(1, s.Ranks) }

// adjacent is how many of them the loader makes the batches of.
func (s Share) adjacent() int64 { return max(1, s.Adjacent) }

// count is how many of so many batches are in the share.
func (s Share) count(batches int64) int64 {
	whole, rest := batches/s.ranks(), batches%s.ranks()
	last := int64(0) // of the step that has too few batches
	switch {
	case s.Uneven == Pad && rest > 0:
		last = s.adjacent()
	case s.Uneven == Join:
		last = min(max(0, rest-s.Rank), s.adjacent())
	}
	return whole*s.adjacent() + last
}

// turns are the batches of an epoch that are in a share, by positions: 0 to count. An epoch that begins in the middle
// has its last batch at the same position as a whole one, whichever ranks made the batches before.
type turns struct {
	share   Share
	first   int64 // number of the batch that the ranks begin with, at position from
	from    int64
	batches int64 // of the epoch, of all ranks
	count   int64
}

// turnsFrom are the turns of the loader in an epoch whose batches before first have been made, and the position there.
func (l *Loader) turnsFrom(first int64) (turns, int64) {
	t := turns{share: l.taken, first: first, batches: l.NumBatches()}
	t.count = l.taken.count(t.batches)
	t.from = t.count - l.taken.count(t.batches-first)
	return t, t.from
}

// number is that of the batch at a position, which is not before the first: what it is a function of, with the seed and
// the epoch.
func (t *turns) number(position int64) int64 {
	turn := position - t.from
	adjacent := t.share.adjacent()
	return (t.first + turn/adjacent*t.share.ranks() + t.share.Rank + turn%adjacent) % t.batches
}
