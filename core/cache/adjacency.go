package cache

import (
	"context"

	"freshgo/core/offsets"
)

// Adjacency gives the metrics the in-edges of every node, as sample.Graph has
// them, in an order that a disk can deliver. Sampling reads the row of the
// source of an in-edge.
type Adjacency interface {
	NumNodes() int64
	// Indptr delimits the in-edges of each node; it is not changed.
	Indptr() *offsets.Table
	// Scan calls visit with all elements of the index array in order, in pieces of
	// any size that begin at position first. The sources are in [0, NumNodes), which
	// the implementation checks, and valid only during the call. It stops at an
	// error of visit, which it returns, and when ctx ends.
	Scan(ctx context.Context, visit func(first int64, sources []int64) error) error
}
