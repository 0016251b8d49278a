// Package fetch brings the rows of batches into their tensors: from memory, from the slots of a cache, and from disk.
//
// Features are the tensors of the graph, with the slots of the cache. A Filler serves one preparer. For one batch after
// the other it looks up the rows (resolve.go), reads cold rows (read.go), copies rows out of slots and into them
// (commit.go), and widens rows of fewer bytes (fill.go). A Source decides how: AllInMemory, Uncached, Fixed (whose rows
// cachedrank.go ranks), Online, or the execution of a plan (core/window). Sources that change with each batch do so in
// the order of the batches (Turns).
package fetch

import (
	"context"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/graph"
	"freshgo/core/plan"
)

// Source brings the rows of tables on disk: a cache, or the execution of its plan.
type Source interface {
	// Fill brings the rows of batch i into its tensors, and lets the batch change the cache.
	Fill(f *Filler, i int64, tensors [][]byte) error
}

// Turns are the turns of an epoch's batches at what they change, in their order.
type Turns struct {
	Ctx    context.Context
	Cache  *Turnstile
	Policy *Turnstile // of an online cache
}

// Filler brings the rows of one batch after the other into their tensors. Its scratch is its own.
type Filler struct {
	Sampling   *draw.Sampling
	Features   *Features
	Counters   *batch.Counters
	Drawn      *batch.Drawn
	Source     Source
	Turns      Turns
	Scratch    graph.Scratch
	Lookup     Lookup
	deliveries deliveries // with the tag invariants
	wide       [][]byte   // the tensors of the batch that the graph has rows for
	Step       plan.Step  // where the rows of the batch are, and what moves after it
}
