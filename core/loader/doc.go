// Package loader composes the parts of core into the life of a batch: sample, resolve rows, read missing ones, hand
// over, in the order of the seeds and ahead of the consumer, within one memory budget.
//
// It guarantees that the batches are a function of the source, the options for their content (fanouts, replace, seeds,
// batch size, shuffle, drop last, seed) and the epoch alone: threads, prefetch, memory, caches and read engines change
// when a batch is ready and never its content. The C API calls it.
//
// A drawer makes the batches of an epoch, each in a preparer (prepare.go): it draws them on request, or takes them from
// a window that package window has sampled and planned. A rowCache gives preparers the sources of their rows
// (rowcache.go; packages fetch and window). Both are chosen once, by type. Package batch makes the tensors.
// docs/architecture.md follows a batch through these packages. Options add to this:
//
//   - history: between sampling and tensors a batch waits for its turn and loses the part that kept embeddings replace
//     (history.go opens it, pruningDrawer and windowDrawer call package prune). forecast.go predicts its work.
//   - tables: a preparer keeps its batch until the consumer is done with it, and then takes the rows back that training
//     has changed (commits.go). What is not kept by a slot or a pack goes back to its file (package embed).
//   - reorder: a preparer that draws a batch on request first finds which one is at its place (order.go). Package
//     window orders planned batches.
//   - Batches on demand (Loader.Sample) are made in a preparer without an epoch, with its own worker and scratch, over
//     a source that only reads (ondemand.go; ondemandinputs.go checks the seeds).
//
// Around it: open.go opens a loader, costs.go gives package sizing the costs of batches; stats.go reports the work. The
// comment of package window says what options add to planned batches.
package loader
