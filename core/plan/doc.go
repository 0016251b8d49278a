// Package plan decides, for a superbatch of batches whose rows are known, what the cache holds when, which rows are
// read when, and where they wait until they are needed.
//
// It guarantees:
//
//   - Residency is Belady's MIN at batch granularity (Ginex, section 4.3): after batch i the cache holds those
//     capacity members of C_i and the rows of batch i that are needed soonest. No other policy reads fewer rows.
//   - A plan says everything: where each row of each batch is when that batch is gathered, what enters which slot
//     afterwards, what is set aside in the pack of which later batch. It replays to the planner's own state, and it is
//     a pure function of the batches and the planner's past.
//   - Packs are an optimisation. Whoever runs a plan may lose any of them and reads those rows instead.
//
// Beyond Ginex: residency carries over from one superbatch to the next; what is cached stays on ties, so that less is
// copied; the batches of the next superbatch are looked ahead to; and the rows that no cache can have (the cold ones)
// are transferred in the cheapest of several ways, by a model of the device at hand (see Choice).
//
// What a plan reads before its superbatch may be read while the superbatch before is executed (Superplan.Early).
//
// A plan is passes over the batches: next use backward, residency forward, then the transfer. A batch at a time is in
// memory; what a pass leaves for the next is in records of a Storage. So memory is in proportion to the rows of the
// graph and to those of the widest batch where the storage is a file, whatever the length of a window (StateBytes,
// StoredBytes); where it is memory, records come on top (SuperbatchBytes).
//
// The loader calls New once and Plan once per superbatch, one call at a time. A Plan costs O(accesses): on one core,
// five to twelve times what two prefetched loads per access from tables of the same size cost (BenchmarkLimit), the
// least where nothing is ahead and the transfer is given.
package plan
