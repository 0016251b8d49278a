// Package loader composes the parts of core into the life of a batch: sample, resolve rows, read what is missing, hand
// over, in the order of the seeds and ahead of the consumer, within one memory budget.
//
// It guarantees that the batches are a function of the source, the options that say what to load (fanouts, replace,
// seeds, batch size, shuffle, drop last, seed) and the epoch alone: threads, prefetch, memory, caches and read engines
// change when a batch is ready and never what is in it. The C API calls it.
//
// A drawer makes the batches of an epoch, each in a preparer (prepare.go): it draws them now, or takes them from a
// window that package window has sampled and planned. A rowCache gives preparers the sources of their rows
// (rowcache.go; packages fetch and window). Both are chosen once, by type. Package batch makes the tensors.
// docs/architecture.md follows a batch through these packages. Options add to that way:
//
//   - history: between sampling and tensors a batch waits for its turn and loses the part that kept embeddings replace
//     (history.go opens it, pruningDrawer and windowDrawer call package prune). forecast.go predicts its work.
//   - Batches on demand (Loader.Sample) are made in a preparer of no epoch, with a worker and scratch of its own, over
//     a source that only reads (ondemand.go).
//
// Around it: open.go opens a loader, costs.go tells package sizing what batches cost; stats.go reports the work.
// What options add to planned batches is in the comment of package window.
package loader
