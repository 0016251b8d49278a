/*
 * Threads of the operators: a call brings its number of threads, which share its pieces of work.
 *
 * No OpenMP runtime is linked. A caller that has one running hands over its entry (fgi_threads_borrow): its threads
 * then run the pieces too, and no second team competes with the first for the processors. Without one, and in a
 * forked child, where the threads of the parent do not exist, a pool of our own does, started when first needed.
 *
 * Which thread runs which piece is left to chance; results must not depend on it.
 */
#ifndef FRESHGO_THREADS_H
#define FRESHGO_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* Runs piece number `piece` with scratch memory that no other thread uses meanwhile. */
typedef void (*fgi_piece)(void *job, int64_t piece, void *scratch);

/* Runs pieces 0 to n - 1, the caller taking part, and returns when all are done. Returns 0, or -1 where there is no
 * memory for scratch_bytes a thread; then no piece has run. Never waits for another caller: while the pool is taken,
 * the calling thread works alone. */
int fgi_share(int32_t threads, int64_t n, fgi_piece run, void *job, size_t scratch_bytes);

/* GOMP_parallel of the OpenMP runtime that the process uses anyway; NULL: none. */
typedef void (*fgi_team)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
void fgi_threads_borrow(fgi_team team);

#endif
