package draw

import (
	"context"

	"freshgo/core/mem"
	"freshgo/core/sample"
)

// SeedOrder is the order in which an epoch visits the seeds, or the links.
type SeedOrder struct {
	of     *Sampling
	Key    sample.Key // of the epoch's batch 0
	block  *mem.Block
	inputs []int64 // positions in the user's seeds; nil: the identity
}

// EpochKey selects the random numbers of an epoch.
func (m *Sampling) EpochKey(epoch int64) sample.Key {
	return sample.Key{Seed: m.Options.Seed, Epoch: uint64(epoch)}
}

// reorders reports whether an epoch has the seeds in another order than the user, or draws them.
func (o *Options) reorders() bool { return o.Shuffle || o.SeedWeights != nil }

// NewSeedOrder makes the order of an epoch.
func (m *Sampling) NewSeedOrder(ctx context.Context, epoch sample.Key) (*SeedOrder, error) {
	s := &SeedOrder{of: m, Key: epoch}
	if !m.Options.reorders() {
		return s, nil
	}
	var err error
	if s.block, err = m.Budget.Alloc(mem.Trace, m.Seeds.Count()*8); err != nil {
		return nil, err
	}
	s.inputs = mem.Slice[int64](s.block)
	if m.seedSums != nil {
		err = sample.DrawInputs(ctx, s.inputs, m.seedSums, s.Key.Seed, s.Key.Epoch)
	} else {
		for i := range s.inputs {
			s.inputs[i] = int64(i)
		}
		err = sample.Shuffle(ctx, s.inputs, s.Key.Seed, s.Key.Epoch)
	}
	if err != nil {
		s.Free()
		return nil, err
	}
	return s, nil
}

// Batch makes r the request of batch i.
func (s *SeedOrder) Batch(ctx context.Context, i int64, r *Request) error {
	m := s.of
	lo := i * m.Options.BatchSize
	r.Times, r.Inputs = r.Times[:0], r.Inputs[:0]
	for p := lo; p < min(lo+m.Options.BatchSize, m.Seeds.Count()); p++ {
		input := p
		if s.inputs != nil {
			input = s.inputs[p]
		}
		r.Inputs = append(r.Inputs, input)
		if m.Options.TimeAttr != "" {
			r.Times = append(r.Times, m.seedTimes[input])
		}
	}
	return m.Seeds.Request(ctx, m, s.BatchKey(i), r)
}

// BatchKey selects the random numbers of batch i.
func (s *SeedOrder) BatchKey(i int64) sample.Key {
	key := s.Key
	key.Batch = uint64(i)
	return key
}

func (s *SeedOrder) Free() {
	if s.block != nil {
		s.block.Free()
	}
	s.block, s.inputs = nil, nil
}
