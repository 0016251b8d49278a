// Package loader composes the parts of core into the life of a batch: sample, resolve rows, read what is missing, hand
// over, in the order of the seeds and ahead of the consumer, within one memory budget.
//
// It guarantees that the batches are a function of the source, the options that say what to load (fanouts, replace,
// seeds, batch size, shuffle, drop last, seed) and the epoch alone: threads, prefetch, memory, caches and read engines
// change when a batch is ready and never what is in it. The C API calls it.
//
// A drawer makes the batches of an epoch, each in a preparer (drawer.go, prepare.go): it draws them now, or takes them
// from a window that the inspector has sampled and planned (windowdrawer.go, inspector.go). A rowCache brings their
// rows (rowcache.go): from slots, from packs and from disk. Both are chosen once, by type. docs/architecture.md follows
// a batch through these files. Options add to that way:
//
//   - Links and seeds differ in the tensors that describe them (inputtensors.go).
//   - Neighbour lists on disk: batches that are sampled ahead read them together (sharedreads.go).
//   - transpose: edges come grouped by source too, for the derivative (transpose.go).
//   - Tensors of fewer bytes are widened as the last step of a fill (finish; core/narrow).
//   - held: for rows that the consumer holds on its device, a batch brings only the place (draw.BatchRows).
//   - history: between sampling and tensors a batch waits for its turn and loses the part that kept embeddings replace
//     (history.go opens it, pruningDrawer and windowDrawer call package prune, history_tensors.go hands over the
//     levels).
//   - reorder: batches of a block change places before they are planned (blocks.go).
//   - Batches on demand (Loader.Sample) are made in a preparer of no epoch, with a worker and scratch of its own, over
//     a cache that only reads (ondemand.go).
//
// Around it: open.go opens a loader, costs.go tells package sizing what batches cost, cachedrank.go ranks rows for a
// cache; stats.go, report.go and timeline.go report the work. Where a part of a plan is lost, batches read their rows
// (planlost.go).
package loader
