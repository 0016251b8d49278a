package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"freshgo/core/draw"
)

// opened is the graph of a loader: a store or a graph in memory.
type opened struct {
	*shared
	source      draw.Source
	numTensors  int // that a batch has at most, but for those that options add
	homogeneous bool
}

// openedOver returns a source that its users share.
func openedOver(s *shared, from draw.Source) opened {
	p := from.Parts()
	n := len(p.Tensors) + typeTensors(p.Schema.NumTypes(), len(p.Schema.Relations))
	return opened{s, from, n, p.Schema.Homogeneous()}
}

// graphHandle is a graph in memory, which loaders may use for longer than its handle lives.
type graphHandle struct{ opened }

func (*graphHandle) kind() string { return "graph" }

//export fg_graph_open
func fg_graph_open(in *C.fg_graph_input, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, "fg_graph_input")
		if err != nil {
			return err
		}
		input, err := graphInput(&opts)
		if err != nil {
			return err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			g, err := draw.NewGraph(ctx, input)
			if err != nil {
				return result{}, err
			}
			h := &graphHandle{openedOver(newShared(g.Close), g)}
			return opening(h, h.drop), nil
		})
		return nil
	})
}

//export fg_graph_close
func fg_graph_close(h *C.fg_graph, err *C.fg_error) C.int32_t {
	return closing(unsafe.Pointer(h), err, (*graphHandle).end)
}
