package sample

import (
	"context"
	"fmt"
)

// TimesByNode holds the time of each node of a type: Narrow, Wide or Source.
type TimesByNode struct {
	Least  int64    // the earliest time, with Narrow
	Narrow []uint32 // what is to be added to it, by node
	Wide   []int64  // times that lie 2^32 or more apart, by node
	Source NodeTimeSource
}

// NodeTimeSource provides times of nodes on disk.
type NodeTimeSource interface {
	// FetchNodeTimes sets out[i] to the time of nodes[i]. It must not change nodes.
	FetchNodeTimes(ctx context.Context, nodes, out []int64) error
}

// Read sets out[i] to the time of nodes[i]. From disk it fetches FetchedEdges times at once.
func (t *TimesByNode) Read(ctx context.Context, nodes, out []int64) error {
	if t.Source == nil {
		t.Find(nodes, out[:len(nodes)])
		return nil
	}
	for first := 0; first < len(nodes); first += FetchedEdges {
		end := min(first+FetchedEdges, len(nodes))
		if err := t.Source.FetchNodeTimes(ctx, nodes[first:end], out[first:end]); err != nil {
			return err
		}
	}
	return nil
}

// Find is Read in memory.
func (t *TimesByNode) Find(nodes, out []int64) {
	if t.Narrow != nil {
		for i, v := range nodes {
			out[i] = t.Least + int64(t.Narrow[v])
		}
		return
	}
	for i, v := range nodes {
		out[i] = t.Wide[v]
	}
}

// check validates the times of the given number of nodes.
func (t *TimesByNode) check(numNodes int64) error {
	forms := 0
	for _, present := range []bool{t.Narrow != nil, t.Wide != nil, t.Source != nil} {
		if present {
			forms++
		}
	}
	switch have := int64(len(t.Narrow) + len(t.Wide)); {
	case forms > 1 || forms == 0 && numNodes != 0:
		return fmt.Errorf("sample: %d forms of times of nodes, expected one of Narrow, Wide and Source: %w", forms, ErrConfig)
	case t.Source == nil && have != numNodes:
		return fmt.Errorf("sample: times of %d nodes, expected %d as there are sources: %w", have, numNodes, ErrConfig)
	}
	return nil
}
