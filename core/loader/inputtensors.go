package loader

import (
	"freshgo/core/draw"
	"freshgo/core/links"
)

// inputTensors adds the tensors that describe the inputs of batches: nodes, or links.
type inputTensors interface {
	// idsOfType adds input_id to the tensors of a node type, or idsOfBatch to those of the batch.
	idsOfType(p *preparer, b *Batch, typ int) error
	idsOfBatch(p *preparer, b *Batch) error
	// ofType adds the other tensors that describe the inputs to the tensors of a node type, and ofBatch to those of the
	// batch. A trace has none of them.
	ofType(p *preparer, b *Batch, typ int) error
	ofBatch(p *preparer, b *Batch) error
}

// setInputs makes a preparer's batches those of some inputs.
func (p *preparer) setInputs(of draw.Inputs) {
	p.of, p.described = of, seedTensors{}
	if k := of.Linked(); k != nil {
		p.described = linkTensors{k}
	}
}

// seedTensors describes input nodes.
type seedTensors struct{}

// idsOfType adds the places of the inputs of one type in the user's list of them.
func (seedTensors) idsOfType(p *preparer, b *Batch, typ int) error {
	inputs, err := p.add(b, p.loader.draw.Parts.Schema.NodeName(typ, "input_id"), p.typeOffsets.Seeds[typ])
	if err != nil {
		return err
	}
	p.of.Visit(typ, p.request.Inputs, func(i int, at, place int64) { inputs[i] = place })
	return nil
}

func (seedTensors) idsOfBatch(*preparer, *Batch) error { return nil }

// ofType adds, with trees, the trees of the nodes of one type and the times of its inputs.
func (seedTensors) ofType(p *preparer, b *Batch, typ int) error {
	parts, c := &p.loader.draw.Parts, &p.typeOffsets
	if !parts.Disjoint {
		return nil
	}
	if _, err := p.addTrees(b, typ); err != nil || !parts.Timed {
		return err
	}
	times, err := p.add(b, parts.Schema.NodeName(typ, draw.SeedTimeName), c.Seeds[typ])
	if err != nil {
		return err
	}
	p.of.Visit(typ, p.request.Inputs, func(i int, at, _ int64) { times[i] = p.of.Times[at] })
	return nil
}

func (seedTensors) ofBatch(*preparer, *Batch) error { return nil }

// addTrees adds the trees of the nodes of one type.
func (p *preparer) addTrees(b *Batch, typ int) (trees []int64, err error) {
	of := p.batch.Tree[p.typeOffsets.Nodes[typ]:p.typeOffsets.Nodes[typ+1]]
	trees, err = p.add(b, p.loader.draw.Parts.Schema.NodeName(typ, draw.TreeName), int64(len(of)))
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

func (k linkTensors) idsOfType(*preparer, *Batch, int) error { return nil }

// idsOfBatch adds the places of the links in the user's list of them.
func (k linkTensors) idsOfBatch(p *preparer, b *Batch) error {
	return p.addCounts(b, p.loader.draw.Parts.Schema.EdgeName(k.Options.Relation, "input_id"), p.request.Inputs)
}

// ofType adds the links in whose trees the nodes are.
func (k linkTensors) ofType(p *preparer, b *Batch, typ int) error {
	if !p.loader.draw.Parts.Disjoint {
		return nil
	}
	trees, err := p.addTrees(b, typ)
	if err == nil {
		k.LinksOfTrees(trees, b.NumSeeds)
	}
	return err
}

// ofBatch adds the times of the links, and where their ends are among the nodes.
func (k linkTensors) ofBatch(p *preparer, b *Batch) error {
	parts, inputs := &p.loader.draw.Parts, p.request.Inputs
	if parts.Timed {
		for _, name := range parts.TimesNames() {
			times, err := p.add(b, name, k.Options.NumTimes(b.NumSeeds))
			if err != nil {
				return err
			}
			for i := range times {
				times[i] = p.of.Times[inputs[i%len(inputs)]]
			}
		}
	}
	for _, t := range k.Tensors(&p.request.Places, b.NumSeeds) {
		places, err := p.add(b, parts.LinkName(t.Name), t.Shape...)
		if err != nil {
			return err
		}
		copy(places, t.Places)
	}
	return nil
}
