// Package links makes links what batches are drawn for (PyG's LinkNeighborLoader). A batch is links of one relation, in
// the order of the epoch, and negatives for them; its seeds are the nodes at their ends, each once and ascending or, in
// trees, one by one.
//
// It guarantees that a request is a function of the batch's key and its links, so that streams, plans and traces need
// not know of links. The loader calls it: it says what the links are of, gives what is read of the graph, and names
// tensors.
//
// Cost: of a batch a few passes over its ends; negatives that are strict look at lists of the graph, see sample.Strict.
package links

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"freshgo/core/sample"
)

// Options are the links and what is drawn for them. A tag is the name of the option for callers.
type Options struct {
	// Sources and Targets are the nodes of each link, by ids within their types; nil: every edge of the relation, in
	// the user's order (see EveryEdgeBytes). The caller's memory until Close.
	Sources []int64 `option:"sources,num_links"`
	Targets []int64 `option:"targets,num_links"`
	// Negatives are for each link, rounded up for a batch; 0: none.
	Negatives float64 `option:"negatives"`
	// Triplets have negatives that are targets for the source of each link, a whole number of them. Others are pairs.
	Triplets bool `option:"triplets"`
	// SourceWeights and TargetWeights, by node, are the weights by which negative nodes are drawn; nil: uniformly.
	SourceWeights []float64 `option:"src_weight"`
	TargetWeights []float64 `option:"dst_weight"`
	// Strict negatives are no edges of the relation, none of the links and no nodes with themselves.
	Strict  bool      `option:"strict"`
	Exclude Exclusion `option:"exclude"`
	// Relation is the relation of the links, and Reverse the relation whose edges ExcludeBoth excludes as the way back:
	// places in the graph, 0 in a homogeneous graph.
	Relation int `option:"relation"`
	Reverse  int `option:"reverse"`
}

// Exclusion selects the edges that a batch does not draw.
type Exclusion int

const (
	ExcludeNone  Exclusion = iota
	ExcludeLinks           // the edges of its links, not of its negatives
	ExcludeBoth            // and those from the target to the source of each
)

// Relation describes the edge type of links: from one node type to another, which may be the same.
type Relation struct {
	Source, Target           int    // node types
	NumSources, NumTargets   int64  // nodes that can be an end
	FirstSource, FirstTarget int64  // global numbers of the first of them
	NumNodes                 int64  // of all types
	NumEdges                 int64  // that links can be
	NumRelations             int    // of the graph
	Name                     string // for messages
	OfSource, OfTarget       string // the types, for messages: empty, or as " of type ..."
}

// Apart reports whether the ends are of different types.
func (r *Relation) Apart() bool { return r.Source != r.Target }

// maxNegatives for each link. Arbitrary, far from overflow.
const maxNegatives = 1 << 20

// Check returns an error if the options are wrong for links of a relation. An end that is not a node is sample.ErrSeed.
func (o *Options) Check(of *Relation) error {
	switch {
	case (o.Sources == nil) != (o.Targets == nil) || len(o.Sources) != len(o.Targets):
		return fmt.Errorf("links have %d sources and %d targets", len(o.Sources), len(o.Targets))
	case o.Sources != nil && len(o.Sources) == 0:
		return errors.New("edge_label_index names no link, expected at least one")
	case o.Sources == nil && of.NumEdges == 0:
		return fmt.Errorf("every edge is a link, but %s has none", cmp.Or(of.Name, "the graph"))
	case !(o.Negatives >= 0 && o.Negatives <= maxNegatives):
		return fmt.Errorf("negatives for each link must be 0 to %d, got %v", maxNegatives, o.Negatives)
	case o.Triplets && o.Negatives != math.Floor(o.Negatives) || o.Triplets && o.Negatives == 0:
		return fmt.Errorf("triplets take a whole number of negatives for each link, got %v", o.Negatives)
	case o.Exclude < ExcludeNone || o.Exclude > ExcludeBoth:
		return fmt.Errorf("unknown exclusion %d", o.Exclude)
	}
	return nil
}

// CheckEnds returns an error if the nodes or their weights are wrong.
func (o *Options) CheckEnds(of *Relation) error {
	for end, w := range []struct {
		name    string
		nodes   []int64
		weights []float64
		count   int64
		typ     string
	}{
		{"src_weight", o.Sources, o.SourceWeights, of.NumSources, of.OfSource},
		{"dst_weight", o.Targets, o.TargetWeights, of.NumTargets, of.OfTarget},
	} {
		if w.weights != nil && int64(len(w.weights)) != w.count {
			return fmt.Errorf("%s must have an entry for each of %d nodes%s, got %d",
				w.name, w.count, w.typ, len(w.weights))
		}
		for i, v := range w.nodes {
			if uint64(v) >= uint64(w.count) {
				return fmt.Errorf("%w: edge_label_index[%d, %d] is %d, expected an id in [0, %d)%s",
					sample.ErrSeed, end, i, v, w.count, w.typ)
			}
		}
	}
	return nil
}

// NumNegatives returns the number of negatives for a number of links.
func (o *Options) NumNegatives(links int64) int64 {
	return int64(math.Ceil(float64(links) * o.Negatives))
}

// NumEnds returns the number of ends of links and negatives in a batch with a number of links; without links none.
func (o *Options) NumEnds(links int64) int64 {
	switch {
	case o == nil:
		return 0
	case o.Triplets:
		return 2*links + o.NumNegatives(links)
	}
	return 2 * (links + o.NumNegatives(links))
}

// NumTimes returns the number of times in a batch with a number of seeds or links.
func (o *Options) NumTimes(seeds int64) int64 {
	if o == nil || o.Triplets {
		return seeds
	}
	return seeds + o.NumNegatives(seeds)
}

// LinkOf returns the link, of n in a batch, with which an end goes.
func (o *Options) LinkOf(end, n int64) int64 {
	if !o.Triplets {
		end %= n + o.NumNegatives(n)
	}
	return end % n
}
