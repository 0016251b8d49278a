package cache

// Kind tells how a cache decides which rows it holds.
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
