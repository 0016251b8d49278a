package draw

import (
	"context"
	"errors"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/store"
)

// The neighbour cache of topology that stays on disk (Ginex, section 3.2): the
// in-edges of the most important nodes, chosen and kept by cache.Neighbors, read
// and served to the sampler by package graph.
//
// A list is cached with its edge numbers where those are on disk too. Each of the
// two arrays costs a page for each target that is not cached, so a byte of either
// saves as many reads: a node's neighbours and its edge numbers have the same rank,
// and without the numbers the reads of a batch never fall below those for them.
// Measured with bytes for a quarter and for half of both arrays, batches of 64:
// 1367 and 653 KiB a batch against 2438 and 2111 with neighbours alone. Where
// batches touch most pages of the file, neighbours alone were better, by up to a
// fifth.

// listed holds the cached columns of the same lists: neighbours, and edge numbers
// where these are on disk too, of a graph or of one of its edge types.
type listed struct {
	relation int
	indptr   *offsets.Table
	arrays   []*graph.IDs
	files    []*store.Array
	loaded   *graph.Loaded // the whole first array, in memory already; nil: it is read
}

func (s *listed) add(ids *graph.IDs, file *store.Array) {
	if ids.OnDisk() {
		s.arrays, s.files = append(s.arrays, ids), append(s.files, file)
	}
}

// widths returns the bits of an in-edge in each column.
func (s *listed) widths() (all []int) {
	for _, a := range s.arrays {
		all = append(all, a.Width())
	}
	return all
}

// Lists opens the neighbour cache of a sampling.
type Lists struct{ sampling *Sampling }

func NewLists(m *Sampling) Lists { return Lists{m} }

// Open caches the lists of the most important nodes, as many as the
// split gives bytes to, where topology is on disk. It reads neighbours, or a sample
// of them, to rank the nodes and then, in the order of the file and every page
// checked, what is cached. Neighbours that measuring has loaded it cuts down to that.
func (k Lists) Open(ctx context.Context) error {
	m := k.sampling
	if m.Split.NeighborLists == 0 {
		return nil
	}
	k.countLoaded()
	of, err := k.chooseLists(ctx)
	if errors.Is(err, mem.ErrBudget) && len(m.loaded) > 0 { // the rest fits beside what is cached, not beside all
		NewTopology(m).dropLoaded()
		of, err = k.chooseLists(ctx)
	}
	if err != nil {
		return err
	}
	for _, lists := range m.Lists {
		m.OnClose(lists.Close)
	}
	for i, lists := range m.Lists {
		for j, a := range of[i].arrays {
			if j == 0 && of[i].loaded != nil {
				err = graph.CacheLoaded(a, of[i].loaded, lists, of[i].indptr)
			} else {
				err = m.Graph.Cache(ctx, a, of[i].files[j], lists, of[i].indptr)
			}
			if err != nil {
				return err
			}
		}
		if of[i].loaded != nil {
			delete(m.loaded, of[i].relation)
		}
	}
	NewTopology(m).dropLoaded() // of relations whose lists are not cached
	return nil
}

// countLoaded counts what measuring has loaded in the budget, or drops it where there is no room for all of it.
func (k Lists) countLoaded() {
	for _, ids := range k.sampling.loaded {
		if ids.Recount(k.sampling.Budget, mem.NeighborCache) != nil {
			NewTopology(k.sampling).dropLoaded()
			return
		}
	}
}

// chooseLists chooses the lists to cache, and says of what.
func (k Lists) chooseLists(ctx context.Context) (of []listed, err error) {
	m := k.sampling
	wanted, err := k.WantedLists(ctx)
	if err != nil {
		return nil, err
	}
	defer wanted.Close()
	of, lists := k.listed(wanted.Hotness)
	m.Lists, err = cache.NewNeighbors(ctx, m.Budget, lists, m.Split.NeighborLists)
	return of, err
}

// NeighborCounts returns the numbers of neighbours of sampled edges that were found in memory, and that were read, one
// by one or with others of their page. edges is the number of sampled edges.
func (m *Sampling) NeighborCounts(edges int64) (hits, misses int64) {
	if !slices.ContainsFunc(m.Parts.Schema.Relations, func(r Relation) bool { return r.Neighbors.OnDisk() }) {
		return edges, 0
	}
	return m.fromDisk.Hits.Load(), m.fromDisk.Misses.Load()
}
