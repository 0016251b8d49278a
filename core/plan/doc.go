// Package plan decides, for a superbatch of batches whose rows are known, which rows the cache holds after each batch,
// when rows are read, and where they wait until they are needed.
//
// It guarantees:
//
//   - Residency is Belady's MIN at batch granularity (Ginex, section 4.3): after batch i the cache holds, of its own
//     rows and the rows of batch i, the ones that are needed soonest, up to its capacity. No other policy reads fewer
//     rows.
//   - A plan is complete: it gives the place of each row of each batch when that batch is gathered, the rows that enter
//     slots afterwards, and the rows that are set aside in packs of later batches. It replays to the planner's state,
//     and it is a pure function of the batches and the planner's past.
//   - Packs are an optimisation. An executor may lose any of them and reads those rows instead.
//
// Beyond Ginex: residency carries over from one superbatch to the next; cached rows stay on ties, so that less is
// copied; the planner looks ahead to the batches of the next superbatch; and the rows that no cache can have (the cold
// ones) are transferred in the cheapest of several ways, by a model of the device (see Choice).
//
// The reads of a prologue may run while the previous superbatch is executed (Superplan.Early).
//
// Planning makes passes over the batches: next use backward, residency forward, then the transfer. One batch at a time
// is in memory; a pass leaves its results for the next in records of a Storage. So if the storage is a file, memory is
// in proportion to the rows of the graph, or to the accesses of a window where these are few, and to the widest batch
// (KnownBytes, StoredBytes); if it is memory, records are added (SuperbatchBytes).
//
// The loader calls New once and Plan once per superbatch, one call at a time. A Plan costs O(accesses): on one core,
// about ten times a prefetched word of the table of rows that is read and written (BenchmarkLimit), as such a word is
// touched only to find next uses. For the batches ahead it also passes over the parts of the table of rows that they
// need: twice, and up to three times more where rows are read along.
package plan
