package loader

import (
	"context"
	"slices"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// A batch of links: its request, and the tensors that say what its links are.

// linkRequest is what a request has of links.
type linkRequest struct {
	// ends are the positions in n_id of the ends of links and negatives: of pairs all sources, then all targets; of triplets
	// the sources and the targets of links, then the targets of negatives.
	ends    []int64
	sources []int64 // of the negatives of triplets
	local   []int32 // by node: scratch
	times   []int64 // of negatives: scratch
}

// request makes r, whose inputs are known, the request of the batch of key.
func (k *links) request(ctx context.Context, l *Loader, key sample.Key, r *request) (err error) {
	run := func() { err = k.draw(ctx, l.sampler.Relation(k.options.Relation), key, r) }
	if l.split.Neighbors || k.negatives == nil || k.negatives.Strict == nil {
		if stopped := l.compute(ctx, run); stopped != nil {
			return stopped
		}
		return err
	}
	run() // mostly waits for the disk, which takes no thread
	return err
}

func (k *links) draw(ctx context.Context, edges *sample.Relation, key sample.Key, r *request) error {
	n, negatives := len(r.inputs), 0
	if k.negatives != nil {
		negatives = int(k.options.numNegatives(int64(n)))
	}
	r.ends = slices.Grow(r.ends[:0], 2*(n+negatives))[:k.options.ends(int64(n))]
	sources, targets := r.ends[:n], r.ends[len(r.ends)-n-negatives:]
	for i, input := range r.inputs {
		sources[i], targets[i] = k.Sources[input], k.Targets[input]
	}
	k.exclude(r)
	if negatives > 0 {
		drawn := r.ends[n : n+negatives]
		if k.options.Triplets {
			r.sources = slices.Grow(r.sources[:0], negatives)[:negatives]
			for j := range r.sources {
				if r.sources[j] = sources[j/(negatives/n)]; k.disjoint {
					r.sources[j] = sources[j%n]
				}
			}
			drawn = r.sources
		}
		if err := k.drawNegatives(ctx, edges, key, r, drawn, targets[n:]); err != nil {
			return err
		}
	}
	if numSources := len(r.ends) - len(targets); k.disjoint {
		k.plant(r, numSources)
	} else {
		k.number(r, numSources)
	}
	return nil
}

// manyEnds is how many nodes a graph has at most for each end before ends are numbered by sorting. Arbitrary: 64 bytes of
// scratch for an end.
const manyEnds = 16

// number makes the seeds the nodes at the ends, each once and ascending, as torch.unique gives them, and the ends their places.
func (r *request) number(numNodes int64) {
	r.Seeds = r.Seeds[:0]
	if numNodes > manyEnds*int64(len(r.ends)) {
		r.Seeds = append(r.Seeds, r.ends...)
		slices.Sort(r.Seeds)
		r.Seeds = slices.Compact(r.Seeds)
		for i, v := range r.ends {
			at, _ := slices.BinarySearch(r.Seeds, v)
			r.ends[i] = int64(at)
		}
		return
	}
	r.local = slices.Grow(r.local[:0], int(numNodes))[:numNodes]
	clear(r.local)
	for _, v := range r.ends {
		r.local[v] = 1
	}
	for v, present := range r.local {
		if present != 0 {
			r.local[v] = int32(len(r.Seeds))
			r.Seeds = append(r.Seeds, int64(v))
		}
	}
	for i, v := range r.ends {
		r.ends[i] = int64(r.local[v])
	}
}

// addLinks appends the tensors that say what the batch's links are.
func (p *preparer) addLinks(b *Batch) error {
	k := p.loader.links
	if k == nil {
		return nil
	}
	ends, n := p.request.ends, b.NumSeeds
	if !k.options.Triplets {
		return p.addEnds(b, p.loader.parts.pairNames(k.options)[0], ends, 2, int64(len(ends))/2)
	}
	names := p.loader.parts.tripletNames(k.options)
	if err := p.addEnds(b, names[0], ends[:n], n); err != nil {
		return err
	}
	if err := p.addEnds(b, names[1], ends[n:2*n], n); err != nil {
		return err
	}
	shape := []int64{n}
	if each := int64(k.options.Negatives); each > 1 {
		shape = append(shape, each)
	}
	return p.addEnds(b, names[2], ends[2*n:], shape...)
}

func (p *preparer) addEnds(b *Batch, name string, ends []int64, shape ...int64) error {
	data, err := p.addTensor(b, name, manifest.DType_INT64, shape)
	if err == nil {
		copy(mem.View[int64](data), ends)
	}
	return err
}
