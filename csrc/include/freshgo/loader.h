/* A loader over a store or a graph. Its batches are in batch.h. */
#ifndef FRESHGO_API_LOADER_H
#define FRESHGO_API_LOADER_H

#include "base.h"
#include "job.h"
#include "loader_options.h"

/* Starts opening a loader over a store or a graph (the other is NULL). The result of the job is an fg_loader*.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and the loader, and keeps the memory of `seeds`, `hotness`, `held`, `input_time`
 * and the arrays of `links` unchanged until the loader is closed; the rest of the options is copied.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_BUDGET, FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_loader_open(fg_store *store, fg_graph *graph, FG_IN fg_loader_options *options, fg_job **job,
                       fg_error *err);

typedef struct fg_loader_details {
  int64_t num_batches; /* per epoch, over all ranks */
  int32_t max_tensors; /* of a batch, at most */
  int32_t reserved;
} fg_loader_details;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_info(fg_loader *loader, fg_loader_details *out, fg_error *err);

/* A rank's part of an epoch that several loaders share: of the remaining batches, every `world_size`-th, beginning with
 * the `rank`-th. A batch depends only on its number in the epoch. */
typedef struct fg_share {
  int64_t rank;
  int64_t world_size; /* at least 1 */
  int32_t uneven;     /* if the last batches are fewer than the ranks, 0: repeat the first batches of the epoch; 1: drop
                         them; 2: some ranks make one batch less than others */
  int32_t adjacent;   /* ranks, `rank` and its successors, whose batches this loader makes; 0: one */
} fg_share;

/* Counts the batches of a share in an epoch of `num_batches`, after the ranks have made the first `first_batch` of
 * them. Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID. */
int32_t fg_share_count(FG_IN fg_share *share, int64_t num_batches, int64_t first_batch, int64_t *out, fg_error *err);

/* Sets the share of epochs that start after this call; before the first call they have all batches. A share that
 * differs from the current one ends the running epoch. A history counts the share's epochs.
 * Blocks: until the threads of the epoch before have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_loader_take(fg_loader *loader, FG_IN fg_share *share, fg_error *err);

enum {
  FG_TRAIN = 0, /* pruned by the history, if there is one */
  FG_TRACE = 1, /* n_id and input_id only, of each type; no features are read */
  FG_PLAIN = 2  /* not pruned */
};

/* Ends the running epoch and starts `epoch` after the first `first_batch` of its batches, whichever ranks have made
 * them. `mode` is FG_TRAIN, FG_TRACE or FG_PLAIN. Batches keep the numbers that they have in a whole epoch.
 * Blocks: until the threads of the epoch before have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_loader_start(fg_loader *loader, int64_t epoch, int64_t first_batch, int32_t mode, fg_error *err);

/* Ends the running epoch and frees the prepared batches. Does nothing if no epoch runs.
 * Blocks: until its threads have stopped. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_stop(fg_loader *loader, fg_error *err);

/* What the loader does ahead of the batches: `stage` says whether it samples, plans or reads a window, and is empty
 * where it only makes batches. There is no result.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_progress(fg_loader *loader, fg_progress *out, fg_error *err);

/* Counters since the loader was opened, a JSON object, as fg_store_describe writes it.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_stats(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* The division of the memory and the plans, a JSON object, as fg_store_describe writes it: "split", "superbatch",
 * "cache", "why", "capacity_rows", "device", "reorder", "reorder_rows", and "windows", with the predicted cost of each
 * transfer, the chosen one and the reason, and the measured cost.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_plan(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* The seeds of a batch on demand: inputs of the loader, nodes, or links if the loader's seeds are links. The others
 * are NULL. */
typedef struct fg_ask {
  FG_IN int64_t *inputs; /* positions in the caller's list of seeds, or of links */
  int64_t num_inputs;
  FG_IN int64_t *seeds; /* nodes, as in fg_loader_options, of node types that occur among the loader's seeds */
  int64_t num_seeds;
  FG_IN int64_t *sources; /* [num_links]: links, as in fg_links */
  FG_IN int64_t *targets;
  int64_t num_links;
  FG_IN int64_t *times; /* of `seeds`, or links; NULL: the times of the nodes, if the loader has times */
  int64_t num_times;
} fg_ask;

/* Starts making one batch, not pruned: the first batch of the first epoch of a loader with these seeds in this order. A
 * running epoch does not change. The memory of the batch comes on top of the loader's `memory`. The result of the job
 * is an fg_sampled*.
 * Blocks: no. Threads: any. Ownership: the caller closes *job and takes the batch by fg_sampled_take, and keeps the
 * arrays of `ask` unchanged until the job is closed.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_loader_sample(fg_loader *loader, FG_IN fg_ask *ask, fg_job **job, fg_error *err);

/* Starts writing the current rows of the loader's tables into their files. It ends the running epoch: its batch is done
 * with, and fg_loader_start goes on after it. The job has no result.
 * Blocks: no. Threads: any. Ownership: the caller closes *job.
 * Returns: FG_OK, FG_CLOSED; the job: FG_WRITE (rows were lost: restore the tables), FG_READ, FG_CORRUPT. */
int32_t fg_loader_settle(fg_loader *loader, fg_job **job, fg_error *err);

/* Starts writing the current rows of the loader's tables into their files. The epoch goes on, and the batch that was
 * handed over last stays with the caller, who does not write to its rows meanwhile. It is called before the next
 * fg_loader_next, fg_loader_start, fg_loader_stop, fg_loader_settle or fg_loader_close. The job has no result.
 * Blocks: no. Threads: any. Ownership: the caller closes *job.
 * Returns: FG_OK, FG_CLOSED; the job: FG_CLOSED (no epoch runs, or it has handed over no batch), FG_WRITE (rows were
 * lost: restore the tables), FG_READ, FG_CORRUPT. */
int32_t fg_loader_flush(fg_loader *loader, fg_job **job, fg_error *err);

/* Writes rows of the table at place `table` among the loader's, which the batches of a step have. It is for a loader of
 * several adjacent ranks, whose batches of a step are handed over one after another and trained together: once all of
 * them were, and before the next call of fg_loader_next, fg_loader_start, fg_loader_stop, fg_loader_settle or
 * fg_loader_close. `rows` ascend, and each is of a node in a batch of the step. `records` are the `n_bytes` bytes of
 * their rows in tensors "table/K", one after another; what follows the payload of a row counts for nothing.
 * Blocks: for the write. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED (no epoch runs, or it has handed over no batch), FG_INVALID, FG_WRITE. */
int32_t fg_loader_put(fg_loader *loader, int64_t table, FG_IN int64_t *rows, int64_t count, FG_IN void *records,
                      int64_t n_bytes, fg_error *err);

/* Ends the running epoch and frees everything but tensors that the caller has.
 * Blocks: until its threads have stopped. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_close(fg_loader *loader, fg_error *err);

#endif
