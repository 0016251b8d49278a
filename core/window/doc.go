// Package window plans the batches of a loader ahead, window by window, and executes the plans (Ginex, section 3).
//
// Its Cache delivers the same rows as any other source of package fetch: plans change when and how a row is read, never
// the content of a batch. A window is called superbatch here, as in the paper. The package does not depend on the
// loader: Config lists what it needs.
//
//   - An inspector follows the stream of batches over the ends of epochs, a window or two ahead: it samples batches
//     (blocks.go), keeps their traces (trace.go, recordstore.go) and plans them by package plan (inspector.go).
//     Neighbour lists on disk are read for several batches at once (sharedreads.go). Batches of a block may change
//     places before they are planned (blocks.go). If the effect of a history on a batch is known in advance, the rest
//     is planned (forecaster.go).
//   - Begin continues this stream at an epoch. A preparer then makes each Batch: it takes its step of the plan
//     (batch.go), waits for the prologue of its window, which may have run early (superbatch.go, early.go), fetches its
//     rows, and puts rows of later batches aside (fill.go, packs.go). If a part of a plan is lost, batches read their
//     rows (planlost.go).
//   - Rows that training changes go from batch to batch through the same slots and packs, and back to their tables
//     (trained.go, commit.go). Several ranks train the rows of a step together (put.go).
//   - Report compares plans with their measured costs (report.go, timeline.go, calibrate.go).
package window
