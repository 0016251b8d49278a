package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"cmp"
	"slices"
	"unsafe"

	"freshgo/core/links"
	"freshgo/core/loader"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// taker takes over what a caller's structs point to. It keeps the first error, after which what it returns means
// nothing.
type taker struct{ err error }

// list views an array of n elements of the caller's, which stays where it is. P is what C calls T. It is nil only where
// there is no array.
func list[T, P any](t *taker, p *P, n int64, what string) []T {
	if t.err == nil && (n < 0 || n > 0 && p == nil) {
		t.err = invalid("%d %s at %p", n, what, p)
	}
	if t.err != nil || p == nil {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(p)), n) // as long as the caller says
}

// text is a C string, or what NULL stands for.
func text(s *C.char, missing string) string {
	if s == nil {
		return missing
	}
	return C.GoString(s)
}

// choice is one of some strings, of which NULL stands for the first.
func (t *taker) choice(s *C.char, what string, allowed ...string) string {
	got := text(s, allowed[0])
	if t.err == nil && !slices.Contains(allowed, got) {
		t.err = invalid("%s is %q, expected one of %q", what, got, allowed)
	}
	return got
}

// options are a caller's options for a graph. The arrays that the header names stay where they are; the rest is copied.
func options(in *C.fg_loader_options, homogeneous bool) (loader.Options, error) {
	o, err := sized(in, "fg_loader_options")
	if err != nil {
		return loader.Options{}, err
	}
	var t taker
	out := loader.Options{
		WeightAttr: text(o.weight_attr, ""),
		Seed:       uint64(o.seed),
		Replace:    o.replace != 0,
		// one that is unknown stays so
		Subgraph: sample.SubgraphType(min(uint32(o.subgraph_type), uint32(sample.Induced)+1)),

		Seeds:     list[int64](&t, o.seeds, int64(o.num_seeds), "seeds"),
		BatchSize: int64(o.batch_size),
		Shuffle:   o.shuffle != 0,
		DropLast:  o.drop_last != 0,
		Transpose: o.transpose != 0,
		Workers:   int(o.num_workers),
		Prefetch:  int(o.prefetch),

		Memory:        int64(o.memory),
		FeatureCache:  int64(o.feature_cache),
		NeighborCache: int64(o.neighbor_cache),
		TraceMemory:   int64(o.trace_memory),
		BufferMemory:  int64(o.buffer_memory),

		Cache:       text(o.cache, "auto"),
		Transfer:    text(o.transfer, "auto"),
		Superbatch:  int64(o.superbatch),
		CarryOver:   o.carry_over != 0,
		Lookahead:   o.lookahead != 0,
		PreSCEpochs: cmp.Or(int(o.presc_epochs), 1),
		Hotness:     list[float32](&t, o.hotness, int64(o.num_hotness), "scores"),
		HotnessSeed: uint64(o.hotness_seed),
		Reorder:     int64(o.reorder),
		ReorderRows: int64(o.reorder_rows),

		IO:           ssd.Kind(text(o.io, string(ssd.Auto))),
		Scratch:      text(o.scratch, ""),
		ScratchBytes: int64(o.scratch_size),
		Calibration:  text(o.calibration, ""),
		Checksums:    o.checksums != 0,
		Aggregate:    text(o.aggregate, ""),
		AsStored:     t.choice(o.feature_dtype, "feature_dtype", "float32", "stored") == "stored",

		TimeAttr:     text(o.time_attr, ""),
		SeedTimes:    list[int64](&t, o.input_time, int64(o.num_input_time), "times of seeds"),
		TimeWindow:   int64(o.time_window),
		TemporalLast: o.temporal_last != 0,
		Disjoint:     o.disjoint != 0,

		Held:  list[int32](&t, o.held, int64(o.num_held), "places of rows"),
		Holds: int(o.holds),
	}
	t.relations(&o, homogeneous, &out)
	out.Links = t.links(o.links)
	if o.labor != 0 {
		out.Labor = &sample.Labor{LayerDependency: o.layer_dependency != 0, BatchDependency: int64(o.batch_dependency)}
		out.NoEdgeWeight = o.labor == 2
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
func (t *taker) relations(o *C.fg_loader_options, homogeneous bool, out *loader.Options) {
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

// links are a caller's links, whose arrays stay where they are.
func (t *taker) links(in *C.fg_links) *links.Options {
	if in == nil {
		return nil
	}
	if (in.sources == nil) != (in.targets == nil) {
		t.err = cmp.Or(t.err, invalid("%d links at %p and %p", in.num_links, in.sources, in.targets))
	}
	return &links.Options{
		Sources:       list[int64](t, in.sources, int64(in.num_links), "links"),
		Targets:       list[int64](t, in.targets, int64(in.num_links), "links"),
		SourceWeights: list[float64](t, in.src_weight, int64(in.num_src_weight), "weights"),
		TargetWeights: list[float64](t, in.dst_weight, int64(in.num_dst_weight), "weights"),
		Negatives:     float64(in.negatives),
		Triplets:      in.triplets != 0,
		Strict:        in.strict != 0,
		Exclude:       links.Exclusion(in.exclude),
		Relation:      int(in.relation),
		Reverse:       int(in.reverse),
	}
}

// historyOptions copies a caller's options; NULL is none.
func historyOptions(in *C.fg_history_options) (*loader.HistoryOptions, error) {
	if in == nil {
		return nil, nil
	}
	o, err := sized(in, "fg_history_options")
	if err != nil {
		return nil, err
	}
	return &loader.HistoryOptions{
		GradFraction: float64(o.p_grad),
		Stale:        loader.Span{Count: float64(o.t_stale), Epochs: o.t_stale_epochs != 0},
		Start:        loader.Span{Count: float64(o.start), Epochs: o.start_epochs != 0},
		Policy:       text(o.policy, "performance"),
		Memory:       int64(o.memory),
		Outside:      o.outside != 0,
		Features:     o.features != 0,
		Lag:          int(o.lag),
		ProbeEvery:   int64(o.probe_every),
	}, nil
}
