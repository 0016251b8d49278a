package links

import (
	"context"
	"fmt"

	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
)

// Links holds the links and the tables of their negatives, and makes requests from them. Once open it is immutable and
// safe for concurrent use.
type Links struct {
	sample.Links // the user's; none where every edge is a link
	Options      *Options
	every        *everyEdge // nil: the user gives links
	of           Relation
	disjoint     bool              // every end has a tree of its own
	negatives    *sample.Negatives // nil: none
	blocks       []*mem.Block
}

// Graph gives links the data of their graph. Each is read once.
type Graph interface {
	// HasTimes reports whether the nodes of a type have times.
	HasTimes(typ int) bool
	// NodeTimes writes the time of each node of a type that has them.
	NodeTimes(ctx context.Context, typ int, times []int64) error
	// Edges are the edges of the relation that links are of.
	Edges(ctx context.Context) (Edges, error)
	// Numbers yields the user's numbers of these edges by position; nil: each is its position.
	Numbers(ctx context.Context) (sample.Edges, error)
}

// Edges are the edges of a relation by target.
type Edges interface {
	sample.Edges
	Indptr() *offsets.Table
}

// Open makes the tables, whose memory comes from budget. On an error nothing of it is left; sample.ErrConfig are
// weights of nodes that are none.
func Open(ctx context.Context, budget *mem.Budget, o *Options, of Relation, disjoint bool, g Graph) (*Links, error) {
	k := &Links{Links: sample.Links{Sources: o.Sources, Targets: o.Targets}, Options: o, of: of, disjoint: disjoint}
	if o.Sources == nil {
		k.every = new(everyEdge)
	}
	if err := k.open(ctx, budget, g); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *Links) open(ctx context.Context, budget *mem.Budget, g Graph) error {
	var n *sample.Negatives
	if k.Options.Negatives > 0 {
		n = &sample.Negatives{
			NumSources: k.of.NumSources, NumTargets: k.of.NumTargets, Given: k.Options.Triplets, Apart: k.of.Apart(),
		}
		if err := k.openTimes(ctx, budget, n, g); err != nil {
			return err
		}
	}
	if k.every != nil {
		alloc := func(n int64) (*mem.Block, error) { return k.alloc(budget, n) }
		if err := k.every.open(ctx, alloc, k.of.NumEdges, g); err != nil {
			return err
		}
	}
	if n == nil {
		return nil
	}
	if err := k.openWeights(budget, n); err != nil {
		return err
	}
	if k.Options.Strict {
		edges, err := g.Edges(ctx)
		if err != nil {
			return err
		}
		n.Strict, err = sample.NewStrict(ctx, budget, n, edges.Indptr(), edges, k.Links, k.every != nil)
		if err != nil {
			return err
		}
	}
	k.negatives = n
	return nil
}

// openTimes makes the times of nodes ready for negatives, of either type that has any.
func (k *Links) openTimes(ctx context.Context, budget *mem.Budget, n *sample.Negatives, g Graph) (err error) {
	if n.TargetTimes, err = k.timesOf(ctx, budget, k.of.Target, k.of.NumTargets, g); err != nil {
		return err
	}
	switch {
	case k.Options.Triplets: // which have the sources of links
	case !k.of.Apart():
		n.SourceTimes = n.TargetTimes
	default:
		n.SourceTimes, err = k.timesOf(ctx, budget, k.of.Source, k.of.NumSources, g)
	}
	return err
}

// timesOf returns the times of the nodes of a type; nil where they have none.
func (k *Links) timesOf(
	ctx context.Context, budget *mem.Budget, typ int, count int64, g Graph,
) (*sample.NodeTimes, error) {
	if !g.HasTimes(typ) {
		return nil, nil
	}
	staging, err := budget.Alloc(mem.Staging, 8*max(1, count))
	if err != nil {
		return nil, err
	}
	defer staging.Free()
	times := mem.Slice[int64](staging)[:count]
	if err := g.NodeTimes(ctx, typ, times); err != nil {
		return nil, err
	}
	block, err := k.alloc(budget, sample.NodeTimesBytes(count))
	if err != nil {
		return nil, err
	}
	return sample.NewNodeTimes(times, block)
}

// openWeights makes the running sums of the weights of nodes.
func (k *Links) openWeights(budget *mem.Budget, n *sample.Negatives) error {
	o := k.Options
	for _, w := range []struct {
		name  string
		from  []float64
		to    *[]float64
		used  bool
		times *sample.NodeTimes
	}{
		{"src_weight", o.SourceWeights, &n.Sources, !o.Triplets, n.SourceTimes},
		{"dst_weight", o.TargetWeights, &n.Targets, true, n.TargetTimes},
	} {
		if w.from == nil || !w.used {
			continue
		}
		block, err := k.alloc(budget, 8*int64(len(w.from)))
		if err != nil {
			return err
		}
		*w.to = mem.Slice[float64](block)
		copy(*w.to, w.from)
		if err := sample.RunningSums(*w.to); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if w.times != nil {
			if err := w.times.Sort(w.from, *w.to); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Links) alloc(budget *mem.Budget, n int64) (*mem.Block, error) {
	block, err := budget.Alloc(mem.Topology, n)
	if err == nil {
		k.blocks = append(k.blocks, block)
	}
	return block, err
}

// Bytes returns the memory of the links and their tables.
func (k *Links) Bytes() (total int64) {
	if k == nil {
		return 0
	}
	for _, b := range k.blocks {
		total += int64(len(b.Bytes()))
	}
	total += 16 * int64(len(k.Sources))
	if k.Strict() {
		total += k.negatives.Strict.Bytes()
	}
	return total
}

// Strict reports whether a request looks at lists of the graph.
func (k *Links) Strict() bool { return k.negatives != nil && k.negatives.Strict != nil }

// Earliest fails with sample.ErrNegative where the earliest link, of this time, can have no negatives.
func (k *Links) Earliest(ctx context.Context, edges *sample.Relation, at int64) error {
	if !k.timed() {
		return nil
	}
	return k.negatives.Earliest(ctx, edges, at)
}

// timed reports whether negatives depend on a time.
func (k *Links) timed() bool { return k.negatives != nil && k.negatives.Timed() }

// Close frees the tables. Idempotent.
func (k *Links) Close() {
	if k.Strict() {
		k.negatives.Strict.Close()
	}
	for _, b := range k.blocks {
		b.Free()
	}
	k.blocks, k.negatives = nil, nil
}
