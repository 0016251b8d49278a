package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"freshgo/core/ssd"
	"freshgo/core/store"
)

//export fg_convert_start
func fg_convert_start(in *C.fg_convert_input, path *C.char, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, unsafe.Offsetof(in.node_types), "fg_convert_input")
		if err != nil {
			return err
		}
		input, err := convertInput(&opts)
		if err != nil {
			return err
		}
		target, memory, overwrite := C.GoString(path), int64(opts.memory), opts.overwrite != 0
		relayout := opts.relayout != nil
		order := C.GoString(opts.relayout) // empty where it is NULL
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			o := store.ConvertOptions{Memory: memory, Overwrite: overwrite, Progress: report}
			if !relayout {
				return result{}, store.Convert(ctx, ssd.OS, input, target, o)
			}
			draft, err := store.ConvertDraft(ctx, ssd.OS, input, target, order, o)
			if err != nil {
				return result{}, err
			}
			h := newDraftHandle(draft)
			p := handles.add(h)
			return result{pointer: p, discard: func() { discard[*storeHandle](p, h.drop) }}, nil
		})
		return nil
	})
}

// convertInput describes a caller's graph to package store.
func convertInput(in *C.fg_convert_input) (out store.Input, err error) {
	if in.num_node_types != 0 || in.num_edge_types != 0 {
		if in.num_nodes != -1 || in.num_node_tensors != 0 || in.num_edge_tensors != 0 || in.num_splits != 0 {
			return out, invalid("a graph with types has %d nodes and %d arrays beside them, expected -1 and none",
				int64(in.num_nodes), in.num_node_tensors+in.num_edge_tensors+in.num_splits)
		}
		return typedInput(in)
	}
	out.NumNodes = int64(in.num_nodes)
	if out.EdgeIndex, err = source(&in.edge_index, "edge_index"); err != nil {
		return out, err
	}
	if out.NodeTensors, err = sources(in.node_tensors, in.num_node_tensors, "node tensor"); err != nil {
		return out, err
	}
	if out.EdgeTensors, err = sources(in.edge_tensors, in.num_edge_tensors, "edge tensor"); err != nil {
		return out, err
	}
	out.WeightsOf = weightsOf(in, 0)
	out.Splits, err = splitSources(in.splits, in.num_splits, "split")
	return out, err
}

// weightsOf is the name of the tensor of a type of edges that is stored by position too.
func weightsOf(in *C.fg_convert_input, edgeType int) string {
	if in.weights == nil {
		return ""
	}
	names := unsafe.Slice(in.weights, max(1, in.num_edge_types)) // as many as the header asks of the caller
	return textOr(names[edgeType], "")
}

// typedInput describes the types of a caller's graph.
func typedInput(in *C.fg_convert_input) (out store.Input, err error) {
	nodes, edges, err := typeLists(in.node_types, in.num_node_types, in.edge_types, in.num_edge_types)
	if err != nil {
		return out, err
	}
	for i := range nodes {
		t := &nodes[i]
		node := store.NodeInput{Name: textOr(t.name, ""), NumNodes: int64(t.num_nodes)}
		if node.Tensors, err = sources(t.tensors, t.num_tensors, nodeWords(t)+"tensor"); err != nil {
			return out, err
		}
		if node.Splits, err = splitSources(t.splits, t.num_splits, nodeWords(t)+"split"); err != nil {
			return out, err
		}
		out.NodeTypes = append(out.NodeTypes, node)
	}
	for i := range edges {
		t := &edges[i]
		edge := store.EdgeInput{Source: textOr(t.source, ""), Relation: textOr(t.relation, ""), Target: textOr(t.target, "")}
		edge.WeightsOf = weightsOf(in, i)
		if edge.EdgeIndex, err = source(&t.edge_index, edgeWords(t)+"edge_index"); err != nil {
			return out, err
		}
		if edge.Tensors, err = sources(t.tensors, t.num_tensors, edgeWords(t)+"tensor"); err != nil {
			return out, err
		}
		out.EdgeTypes = append(out.EdgeTypes, edge)
	}
	return out, nil
}

// typeLists views the caller's types.
func typeLists(nodes *C.fg_node_type, numNodes C.int32_t, edges *C.fg_edge_type, numEdges C.int32_t) ([]C.fg_node_type, []C.fg_edge_type, error) {
	if numNodes < 0 || numEdges < 0 || numNodes > 0 && nodes == nil || numEdges > 0 && edges == nil {
		return nil, nil, invalid("%d node types at %p, %d edge types at %p", numNodes, nodes, numEdges, edges)
	}
	return unsafe.Slice(nodes, numNodes), unsafe.Slice(edges, numEdges), nil // as many as the caller says
}

// nodeWords begins what messages say of the arrays of a type.
func nodeWords(t *C.fg_node_type) string { return fmt.Sprintf("node type %q: ", textOr(t.name, "")) }

func edgeWords(t *C.fg_edge_type) string {
	return fmt.Sprintf("edge type (%s, %s, %s): ", textOr(t.source, ""), textOr(t.relation, ""), textOr(t.target, ""))
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

//export fg_relayout_start
func fg_relayout_start(h *C.fg_store, in *C.fg_relayout_input, path *C.char, out **C.fg_job, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		opts, err := sized(in, unsafe.Sizeof(*in), "fg_relayout_input")
		if err != nil {
			return err
		}
		if opts.num_scores < 0 || (opts.num_scores > 0 && opts.scores == nil) {
			return invalid("%d scores at %p", int64(opts.num_scores), opts.scores)
		}
		o := store.RelayoutOptions{
			Order: C.GoString(opts.order), HotRows: int64(opts.hot_rows), Memory: int64(opts.memory), Overwrite: opts.overwrite != 0,
		}
		if opts.scores != nil {
			o.Scores = unsafe.Slice((*float32)(unsafe.Pointer(opts.scores)), opts.num_scores) // as long as the caller says
		}
		s, err := useStore(h)
		if err != nil {
			return err
		}
		if (path == nil) != (s.draft != nil) {
			s.drop()
			return invalid("the path is %q, expected one for a store that is published and NULL for one that is not", C.GoString(path))
		}
		target := C.GoString(path)
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			defer s.drop()
			o.Progress = report
			if s.draft != nil {
				return result{}, s.draft.Relayout(ctx, o)
			}
			return result{}, store.Relayout(ctx, s.store, target, o)
		})
		return nil
	})
}
