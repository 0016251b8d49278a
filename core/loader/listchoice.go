package loader

import (
	"context"
	"math"

	"freshgo/core/cache"
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
func (s *schema) readAlong(o *Options, edge, hop int) {
	path := []int{edge}
	if o.Metapaths != nil {
		path = o.Metapaths[edge].Path
	}
	for _, i := range path {
		s.read[i] = true
		if s.walked || s.subgraph == sample.Induced || hop+1 < s.hops || s.hops == 1 {
			s.leads[i] = true
		}
	}
}

// readInduced notes that induced batches read the lists of all their nodes.
func (s *schema) readInduced() {
	for i := range s.relations {
		if s.subgraph == sample.Induced && s.reached[s.relations[i].target] {
			s.read[i] = true
		}
	}
}

// mayList reports whether lists of a relation may be cached.
func (s *schema) mayList(i int) bool { return s.read[i] && s.relations[i].numEdges > 0 }

// listed is the lists to choose among, of relations whose topology is on disk, by how often each node is wanted.
func (s *schema) listed(wanted cache.Hotness) (of []listed, lists []cache.Lists) {
	for i := range s.relations {
		r := &s.relations[i]
		if !s.mayList(i) {
			continue
		}
		one := listed{indptr: r.Indptr}
		one.add(&r.Neighbors, r.onDisk.Indices)
		one.add(&r.EdgeIDs, r.onDisk.EdgeIDs)
		of = append(of, one)
		lists = append(lists, cache.Lists{
			Indptr: r.Indptr, Wanted: wanted[s.first[r.target]:s.first[r.target+1]], EdgeBytes: one.edgeBytes(),
		})
	}
	return of, lists
}

// wantedLists scores all nodes by how often they are asked for lists.
func (s *schema) wantedLists(ctx context.Context, m *sampling) (*cache.Vector, error) {
	return cache.Counted(m.budget, m.parts.numNodes, func(counts []uint32) error {
		led := make([]bool, s.types())
		for i := range s.relations {
			if r := &s.relations[i]; s.leads[i] {
				led[r.source] = true
				if err := s.countSources(ctx, m, r, counts); err != nil {
					return err
				}
			}
		}
		s.countInputs(m, led, counts)
		return nil
	})
}

// countInputs counts input nodes of types to which no draw led, and of links all nodes of such types.
func (s *schema) countInputs(m *sampling, led []bool, counts []uint32) {
	for _, r := range s.runs {
		if led[r.typ] {
			continue
		}
		for at := r.from; at < r.to; at++ {
			v := at
			if m.options.Seeds != nil {
				v = m.options.Seeds[at]
			}
			if counts[v] < math.MaxUint32 {
				counts[v]++
			}
		}
	}
	if k := m.options.Links; k != nil {
		for _, t := range []int{s.relations[k.Relation].source, s.relations[k.Relation].target} {
			if of := counts[s.first[t]:s.first[t+1]]; !led[t] {
				for v := range of {
					of[v] = 1
				}
			}
		}
	}
}
