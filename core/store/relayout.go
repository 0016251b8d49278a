package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// The orders of rows that Relayout makes.
const (
	Hot          = "hot"           // by falling score, ties by id; rows without a score behind them by id
	Community    = "community"     // rows that are used together are neighbours
	HotCommunity = "hot+community" // the hottest rows by score, the others by community, the used before the unused
)

// Orders lists the orders.
var Orders = []string{Hot, Community, HotCommunity}

// defaultHotShare is which part of the nodes, 1/defaultHotShare, counts as hot where nobody says. Rows by score alone are no neighbours, which does
// not matter for those that stay in the cache. With as many as the cache holds, cold rows touch the fewest pages. Twice as many cost up to 1.9 times
// the pages of a batch on the graphs measured, and all that have a score up to 2.1 times; a fiftieth of all with a cache of a tenth up to 1.15 times.
const defaultHotShare = 50

// RelayoutOptions are the choices of Relayout.
type RelayoutOptions struct {
	Order     string
	Scores    []float32 // a score for each node by the user's id, finite and not negative; only Community does without
	HotRows   int64     // how many of the rows with a score HotCommunity lays out by score; negative: a fiftieth of all
	Memory    int64     // bytes to work in; 0 for no limit. Scores are the caller's and do not count.
	Overwrite bool      // replace a store that is at the path
	// Progress, which may be nil, is called with the bytes read and written so far and those that will be, by one goroutine at a time.
	Progress func(stage string, done, total int64)
}

// Relayout writes a copy of a store at path in which the rows of the node tensors are stored in another order: NodeType.order says whose each is.
// Topology, edge tensors and splits stay in the user's numbers and are copied; a link would let one damaged file damage both stores. A store that
// was relaid out before may be relaid out again, over itself with opts.Overwrite.
//
// Everything is read and written in sequence, and checked while it is read. A tensor that fits the memory is read once and written once, one of up to
// maxGathers times the memory is read that often, and beyond that it is read, written to a spill, read back and written. Memory: 8 bytes a node
// for Hot, else 12, while the order is made; 4 a node and buffers while rows move. A budget that is too small is a *mem.BudgetError with the
// smallest that works, before anything is written. Disk: the new store, and while a tensor goes through it a spill of its size.
//
// The store appears as one of Convert does, complete or not at all.
func Relayout(ctx context.Context, src *Store, path string, opts RelayoutOptions) error {
	return relayout(ctx, src, path, opts, mem.NewBudget(opts.Memory))
}

// relayout is Relayout with the budget given.
func relayout(ctx context.Context, src *Store, path string, opts RelayoutOptions, budget *mem.Budget) error {
	if src.closed.Load() {
		return fmt.Errorf("store: %s: %w", src.path, ErrClosed)
	}
	r, err := newRelayouter(src, opts, budget, false)
	if err != nil {
		return err
	}
	s, err := prepareSite(src.fs, path, opts.Overwrite)
	if err != nil {
		return err
	}
	r.dir = s.dir
	m, err := r.write(ctx)
	return s.conclude(ctx, m, err, opts.Overwrite)
}

// relayouter is one run of Relayout.
type relayouter struct {
	src     *Store
	opts    RelayoutOptions
	budget  *mem.Budget
	inPlace bool   // dir is that of src, which is not published: nothing is copied, and tensors are removed once they are rewritten
	dir     string // where the new files are made
	hotRows int64
	plan    relayoutPlan
	meter   *meter
}

// newRelayouter checks the options and makes the plan.
func newRelayouter(src *Store, opts RelayoutOptions, budget *mem.Budget, inPlace bool) (*relayouter, error) {
	r := &relayouter{src: src, opts: opts, budget: budget, inPlace: inPlace}
	if src.Typed() {
		return nil, errTypedOrder
	}
	n := src.edge().NumNodes
	if err := checkOrder(opts.Order, n); err != nil {
		return nil, err
	}
	switch {
	case opts.Scores == nil && opts.Order != Community:
		return nil, invalid("the order %q needs a score for each node", opts.Order)
	case opts.Scores != nil && int64(len(opts.Scores)) != n:
		return nil, invalid("%d scores, expected %d as there are nodes", len(opts.Scores), n)
	}
	for id, s := range opts.Scores {
		if !(s >= 0 && s <= math.MaxFloat32) { // NaN compares false
			return nil, invalid("the score of node %d is %v, expected a finite number of at least 0", id, s)
		}
	}
	if err := src.checkCarried(); err != nil {
		return nil, err
	}
	if r.hotRows = opts.HotRows; r.hotRows < 0 {
		r.hotRows = n / defaultHotShare
	}
	if err := r.makePlan(budget.Limit()); err != nil {
		return nil, err
	}
	r.meter = &meter{report: opts.Progress, stage: "relayout", total: r.movedBytes()}
	if r.meter.report == nil {
		r.meter.report = func(string, int64, int64) {}
	}
	return r, nil
}

// errTypedOrder refuses a graph with types. Scores, which order its rows, come from a loader over a homogeneous graph.
var errTypedOrder = invalid("a graph with types of nodes, expected a homogeneous one: its rows cannot be put in another order")

// checkOrder returns an error unless the rows of so many nodes can be stored in this order.
func checkOrder(order string, numNodes int64) error {
	if !slices.Contains(Orders, order) {
		return invalid("order is %q, expected one of %q", order, Orders)
	}
	if numNodes > maxOrdered {
		return invalid("%d nodes, expected at most %d to store rows in another order", numNodes, int64(maxOrdered))
	}
	return nil
}

// checkCarried returns an error where the store has arrays that this version does not read, and so could not carry over.
func (s *Store) checkCarried() error {
	node, edge := s.manifest.GetNodeTypes()[0], s.manifest.GetEdgeTypes()[0]
	if node.GetTimes() != nil || edge.GetTimes() != nil || edge.GetWeights() != nil && s.edge().Weights == nil || len(edge.GetSplits()) > 0 {
		return fmt.Errorf("store: %s: times, weights or splits of edges would be lost: %w", s.path, ErrVersion)
	}
	return nil
}

// carried is an array that is taken over as it is.
type carried struct {
	*Array
	name string // of the new file
	in   *manifest.Array
}

// carried lists them, with the places in m that describe them.
func (r *relayouter) carried(m *manifest.Manifest) []carried {
	if r.inPlace {
		return nil
	}
	node, edge, t := m.NodeTypes[0], m.EdgeTypes[0], &r.src.edge().Topology
	all := []carried{{t.Indptr, "indptr", edge.Indptr}, {t.Indices, "indices", edge.Indices}}
	if t.EdgeIDs != nil {
		all = append(all, carried{t.EdgeIDs, "edge_ids", edge.EdgeIds})
	}
	if w := r.src.edge().Weights; w != nil {
		all = append(all, carried{&w.Array, "weights", edge.Weights}, carried{&w.Sums, "weight_sums", edge.WeightSums})
	}
	for i := range r.src.edge().Tensors {
		a := &r.src.edge().Tensors[i]
		all = append(all, carried{&a.Array, fmt.Sprintf("edge%d_%s", i, fileName(a.Name)), edge.Tensors[i].Data})
	}
	for i := range r.src.node().Splits {
		a := &r.src.node().Splits[i]
		all = append(all, carried{&a.Array, fmt.Sprintf("split%d_%s", i, fileName(a.Name)), node.Splits[i].Ids})
	}
	return all
}

// write writes all new files and returns the manifest.
func (r *relayouter) write(ctx context.Context) (*manifest.Manifest, error) {
	r.meter.add(0)
	m := r.src.Manifest()
	var err error
	if m.Uuid, err = newUUID(); err != nil {
		return nil, err
	}
	m.CreatedUnixNs, m.Generator = time.Now().UnixNano(), generator
	node := m.NodeTypes[0]
	rowOf, order, err := r.writeOrder(ctx)
	if err != nil {
		return nil, err
	}
	defer rowOf.Free()
	node.Order = order
	for i := range r.src.node().Tensors {
		t := &r.src.node().Tensors[i]
		c := &permuter{src: r.src, dir: r.dir, rowOf: mem.Slice[uint32](rowOf), budget: r.budget, meter: r.meter}
		name := fmt.Sprintf("rows%d_%s", i, fileName(t.Name))
		if node.Tensors[i].Data, err = c.permute(ctx, &t.Array, name, r.plan.tensors[i]); err != nil {
			return nil, err
		}
		if r.inPlace {
			if err := errors.Join(r.src.fs.Remove(t.Path), r.src.fs.Remove(t.CRCPath)); err != nil {
				return nil, access(err)
			}
		}
	}
	rowOf.Free()
	for _, a := range r.carried(m) {
		if err := r.carry(ctx, a); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// carry copies the pages of an array, checked, and describes the copy.
func (r *relayouter) carry(ctx context.Context, a carried) error {
	w, err := newArrayWriter(r.src.fs, r.dir, a.name, a.DType, a.RowShape, r.plan.chunk, r.budget)
	if err != nil {
		return err
	}
	defer w.abort()
	w.useLayout(a.Layout)
	err = r.src.streamRows(ctx, pagesOf(a.Array), int64(r.plan.chunk), r.budget, func(_ int64, pages []byte) error {
		defer r.meter.add(2 * int64(len(pages)))
		return w.write(pages)
	})
	if err != nil {
		return err
	}
	written, err := w.finish(a.Rows)
	if err != nil {
		return err
	}
	a.in.File, a.in.CrcFile, a.in.CrcFileCrc = written.File, written.CrcFile, written.CrcFileCrc
	return nil
}
