package cache

import "freshgo/core/mem"

// Kind is the way in which a cache chooses its rows.
type Kind uint8

const (
	Chosen  Kind = iota // as one of the others, by the memory that there is
	Absent              // it holds none
	Planned             // from batches that are known ahead
	Online              // from the batches so far, by a policy of New
	Ranked              // the rows of the highest hotness, which do not change
)

// byName has the kinds with one cache. OnlineNames has the policies; a ranking has any other name.
var byName = map[string]Kind{"auto": Chosen, "none": Absent, "belady": Planned}

// KindOf returns the kind of the cache of this name.
func KindOf(name string) Kind {
	if kind, ok := byName[name]; ok {
		return kind
	}
	if find(name) >= 0 {
		return Online
	}
	return Ranked
}

// Given is the ranking by scores of the caller's own.
const Given = "vector"

// RankTrace scores the rows of batches for a cache of this name, if nothing but the batches is needed for that: by the
// given scores, by chance, or by the number of batches that need each row. Other caches have no scores. The caller
// closes them.
func RankTrace[B ~[]uint32](
	name string, budget *mem.Budget, numRows int64, given Hotness, seed uint64, batches []B,
) (*Vector, error) {
	switch name {
	case Given:
		return &Vector{Hotness: given}, Check(given, numRows)
	case "random":
		return Random(budget, numRows, seed)
	case "oracle":
		counter, err := NewCounter(budget, numRows)
		if err != nil {
			return nil, err
		}
		for _, rows := range batches {
			counter.Add(rows)
		}
		return counter.Hotness(1), nil
	}
	return &Vector{}, nil
}
