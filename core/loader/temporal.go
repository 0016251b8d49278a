package loader

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// Batches of trees, and draws by time. Times are an edge tensor or a node tensor of integers, in the user's order. In memory
// they are put by position and into ascending order within each list, with the order beside them where lists are not in it
// already: 8 or 12 bytes an edge, so that what a seed may see of a list is found by search. On disk they stay as they are:
// what a hop needs are the times of whole lists, read as weights are, of edges by their numbers and of sources by theirs.

const (
	// TreeName and SeedTimeName are the tensors that Options.Disjoint and TimeAttr add to a batch, int64: the place of the seed
	// in whose tree each node is, and the time of each seed.
	TreeName     = "batch"
	SeedTimeName = "seed_time"
)

// disjoint says whether every seed has a tree of its own.
func (o *Options) disjoint() bool { return o.Disjoint || o.TimeAttr != "" }

// validateTrees checks what is asked for of trees and times.
func (o *Options) validateTrees(numNodes int64) error {
	numSeeds := int64(len(o.Seeds))
	if o.Seeds == nil {
		numSeeds = numNodes
	}
	switch {
	case o.TimeWindow < 0:
		return fmt.Errorf("%w: time_window must be at least 1, or 0 for none, got %d", ErrOption, o.TimeWindow)
	case o.TimeAttr == "" && (o.TemporalLast || o.TimeWindow > 0 || o.SeedTimes != nil):
		return fmt.Errorf("%w: temporal_strategy, time_window and input_time need time_attr, the tensor of times", ErrOption)
	case o.disjoint() && (o.Labor != nil || o.walk()):
		return fmt.Errorf("%w: LABOR and random walks draw for all seeds together, not in disjoint trees or by time", ErrOption)
	case o.disjoint() && o.History != nil:
		return fmt.Errorf("%w: a history and disjoint trees, which times make too, cannot be used together", ErrOption)
	case o.TimeAttr != "" && o.WeightAttr != "":
		return fmt.Errorf("%w: time_attr and weight_attr cannot be used together", ErrOption)
	case o.SeedTimes != nil && o.Links == nil && int64(len(o.SeedTimes)) != numSeeds:
		return fmt.Errorf("%w: input_time has %d times, expected one for each of %d input nodes", ErrOption, len(o.SeedTimes), numSeeds)
	}
	return nil
}

// timeTensor returns the tensor that Options.TimeAttr names, nil where it names none.
func (l *Loader) timeTensor() (*tensor, error) {
	name := l.options.TimeAttr
	if name == "" {
		return nil, nil
	}
	var nodes, edges []string
	for i := range l.parts.tensors {
		t := &l.parts.tensors[i]
		switch {
		case t.name == name:
			return t, t.checkTime()
		case t.byEdge:
			edges = append(edges, t.name)
		default:
			nodes = append(nodes, t.name)
		}
	}
	return nil, fmt.Errorf("%w: time_attr %q is no tensor of the graph, the edge tensors are %q and the node tensors %q", ErrOption, name, edges, nodes)
}

// checkTime says why a tensor holds no times.
func (t *tensor) checkTime() error {
	if one := t.width == t.dtype.Size(); !one || !t.dtype.IsInteger() || t.dtype == manifest.DType_UINT64 {
		return fmt.Errorf("%w: time_attr %q holds %s %v for each node or edge, expected one integer that int64 holds", ErrOption, t.name, t.dtype.Label(), t.rowShape)
	}
	return nil
}

// checkTimes checks what depends on the source's tensors.
func (l *Loader) checkTimes() error {
	if types := l.parts.types; !types.unnamed() {
		return types.checkTimes(l)
	}
	t, err := l.timeTensor()
	if err != nil {
		return err
	}
	if l.options.Links != nil {
		if err := l.options.validateLinkTimes(&l.parts, t, true); err != nil {
			return err
		}
	} else if t != nil && t.byEdge && l.options.SeedTimes == nil {
		return fmt.Errorf("%w: time_attr %q has times of edges, so input_time must give a time for each input node", ErrOption, t.name)
	}
	return l.checkTreeNames()
}

// checkTreeNames refuses tensors that are called as those of trees, where these have them: with types nodes, and edges the times of links.
func (l *Loader) checkTreeNames() error {
	clash := func(name string) bool {
		return slices.ContainsFunc(l.parts.tensors, func(t tensor) bool {
			return t.name == name && (!t.byEdge || l.parts.types.unnamed() || name == LinkTimeName)
		})
	}
	name := SeedTimeName
	if k := l.options.Links; k != nil && !k.Triplets {
		name = LinkTimeName
	}
	for name, given := range map[string]bool{TreeName: l.parts.disjoint, name: l.parts.timed} {
		if given && clash(name) {
			return fmt.Errorf("%w: the graph has a tensor %q, as the loader calls one of its own: rename the tensor", ErrOption, name)
		}
	}
	return nil
}

// timesBytes is what the times of so many edges take in memory, with an order.
func timesBytes(edges int64) int64 {
	order := int64(4)
	if edges > math.MaxUint32 {
		order = 8
	}
	return max(1, edges) * (8 + order)
}

// seedTimesBytes is what the times of seeds take, of the user's or of the loader's.
func (l *Loader) seedTimesBytes() int64 {
	if l.options.TimeAttr == "" {
		return 0
	}
	return l.numSeeds() * 8
}

// times are those of the loader as if they stayed on disk.
func (l *Loader) times() *sample.Times {
	if l.options.TimeAttr == "" {
		return nil
	}
	return &sample.Times{Source: &diskTimes{}}
}

// openTimes makes the times of edges and of seeds ready, nil where there are none.
func (l *Loader) openTimes(ctx context.Context, indptr []int64, neighbors *idArray) (*sample.Times, error) {
	t, err := l.timeTensor()
	if err != nil || t == nil {
		return nil, err
	}
	var order []uint32 // the row of each node
	if l.parts.store != nil && !t.byEdge {
		if order, err = l.rowsOfNodes(ctx); err != nil {
			return nil, err
		}
	}
	ids := &l.edgeIDs
	if !t.byEdge {
		ids = neighbors
	}
	rows, err := l.openTimeRows(ctx, t, order)
	if err != nil {
		return nil, err
	}
	defer rows.free()
	if l.seedTimes = l.options.SeedTimes; l.seedTimes == nil { // those of the nodes, or of links that are every edge
		if err := l.allocSeedTimes(); err != nil {
			return nil, err
		}
		if err := l.readSeedTimes(ctx, rows, seedRun{to: l.numSeeds()}, 0); err != nil {
			return nil, err
		}
	}
	return l.timesOf(ctx, rows, indptr, ids, l.parts.numEdges)
}

// timeRows is the times of a tensor: all rows in memory, until free, which may be called again, or on disk.
type timeRows struct {
	*tensor
	order []uint32 // the row of each node
	rows  []byte
	disk  *diskRows // nil: rows
	free  func()
}

// openTimeRows finds the times of a tensor where the split puts them.
func (l *Loader) openTimeRows(ctx context.Context, t *tensor, order []uint32) (r *timeRows, err error) {
	r = &timeRows{tensor: t, order: order, free: func() {}}
	if l.parts.store == nil || l.split.Weights {
		r.rows, r.free, err = l.allRows(ctx, t)
	} else {
		r.disk, err = l.openRows(ctx, &t.onDisk.Array)
	}
	return r, err
}

// read reads the times of these edges or nodes. It may change ids, which then are rows.
func (r *timeRows) read(ctx context.Context, s *fetchScratch, ids, out []int64) error {
	if r.disk == nil {
		gatherTimes(r.dtype, r.rows, r.order, ids, out)
		return nil
	}
	if r.order != nil {
		for i, v := range ids {
			ids[i] = int64(r.order[v])
		}
	}
	return r.disk.read(ctx, &s.merger, ids, func(i int32, row []byte) error {
		store.DecodeIntegers(r.dtype, row, out[i:i+1])
		return nil
	})
}

// timesOf is the times of edges that have these offsets, of which ids says the rows; those in memory are made, and rows freed.
func (l *Loader) timesOf(ctx context.Context, rows *timeRows, indptr []int64, ids *idArray, edges int64) (*sample.Times, error) {
	if rows.disk == nil {
		return l.holdTimes(ctx, rows, indptr, ids, edges)
	}
	return &sample.Times{Source: &diskTimes{timeRows: rows, ids: ids, scratch: sync.Pool{New: func() any { return new(fetchScratch) }}}}, nil
}

// rowsOfNodes is openOrder for one that has not been called, as a trial.
func (l *Loader) rowsOfNodes(ctx context.Context) ([]uint32, error) {
	if l.order != nil {
		return l.order, nil
	}
	block, err := l.parts.store.RowOf(ctx, mem.NewBudget(0), mem.Topology)
	if err != nil || block == nil {
		return nil, err
	}
	l.onClose(block.Free)
	return mem.Slice[uint32](block), nil
}

// allocSeedTimes makes room for the time of each seed.
func (l *Loader) allocSeedTimes() error {
	// Counted with indptr, see openIndptr.
	block, err := mem.NewBudget(0).Alloc(mem.Topology, max(1, l.numSeeds())*8)
	if err != nil {
		return err
	}
	l.onClose(block.Free)
	l.seedTimes = mem.Slice[int64](block)[:l.numSeeds()]
	return nil
}

// readSeedTimes makes the time of each seed of a run that of the node, whose type begins with this node; of links, which then are every edge,
// that of the edge.
func (l *Loader) readSeedTimes(ctx context.Context, rows *timeRows, run seedRun, firstNode int64) error {
	buffer, scratch := make([]int64, scanIDs), new(fetchScratch)
	for first := run.from; first < run.to; first += scanIDs {
		out := l.seedTimes[first:min(first+scanIDs, run.to)]
		nodes := buffer[:len(out)]
		for i := range nodes {
			nodes[i] = first + int64(i)
			if l.options.Seeds != nil {
				nodes[i] = l.options.Seeds[nodes[i]]
			}
			nodes[i] -= firstNode
		}
		if err := rows.read(ctx, scratch, nodes, out); err != nil {
			return err
		}
	}
	return nil
}

// holdTimes puts times into memory, in ascending order by list. ids are the rows of the positions.
func (l *Loader) holdTimes(ctx context.Context, r *timeRows, indptr []int64, ids *idArray, edges int64) (*sample.Times, error) {
	block, err := l.hold(8 * edges)
	if err != nil {
		return nil, err
	}
	times := &sample.Times{Ascending: mem.Slice[int64](block)[:edges]}
	if ids.identity() {
		gatherTimes(r.dtype, r.rows, nil, nil, times.Ascending)
	} else if err := ids.scan(ctx, l.budget, func(first int64, ids []int64) error {
		gatherTimes(r.dtype, r.rows, r.order, ids, times.Ascending[first:first+int64(len(ids))])
		return nil
	}); err != nil {
		return nil, err
	}
	r.free()
	if sample.TimesAscend(indptr, times.Ascending) {
		return times, nil
	}
	if block, err = l.hold(timesBytes(edges) - 8*max(1, edges)); err != nil {
		return nil, err
	}
	if edges > math.MaxUint32 {
		times.Order64 = mem.Slice[int64](block)[:edges]
		return times, sample.SortTimes(ctx, indptr, times.Ascending, times.Order64)
	}
	times.Order32 = mem.Slice[uint32](block)[:edges]
	return times, sample.SortTimes(ctx, indptr, times.Ascending, times.Order32)
}

// diskTimes is times on disk: rows of a tensor, by what ids says of positions.
type diskTimes struct {
	*timeRows
	ids     *idArray
	scratch sync.Pool // *fetchScratch, one per hop in flight
}

// FetchTimes implements sample.TimeSource.
func (d *diskTimes) FetchTimes(ctx context.Context, drawn sample.Drawn, out []int64) error {
	s := d.scratch.Get().(*fetchScratch)
	defer d.scratch.Put(s)
	s.edges = grown(s.edges, len(drawn.Pos))
	if err := d.ids.gather(ctx, s, drawn, s.edges); err != nil {
		return err
	}
	return d.read(ctx, s, s.edges, out)
}

// gatherTimes writes the times of these edges or nodes, of all in order where ids is nil, to out.
func gatherTimes(dtype manifest.DType, rows []byte, order []uint32, ids, out []int64) {
	if ids == nil {
		store.DecodeIntegers(dtype, rows, out)
		return
	}
	width := int64(dtype.Size())
	for i, v := range ids {
		if order != nil {
			v = int64(order[v])
		}
		store.DecodeIntegers(dtype, rows[v*width:(v+1)*width], out[i:i+1])
	}
}
