package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"freshgo/core/loader"
)

// graphHandle is a graph in memory, which loaders may use for longer than its handle lives.
type graphHandle struct {
	*shared
	graph      *loader.Graph
	numTensors int
}

func (*graphHandle) kind() string { return "graph" }

func newGraphHandle(g *loader.Graph, numTensors int) *graphHandle {
	return &graphHandle{newShared(g.Close), g, numTensors}
}

//export fg_graph_open
func fg_graph_open(in *C.fg_graph_input, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, unsafe.Sizeof(*in), "fg_graph_input")
		if err != nil {
			return err
		}
		input := loader.GraphInput{NumNodes: int64(opts.num_nodes)}
		if input.EdgeIndex, err = source(&opts.edge_index, "edge_index"); err != nil {
			return err
		}
		if input.NodeTensors, err = graphTensors(opts.node_tensors, opts.num_node_tensors, "node tensor"); err != nil {
			return err
		}
		if input.EdgeTensors, err = graphTensors(opts.edge_tensors, opts.num_edge_tensors, "edge tensor"); err != nil {
			return err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			g, err := loader.NewGraph(ctx, input)
			if err != nil {
				return result{}, err
			}
			h := newGraphHandle(g, len(input.NodeTensors)+len(input.EdgeTensors))
			p := handles.add(h)
			return result{pointer: p, discard: func() { discard[*graphHandle](p, h.drop) }}, nil
		})
		return nil
	})
}

//export fg_graph_close
func fg_graph_close(h *C.fg_graph, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		g, err := remove[*graphHandle](handles, unsafe.Pointer(h))
		if err == nil {
			g.drop()
		}
		return err
	})
}
