package loader

import (
	"cmp"
	"context"
	"fmt"
	"freshgo/core/graph"
	"math"
	"slices"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// Links as what batches are drawn for (PyG's LinkNeighborLoader). A batch is BatchSize links, in the order of the epoch, and
// negatives for them; its seeds are the nodes at their ends, each once and ascending. What is drawn follows from the batch's
// key, so that the stream, plans and traces need not know of links.

// LinkOptions make links what batches are drawn for, in place of Options.Seeds.
type LinkOptions struct {
	// Sources and Targets are the nodes of each link; nil: every edge of the graph, in the user's order, for 16 bytes each. The
	// caller's memory until the loader is closed.
	Sources, Targets []int64
	Negatives        float64 // for each link, rounded up for a batch; 0: none
	Triplets         bool    // negatives are targets for the source of each link, a whole number of them; else they are pairs
	// SourceWeights and TargetWeights are what negative nodes are drawn in proportion to, by node; nil: uniformly.
	SourceWeights, TargetWeights []float64
	Strict                       bool // a negative is no edge of the graph, none of the links and no node with itself
	Exclude                      Exclusion
	// Of a graph with types: the relation that the links are of, whose edges "the graph" above is, and the one that ExcludeBoth takes the way back from.
	Relation, Reverse int
}

// Exclusion says which edges a batch does not draw.
type Exclusion int

const (
	ExcludeNone  Exclusion = iota
	ExcludeLinks           // those of its links, not of its negatives
	ExcludeBoth            // and those from the target to the source of each
)

// linkTensors are the tensors that a batch of links has: pairs or triplets of positions in n_id.
const linkPairs = "edge_label_index"

var linkTriplets = [3]string{"src_index", "dst_pos_index", "dst_neg_index"}

// LinkTensors is how many tensors a batch of links has more, at most.
const LinkTensors = len(linkTriplets)

// maxNegatives for each link. Arbitrary, far from overflow.
const maxNegatives = 1 << 20

// numNegatives is how many there are for so many links.
func (o *LinkOptions) numNegatives(links int64) int64 {
	return int64(math.Ceil(float64(links) * o.Negatives))
}

// ends is how many ends of links and negatives a batch of so many links has.
func (o *LinkOptions) ends(links int64) int64 {
	if o == nil {
		return 0
	}
	if o.Triplets {
		return 2*links + o.numNegatives(links)
	}
	return 2 * (links + o.numNegatives(links))
}

func (o *Options) validateLinks(p *parts) error {
	k := o.Links
	if k == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...))
	}
	e, err := p.linked(k)
	if err != nil {
		return err
	}
	switch {
	case o.Seeds != nil:
		return refuse("seeds and links cannot be used together")
	case o.History != nil:
		return refuse("a history keeps embeddings of the nodes that an output layer gives, which links have none of: history cannot be used with links")
	case (k.Sources == nil) != (k.Targets == nil) || len(k.Sources) != len(k.Targets):
		return refuse("links have %d sources and %d targets", len(k.Sources), len(k.Targets))
	case k.Sources != nil && len(k.Sources) == 0:
		return refuse("edge_label_index names no link, expected at least one")
	case k.Sources == nil && e.numEdges == 0:
		return refuse("every edge is a link, but %s has none", cmp.Or(e.name, "the graph"))
	case !(k.Negatives >= 0 && k.Negatives <= maxNegatives):
		return refuse("negatives for each link must be 0 to %d, got %v", maxNegatives, k.Negatives)
	case k.Triplets && k.Negatives != math.Floor(k.Negatives) || k.Triplets && k.Negatives == 0:
		return refuse("triplets take a whole number of negatives for each link, got %v", k.Negatives)
	case k.Exclude < ExcludeNone || k.Exclude > ExcludeBoth:
		return refuse("unknown exclusion %d", k.Exclude)
	case k.Exclude != ExcludeNone && (o.Labor != nil || o.walk()):
		return refuse("seed edges can be excluded from even draws and draws by weight, not from LABOR and random walks")
	case k.Exclude != ExcludeNone && o.Subgraph != sample.Directional:
		return refuse("seed edges can be excluded from what is drawn, not from edges that subgraph_type adds: take \"directional\"")
	case k.Strict && k.Negatives == 0:
		return refuse("strict negatives without negatives")
	}
	for end, w := range []struct {
		name    string
		nodes   []int64
		weights []float64
		count   int64
		typ     string
	}{{"src_weight", k.Sources, k.SourceWeights, e.sources, e.ofSource}, {"dst_weight", k.Targets, k.TargetWeights, e.targets, e.ofTarget}} {
		if w.weights != nil && int64(len(w.weights)) != w.count {
			return refuse("%s must have an entry for each of %d nodes%s, got %d", w.name, w.count, w.typ, len(w.weights))
		}
		for i, v := range w.nodes {
			if uint64(v) >= uint64(w.count) {
				return fmt.Errorf("%w: edge_label_index[%d, %d] is %d, expected an id in [0, %d)%s", sample.ErrSeed, end, i, v, w.count, w.typ)
			}
		}
	}
	names := p.pairNames(k)
	if k.Triplets {
		names = p.tripletNames(k)
	}
	for _, t := range p.tensors {
		if slices.Contains(names, t.label) {
			return refuse("the graph has a tensor %q, which is what a batch calls its links: rename the tensor", t.name)
		}
	}
	return nil
}

// links is what batches of links are made of.
type links struct {
	sample.Links
	linked
	options   *LinkOptions
	types     *schema           // nil: a homogeneous graph
	numNodes  int64             // of all types
	disjoint  bool              // every end has a tree of its own
	born      endTimes          // for negatives
	negatives *sample.Negatives // nil: none
	blocks    []*mem.Block
}

// openLinks makes the links ready. Like indptr its tables are counted apart from the budget until the size of the working set
// is known.
func (l *Loader) openLinks(ctx context.Context) error {
	o := l.options.Links
	if o == nil {
		return nil
	}
	of, err := l.parts.linked(o)
	if err != nil {
		return err
	}
	k := &links{
		options: o, linked: of, types: l.parts.types, Links: sample.Links{Sources: o.Sources, Targets: o.Targets}, numNodes: l.parts.numNodes,
		disjoint: l.options.disjoint(),
	}
	l.links = k
	l.onClose(k.close)
	budget := mem.NewBudget(0)
	if err := l.openBorn(ctx, budget); err != nil {
		return err
	}
	every := o.Sources == nil
	if !every && !o.Strict {
		return k.openNegatives(budget, nil)
	}
	// For what reads the graph once, as measure does.
	trial := &Loader{options: l.options, parts: l.parts, budget: mem.NewBudget(0)}
	trial.split = sizing.Reading()
	defer trial.undo()
	if err := trial.openEngine(); err != nil {
		return err
	}
	edges, err := trial.linkEdges(ctx, o)
	if err != nil {
		return err
	}
	if every {
		if err := k.takeEdges(ctx, budget, trial, edges); err != nil {
			return err
		}
	}
	return k.openNegatives(budget, func(n *sample.Negatives) (*sample.Strict, error) {
		return sample.NewStrict(ctx, budget, n, edges.Indptr(), edges, k.Links, every)
	})
}

// takeEdges makes every edge a link.
func (k *links) takeEdges(ctx context.Context, budget *mem.Budget, trial *Loader, edges *graph.Edges) error {
	block, err := k.alloc(budget, 16*k.numEdges)
	if err != nil {
		return err
	}
	ends := mem.Slice[int64](block)
	k.Sources, k.Targets = ends[:k.numEdges], ends[k.numEdges:]
	ids, free, err := trial.linkNumbers(ctx, k.options)
	if err != nil {
		return err
	}
	defer free()
	target, one := int64(0), make([]int64, 1)
	return edges.Scan(ctx, func(first int64, sources []int64) error {
		for i, source := range sources {
			p := first + int64(i)
			for edges.Indptr()[target+1] <= p {
				target++
			}
			one[0] = p
			if err := ids.Gather(ctx, nil, sample.Drawn{Pos: one}, one); err != nil {
				return err
			}
			k.Sources[one[0]], k.Targets[one[0]] = source, target
		}
		return nil
	})
}

// openNegatives makes the tables that negatives are drawn with.
func (k *links) openNegatives(budget *mem.Budget, strict func(*sample.Negatives) (*sample.Strict, error)) error {
	o := k.options
	if o.Negatives == 0 {
		return nil
	}
	n := &sample.Negatives{NumSources: k.sources, NumTargets: k.targets, Given: o.Triplets, Apart: k.apart(), SourcesBorn: k.born.sources, TargetsBorn: k.born.targets}
	for _, w := range []struct {
		name string
		from []float64
		to   *[]float64
		used bool
		born *sample.NodeTimes
	}{{"src_weight", o.SourceWeights, &n.Sources, !o.Triplets, n.SourcesBorn}, {"dst_weight", o.TargetWeights, &n.Targets, true, n.TargetsBorn}} {
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
			return fmt.Errorf("%w: %s: %w", ErrOption, w.name, err)
		}
		if w.born != nil {
			if err := w.born.Sort(w.from, *w.to); err != nil {
				return err
			}
		}
	}
	if o.Strict {
		var err error
		if n.Strict, err = strict(n); err != nil {
			return err
		}
	}
	k.negatives = n
	return nil
}

func (k *links) alloc(budget *mem.Budget, n int64) (*mem.Block, error) {
	block, err := budget.Alloc(mem.Topology, n)
	if err == nil {
		k.blocks = append(k.blocks, block)
	}
	return block, err
}

// bytes is what the links and their tables take.
func (k *links) bytes() (total int64) {
	if k == nil {
		return 0
	}
	for _, b := range k.blocks {
		total += int64(len(b.Bytes()))
	}
	if k.options.Sources != nil {
		total += 16 * int64(len(k.Sources))
	}
	if k.negatives != nil && k.negatives.Strict != nil {
		total += k.negatives.Strict.Bytes()
	}
	return total
}

func (k *links) close() {
	if k.negatives != nil && k.negatives.Strict != nil {
		k.negatives.Strict.Close()
	}
	for _, b := range k.blocks {
		b.Free()
	}
	k.blocks, k.negatives = nil, nil
}
