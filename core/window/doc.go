// Package window plans the batches of a loader ahead, window by window, and executes the plans (Ginex, section 3).
//
// Its Cache brings the same rows as any other source of package fetch: plans change when and how a row is read, and
// never what is in a batch. A window is called superbatch here, as in the paper. The package knows no loader: Config
// lists what it needs of one.
//
//   - An inspector follows the stream of batches over the ends of epochs, a window or two ahead: it samples batches
//     (blocks.go), keeps their traces (trace.go, recordstore.go) and has package plan plan them (inspector.go).
//     Neighbour lists on disk are read for several batches at once (sharedreads.go). Batches of a block change places
//     before they are planned (blocks.go). Where it is known ahead what a history takes out of a batch, the rest is
//     planned (forecaster.go).
//   - Begin goes on with this stream at an epoch. A preparer then makes each Batch: it takes its step of the plan
//     (batch.go), waits for the prologue of its window, which may have run early (superbatch.go, early.go), and has its
//     rows brought, and rows of later batches put aside (fill.go, packs.go). Where a part of a plan is lost, batches
//     read their rows (planlost.go).
//   - Report compares plans with what they took (report.go, timeline.go, calibrate.go).
package window
