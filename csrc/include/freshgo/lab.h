/* The policy laboratory: caches and scores without a training run. */
#ifndef FRESHGO_API_LAB_H
#define FRESHGO_API_LAB_H

#include "base.h"
#include "loader_options.h"
#include "tensor.h"

typedef struct fg_simulation {
  uint32_t struct_size;
  int32_t carry_over;    /* "belady", as in fg_loader_options */
  int32_t lookahead;     /* "belady", as in fg_loader_options */
  int32_t reserved;      /* zero */
  FG_IN char *policy;    /* "none", "belady", "lru", "clock", "sieve", "s3fifo", "match", "oracle", "random",
                            "vector" */
  int64_t superbatch;    /* "belady": batches planned together; 0: all */
  FG_IN float *hotness;  /* "vector": a score per node id, finite and not negative */
  int64_t num_hotness;   /* its length */
  uint64_t hotness_seed; /* "random" */
  int64_t num_nodes;     /* all ids are below it */
  int64_t capacity;      /* of the cache, in rows */
  FG_IN fg_array *trace; /* the ids of each batch, distinct within it: integers, one dimension, contiguous */
  int64_t num_batches;
  int64_t *reads;        /* out: rows fetched for a batch, [num_batches] */
  int64_t *hits;         /* out: rows found in the cache, [num_batches] */
  int64_t *swaps;        /* out: rows that were evicted, [num_batches] */
  int64_t *fill;         /* out: rows fetched before the first batch */
} fg_simulation;

/* Starts simulating a cache of rows on a trace, without reading rows. The job has no result.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of `trace`, `hotness` and the four outputs until then; the
 * struct and the descriptions are copied.
 * Returns: FG_OK, FG_INVALID, FG_DTYPE; the job: FG_INVALID (an id that is out of range or comes twice), FG_BUDGET,
 * FG_CANCELLED. */
int32_t fg_simulate(FG_IN fg_simulation *in, fg_job **job, fg_error *err);

/* Starts computing the hotness of every node: the scores by which a loader with these options and a `cache` of
 * "degree", "in-degree", "random", "presc" or "expected" would fill it. The job has no result.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of `seeds` and of `out` until then.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: FG_BUDGET, FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_hotness(fg_store *store, fg_graph *graph, FG_IN fg_loader_options *options, float *out, int64_t num_out,
                   fg_job **job, fg_error *err);

#endif
