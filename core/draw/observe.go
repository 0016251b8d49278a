package draw

import (
	"slices"

	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// observer notes which rows and lists of a store the measured batches have: what package sizing predicts from. It stays
// within the memory of the trial, and says nothing where that has no room.
type observer struct {
	m        *Sampling
	all      CachedTypes // of all node types
	batch    BatchRows
	batches  [][]uint32 // the rows of each batch, sorted
	reserved int64      // bytes of batches

	places []int64   // scratch
	lists  onPages   // of all relations
	rows   []onPages // by tensor
	full   bool      // nothing more is noted: there was no room, or only a part of a batch was drawn
}

// onPages counts the pages of an array that batches need, repeatedly if they do, the pages that they read, and all
// pages.
type onPages struct{ wanted, read, pages float64 }

func newObserver(m *Sampling) *observer {
	o := &observer{m: m, full: m.Parts.Store == nil, rows: make([]onPages, len(m.Parts.Tensors))}
	o.all = m.NewCachedTypes(slices.Repeat([]bool{true}, m.Parts.Schema.NumTypes()))
	return o
}

// add notes a batch.
func (o *observer) add(g *sample.Subgraph) {
	kept, scratch := 4*int64(len(g.Nodes)), 8*int64(len(g.Nodes)) // rows, and places
	if o.full || o.m.Budget.Reserve(mem.Trace, kept+scratch) != nil {
		o.full = true
		return
	}
	defer o.m.Budget.Release(mem.Trace, scratch)
	o.reserved += kept
	o.batch.FillGraph(&o.all, g)
	rows := slices.Clone(o.batch.Rows)
	slices.Sort(rows)
	o.batches = append(o.batches, rows)
	o.addTensors(rows)
	o.addLists(g)
}

// addTensors notes on which pages rows of the tensors lie, where these are in the order of the nodes.
func (o *observer) addTensors(rows []uint32) {
	types := o.m.Parts.stored
	for i := range o.m.Parts.Tensors {
		t := &o.m.Parts.Tensors[i]
		if t.ByEdge || types[t.Type].Order != nil {
			continue
		}
		o.places = o.places[:0]
		for _, r := range rows {
			if place := int64(r) - t.First; place >= 0 && place < t.NumRows {
				o.places = append(o.places, place)
			}
		}
		o.rows[i].add(o.places, t.OnDisk.Layout)
	}
}

// addLists notes on which pages the lists begin that were drawn from.
func (o *observer) addLists(g *sample.Subgraph) {
	s, of := o.m.Parts.Schema, &o.batch.typeOffsets
	for _, r := range s.stored() {
		o.places = o.places[:0]
		first := of.Nodes[r.Target]
		for _, v := range g.Nodes[first : first+of.reached[r.Target]] {
			o.places = append(o.places, r.Indptr.Begin(v-s.First[r.Target]))
		}
		slices.Sort(o.places)
		o.lists.add(o.places, r.OnDisk.Indices.Layout)
	}
}

// add counts rows of an array, which are sorted.
func (p *onPages) add(rows []int64, l ssd.Layout) {
	next := int64(-ssd.PageBytes) // the first page that is not read
	for _, r := range rows {
		first := l.Offset(r) / ssd.PageBytes
		end := (l.Offset(r)+int64(l.RowBytes)-1)/ssd.PageBytes + 1
		if first > next+ssd.DefaultHole {
			next = first
		}
		p.read += float64(max(0, end-next))
		next = max(next, end)
	}
	p.wanted += float64(len(rows)) * l.MeanPages()
	p.pages += float64(l.FileBytes()) / ssd.PageBytes
}

// spread returns the share of the pages over which batches draw alike.
func (p *onPages) spread(batches float64) float64 {
	if p.wanted == 0 {
		return 0
	}
	return sizing.SpreadOf(p.wanted/batches, p.read/batches, p.pages/batches)
}

// forget frees the memory and stops the notes. It reports whether there were any.
func (o *observer) forget() bool {
	held := o.reserved
	o.m.Budget.Release(mem.Trace, held)
	o.batches, o.reserved, o.full = nil, 0, true
	return held > 0
}

// observed returns the observations of the batches, and frees them.
func (o *observer) observed() (of sizing.Observed) {
	defer o.forget()
	if o.full || len(o.batches) == 0 {
		return of
	}
	n := float64(len(o.batches))
	of.Batches, of.Rows, of.Lists = int64(len(o.batches)), o.counts(), o.lists.spread(n)
	for i := range o.rows {
		of.Spread = append(of.Spread, o.rows[i].spread(n))
	}
	return of
}

// counts returns the number of rows of each type that were in one batch, in two, and so on.
func (o *observer) counts() [][]int64 {
	s := o.m.Parts.Schema
	seen := make([][]int64, s.NumTypes())
	for t := range seen {
		seen[t] = make([]int64, len(o.batches))
	}
	rest := slices.Clone(o.batches)
	for t := 0; ; {
		least, found := uint32(0), false
		for _, rows := range rest {
			if len(rows) > 0 && (!found || rows[0] < least) {
				least, found = rows[0], true
			}
		}
		if !found {
			return seen
		}
		times := -1
		for i, rows := range rest {
			if len(rows) > 0 && rows[0] == least {
				rest[i] = rows[1:]
				times++
			}
		}
		for int64(least) >= s.First[t+1] {
			t++
		}
		seen[t][times]++
	}
}
