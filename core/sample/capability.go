package sample

import (
	"fmt"
	"slices"
	"strings"
)

// Capability is a set of properties of a sampler. Each Kind states its own, and Choose compares them with the options
// of a loader, once, when the loader is opened.
//
// Every kind is a pure function of graph, Config, Key and seeds, so this has no capability. Resuming, ranks that share
// an epoch, and windows that are planned ahead rely on nothing else.
type Capability uint32

const (
	CanWeights       Capability = 1 << iota // draws in proportion to edge weights
	CanTimes                                // draws only what existed at the times of the seeds
	CanTrees                                // draws an independent tree for each seed
	CanReplace                              // draws with replacement
	CanTypes                                // draws along several relations
	CanWalks                                // finds neighbours by random walks
	CanMetapaths                            // draws along metapaths instead of relations
	CanLinks                                // draws for the ends of links
	CanExclude                              // draws as if excluded edges did not exist
	CanBidirectional                        // batches may include the reverses of drawn edges
	CanInduced                              // batches may include all edges among their nodes
	CanTranspose                            // batches may also have their edges grouped by source
	CanDisk                                 // reads neighbour lists from disk
	CanHistory                              // batches may be pruned by historical embeddings
	CanAggregate                            // aggregates over all in-neighbours may replace the last hop
	CanExpected                             // expected visits follow from lists, fanouts and weights
	CanEdgeIDs                              // batches have edges of the graph: Subgraph.Pos is not nil
	CanEdgeWeight                           // batches have weights of edges: Subgraph.Weight is not nil
	endCapability
)

// allCapabilities returns the single capabilities, in order.
func allCapabilities() (all []Capability) {
	for c := Capability(1); c < endCapability; c <<= 1 {
		all = append(all, c)
	}
	return all
}

// Has reports whether the set includes all of other.
func (c Capability) Has(other Capability) bool { return c&other == other }

// options names the option that asks for each capability.
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
	for _, one := range allCapabilities() {
		if c.Has(one) {
			names = append(names, options[one])
		}
	}
	return strings.Join(names, ", ")
}

// apart lists pairs of capabilities that no kind has together, although some kinds have one of them.
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

// advice ends the messages about missing capabilities.
var advice = map[Capability]string{CanExpected: `: it follows draws from neighbour lists: use "presc"`}

// UnsupportedError reports two options that cannot be combined. It is an ErrConfig.
type UnsupportedError struct{ one, other, why string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s cannot be combined with %s%s", e.one, e.other, e.why)
}

func (e *UnsupportedError) Is(target error) bool { return target == ErrConfig }

// Choose returns the sampler for the capabilities asked for: the kind named by chosen, or else the first kind whose For
// is among them. It returns an UnsupportedError if that kind lacks one of them.
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

// check compares the capabilities asked for with those of the kind. Nothing else does.
func (k *Kind) check(asked Capability) error {
	if lacks := asked &^ k.Can; lacks != 0 {
		first := lacks & -lacks
		why := advice[first]
		switch others := whoCan(asked); {
		case why != "":
		case others != "":
			why = "; " + others + " can"
		case k.Else != "":
			why = ": " + k.Else
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

// whoCan names the kinds that have all capabilities asked for.
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

// asks returns the capabilities that a Config asks for in a graph.
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
