// Package propagate computes, for every node, a reduction of the rows of all its in-neighbours, and stores it as a
// tensor: mean, sum, or the sum with GCN's coefficients, along each edge type, with or without weights.
//
// Rows of sources are needed in any order, so they are in memory, as many columns of all of them as fit at a time,
// while the neighbour lists pass by in their order. With one such slice of columns everything is read and written
// once. With several, lists and rows are read once for each; or, where there are many, rows are read once and go by
// slices through a temporary file. The results of all slices but the last go through it too, and join those of the
// last one as these are made; where rows of targets lie in another order than the nodes, the results of all slices do,
// unless there is memory for all of them.
//
// Sums are float64 and in the order of the lists, so the result depends neither on threads nor on memory; it is rounded
// once.
//
// The store gains all of the tensors or none (store.Addition). The C API calls Run.
package propagate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"freshgo/core/graph"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// The reductions.
const (
	Mean = "mean" // the sum over in-edges, weighted where there are weights, divided by how many there are; 0 without any
	Sum  = "sum"
	// GCN is the sum with self-loops and symmetric normalisation (Kipf and Welling), as PyG's gcn_norm: along an edge
	// from u to t with weight w, w / sqrt(d(u) d(t)), where d adds up the weights of in-edges. A node's own self-loop
	// keeps its weight, the last one where there are several; otherwise it weighs 1.
	GCN = "gcn"
)

// Reductions lists the reductions.
var Reductions = []string{Mean, Sum, GCN}

// Options are the choices of Run.
type Options struct {
	Tensor     string // node tensor of floats: the reduction's input
	Reduce     string
	WeightAttr string // edge tensor of numbers; edge types without it are not weighted. "": none is
	Relations  []int  // places of edge types; nil: all whose sources have the tensor
	Hops       int    // at least 1; more than 1 only in homogeneous graphs
	Name       string // of the result; the result of hop 2 appends a 2, and so on
	Memory     int64  // bytes to work in; 0 for no limit
	Overwrite  bool   // replace computed tensors of these names
	IO         ssd.Kind
	// Progress, which may be nil, is called with the number of rows written so far and their total.
	Progress func(stage string, done, total int64)
}

// Report counts the bytes that a run moved.
type Report struct {
	Read, Requests int64 // bytes, and requests for rows and neighbours
	Written        int64 // bytes
	Slices         int   // of columns, over all edge types and hops
}

// Run computes the tensors that the options ask for and adds them to the store at the path of s, which must be opened
// again to see them. If a node type has the tensor itself, and the reduction is not GCN, its own row comes first in
// each row of the first hop, so that one request reads both.
//
// A budget that is too small is a *mem.BudgetError with the smallest one that works. Other errors are store.ErrInvalid,
// store.ErrExists, and the errors of store.BeginAddition and of reading and writing.
func Run(ctx context.Context, s *store.Store, o Options) (Report, error) {
	return run(ctx, s, o, mem.NewBudget(o.Memory))
}

// run is Run with the budget given.
func run(ctx context.Context, s *store.Store, o Options, budget *mem.Budget) (Report, error) {
	a, err := s.BeginAddition()
	if err != nil {
		return Report{}, err
	}
	r := &runner{options: o, adding: a, store: a.Store(), budget: budget}
	if err := r.run(ctx); err != nil {
		return r.report, errors.Join(err, a.Discard())
	}
	return r.report, a.Publish(ctx)
}

// runner is one run.
type runner struct {
	options Options
	adding  *store.Addition
	store   *store.Store
	budget  *mem.Budget
	opened  graph.Opened
	threads int
	engine  *ssd.Engine
	staging int64 // bytes of its buffers
	done    int64 // rows written
	total   int64
	report  Report
}

func (r *runner) run(ctx context.Context) error {
	outputs, err := r.outputs()
	if err != nil {
		return err
	}
	options := ssd.Options{
		Kind: r.options.IO, Depth: engineDepth, SlotBytes: ssd.DefaultSlotBytes, FS: r.store.FS(), Budget: r.budget,
	}
	r.staging = options.StagingBytes()
	name, need := "", int64(0)
	for i := range outputs {
		if n := outputs[i].footprint(r.staging); n > need {
			name, need = outputs[i].name, n
		}
	}
	if limit := r.budget.Limit(); limit > 0 && need > limit {
		return tooSmall(name, need, limit)
	}
	if r.engine, err = ssd.NewEngine(options, r.store.Path()); err != nil {
		return err
	}
	defer r.engine.Close()
	defer func() {
		stats := r.engine.Stats()
		r.report.Read, r.report.Requests = r.report.Read+stats.Bytes, stats.Requests
	}()
	ssd.RemoveTemps(r.store.FS(), r.store.Path())
	r.threads = runtime.NumCPU()
	for i := range outputs {
		r.total += outputs[i].rows
	}
	r.progress(0)
	for i := range outputs {
		o := &outputs[i]
		if err := r.write(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// write computes and adds one tensor.
func (r *runner) write(ctx context.Context, o *output) error {
	r.opened = graph.Opened{
		Store: r.store, Engine: r.engine, Slot: r.engine.SlotBytes(), Checksums: true, Budget: r.budget,
	}
	defer r.opened.Close()
	p, err := r.open(ctx, o)
	if err != nil {
		return err
	}
	written, in, err := p.run(ctx)
	if err = errors.Join(err, p.close()); err != nil {
		return fmt.Errorf("propagate: %s: %w", o.name, err)
	}
	r.adding.Set(o.typ, o.name, in, o.description())
	if o.next != nil {
		o.next.array, o.next.offset = written, int(o.ownColumns())*o.dtype.Size()
	}
	return nil
}

// engineDepth keeps a device busy with ranges of 64 KiB, and its buffers within 2 MiB. Arbitrary.
const engineDepth = 32

func (r *runner) progress(rows int64) {
	r.done += rows
	if r.options.Progress != nil {
		r.options.Progress("propagate", r.done, r.total)
	}
}

// invalid returns a store.ErrInvalid that says what was expected and what was given.
func invalid(format string, args ...any) error {
	return fmt.Errorf("propagate: %s: %w", fmt.Sprintf(format, args...), store.ErrInvalid)
}

// check returns an error if the options are wrong by themselves.
func (o *Options) check() error {
	switch {
	case !slices.Contains(Reductions, o.Reduce):
		return invalid("reduce must be one of %q, got %q", Reductions, o.Reduce)
	case o.Hops < 1:
		return invalid("hops must be at least 1, got %d", o.Hops)
	case o.Memory < 0:
		return invalid("memory must be at least 0 bytes, got %d", o.Memory)
	case o.Name == o.Tensor:
		return invalid("the name %q is that of the tensor itself", o.Name)
	}
	return nil
}
