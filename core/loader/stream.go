package loader

import (
	"context"

	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// seedOrder is the order in which an epoch visits the seeds, or the links.
type seedOrder struct {
	loader *Loader
	key    sample.Key // of the epoch's batch 0
	block  *mem.Block
	inputs []int64 // positions in the user's seeds; nil: the identity
}

// epochKey selects the random numbers of an epoch.
func (l *Loader) epochKey(epoch int64) sample.Key {
	return sample.Key{Seed: l.options.Seed, Epoch: uint64(epoch)}
}

// newSeedOrder makes the permutation of an epoch.
func (l *Loader) newSeedOrder(ctx context.Context, epoch sample.Key) (*seedOrder, error) {
	s := &seedOrder{loader: l, key: epoch}
	if !l.options.Shuffle {
		return s, nil
	}
	var err error
	if s.block, err = l.budget.Alloc(mem.Trace, l.numSeeds()*8); err != nil {
		return nil, err
	}
	s.inputs = mem.Slice[int64](s.block)
	for i := range s.inputs {
		s.inputs[i] = int64(i)
	}
	if err := sample.Shuffle(ctx, s.inputs, s.key.Seed, s.key.Epoch); err != nil {
		s.free()
		return nil, err
	}
	return s, nil
}

// request is what a batch is drawn for.
type request struct {
	sample.Request
	inputs []int64      // positions of the seeds, or of the links, in the user's list
	places links.Places // of links
}

// batch makes r the request of batch i.
func (s *seedOrder) batch(ctx context.Context, i int64, r *request) error {
	l := s.loader
	lo := i * l.options.BatchSize
	hi := min(lo+l.options.BatchSize, l.numSeeds())
	r.Seeds, r.Times, r.inputs = r.Seeds[:0], r.Times[:0], r.inputs[:0]
	for p := lo; p < hi; p++ {
		input := p
		if s.inputs != nil {
			input = s.inputs[p]
		}
		r.inputs = append(r.inputs, input)
		if l.options.TimeAttr != "" {
			r.Times = append(r.Times, l.seedTimes[input])
		}
		if l.options.Seeds != nil {
			input = l.options.Seeds[input]
		}
		r.Seeds = append(r.Seeds, input)
	}
	if l.links != nil {
		return l.requestLinks(ctx, s.batchKey(i), r)
	}
	return nil
}

// batchKey selects the random numbers of batch i.
func (s *seedOrder) batchKey(i int64) sample.Key {
	key := s.key
	key.Batch = uint64(i)
	return key
}

func (s *seedOrder) free() {
	if s.block != nil {
		s.block.Free()
	}
	s.block, s.inputs = nil, nil
}
