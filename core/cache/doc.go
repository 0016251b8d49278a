// Package cache decides which rows stay in memory, and keeps them there.
//
// Deciding and keeping are separate. A Policy looks up the rows of each batch and decides which of them enter; Rows is
// the memory of the slots and does not depend on policies. Policies are Static (the general caching scheme of FGNN,
// section 6.1: a Hotness for each row and a capacity) and the online ones of New: LRU, CLOCK, SIEVE, S3-FIFO and Match
// (FastGL, section 4.2). Belady's MIN, which knows the future, is core/plan.
//
// Hotness is counted (Counted: degrees in the graph; in sampled batches FGNN's PreSC#K and its optimal static cache),
// or comes from expected visits (Expected), from random numbers (Random) or from the user (Check).
//
// It guarantees that every answer is a function of the arguments and the batches so far: ties go to the lowest row. All
// memory in proportion to the graph or the capacity is off the heap and counted in a mem.Budget.
//
// The loader calls it, and core/plan to compare policies. A row of a step costs about 2 ns of one thread for Static and
// 15 to 45 ns for the online policies with tables of 0.3 M rows; 3 to 6 ns and 45 to 100 ns with 4 M rows, nine in ten
// of them not cached, where each miss touches three distant cache lines.
package cache
