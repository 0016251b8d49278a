// Package loader composes the parts of core into the life of a batch: sample, resolve rows, read what is missing, hand
// over, in the order of the seeds and ahead of the consumer, within one memory budget.
//
// It guarantees that the batches are a function of the source, the options that say what to load (fanouts, replace,
// seeds, batch size, shuffle, drop last, seed) and the epoch alone: threads, prefetch, memory, caches and read engines
// change when a batch is ready and never what is in it. The C API calls it.
//
// docs/architecture.md follows a batch through these files. Options add to that way:
//
//   - input_weight: an epoch draws its seeds with replacement (stream.go).
//   - Ranks that share an epoch: each counts its own batches, which share.go selects. Trainers agree on it
//     in python/freshgo/_loader/ranks.py and distributed.py.
//   - Edge types: a batch is one flat subgraph over one numbering of all nodes. schema.go and schemaoptions.go know
//     the types, typeoffsets.go the offsets of each type and relation in a batch. A table subtracts the first row of
//     its type from row numbers.
//   - Weights, LABOR, walks: openSampler (sampling.go) gives the sampler what package graph has opened (weights.go,
//     measured in positions where weights are on disk).
//   - Times and trees: lists are narrowed to what is not too late before anything is drawn, and a node is numbered once
//     for each tree (times.go, nodeindex.go, trees.go; core/sample/temporal.go, disjoint.go).
//   - Bidirectional and induced batches get their other edges once all nodes are known (subgraph.go;
//     core/sample/complete.go, induced.go).
//   - Links: the requester of links.go, in place of that of input nodes (seeds.go), makes the request of a batch
//     (package links) and adds the tensors that map links to the seeds at their ends.
//   - Neighbour lists on disk: topology.go opens them, neighbors.go caches those of the most important nodes of all
//     relations, which listchoice.go ranks together; for the others, the pages with the positions that a hop has drawn
//     are read together (core/graph/ids.go, cached.go), for many of the batches that are sampled ahead at once
//     (sharedreads.go, core/graph/together.go).
//   - transpose: edges come grouped by source too, for the derivative (transpose.go).
//   - Tensors of fewer bytes are widened as the last step of a fill (finish; core/narrow).
//   - aggregate: a row and its aggregate are one tensor (parts.choose in source.go); Python makes views of it.
//   - held: for rows that the consumer holds on its device, a batch brings only the place (held.go, batchrows.go).
//   - history: between sampling and tensors a batch waits for its turn and loses the part that kept embeddings replace
//     (history.go opens it, pruning.go calls package prune, history_tensors.go hands over the levels, expected.go
//     serves the policies of admission).
//   - reorder: batches of a block change places before they are planned (blocks.go).
//   - Batches on demand (Loader.Sample) are made by a preparer of no epoch, with a worker and scratch of its own; it
//     reads what is not in memory for good, and moves nothing (ask.go).
//
// Around it: open.go opens a loader; measure.go, estimate.go, costs.go and sizing.go find the numbers by which package
// sizing divides the memory; caches.go opens the cache and its policy, rank.go ranks nodes for it, also by sampling;
// stats.go, report.go and timeline.go report the work. Where a part of a plan is lost, batches read their rows
// (planlost.go).
package loader
