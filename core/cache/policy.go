package cache

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"freshgo/core/mem"
)

// Errors of this package wrap one of these, mem.ErrBudget, or an error of an Adjacency.
var (
	ErrPolicy   = errors.New("unknown cache policy")
	ErrCapacity = errors.New("invalid cache capacity")
	ErrHotness  = errors.New("invalid hotness")
)

// MaxRows bounds the rows of a policy, whose numbers are uint32.
const MaxRows = 1 << 32

// Miss marks a row that is not cached.
const Miss = -1

// Move is a row that enters the cache: the row at position Pos of the batch is
// copied to Slot. What leaves is the former occupant of the slot.
type Move struct{ Pos, Slot int32 }

// Step is the effect of a batch on the cache.
type Step struct {
	// Slots[i] is where row i of the batch is cached when the batch is gathered,
	// or Miss.
	Slots []int32
	// In lists the rows that enter after the batch has been gathered, by rising position.
	// Every slot occurs at most once in it, and every position is a miss: no row
	// moves from one slot to another. A slot of In may be one of Slots.
	In []Move
}

// Policy decides residency. Its calls follow the order of the batches, one at a
// time; the caller applies a step's In before it gathers the next batch.
type Policy interface {
	// Step sets step for the batch with these rows, which are distinct and below the policy's number of rows. It reuses
	// the memory of step and allocates nothing once that is large enough.
	Step(rows []uint32, step *Step)
	// Close frees it. No other call may be running or follow.
	Close()
}

// online are the policies that decide from the past alone.
var online = []struct {
	name      string
	slotBytes int64 // per slot of the cache
	make      func(*table) Policy
}{
	{"lru", nodeBytes + logBytes, newLRU},
	{"clock", nodeBytes + clockBytes, newClock},
	{"sieve", nodeBytes + logBytes, newSieve},
	{"s3fifo", nodeBytes + s3fifoBytes, newS3FIFO},
	{"match", nodeBytes + matchBytes, newMatch},
}

// OnlineNames lists the policies that New makes.
func OnlineNames() []string {
	names := make([]string, len(online))
	for i, p := range online {
		names[i] = p.name
	}
	return names
}

// New makes an online policy with an empty cache of capacity rows out of numRows.
//
// Errors: ErrPolicy with the list of names, ErrCapacity, mem.ErrBudget.
func New(name string, budget *mem.Budget, numRows, capacity int64) (Policy, error) {
	i := find(name)
	if i < 0 {
		return nil, fmt.Errorf("cache: policy must be one of %s, got %q: %w",
			strings.Join(OnlineNames(), ", "), name, ErrPolicy)
	}
	if numRows < 0 || numRows > MaxRows {
		return nil, fmt.Errorf("cache: a policy needs a number of rows within [0, %d], got %d: %w",
			int64(MaxRows), numRows, ErrCapacity)
	}
	if capacity < 0 || capacity > math.MaxInt32 {
		return nil, fmt.Errorf("cache: capacity must be within [0, %d] rows, got %d: %w",
			math.MaxInt32, capacity, ErrCapacity)
	}
	t, err := newTable(budget, numRows, min(capacity, numRows), online[i].slotBytes)
	if err != nil {
		return nil, err
	}
	return online[i].make(t), nil
}

func find(name string) int {
	for i := range online {
		if online[i].name == name {
			return i
		}
	}
	return -1
}

// PolicyBytes returns the memory that New, or NewStatic where the name is not one
// of OnlineNames, takes from the budget. It rises with capacity.
func PolicyBytes(name string, numRows, capacity int64) int64 {
	capacity = min(capacity, numRows)
	if capacity <= 0 {
		return 0
	}
	if i := find(name); i >= 0 {
		return tableBytes(numRows, capacity, online[i].slotBytes)
	}
	return numRows * addressBytes
}

// Capacity returns the largest number of rows that take at most nBytes, with the policy's tables (see PolicyBytes) and
// rows of these widths.
func Capacity(name string, nBytes, numRows int64, widths []int) int64 {
	if numRows > MaxRows || len(widths) == 0 {
		return 0
	}
	limit := min(numRows, math.MaxInt32)
	over := sort.Search(int(limit), func(k int) bool {
		k++
		return PolicyBytes(name, numRows, int64(k))+RowsBytes(int64(k), widths) > nBytes
	})
	return int64(over)
}
