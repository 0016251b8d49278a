package main

// #include "freshgo.h"
import "C"

import (
	"unsafe"

	"freshgo/core/sample"
)

// metapaths copies a caller's metapaths with the walks along them, nil where there are none.
func metapaths(o *C.fg_loader_options) ([]sample.Metapath, error) {
	if o.metapaths == nil && o.num_metapaths == 0 {
		return nil, nil
	}
	if o.metapaths == nil || o.num_metapaths < 1 || o.walks == nil || o.num_relations != o.num_metapaths {
		return nil, invalid("%d metapaths at %p with fanouts of %d and walks at %p", o.num_metapaths, o.metapaths, o.num_relations, o.walks)
	}
	hops := int(o.num_hops)
	walks := unsafe.Slice(o.walks, int(o.num_metapaths)*hops) // as long as the caller says
	var out []sample.Metapath
	for i, m := range unsafe.Slice(o.metapaths, o.num_metapaths) { // as above
		if m.length < 1 || m.path == nil {
			return nil, invalid("metapath %d of %d edge types at %p", i, m.length, m.path)
		}
		var one sample.Metapath
		for _, place := range unsafe.Slice(m.path, m.length) { // as above
			one.Path = append(one.Path, int(place))
		}
		for _, w := range walks[i*hops : (i+1)*hops] {
			one.Walks = append(one.Walks, walk(w))
		}
		out = append(out, one)
	}
	return out, nil
}

func walk(w C.fg_walk) sample.Walk {
	return sample.Walk{Walks: int64(w.walks), Length: int64(w.length), Restart: float64(w.restart)}
}
