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
	source     loader.Source
	numTensors int // that a batch has, see loaderHandle
}

func (*graphHandle) kind() string { return "graph" }

func newGraphHandle(g *loader.Graph) *graphHandle {
	numTensors := g.NumTensors()
	if !g.Homogeneous() {
		numTensors += typeTensors(g.NumTypes())
	}
	return &graphHandle{newShared(g.Close), g, numTensors}
}

//export fg_graph_open
func fg_graph_open(in *C.fg_graph_input, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, unsafe.Offsetof(in.node_types), "fg_graph_input")
		if err != nil {
			return err
		}
		build, err := graphMaker(&opts)
		if err != nil {
			return err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			h, err := build(ctx)
			if err != nil {
				return result{}, err
			}
			p := handles.add(h)
			return result{pointer: p, discard: func() { discard[*graphHandle](p, h.drop) }}, nil
		})
		return nil
	})
}

// graphMaker describes a caller's graph, and returns what makes it.
func graphMaker(in *C.fg_graph_input) (func(ctx context.Context) (*graphHandle, error), error) {
	describe := homogeneousInput
	if in.num_node_types != 0 || in.num_edge_types != 0 {
		describe = typesInput
	}
	input, err := describe(in)
	return func(ctx context.Context) (*graphHandle, error) {
		g, err := loader.NewGraph(ctx, input)
		if err != nil {
			return nil, err
		}
		return newGraphHandle(g), nil
	}, err
}

// homogeneousInput describes a graph of one unnamed node type and one unnamed edge type.
func homogeneousInput(in *C.fg_graph_input) (out loader.GraphInput, err error) {
	nodes, edges := loader.GraphNodes{NumNodes: int64(in.num_nodes)}, loader.GraphEdges{}
	if edges.EdgeIndex, err = source(&in.edge_index, "edge_index"); err != nil {
		return out, err
	}
	if nodes.Tensors, err = graphTensors(in.node_tensors, in.num_node_tensors, "node tensor"); err != nil {
		return out, err
	}
	if edges.Tensors, err = graphTensors(in.edge_tensors, in.num_edge_tensors, "edge tensor"); err != nil {
		return out, err
	}
	return loader.GraphInput{NodeTypes: []loader.GraphNodes{nodes}, EdgeTypes: []loader.GraphEdges{edges}}, nil
}

// typesInput describes the types of a caller's graph.
func typesInput(in *C.fg_graph_input) (out loader.GraphInput, err error) {
	if in.num_nodes != -1 || in.num_node_tensors != 0 || in.num_edge_tensors != 0 {
		return out, invalid("a graph with types has %d nodes and %d arrays beside them, expected -1 and none",
			int64(in.num_nodes), in.num_node_tensors+in.num_edge_tensors)
	}
	nodes, edges, err := typeLists(in.node_types, in.num_node_types, in.edge_types, in.num_edge_types)
	if err != nil {
		return out, err
	}
	for i := range nodes {
		t := &nodes[i]
		node := loader.GraphNodes{Name: textOr(t.name, ""), NumNodes: int64(t.num_nodes)}
		if t.num_splits != 0 {
			return out, invalid("node type %q has %d splits, expected none of a graph in memory", node.Name, t.num_splits)
		}
		if node.Tensors, err = graphTensors(t.tensors, t.num_tensors, nodeWords(t)+"tensor"); err != nil {
			return out, err
		}
		out.NodeTypes = append(out.NodeTypes, node)
	}
	for i := range edges {
		t := &edges[i]
		edge := loader.GraphEdges{Source: textOr(t.source, ""), Relation: textOr(t.relation, ""), Target: textOr(t.target, "")}
		if edge.EdgeIndex, err = source(&t.edge_index, edgeWords(t)+"edge_index"); err != nil {
			return out, err
		}
		if edge.Tensors, err = graphTensors(t.tensors, t.num_tensors, edgeWords(t)+"tensor"); err != nil {
			return out, err
		}
		out.EdgeTypes = append(out.EdgeTypes, edge)
	}
	return out, nil
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
