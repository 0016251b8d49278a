package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

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

// defaultHotShare is the default inverse share of nodes that count as hot. Rows by score alone are no neighbours, which
// does not matter for rows that stay in the cache. With as many hot rows as the cache holds, cold rows touch the fewest
// pages. Twice as many cost up to 1.9 times the pages of a batch on the graphs measured, and all rows with a score up
// to 2.1 times; a fiftieth of all with a cache of a tenth up to 1.15 times.
const defaultHotShare = 50

// RelayoutOptions are the choices of Relayout.
type RelayoutOptions struct {
	Order string
	// Scores has a score for each node, by node type in the store's order and within it by the user's id. A score is
	// finite and not negative. Only Community does without.
	Scores []float32
	// HotRows is the number of rows that HotCommunity lays out by score, over all node types together. Negative: a
	// fiftieth of all rows.
	HotRows   int64
	Memory    int64 // bytes to work in; 0 for no limit. Scores are the caller's and do not count.
	Overwrite bool  // replace a store that is at the path
	// Progress, which may be nil, is called with the bytes read and written so far and those that will be, by one
	// goroutine at a time.
	Progress func(stage string, done, total int64)
}

// Relayout writes a copy of a store at path in which the rows of the node tensors are stored in another order:
// NodeType.Order says whose each is. Topology, edge tensors and splits stay in the user's numbers and are copied; a
// link would let one damaged file damage both stores. A store that was relaid out before may be relaid out again, over
// itself with opts.Overwrite.
//
// The order is made over the nodes of all types and cut by type, so that rows which are used together are neighbours
// whatever connects their nodes.
//
// Everything is read and written in sequence, and checked while it is read. A tensor that fits the memory is read once
// and written once, one of up to maxGathers times the memory is read that often, and beyond that it is read, written to
// a spill, read back and written. Memory: 8 bytes a node for Hot, else 12, while the order is made; 4 a node and
// buffers while rows move. A budget that is too small is a *mem.BudgetError with the smallest that works, before
// anything is written. Disk: the new store, and while a tensor goes through it a spill of its size.
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
	var m *manifest.Manifest
	if err = r.takeSpace(); err == nil {
		m, err = r.write(ctx)
	}
	return s.conclude(ctx, m, err, opts.Overwrite)
}

// relayouter is one run of Relayout.
type relayouter struct {
	src     *Store
	first   []int64 // the numbers of nodes: see Store.firstNodes
	opts    RelayoutOptions
	budget  *mem.Budget
	inPlace bool   // src is in dir and not published: nothing is copied, rewritten tensors are removed
	dir     string // where the new files are made
	hotRows int64
	plan    relayoutPlan
	meter   *meter
}

// newRelayouter checks the options and makes the plan.
func newRelayouter(src *Store, opts RelayoutOptions, budget *mem.Budget, inPlace bool) (*relayouter, error) {
	r := &relayouter{src: src, first: src.firstNodes(), opts: opts, budget: budget, inPlace: inPlace}
	n := r.numNodes()
	if err := checkOrder(opts.Order, n); err != nil {
		return nil, err
	}
	switch {
	case opts.Scores == nil && opts.Order != Community:
		return nil, invalid("the order %q needs hotness, a score for each node", opts.Order)
	case opts.Scores != nil && int64(len(opts.Scores)) != n:
		return nil, invalid("hotness has %d scores, expected one for each of %d nodes", len(opts.Scores), n)
	}
	for i := range src.nodeTypes {
		if err := r.checkScores(i); err != nil {
			return nil, err
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

// numNodes returns the number of nodes of all types.
func (r *relayouter) numNodes() int64 { return r.first[len(r.src.nodeTypes)] }

// checkScores returns an error unless each score of a node type, if there are any, is finite and not negative.
func (r *relayouter) checkScores(typ int) error {
	if r.opts.Scores == nil {
		return nil
	}
	for id, s := range r.opts.Scores[r.first[typ]:r.first[typ+1]] {
		if !(s >= 0 && s <= math.MaxFloat32) { // NaN compares false
			of := ""
			if r.src.Heterogeneous() {
				of = fmt.Sprintf(" of type %q", r.src.nodeTypes[typ].Name)
			}
			return invalid("the score of node %d%s is %v, expected a finite number of at least 0", id, of, s)
		}
	}
	return nil
}

// checkOrder returns an error unless the rows of numNodes nodes, of all types together, can be stored in this order.
func checkOrder(order string, numNodes int64) error {
	if !slices.Contains(Orders, order) {
		return invalid("order is %q, expected one of %q", order, Orders)
	}
	if numNodes > maxOrdered {
		return invalid("%d nodes, expected at most %d to store rows in another order", numNodes, int64(maxOrdered))
	}
	return nil
}

// checkCarried returns an error where the store has arrays that this version does not read, and so could not carry
// over.
func (s *Store) checkCarried() error {
	lost := false
	for _, node := range s.manifest.GetNodeTypes() {
		lost = lost || node.GetTimes() != nil
	}
	for i, edge := range s.manifest.GetEdgeTypes() {
		unknown := edge.GetWeights() != nil && s.edgeTypes[i].Weights == nil
		lost = lost || unknown || edge.GetTimes() != nil || len(edge.GetSplits()) > 0
	}
	if lost {
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
	var all []carried
	add := func(a *Array, name string, in *manifest.Array) { all = append(all, carried{a, name, in}) }
	for i := range r.src.edgeTypes {
		e, edge, file := &r.src.edgeTypes[i], m.EdgeTypes[i], r.src.edgeTypes[i].file
		add(e.Indptr, file+"indptr", edge.Indptr)
		add(e.Indices, file+"indices", edge.Indices)
		if e.EdgeIDs != nil {
			add(e.EdgeIDs, file+edgeIDsName, edge.EdgeIds)
		}
		if w := e.Weights; w != nil {
			add(&w.Array, file+"weights", edge.Weights)
			add(&w.Sums, file+"weight_sums", edge.WeightSums)
		}
		for j := range e.Tensors {
			a := &e.Tensors[j]
			add(&a.Array, tensorFile(file+"edge", j, a.Name), edge.Tensors[j].Data)
		}
	}
	for i := range r.src.nodeTypes {
		t, node, file := &r.src.nodeTypes[i], m.NodeTypes[i], r.src.nodeTypes[i].file
		for j := range t.Splits {
			a := &t.Splits[j]
			add(&a.Array, tensorFile(file+"split", j, a.Name), node.Splits[j].Ids)
		}
	}
	for i := range r.src.attachments {
		a := &r.src.attachments[i]
		add(&a.Array, tensorFile(attachedPrefix, i, a.Name), m.Attachments[i].Data)
	}
	return all
}

// write writes all new files and returns the manifest.
func (r *relayouter) write(ctx context.Context) (*manifest.Manifest, error) {
	r.meter.add(0)
	m := r.src.Manifest()
	var err error
	if r.inPlace { // a part of its conversion
		err = reissue(m)
	} else {
		err = renew(m, "relayout", r.opts.Order)
	}
	if err != nil {
		return nil, err
	}
	moves, err := r.writeOrders(ctx, m)
	if err != nil {
		return nil, err
	}
	defer moves.Free()
	for i, node := range m.NodeTypes {
		if err := r.writeTensors(ctx, i, mem.Slice[uint32](moves)[r.first[i]:r.first[i+1]], node); err != nil {
			return nil, err
		}
	}
	moves.Free()
	for _, a := range r.carried(m) {
		if err := r.carry(ctx, a); err != nil {
			return nil, err
		}
	}
	restamp(r.src.manifest, m)
	return m, nil
}

// rowsFile names the files of a tensor in the new order.
func (r *relayouter) rowsFile(typ, i int) string {
	return tensorFile(r.src.nodeTypes[typ].file+"rows", i, r.src.nodeTypes[typ].Tensors[i].Name)
}

// writeTensors rewrites the tensors of a node type. moves is where each of its rows goes.
func (r *relayouter) writeTensors(ctx context.Context, typ int, moves []uint32, node *manifest.NodeType) error {
	c := &permuter{fs: r.src.fs, dir: r.dir, rowOf: moves, budget: r.budget, meter: r.meter}
	for i := range r.src.nodeTypes[typ].Tensors {
		t := &r.src.nodeTypes[typ].Tensors[i]
		if r.inPlace {
			if err := reserve(r.src.fs, r.dir, reservations(r.rewritten(typ, i))); err != nil {
				return err
			}
		}
		var err error
		name := r.rowsFile(typ, i)
		if node.Tensors[i].Data, err = c.permute(ctx, &t.Array, name, r.plan.tensors[typ][i]); err != nil {
			return err
		}
		if r.inPlace {
			if err := errors.Join(r.src.fs.Remove(t.Path), r.src.fs.Remove(t.CRCPath)); err != nil {
				return access(err)
			}
		}
	}
	return nil
}

// carry copies the pages of an array, checked, and describes the copy.
func (r *relayouter) carry(ctx context.Context, a carried) error {
	w, err := newArrayWriter(r.src.fs, r.dir, a.name, a.DType, a.RowShape, r.plan.chunk, r.budget)
	if err != nil {
		return err
	}
	defer w.abort()
	w.useLayout(a.Layout)
	err = pagesOf(a.Array).streamRows(ctx, int64(r.plan.chunk), r.budget, func(_ int64, pages []byte) error {
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
