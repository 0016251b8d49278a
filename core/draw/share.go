package draw

import "fmt"

// Share selects the batches of a loader where several loaders, one for each rank, share an epoch: of the batches that
// are left, every Ranks-th from the Rank-th on. A batch is a function of its number in the epoch, so that the ranks
// together make the batches of a single loader. A loader may make the batches of Adjacent ranks, from Rank on, in the
// order of their numbers; 0 is one rank. The zero value selects all batches.
type Share struct {
	Rank, Ranks int64
	Adjacent    int64
	Uneven      Uneven
}

// Uneven selects what happens to the last batches where there are not enough for one more on each rank.
type Uneven int

const (
	Pad  Uneven = iota // the first batches of the epoch come again
	Drop               // no rank makes them
	Join               // some ranks make one batch less than others
)

// Check returns an error if a share is wrong.
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
		return fmt.Errorf("%w: uneven is %d, expected a known way to divide the last batches", ErrOption, s.Uneven)
	}
	return nil
}

// Count returns the number of batches in the share, of an epoch of the given number, from batch first on.
func (s Share) Count(batches, first int64) (int64, error) {
	if err := s.Check(); err != nil {
		return 0, err
	}
	if batches < 0 || first < 0 || first > batches {
		return 0, fmt.Errorf("%w: the first batch must be within [0, %d], got %d", ErrOption, batches, first)
	}
	return s.BatchesOf(batches - first), nil
}

// ranks returns the number of ranks that share the batches.
func (s Share) ranks() int64 { return max(1, s.Ranks) }

// adjacent returns the number of ranks whose batches the loader makes.
func (s Share) adjacent() int64 { return max(1, s.Adjacent) }

// BatchesOf returns the number of batches in the share, of the given number.
func (s Share) BatchesOf(batches int64) int64 {
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

// ShareSchedule lists the batches of an epoch that are in a share, by positions: 0 to count. An epoch that begins in
// the middle has its last batch at the same position as a whole one, whichever ranks made the batches before.
type ShareSchedule struct {
	share   Share
	first   int64 // number of the batch that the ranks begin with, at position from
	from    int64
	Batches int64 // of the epoch, of all ranks
	Count   int64
}

// Schedule returns the schedule of an epoch of the given number of batches, whose batches before first have been made,
// and its position.
func (s Share) Schedule(batches, first int64) (ShareSchedule, int64) {
	t := ShareSchedule{share: s, first: first, Batches: batches, Count: s.BatchesOf(batches)}
	t.from = t.Count - s.BatchesOf(batches-first)
	return t, t.from
}

// EndsStep reports whether the batch at a position is the last one of a step, in which each adjacent rank has one.
func (t *ShareSchedule) EndsStep(position int64) bool {
	return (position-t.from+1)%t.share.adjacent() == 0
}

// Number returns the number of the batch at a position, which is not before the first. The batch is a function of this
// number, the seed and the epoch.
func (t *ShareSchedule) Number(position int64) int64 {
	turn := position - t.from
	adjacent := t.share.adjacent()
	return (t.first + turn/adjacent*t.share.ranks() + t.share.Rank + turn%adjacent) % t.Batches
}
