package loader

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// seedOrder is the order in which an epoch visits the seeds, or the links.
type seedOrder struct {
	of     *sampling
	key    sample.Key // of the epoch's batch 0
	block  *mem.Block
	inputs []int64 // positions in the user's seeds; nil: the identity
}

// epochKey selects the random numbers of an epoch.
func (m *sampling) epochKey(epoch int64) sample.Key {
	return sample.Key{Seed: m.options.Seed, Epoch: uint64(epoch)}
}

// reorders reports whether an epoch has the seeds in another order than the user, or draws them.
func (m *sampling) reorders() bool { return m.options.Shuffle || m.options.SeedWeights != nil }

// newSeedOrder makes the order of an epoch.
func (m *sampling) newSeedOrder(ctx context.Context, epoch sample.Key) (*seedOrder, error) {
	s := &seedOrder{of: m, key: epoch}
	if !m.reorders() {
		return s, nil
	}
	var err error
	if s.block, err = m.budget.Alloc(mem.Trace, m.seeds.count()*8); err != nil {
		return nil, err
	}
	s.inputs = mem.Slice[int64](s.block)
	if m.seedSums != nil {
		err = sample.DrawInputs(ctx, s.inputs, m.seedSums, s.key.Seed, s.key.Epoch)
	} else {
		for i := range s.inputs {
			s.inputs[i] = int64(i)
		}
		err = sample.Shuffle(ctx, s.inputs, s.key.Seed, s.key.Epoch)
	}
	if err != nil {
		s.free()
		return nil, err
	}
	return s, nil
}

// batch makes r the request of batch i.
func (s *seedOrder) batch(ctx context.Context, i int64, r *request) error {
	m := s.of
	lo := i * m.options.BatchSize
	r.Times, r.inputs = r.Times[:0], r.inputs[:0]
	for p := lo; p < min(lo+m.options.BatchSize, m.seeds.count()); p++ {
		input := p
		if s.inputs != nil {
			input = s.inputs[p]
		}
		r.inputs = append(r.inputs, input)
		if m.options.TimeAttr != "" {
			r.Times = append(r.Times, m.seedTimes[input])
		}
	}
	return m.seeds.request(ctx, m, s.batchKey(i), r)
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
