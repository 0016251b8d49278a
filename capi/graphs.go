package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"cmp"
	"fmt"

	"freshgo/core/draw"
	"freshgo/core/store"
)

// convertInput describes a caller's graph to package store.
func convertInput(in *C.fg_convert_input) (out store.Input, err error) {
	var t taker
	for _, n := range list[C.fg_node_type](&t, in.node_types, int64(in.num_node_types), "node types") {
		node := store.NodeInput{Name: text(n.name, ""), NumNodes: int64(n.num_nodes)}
		label := nodeLabel(node.Name)
		if node.Tensors, err = sources(n.tensors, n.num_tensors, cmp.Or(label, "node ")+"tensor"); err != nil {
			return out, err
		}
		clip(node.Tensors, in.clip != 0)
		if node.Splits, err = splitSources(n.splits, n.num_splits, label+"split"); err != nil {
			return out, err
		}
		out.NodeTypes = append(out.NodeTypes, node)
	}
	for _, e := range list[C.fg_edge_type](&t, in.edge_types, int64(in.num_edge_types), "edge types") {
		edge := store.EdgeInput{
			Source: text(e.source, ""), Relation: text(e.relation, ""), Target: text(e.target, ""),
			WeightsOf: text(e.weights, ""), Unnumbered: e.unnumbered != 0,
		}
		label := edgeLabel(edge.Source, edge.Relation, edge.Target)
		if edge.EdgeIndex, err = source(&e.edge_index, label+"edge_index"); err != nil {
			return out, err
		}
		for _, more := range list[C.fg_array](&t, e.more_edges, int64(e.num_more_edges), label+"more edges") {
			part, err := source(&more, label+"edge_index")
			if err != nil {
				return out, err
			}
			edge.More = append(edge.More, part)
		}
		if edge.Tensors, err = sources(e.tensors, e.num_tensors, cmp.Or(label, "edge ")+"tensor"); err != nil {
			return out, err
		}
		clip(edge.Tensors, in.clip != 0)
		out.EdgeTypes = append(out.EdgeTypes, edge)
	}
	out.Details = text(in.details, "")
	if out.Attachments, err = sources(in.attachments, in.num_attachments, "attachment"); err != nil {
		return out, err
	}
	return out, t.err
}

// updateChanges describes what a caller changes in a store.
func updateChanges(in *C.fg_update_input) (out store.Changes, err error) {
	given, err := convertInput(&C.fg_convert_input{
		node_types: in.node_types, num_node_types: in.num_node_types,
		edge_types: in.edge_types, num_edge_types: in.num_edge_types, clip: in.clip,
		attachments: in.attachments, num_attachments: in.num_attachments,
	})
	if err != nil {
		return out, err
	}
	for _, n := range given.NodeTypes {
		out.Nodes = append(out.Nodes, store.NodeChange{Name: n.Name, Tensors: n.Tensors, Splits: n.Splits})
	}
	for _, e := range given.EdgeTypes {
		out.Edges = append(out.Edges, store.EdgeChange{
			Source: e.Source, Relation: e.Relation, Target: e.Target, Tensors: e.Tensors,
		})
	}
	out.Attachments = given.Attachments
	var t taker
	for i, d := range list[C.fg_drop](&t, in.drops, int64(in.num_drops), "drops") {
		place, name, types := int(d._type), text(d.name, ""), len(out.Nodes)
		if d.kind == C.FG_EDGE_TENSOR {
			types = len(out.Edges)
		}
		if d.kind == C.FG_ATTACHMENT {
			out.Detach = append(out.Detach, name)
			continue
		}
		if place < 0 || place >= types {
			return out, invalid("drops[%d] is of type %d, expected one of the %d types of the update", i, place, types)
		}
		switch d.kind {
		case C.FG_SPLIT:
			out.Nodes[place].Undo = append(out.Nodes[place].Undo, name)
		case C.FG_NODE_TENSOR:
			out.Nodes[place].Drop = append(out.Nodes[place].Drop, name)
		case C.FG_EDGE_TENSOR:
			out.Edges[place].Drop = append(out.Edges[place].Drop, name)
		default:
			return out, invalid("drops[%d] is of kind %d, expected FG_SPLIT, FG_NODE_TENSOR, FG_EDGE_TENSOR or FG_ATTACHMENT",
				i, d.kind)
		}
	}
	return out, t.err
}

// clip sets whether numbers that overflow their stored form are clipped to it.
func clip(tensors []store.NamedSource, to bool) {
	for i := range tensors {
		tensors[i].Clip = to
	}
}

// graphInput describes a caller's graph in memory.
func graphInput(in *C.fg_graph_input) (out draw.GraphInput, err error) {
	var t taker
	out.Memory = int64(in.memory)
	for _, n := range list[C.fg_node_type](&t, in.node_types, int64(in.num_node_types), "node types") {
		node := draw.GraphNodes{Name: text(n.name, ""), NumNodes: int64(n.num_nodes)}
		label := nodeLabel(node.Name)
		if n.num_splits != 0 {
			return out, invalid("%s%d splits, expected none of a graph in memory", label, n.num_splits)
		}
		if node.Tensors, err = graphTensors(n.tensors, n.num_tensors, cmp.Or(label, "node ")+"tensor"); err != nil {
			return out, err
		}
		out.NodeTypes = append(out.NodeTypes, node)
	}
	for _, e := range list[C.fg_edge_type](&t, in.edge_types, int64(in.num_edge_types), "edge types") {
		edge := draw.GraphEdges{Source: text(e.source, ""), Relation: text(e.relation, ""), Target: text(e.target, "")}
		label := edgeLabel(edge.Source, edge.Relation, edge.Target)
		if edge.EdgeIndex, err = source(&e.edge_index, label+"edge_index"); err != nil {
			return out, err
		}
		if edge.Tensors, err = graphTensors(e.tensors, e.num_tensors, cmp.Or(label, "edge ")+"tensor"); err != nil {
			return out, err
		}
		out.EdgeTypes = append(out.EdgeTypes, edge)
	}
	return out, t.err
}

// nodeLabel begins what messages say of the arrays of a node type: nothing in a homogeneous graph.
func nodeLabel(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("node type %q: ", name)
}

// edgeLabel is like nodeLabel, for an edge type.
func edgeLabel(source, relation, target string) string {
	if source+relation+target == "" {
		return ""
	}
	return fmt.Sprintf("edge type (%s, %s, %s): ", source, relation, target)
}

// splitSources describes splits by name.
func splitSources(list *C.fg_array, n C.int32_t, what string) (map[string]store.Source, error) {
	named, err := sources(list, n, what)
	if err != nil {
		return nil, err
	}
	out := make(map[string]store.Source, len(named))
	for _, s := range named {
		if _, twice := out[s.Name]; twice {
			return nil, invalid("%s %q is given twice", what, s.Name)
		}
		out[s.Name] = s.Source
	}
	return out, nil
}
