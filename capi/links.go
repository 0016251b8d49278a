package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"unsafe"

	"freshgo/core/loader"
)

// linkOptions are a caller's links, whose arrays stay where they are.
func linkOptions(in *C.fg_links) (*loader.LinkOptions, error) {
	if in == nil {
		return nil, nil
	}
	if in.num_links < 0 || (in.sources == nil) != (in.targets == nil) || (in.num_links > 0) != (in.sources != nil) {
		return nil, invalid("%d links at %p and %p", in.num_links, in.sources, in.targets)
	}
	out := &loader.LinkOptions{
		Negatives: float64(in.negatives),
		Triplets:  in.triplets != 0,
		Strict:    in.strict != 0,
		Exclude:   loader.Exclusion(in.exclude),
	}
	if in.sources != nil {
		out.Sources = unsafe.Slice((*int64)(in.sources), in.num_links) // as long as the caller says; his until the loader is closed
		out.Targets = unsafe.Slice((*int64)(in.targets), in.num_links) // as above
	}
	for _, w := range []struct {
		from *C.double
		n    C.int64_t
		to   *[]float64
	}{{in.src_weight, in.num_src_weight, &out.SourceWeights}, {in.dst_weight, in.num_dst_weight, &out.TargetWeights}} {
		if w.n < 0 || (w.n > 0) != (w.from != nil) {
			return nil, invalid("%d weights at %p", w.n, w.from)
		}
		if w.from != nil {
			*w.to = unsafe.Slice((*float64)(w.from), w.n) // as above
		}
	}
	return out, nil
}
