package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"cmp"
	"slices"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/sample"
)

// options returns a caller's options for a graph. The arrays that the header names stay where they are; the rest is
// copied.
func options(in *C.fg_loader_options, homogeneous bool) (draw.Options, error) {
	o, err := sized(in, "fg_loader_options")
	if err != nil {
		return draw.Options{}, err
	}
	var t taker
	var out draw.Options
	t.members(&out, &o)
	out.PreSCEpochs = cmp.Or(out.PreSCEpochs, 1)
	t.relations(&o, homogeneous, &out)
	out.Links = t.links(o.links)
	out.Tables = t.tables(o.tables, int64(o.num_tables))
	if o.sampler != nil {
		if out.Sampler, err = sample.ByKey(text(o.sampler, ""), text(o.sampler_options, "")); err != nil {
			return out, err
		}
	}
	switch {
	case o.all_nodes != 0:
		out.Seeds = nil
	case out.Seeds == nil:
		out.Seeds = []int64{} // no seeds, which is not every node
	}
	if out.History, err = historyOptions(o.history); err != nil {
		return out, err
	}
	return out, t.err
}

// relations copies what is drawn along each relation.
func (t *taker) relations(o *C.fg_loader_options, homogeneous bool, out *draw.Options) {
	hops, rows := int64(o.num_hops), int64(o.num_relations)
	if hops < 0 || rows < 0 || hops > 0 && rows > 1<<40/hops {
		t.err = cmp.Or(t.err, invalid("%d relations and %d hops", rows, hops))
		return
	}
	if hops == 0 {
		out.Fanouts = []int64{}
		return
	}
	fanouts := slices.Collect(slices.Chunk(slices.Clone(list[int64](t, o.fanouts, rows*hops, "fanouts")), int(hops)))
	if o.weight_attrs != nil {
		for _, n := range list[C.fg_name](t, o.weight_attrs, rows, "weight_attrs") {
			out.WeightAttrs = append(out.WeightAttrs, text(n.name, ""))
		}
	}
	var walks []sample.Walk
	if o.walks != nil {
		for _, w := range list[C.fg_walk](t, o.walks, rows*hops, "walks") {
			walks = append(walks, sample.Walk{Walks: int64(w.walks), Length: int64(w.length), Restart: float64(w.restart)})
		}
	}
	if o.metapaths != nil {
		for i, m := range list[C.fg_metapath](t, o.metapaths, rows, "metapaths") {
			if walks == nil || m.num_edge_types < 1 {
				t.err = cmp.Or(t.err, invalid("metapath %d of %d edge types, with walks at %p", i, m.num_edge_types, o.walks))
				return
			}
			path := sample.Metapath{Walks: walks[int64(i)*hops : int64(i+1)*hops]}
			for _, place := range list[int64](t, m.edge_types, int64(m.num_edge_types), "edge types") {
				path.Path = append(path.Path, int(place))
			}
			out.Metapaths = append(out.Metapaths, path)
		}
		walks = nil
	}
	out.Walks = walks
	if homogeneous && rows == 1 && t.err == nil {
		out.Fanouts = fanouts[0]
	} else {
		out.RelationFanouts = fanouts
	}
}

// links returns a caller's links, whose arrays stay where they are.
func (t *taker) links(in *C.fg_links) *links.Options {
	if in == nil {
		return nil
	}
	if (in.sources == nil) != (in.targets == nil) {
		t.err = cmp.Or(t.err, invalid("%d links at %p and %p", in.num_links, in.sources, in.targets))
	}
	out := new(links.Options)
	t.members(out, in)
	return out
}

// historyOptions copies a caller's options; NULL is none.
func historyOptions(in *C.fg_history_options) (*draw.HistoryOptions, error) {
	if in == nil {
		return nil, nil
	}
	o, err := sized(in, "fg_history_options")
	if err != nil {
		return nil, err
	}
	var t taker
	out := new(draw.HistoryOptions)
	t.members(out, &o)
	out.Stale = draw.Span{Count: float64(o.t_stale), Epochs: o.t_stale_epochs != 0}
	out.Start = draw.Span{Count: float64(o.start), Epochs: o.start_epochs != 0}
	return out, t.err
}
