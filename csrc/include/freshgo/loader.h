/* A loader over a store or a graph: opened, started, observed and closed. batch.h is what it makes. */
#ifndef FRESHGO_API_LOADER_H
#define FRESHGO_API_LOADER_H

#include "base.h"
#include "loader_options.h"

/* Starts opening a loader over a store or a graph (the other is NULL). The result of the job is an fg_loader*.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and the loader, and keeps the memory of `seeds`, `hotness`, `held`, `input_time`
 * and the arrays of `links` unchanged until the loader is closed; the rest of the options is copied.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_BUDGET, FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_loader_open(fg_store *store, fg_graph *graph, FG_IN fg_loader_options *options, fg_job **job,
                       fg_error *err);

typedef struct fg_loader_details {
  int64_t num_batches; /* per epoch, of all ranks together */
  int32_t max_tensors; /* no batch has more */
  int32_t reserved;
} fg_loader_details;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_info(fg_loader *loader, fg_loader_details *out, fg_error *err);

/* The batches of a loader where several loaders, a rank each, share an epoch: of the batches that are left, every
 * `world_size`-th from the `rank`-th on. A batch is a function of its number in the epoch. */
typedef struct fg_share {
  int64_t rank;
  int64_t world_size; /* at least 1 */
  int32_t uneven;     /* where there are not enough last batches for one on each rank, 0: the first of the epoch come
                         again; 1: they are left out; 2: some ranks make one less than others */
  int32_t adjacent;   /* the number of adjacent ranks, from `rank` on, whose batches the loader makes; 0: one */
} fg_share;

/* Counts the batches of a share, in an epoch of `num_batches`, once the first `first_batch` have been made by any
 * ranks. Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID. */
int32_t fg_share_count(FG_IN fg_share *share, int64_t num_batches, int64_t first_batch, int64_t *out, fg_error *err);

/* Makes the epochs that start from now on those of a share; before the first call they have all batches. Another share
 * than the one so far ends what runs. A history counts epochs as the share has them.
 * Blocks: until the threads of the epoch before have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_loader_take(fg_loader *loader, FG_IN fg_share *share, fg_error *err);

enum {
  FG_TRAIN = 0, /* the batches, pruned by the history if there is one */
  FG_TRACE = 1, /* n_id and input_id only, of each type; no features are read */
  FG_PLAIN = 2  /* the batches as if there were no history */
};

/* Ends what runs and begins `epoch` where `first_batch` batches of it have been made, by whatever ranks. `mode` is
 * FG_TRAIN, FG_TRACE or FG_PLAIN. Batches are counted by the loader's own, so that the last one has the same number as
 * in a whole epoch.
 * Blocks: until the threads of the epoch before have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_loader_start(fg_loader *loader, int64_t epoch, int64_t first_batch, int32_t mode, fg_error *err);

/* Ends the running epoch and frees what was prepared. Stopping again does nothing.
 * Blocks: until its threads have stopped. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_stop(fg_loader *loader, fg_error *err);

/* Counters since the loader was opened, a JSON object, as fg_store_describe writes it.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_stats(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* How the memory is divided and what is planned, a JSON object, as fg_store_describe writes it: "split", "superbatch",
 * "cache", "why", "capacity_rows", "device", "reorder", "reorder_rows", and "windows" with what every option of a
 * transfer would take, which was chosen and why, and what it took.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_plan(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* What one batch is made for, apart from all epochs: inputs of the loader; or nodes; or, where the loader makes batches
 * for links, links. What is not asked for is NULL. */
typedef struct fg_ask {
  FG_IN int64_t *inputs; /* places in the caller's list of seeds, or of links */
  int64_t num_inputs;
  FG_IN int64_t *seeds; /* nodes, as in fg_loader_options, of types that the loader has seeds of */
  int64_t num_seeds;
  FG_IN int64_t *sources; /* [num_links]: links, as in fg_links */
  FG_IN int64_t *targets;
  int64_t num_links;
  FG_IN int64_t *times; /* of `seeds`, or links; NULL: the times of the nodes, where the loader has any */
  int64_t num_times;
} fg_ask;

/* Starts making the batch that the first epoch of a loader over what is asked for, in that order, begins with, not
 * pruned. It changes nothing of an epoch that runs. Its memory comes on top of the loader's `memory`. The result of the
 * job is an fg_sampled*.
 * Blocks: no. Threads: any. Ownership: the caller closes *job and takes the batch by fg_sampled_take, and keeps the
 * arrays of `ask` unchanged until the job is closed.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_loader_sample(fg_loader *loader, FG_IN fg_ask *ask, fg_job **job, fg_error *err);

/* Ends the epoch and frees everything but the tensors that were handed out.
 * Blocks: until its threads have stopped. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_close(fg_loader *loader, fg_error *err);

#endif
