package draw

import (
	"freshgo/core/links"
	"freshgo/core/sample"
	"freshgo/core/sizing"
)

// The memory of what is opened before the memory of the loader is divided: links, and times of inputs.

// leastRefused is the memory below which links and times are opened whatever the memory of the loader is: then the
// division fails, with the smallest memory that works. It is what reading an array of a store takes beside memory=.
const leastRefused = 4 << 20

// fitOpened returns a BudgetError if what is opened before the memory is divided takes more than offsets leave. Its
// minimum is a bound: the rest is not known yet.
func fitOpened(m *Sampling, what string, need int64) error {
	limit := m.Options.Memory
	free := limit
	for _, r := range m.Parts.Schema.stored() {
		free -= r.OnDisk.IndptrBytes()
	}
	if limit > 0 && need > free && need >= leastRefused {
		return sizing.OpeningShort(what, need, limit-free, limit)
	}
	return nil
}

// linksBytes returns the memory that links are opened by.
func linksBytes(m *Sampling, o *links.Options, of *links.Relation) int64 {
	count, need := int64(len(o.Sources)), int64(0)
	if o.Sources == nil {
		r := &m.Parts.Schema.Relations[o.Relation]
		numbered := !r.EdgeIDs.Identity()
		if r.OnDisk != nil {
			numbered = r.OnDisk.EdgeIDs != nil
		}
		count, need = of.NumEdges, links.EveryEdgeBytes(of.NumEdges, numbered)
	}
	if o.Negatives > 0 {
		need += negativesBytes(m, o, of)
	}
	return need + madeTimesBytes(m, count)
}

// negativesBytes returns the memory that negatives are opened by.
func negativesBytes(m *Sampling, o *links.Options, of *links.Relation) (total int64) {
	n := sample.Negatives{
		NumSources: of.NumSources, NumTargets: of.NumTargets, Given: o.Triplets, Apart: of.Apart(), Targets: o.TargetWeights,
	}
	nodes, _ := timeTensors(m)
	staging := int64(0)
	tables := func(typ int, count int64) *sample.NodeTimes {
		if nodes[typ] == nil {
			return nil
		}
		total += sample.NodeTimesBytes(count)
		staging = max(staging, 16*count) // as they are stored, and as int64
		return new(sample.NodeTimes)
	}
	n.TargetTimes = tables(of.Target, of.NumTargets)
	if !o.Triplets {
		n.Sources = o.SourceWeights
		if of.Apart() {
			n.SourceTimes = tables(of.Source, of.NumSources)
		}
	}
	total += staging + 8*int64(len(n.Sources)+len(n.Targets))
	if o.Strict {
		total += sample.StrictBytes(&n, of.NumEdges, int64(len(o.Sources)))
	}
	return total
}
