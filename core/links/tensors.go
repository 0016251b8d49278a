package links

// End says whose a tensor of links is.
type End int

const (
	OfRelation End = iota
	OfSources      // of their node type
	OfTargets
)

// Name is the name of a tensor of links.
type Name struct {
	End  End
	Name string
}

// Tensor is places of ends as batches bring them.
type Tensor struct {
	Name
	Places []int64
	Shape  []int64
}

// MaxTensors is the most tensors that a batch has in addition if it is of links.
const MaxTensors = 3

var (
	pairs    = []Name{{OfRelation, "edge_label_index"}}
	triplets = []Name{{OfSources, "src_index"}, {OfTargets, "dst_pos_index"}, {OfTargets, "dst_neg_index"}}
	labels   = Name{OfRelation, "edge_label"} // what the user's labels become
)

// Names returns the names that a batch uses beside the names of its graph's tensors.
func (o *Options) Names() []Name {
	if o.Triplets {
		return triplets
	}
	return append([]Name{labels}, pairs...)
}

// TimeNames returns the tensors of times: of pairs one with the time of each link and negative, called pair, else one
// for each node type with those of links, called seed, as PyG has them.
func (o *Options) TimeNames(of *Relation, pair, seed string) []Name {
	switch {
	case !o.Triplets:
		return []Name{{OfRelation, pair}}
	case !of.Apart():
		return []Name{{OfSources, seed}}
	}
	return []Name{{OfSources, seed}, {OfTargets, seed}}
}

// Tensors returns the tensors that say what the links of a batch are, n of them.
func (k *Links) Tensors(p *Places, n int64) []Tensor {
	if !k.Options.Triplets {
		return []Tensor{{pairs[0], p.Ends, []int64{2, int64(len(p.Ends)) / 2}}}
	}
	shape := []int64{n}
	if each := int64(k.Options.Negatives); each > 1 {
		shape = append(shape, each)
	}
	return []Tensor{
		{triplets[0], p.Ends[:n], []int64{n}},
		{triplets[1], p.Ends[n : 2*n], []int64{n}},
		{triplets[2], p.Ends[2*n:], shape},
	}
}

// LinksOfTrees replaces the number of each tree by the link, of n, that its seed is an end of, so that pooling by tree
// pools by link. Ends of two types may be given one after the other: each type has a multiple of n ends or, of pairs,
// as many as the other.
func (k *Links) LinksOfTrees(trees []int64, n int64) {
	for i, tree := range trees {
		trees[i] = k.Options.LinkOf(tree, n)
	}
}
