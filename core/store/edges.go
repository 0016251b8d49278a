package store

import (
	"fmt"
	"sync"
	"sync/atomic"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// edgeList is a checked edge_index, taken apart.
type edgeList struct {
	name             string // for messages
	count            int64
	sources, targets Source
	weights          bool           // the sources are weights, read as bits
	unnumbered       bool           // the numbers of edges are not asked for
	numbers          manifest.DType // in which they are stored
}

// edgesName is the name of the edge list in messages, as in PyG.
const edgesName = "edge_index"

// checkEdges validates an edge list that is divided into parts of shape [2, edges], which messages call name.
func checkEdges(fs ssd.FS, parts []Source, name string) (edgeList, error) {
	list := edgeList{name: name}
	var sources, targets []Source
	for _, edges := range parts {
		part, err := checkEdgePart(fs, edges, name)
		if err != nil {
			return edgeList{}, err
		}
		if edges.DType != parts[0].DType {
			return edgeList{}, invalid("%s holds %s in %s and %s in %s, expected one dtype", name,
				parts[0].DType.Label(), parts[0].File, edges.DType.Label(), edges.File)
		}
		if part.count > maxCount-list.count {
			return edgeList{}, invalid("%s has more than %d edges", name, int64(maxCount))
		}
		list.count += part.count
		sources, targets = append(sources, part.sources), append(targets, part.targets)
	}
	list.sources, list.targets, list.numbers = joined(sources), joined(targets), edgeIDType(list.count)
	return list, nil
}

// checkEdgePart is checkEdges of one part.
func checkEdgePart(fs ssd.FS, edges Source, name string) (edgeList, error) {
	if !edges.DType.IsInteger() {
		return edgeList{}, invalid("%s holds %s, expected integers", name, edges.DType.Label())
	}
	if len(edges.Shape) != 2 || edges.Shape[0] != 2 || edges.Shape[1] < 0 {
		return edgeList{}, invalid("%s has shape %v, expected [2, number of edges]", name, edges.Shape)
	}
	if edges.Pipe != 0 {
		return edgeList{}, invalid("%s comes through a pipe, and edges are read more than once", name)
	}
	if edges.Strides == nil {
		edges.Strides = denseStrides(edges.Shape, edges.DType)
	}
	if len(edges.Strides) != 2 {
		return edgeList{}, invalid("%s has %d strides for 2 dimensions", name, len(edges.Strides))
	}
	list := edgeList{name: name, count: edges.Shape[1], sources: edges.slice(0), targets: edges.slice(0)}
	if list.count > 0 {
		list.targets = edges.slice(1)
	}
	var err error
	if list.sources, err = list.sources.check(fs, name+"[0]"); err != nil {
		return edgeList{}, err
	}
	list.targets, err = list.targets.check(fs, name+"[1]")
	return list, err
}

// outOfRange names the first end of an edge that is no node.
func (l edgeList) outOfRange(edge, source, target, numSources, numTargets int64) error {
	if uint64(source) >= uint64(numSources) {
		return outOfRange(l.sources, fmt.Sprintf("%s[0, %d]", l.name, edge), edge, source, numSources)
	}
	return outOfRange(l.targets, fmt.Sprintf("%s[1, %d]", l.name, edge), edge, target, numTargets)
}

// firstBad is the first edge of a list with an end that is no node. Threads read different segments of the list, and
// the message names the same edge whichever of them is the fastest.
type firstBad struct {
	edge           atomic.Int64 // the number of edges where there is none
	mu             sync.Mutex   // guards what follows
	source, target int64
}

func (l edgeList) newFirstBad() *firstBad {
	b := new(firstBad)
	b.edge.Store(l.count)
	return b
}

// note keeps an edge, unless an earlier one is known.
func (b *firstBad) note(edge, source, target int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if edge < b.edge.Load() {
		b.edge.Store(edge)
		b.source, b.target = source, target
	}
}

// bad returns the error for the first bad edge, nil where there is none.
func (l edgeList) bad(b *firstBad, numSources, numTargets int64) error {
	if edge := b.edge.Load(); edge < l.count {
		return l.outOfRange(edge, b.source, b.target, numSources, numTargets)
	}
	return nil
}

// changed returns the error for an edge list that has changed since its ids were counted.
func (l edgeList) changed() error { return invalid("%s changed while it was being read", l.name) }

// needsNumbers returns the error for a tensor of edges that have no numbers.
func needsNumbers(name string) error {
	return invalid("%s has its rows by the numbers of edges, which edge_ids=False leaves out", name)
}

// edgeReader reads both ends of edges. It belongs to one goroutine.
type edgeReader struct {
	sources numberReader
	targets *idReader
}

// numberReader reads a number for each edge.
type numberReader interface {
	read(first, n int64) ([]int64, error)
	close()
}

// newEdgeReader returns a reader of at most maxRows edges at a time. It charges edgeReaderBytes to the budget until
// close.
func newEdgeReader(fs ssd.FS, edges edgeList, maxRows int64, budget *mem.Budget) (*edgeReader, error) {
	var sources numberReader
	var err error
	if edges.weights {
		sources, err = newWeightReader(fs, edges.sources, edges.name, maxRows, budget)
	} else {
		sources, err = newIDReader(fs, edges.sources, edges.name, maxRows, budget)
	}
	if err != nil {
		return nil, err
	}
	targets, err := newIDReader(fs, edges.targets, edges.name, maxRows, budget)
	if err != nil {
		sources.close()
		return nil, err
	}
	return &edgeReader{sources, targets}, nil
}

// edgeReaderBytes returns the memory of an edgeReader.
func edgeReaderBytes(edges edgeList, maxRows int64) int64 {
	sources := idReaderBytes(edges.sources, maxRows)
	if edges.weights {
		sources = elementReaderBytes(edges.sources, maxRows, 8)
	}
	return sources + idReaderBytes(edges.targets, maxRows)
}

func (r *edgeReader) close() {
	r.sources.close()
	r.targets.close()
}

// read returns the ends of n edges from first on, valid until the next read.
func (r *edgeReader) read(first, n int64) (sources, targets []int64, err error) {
	if sources, err = r.sources.read(first, n); err != nil {
		return nil, nil, err
	}
	targets, err = r.targets.read(first, n)
	return sources, targets, err
}
