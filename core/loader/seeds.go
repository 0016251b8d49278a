package loader

import (
	"context"

	"freshgo/core/links"
	"freshgo/core/sample"
)

// requester makes the requests of batches: for input nodes, or for links.
type requester interface {
	// count returns their number.
	count() int64
	// bytes returns their memory, without their times.
	bytes() int64
	// open returns an error if batches cannot be drawn for them. The sampler is open.
	open(ctx context.Context, m *sampling) error
	// request completes r, whose inputs and times are set, for the batch of key.
	request(ctx context.Context, m *sampling, key sample.Key, r *request) error
	// idsOfType adds input_id to the tensors of a node type, or idsOfBatch to those of the batch.
	idsOfType(p *preparer, b *Batch, typ int) error
	idsOfBatch(p *preparer, b *Batch) error
	// ofType adds the other tensors that describe the inputs to the tensors of a node type, and ofBatch to those of the
	// batch. A trace has none of them.
	ofType(p *preparer, b *Batch, typ int) error
	ofBatch(p *preparer, b *Batch) error
}

// inputs lists the seeds or links of batches: of the loader, or of an Ask.
type inputs struct {
	requester
	runs  []seedRun // of nodes, those of each type
	times []int64   // by place; none without times
}

// own are the loader's inputs.
func (m *sampling) own() inputs { return inputs{m.seeds, m.parts.types.runs, m.seedTimes} }

// visit visits, in their order, the seeds of a type among those at some places: i counts them, at is the place and
// place that among the seeds of the type.
func (of *inputs) visit(typ int, places []int64, visit func(i int, at, place int64)) {
	for _, r := range of.runs {
		if r.typ != typ {
			continue
		}
		i := 0
		for _, at := range places {
			if at >= r.from && at < r.to {
				visit(i, at, at-r.from)
				i++
			}
		}
	}
}

// request names the seeds or links of a batch.
type request struct {
	sample.Request
	inputs []int64      // positions of the seeds, or of the links, in the user's list
	places links.Places // of links
}

// inputNodes is the requester of nodes: those of a list, or the first of all.
type inputNodes struct {
	list []int64 // nil: every node
	num  int64
}

func newInputNodes(list []int64, numNodes int64) inputNodes {
	if list == nil {
		return inputNodes{num: numNodes}
	}
	return inputNodes{list, int64(len(list))}
}

func (n inputNodes) count() int64 { return n.num }

func (n inputNodes) bytes() int64 { return 8 * int64(len(n.list)) }

func (n inputNodes) open(context.Context, *sampling) error { return nil }

func (n inputNodes) request(_ context.Context, _ *sampling, _ sample.Key, r *request) error {
	r.Seeds = append(r.Seeds[:0], r.inputs...)
	if n.list != nil {
		for i, input := range r.inputs {
			r.Seeds[i] = n.list[input]
		}
	}
	return nil
}

// idsOfType adds the places of the inputs of one type in the user's list of them.
func (n inputNodes) idsOfType(p *preparer, b *Batch, typ int) error {
	inputs, err := p.add(b, p.loader.parts.types.nodeName(typ, "input_id"), p.typeOffsets.seeds[typ])
	if err != nil {
		return err
	}
	p.of.visit(typ, p.request.inputs, func(i int, at, place int64) { inputs[i] = place })
	return nil
}

func (n inputNodes) idsOfBatch(*preparer, *Batch) error { return nil }

// ofType adds, with trees, the trees of the nodes of one type and the times of its inputs.
func (n inputNodes) ofType(p *preparer, b *Batch, typ int) error {
	parts, c := &p.loader.parts, &p.typeOffsets
	if !parts.disjoint {
		return nil
	}
	if _, err := p.addTrees(b, typ); err != nil || !parts.timed {
		return err
	}
	times, err := p.add(b, parts.types.nodeName(typ, SeedTimeName), c.seeds[typ])
	if err != nil {
		return err
	}
	p.of.visit(typ, p.request.inputs, func(i int, at, _ int64) { times[i] = p.of.times[at] })
	return nil
}

func (n inputNodes) ofBatch(*preparer, *Batch) error { return nil }

// addTrees adds the trees of the nodes of one type.
func (p *preparer) addTrees(b *Batch, typ int) (trees []int64, err error) {
	of := p.batch.Tree[p.typeOffsets.nodes[typ]:p.typeOffsets.nodes[typ+1]]
	trees, err = p.add(b, p.loader.parts.types.nodeName(typ, TreeName), int64(len(of)))
	if err != nil {
		return nil, err
	}
	for i, tree := range of {
		trees[i] = int64(tree)
	}
	return trees, nil
}
