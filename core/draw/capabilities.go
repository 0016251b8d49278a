package draw

import (
	"fmt"

	"freshgo/core/links"
	"freshgo/core/sample"
)

// asks returns the capabilities that the options require of a sampler.
func (o *Options) asks(s *Schema) (asked sample.Capability) {
	for capability, is := range map[sample.Capability]bool{
		sample.CanWeights:       o.Weighted(),
		sample.CanTimes:         o.TimeAttr != "",
		sample.CanTrees:         o.Trees(),
		sample.CanReplace:       o.Replace,
		sample.CanTypes:         !s.Homogeneous(),
		sample.CanWalks:         o.walk(),
		sample.CanMetapaths:     o.Metapaths != nil,
		sample.CanLinks:         o.Links != nil,
		sample.CanExclude:       o.Links != nil && o.Links.Exclude != links.ExcludeNone,
		sample.CanBidirectional: o.Subgraph == sample.Bidirectional,
		sample.CanInduced:       o.Subgraph == sample.Induced,
		sample.CanTranspose:     o.Transpose,
		sample.CanHistory:       o.History != nil,
		sample.CanAggregate:     o.Aggregate != "",
	} {
		if is {
			asked |= capability
		}
	}
	return asked | hotnessOf(o.Cache).needs
}

// chooseKind finds the sampler that the options imply, or returns an error if it lacks a capability.
func chooseKind(m *Sampling) (err error) {
	o := &m.Options
	asked := o.asks(m.Parts.Schema)
	m.Kind, err = sample.Choose(asked, o.Sampler)
	if err == nil && m.Gives(sample.CanEdgeWeight) && !o.NoEdgeWeight {
		m.Parts.Weighted = true
		_, err = sample.Choose(asked|sample.CanEdgeWeight, o.Sampler)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	m.Parts.Schema.Walked = !m.Gives(sample.CanEdgeIDs)
	return nil
}

// Gives reports whether batches of the sampler have something.
func (m *Sampling) Gives(c sample.Capability) bool { return m.Kind.Can.Has(c) }
