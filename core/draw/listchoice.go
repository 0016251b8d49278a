package draw

import (
	"context"
	"math"

	"freshgo/core/cache"
	"freshgo/core/graph"
	"freshgo/core/sample"
)

// Which neighbour lists are cached (Ginex, section 3.2, see neighbors.go). All lists of all
// relations compete for the same bytes, in one ranking of cache.NewNeighbors: by how often the
// target is drawn and so asks for its list, over the bytes that the list takes. How often it is
// drawn is in how many lists it is: its out-degree along the relations that lead to another draw.
//
// Relations along which nothing can be drawn get none: those that end at types that are reached by
// the last hop alone, as half of them are where each has its reverse. Nor does an edge of the last
// hop count, which leads to no further draw. A type that is only an input, so that no edge leads to
// it, is asked for the lists of its input nodes, each as often as it is one: on hetero-dblp, two
// hops from 240 of 4,057 authors, the out-degree would rank the lists of all authors alike.

// readAlong notes that a hop draws along a type of edges of batches.
func (a schemaOptions) readAlong(edge, hop int) {
	s, o := a.schema, a.options
	path := []int{edge}
	if o.Metapaths != nil {
		path = o.Metapaths[edge].Path
	}
	for _, i := range path {
		s.read[i] = true
		if s.Walked || s.Subgraph == sample.Induced || hop+1 < s.Hops || s.Hops == 1 {
			s.leads[i] = true
		}
	}
}

// readInduced notes that induced batches read the lists of all their nodes.
func (a schemaOptions) readInduced() {
	s := a.schema
	for i := range s.Relations {
		if s.Subgraph == sample.Induced && s.reached[s.Relations[i].Target] {
			s.read[i] = true
		}
	}
}

// MayList reports whether lists of a relation may be cached.
func (s *Schema) MayList(i int) bool { return s.read[i] && s.Relations[i].NumEdges > 0 }

// listed returns the lists to choose among, of relations whose topology is on disk, by how often each node is wanted.
func (k Lists) listed(wanted cache.Hotness) (of []listed, lists []cache.Lists) {
	s := k.sampling.Parts.Schema
	for i := range s.Relations {
		r := &s.Relations[i]
		if !s.MayList(i) {
			continue
		}
		one := listed{relation: i, indptr: r.Indptr, loaded: k.sampling.loaded[i]}
		one.add(&r.Neighbors, r.OnDisk.Indices)
		one.add(&r.EdgeIDs, r.OnDisk.EdgeIDs)
		of = append(of, one)
		lists = append(lists, cache.Lists{
			Indptr: r.Indptr, Wanted: wanted[s.First[r.Target]:s.First[r.Target+1]], Widths: one.widths(),
		})
	}
	return of, lists
}

// countedBytes is the size up to which all neighbours are read to rank lists. Of more, a sample of about this size is
// read: a third of the edges of the graph of bench/scale, 11M nodes, rank lists such that those in memory leave 1.15
// times the requests to the disk, an eighth 1.34 times (docs/decisions/cache.md).
const countedBytes = 1 << 30

// countedEvery returns the share of the neighbours, as a divisor, that WantedLists reads.
func (k Lists) countedEvery() int64 {
	total := int64(0)
	for i, r := range k.sampling.Parts.Schema.stored() {
		if k.sampling.Parts.Schema.leads[i] {
			total += r.NumEdges * int64(r.OnDisk.Indices.Layout.RowBytes)
		}
	}
	return total/countedBytes + 1
}

// readable returns the neighbours of a relation where they are read fastest.
func (k Lists) readable(i int) *graph.IDs {
	r := &k.sampling.Parts.Schema.Relations[i]
	loaded := k.sampling.loaded[i]
	if loaded == nil {
		return &r.Neighbors
	}
	ids := loaded.IDs()
	return &ids
}

// WantedLists scores all nodes by how often they are asked for lists.
func (k Lists) WantedLists(ctx context.Context) (*cache.Vector, error) {
	m, s := k.sampling, k.sampling.Parts.Schema
	return cache.Counted(m.Budget, m.Parts.NumNodes, func(counts []uint32) error {
		led, every := make([]bool, s.NumTypes()), k.countedEvery()
		for i := range s.Relations {
			if r := &s.Relations[i]; s.leads[i] {
				led[r.Source] = true
				if err := countSources(ctx, m, r, k.readable(i), every, counts); err != nil {
					return err
				}
			}
		}
		for t, is := range led {
			if is && every > 1 {
				expand(counts[s.First[t]:s.First[t+1]], every)
			}
		}
		k.countInputs(led, counts)
		return nil
	})
}

// expand turns counts in a sample of one edge of every into estimates of counts in all edges. It adds half an edge of
// the sample to each: a node that no edge of the sample begins at may have others, and of such nodes those of short
// lists come first (docs/decisions/cache.md).
func expand(counts []uint32, every int64) {
	for v, n := range counts {
		counts[v] = uint32(min(int64(n)*every+every/2, math.MaxUint32))
	}
}

// countInputs counts input nodes of types to which no draw led, and of links all nodes of such types.
func (k Lists) countInputs(led []bool, counts []uint32) {
	m, s := k.sampling, k.sampling.Parts.Schema
	for _, r := range s.Runs {
		if led[r.Type] {
			continue
		}
		for at := r.From; at < r.To; at++ {
			v := at
			if m.Options.Seeds != nil {
				v = m.Options.Seeds[at]
			}
			if counts[v] < math.MaxUint32 {
				counts[v]++
			}
		}
	}
	if k := m.Options.Links; k != nil {
		for _, t := range []int{s.Relations[k.Relation].Source, s.Relations[k.Relation].Target} {
			if of := counts[s.First[t]:s.First[t+1]]; !led[t] {
				for v := range of {
					of[v] = 1
				}
			}
		}
	}
}
