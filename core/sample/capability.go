package sample

import (
	"fmt"
	"slices"
	"strings"
)

// Capability is a set of what may be asked of the way in which neighbours are drawn. Each Kind states its own, and
// Choose compares them with what a loader was asked for, once, when it is opened.
//
// There is none for what the package promises of every kind: that a batch is a pure function of graph, Config, Key and
// seeds. Resuming, ranks that share an epoch, and windows that are planned ahead need nothing else.
type Capability uint32

const (
	CanWeights       Capability = 1 << iota // draws in proportion to weights of edges
	CanTimes                                // draws what was there at the times of the seeds
	CanTrees                                // draws a tree for each seed, independently of other trees
	CanReplace                              // draws with replacement
	CanTypes                                // draws along several relations
	CanWalks                                // finds neighbours by random walks
	CanMetapaths                            // draws along metapaths in place of relations
	CanLinks                                // draws for the ends of links
	CanExclude                              // draws as if the edges that a request excludes did not exist
	CanBidirectional                        // batches may have an edge against each that was drawn
	CanInduced                              // batches may have all edges between their nodes
	CanTranspose                            // batches may have their edges by source too
	CanDisk                                 // reads neighbour lists that are not in memory
	CanHistory                              // batches may be pruned by historical embeddings
	CanAggregate                            // aggregates over all in-neighbours may stand for the last hop
	CanExpected                             // expected visits follow from lists, fanouts and weights
	CanEdgeIDs                              // edges of batches are edges of the graph: Subgraph.Pos is not nil
	CanEdgeWeight                           // it weighs edges: Subgraph.Weight is not nil
	endCapability
)

// AllCapabilities are single capabilities, in their order.
func AllCapabilities() (all []Capability) {
	for c := Capability(1); c < endCapability; c <<= 1 {
		all = append(all, c)
	}
	return all
}

// Has reports whether all of other are in the set.
func (c Capability) Has(other Capability) bool { return c&other == other }

// options are the capabilities by the names of the options that ask for them.
var options = map[Capability]string{
	CanWeights: "weight_attr", CanTimes: "time_attr", CanTrees: "disjoint=True", CanReplace: "replace=True",
	CanTypes: "edge types", CanWalks: "RandomWalk", CanMetapaths: "metapaths", CanLinks: "links",
	CanExclude:       "exclude_seed_edges",
	CanBidirectional: `subgraph_type="bidirectional"`, CanInduced: `subgraph_type="induced"`,
	CanTranspose: "transpose=True",
	CanDisk:      "neighbour lists on disk", CanHistory: "history", CanAggregate: "first_layer",
	CanExpected: `cache="expected"`, CanEdgeIDs: "edge ids", CanEdgeWeight: "edge_weight",
}

func (c Capability) String() string {
	var names []string
	for _, one := range AllCapabilities() {
		if c.Has(one) {
			names = append(names, options[one])
		}
	}
	return strings.Join(names, ", ")
}

// apart lists what no kind can do together, although some can do either.
var apart = []struct {
	one, other Capability
	why        string
}{
	{CanInduced, CanTrees, "it joins what is disjoint, and has edges of any time: " +
		`use "directional" or "bidirectional"`},
	{CanBidirectional | CanInduced, CanExclude, "seed edges can be excluded from what is drawn, " +
		`not from edges that subgraph_type adds: use "directional"`},
	{CanBidirectional | CanInduced, CanHistory, "a history prunes edges hop by hop, and added edges are of no hop: " +
		`use "directional"`},
	{CanBidirectional | CanInduced, CanEdgeWeight, "it is for the edges that were drawn: " +
		`use edge_weight=False or "directional"`},
	{CanTrees, CanHistory, "trees, which time_attr makes too, share no embeddings"},
	{CanLinks, CanHistory, "a history keeps embeddings of the nodes that an output layer gives, and links have none"},
	{CanLinks, CanMetapaths, "links are drawn along edge types"},
	{CanAggregate, CanTimes, "aggregates are over all neighbours, at any time"},
	{CanAggregate, CanExclude, "aggregates are over all neighbours, the ends of seed edges included"},
}

// advice ends the messages of some capabilities that a kind lacks.
var advice = map[Capability]string{CanExpected: `: it follows draws from neighbour lists: use "presc"`}

// UnsupportedError reports two options that cannot be combined. It is an ErrConfig.
type UnsupportedError struct{ one, other, why string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s cannot be combined with %s%s", e.one, e.other, e.why)
}

func (e *UnsupportedError) Is(target error) bool { return target == ErrConfig }

// Choose returns the kind that draws what is asked: the first one whose For is among it, or which has the name of the
// chosen one. It returns an UnsupportedError if that kind cannot do all that is asked.
func Choose(asked Capability, chosen Named) (*Kind, error) {
	k := kinds[slices.IndexFunc(kinds, func(k *Kind) bool {
		if k.Key != "" {
			return chosen != nil && chosen.Kind() == k
		}
		return asked.Has(k.For)
	})]
	if chosen != nil && chosen.Kind() != k {
		return nil, &UnsupportedError{k.Name, chosen.Kind().Name, ""}
	}
	return k, k.check(asked)
}

// check compares what is asked with what the kind can do, and is the only place that does.
func (k *Kind) check(asked Capability) error {
	if lacks := asked &^ k.Can; lacks != 0 {
		first := lacks & -lacks
		why := advice[first]
		if others := whoCan(asked); others != "" && why == "" {
			why = "; " + others + " can"
		}
		return &UnsupportedError{k.Name, options[first], why}
	}
	for _, pair := range apart {
		if one, other := asked&pair.one, asked&pair.other; one != 0 && other != 0 {
			return &UnsupportedError{options[one&-one], options[other&-other], ": " + pair.why}
		}
	}
	return nil
}

// whoCan names the kinds that can do all that is asked.
func whoCan(asked Capability) string {
	var names []string
	for _, k := range slices.Backward(kinds) {
		if k.Can.Has(asked) {
			names = append(names, k.Name)
		}
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// asks returns what a Config asks for in a graph.
func (c *Config) asks(g *Graph) (asked Capability) {
	for capability, is := range map[Capability]bool{
		CanWeights:       slices.ContainsFunc(c.Weights, func(w *Weights) bool { return w != nil }),
		CanTimes:         len(c.Temporal) > 0,
		CanTrees:         c.Disjoint || len(c.Temporal) > 0,
		CanReplace:       c.Replace,
		CanTypes:         g.Named,
		CanWalks:         len(c.Metapaths) > 0,
		CanMetapaths:     g.Named && len(c.Metapaths) > 0,
		CanBidirectional: c.Subgraph == Bidirectional,
		CanInduced:       c.Subgraph == Induced,
		CanDisk:          slices.ContainsFunc(g.Relations, func(r Relation) bool { return r.Adjacency != nil }),
	} {
		if is {
			asked |= capability
		}
	}
	return asked
}
