// Package cache decides which rows stay in memory, and keeps them there.
//
// Deciding and keeping are apart. A Policy answers for each batch where its rows
// are and which of them enter; Rows is the memory of the slots and knows nothing
// of policies. Policies are Static (the general caching scheme of FGNN, section
// 6.1: a Hotness for each row and a capacity) and the online ones of New: LRU,
// CLOCK, SIEVE, S3-FIFO and Match (FastGL, section 4.2). Belady's MIN, which
// knows the future, is core/plan.
//
// Hotness comes from the graph (OutDegree, InDegree), from sampled batches
// (Counter: FGNN's PreSC#K and its optimal static cache), from both by
// calculation (Expected), from chance (Random) or from the user (Check).
//
// It guarantees that every answer is a function of the arguments and the batches
// so far: ties go to the lowest row. Everything that grows with the graph or the
// capacity is off the heap and counted in a mem.Budget.
//
// The loader calls it, and core/plan to compare policies. A step costs 2 to 3 ns a
// row for Static and 10 to 50 ns for the online policies on tables of 4 M rows, two to five
// cache misses, of which the first two are prefetched.
package cache
