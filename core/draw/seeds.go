package draw

import (
	"context"

	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Requester makes the requests of batches: for input nodes, or for links.
type Requester interface {
	// Count returns their number.
	Count() int64
	// bytes returns their memory, without their times.
	bytes() int64
	// open returns an error if batches cannot be drawn for them. The sampler is open.
	open(ctx context.Context, m *Sampling) error
	// Request completes r, whose inputs and times are set, for the batch of key.
	Request(ctx context.Context, m *Sampling, key sample.Key, r *Request) error
	// Linked returns the links; nil: the inputs are nodes.
	Linked() *links.Links
}

// Inputs lists the seeds or links of batches: of the loader, or of an Ask.
type Inputs struct {
	Requester
	Runs  []SeedRun // by type for nodes
	Times []int64   // by place; none without times
}

// Inputs returns the loader's inputs.
func (m *Sampling) Inputs() Inputs { return Inputs{m.Seeds, m.Parts.Schema.Runs, m.seedTimes} }

// Visit visits, in their order, the seeds of a type among those at some places: i counts them, at is the place and
// place that among the seeds of the type.
func (of *Inputs) Visit(typ int, places []int64, visit func(i int, at, place int64)) {
	for _, r := range of.Runs {
		if r.Type != typ {
			continue
		}
		i := 0
		for _, at := range places {
			if at >= r.From && at < r.To {
				visit(i, at, at-r.From)
				i++
			}
		}
	}
}

// Request names the seeds or links of a batch.
type Request struct {
	sample.Request
	Inputs []int64      // positions of the seeds, or of the links, in the user's list
	Places links.Places // of links
}

// inputNodes makes requests for nodes: for the nodes of a list, or for the first nodes.
type inputNodes struct {
	list []int64 // nil: every node
	num  int64
}

func NewInputNodes(list []int64, numNodes int64) inputNodes {
	if list == nil {
		return inputNodes{num: numNodes}
	}
	return inputNodes{list, int64(len(list))}
}

func (n inputNodes) Count() int64 { return n.num }

func (n inputNodes) bytes() int64 { return 8 * int64(len(n.list)) }

func (n inputNodes) open(context.Context, *Sampling) error { return nil }

func (n inputNodes) Request(_ context.Context, _ *Sampling, _ sample.Key, r *Request) error {
	r.Seeds = append(r.Seeds[:0], r.Inputs...)
	if n.list != nil {
		for i, input := range r.Inputs {
			r.Seeds[i] = n.list[input]
		}
	}
	return nil
}

func (n inputNodes) Linked() *links.Links { return nil }

// SeedOrder is the order in which an epoch visits the seeds, or the links.
type SeedOrder struct {
	of      *Sampling
	Key     sample.Key // of the epoch's batch 0
	block   *mem.Block
	inputs  []int64             // positions in the user's seeds; nil: as follows
	shuffle *sample.Permutation // of very many seeds; nil: the identity
}

// mostListed is the number of inputs above which a shuffled order is computed by position. Arbitrary: its list would
// take 1 GiB.
const mostListed = 1 << 27

// listed reports whether the order of an epoch is a list in memory.
func (m *Sampling) listed() bool {
	return m.seedSums != nil || m.Options.SeedWeights != nil || m.Options.Shuffle && m.Seeds.Count() <= mostListed
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
	if !m.listed() {
		if m.Options.Shuffle {
			s.shuffle = sample.NewPermutation(m.Seeds.Count(), epoch.Seed, epoch.Epoch)
		}
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
		switch {
		case s.inputs != nil:
			input = s.inputs[p]
		case s.shuffle != nil:
			input = s.shuffle.At(p)
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
