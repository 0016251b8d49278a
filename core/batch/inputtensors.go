package batch

import (
	"freshgo/core/draw"
	"freshgo/core/links"
)

// inputTensors adds the tensors that describe the inputs of batches: nodes, or links.
type inputTensors interface {
	// idsOfType adds input_id to the tensors of a node type, or idsOfBatch to those of the batch.
	idsOfType(d *Drawn, b *Batch, typ int) error
	idsOfBatch(d *Drawn, b *Batch) error
	// ofType adds the other tensors that describe the inputs to the tensors of a node type, and ofBatch to those of the
	// batch. A trace has none of them.
	ofType(d *Drawn, b *Batch, typ int) error
	ofBatch(d *Drawn, b *Batch) error
}

// seedTensors describes input nodes.
type seedTensors struct{}

// idsOfType adds the places of the inputs of one type in the user's list of them.
func (seedTensors) idsOfType(d *Drawn, b *Batch, typ int) error {
	inputs, err := b.add(d.Parts.Schema.NodeName(typ, "input_id"), d.TypeOffsets.Seeds[typ])
	if err != nil {
		return err
	}
	d.Inputs.Visit(typ, d.Request.Inputs, func(i int, at, place int64) { inputs[i] = place })
	return nil
}

func (seedTensors) idsOfBatch(*Drawn, *Batch) error { return nil }

// ofType adds, with trees, the trees of the nodes of one type and the times of its inputs.
func (seedTensors) ofType(d *Drawn, b *Batch, typ int) error {
	parts, c := d.Parts, &d.TypeOffsets
	if !parts.Disjoint {
		return nil
	}
	if _, err := d.addTrees(b, typ); err != nil || !parts.Timed {
		return err
	}
	times, err := b.add(parts.Schema.NodeName(typ, draw.SeedTimeName), c.Seeds[typ])
	if err != nil {
		return err
	}
	d.Inputs.Visit(typ, d.Request.Inputs, func(i int, at, _ int64) { times[i] = d.Inputs.Times[at] })
	return nil
}

func (seedTensors) ofBatch(*Drawn, *Batch) error { return nil }

// addTrees adds the trees of the nodes of one type.
func (d *Drawn) addTrees(b *Batch, typ int) (trees []int64, err error) {
	of := d.Delivered.Tree[d.TypeOffsets.Nodes[typ]:d.TypeOffsets.Nodes[typ+1]]
	trees, err = b.add(d.Parts.Schema.NodeName(typ, draw.TreeName), int64(len(of)))
	if err != nil {
		return nil, err
	}
	for i, tree := range of {
		trees[i] = int64(tree)
	}
	return trees, nil
}

// linkTensors describes links.
type linkTensors struct{ *links.Links }

func (k linkTensors) idsOfType(*Drawn, *Batch, int) error { return nil }

// idsOfBatch adds the places of the links in the user's list of them.
func (k linkTensors) idsOfBatch(d *Drawn, b *Batch) error {
	return b.addCounts(d.Parts.Schema.EdgeName(k.Options.Relation, "input_id"), d.Request.Inputs)
}

// ofType adds the links in whose trees the nodes are.
func (k linkTensors) ofType(d *Drawn, b *Batch, typ int) error {
	if !d.Parts.Disjoint {
		return nil
	}
	trees, err := d.addTrees(b, typ)
	if err == nil {
		k.LinksOfTrees(trees, b.NumSeeds)
	}
	return err
}

// ofBatch adds the times of the links, and where their ends are among the nodes.
func (k linkTensors) ofBatch(d *Drawn, b *Batch) error {
	parts, inputs := d.Parts, d.Request.Inputs
	if parts.Timed {
		for _, name := range parts.TimesNames() {
			times, err := b.add(name, k.Options.NumTimes(b.NumSeeds))
			if err != nil {
				return err
			}
			for i := range times {
				times[i] = d.Inputs.Times[inputs[i%len(inputs)]]
			}
		}
	}
	for _, t := range k.Tensors(&d.Request.Places, b.NumSeeds) {
		places, err := b.add(parts.LinkName(t.Name), t.Shape...)
		if err != nil {
			return err
		}
		copy(places, t.Places)
	}
	return nil
}
