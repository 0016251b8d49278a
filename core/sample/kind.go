package sample

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Kind is a sampler: a way to draw neighbours. The file that implements it states its capabilities.
type Kind struct {
	Name string // in messages: the option that implies it, or its own name
	Can  Capability
	// WholeLists means that the sampler reads whole neighbour lists, which are fetched if they are on disk.
	WholeLists bool
	// Packed has the options with which the sampler reads neighbours in memory that are packed; 0: with none.
	Packed Capability
	For    Capability // implies the sampler, if it has no Key
	// Else ends the message about an option that no sampler has together with For: why, and what to use.
	Else string
	// Key is the name by which callers choose the sampler, and Options returns its options with their defaults; "" and nil
	// if other options imply the sampler.
	Key     string
	Options func() Named
	// along returns the method for a relation, nil for uniform draws.
	along func(c *Config, relation int, r *Relation) (method, error)
}

// kinds lists all samplers. Choose takes the first one that is implied; the last one always is.
var kinds = []*Kind{&walks, &layers, &temporal, &byWeight, &uniform}

// Kinds returns all samplers.
func Kinds() []*Kind { return slices.Clone(kinds) }

// Named holds the options of a kind that callers choose by its Key. Their JSON names are the callers' names.
type Named interface {
	// Kind returns the kind that the options belong to.
	Kind() *Kind
	// check returns an error if an option is out of its range.
	check() error
}

// ByKey returns the options of the kind with a key, set from a JSON object. Missing options have their defaults.
func ByKey(key, options string) (Named, error) {
	var known []string
	for _, k := range kinds {
		if k.Key == "" {
			continue
		}
		known = append(known, k.Key)
		if k.Key != key {
			continue
		}
		out := k.Options()
		if options == "" {
			return out, nil
		}
		from := json.NewDecoder(bytes.NewReader([]byte(options)))
		from.DisallowUnknownFields()
		err := from.Decode(out)
		if err == nil {
			if _, more := from.Token(); more != io.EOF {
				err = fmt.Errorf("more than one object")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%w: sampler_options of %q: %w", ErrConfig, key, err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: sampler must be one of %q, got %q", ErrConfig, known, key)
}

// choose sets the sampler for a Config, or returns an error if it lacks a capability.
func (s *Sampler) choose(c *Config, g *Graph) (err error) {
	s.asked = c.asks(g)
	if s.kind, err = Choose(s.asked, c.Sampler); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if !s.kind.MayPack(s.asked) && slices.ContainsFunc(g.Relations, func(r Relation) bool { return r.Packed != nil }) {
		return fmt.Errorf("sample: packed neighbours, which %s cannot read with these options: %w", s.kind.Name, ErrGraph)
	}
	if c.Sampler == nil {
		return nil
	}
	return c.Sampler.check()
}

// uniform draws every in-edge with the same probability; hop.go fuses its draws with loading.
var uniform = Kind{
	Name: "uniform draws",
	Can: CanTrees | CanReplace | CanTypes | CanLinks | CanExclude | CanBidirectional | CanInduced | CanTranspose |
		CanDisk | CanHistory | CanAggregate | CanExpected | CanEdgeIDs,
	Packed: CanReplace | CanTypes | CanTranspose | CanHistory | CanAggregate | CanExpected,
	along:  func(*Config, int, *Relation) (method, error) { return nil, nil },
}

// MayPack reports whether the sampler reads neighbours in memory that are packed, for these capabilities asked for.
func (k *Kind) MayPack(asked Capability) bool { return k.Packed != 0 && k.Packed.Has(asked) }
