/* Historical embeddings (FreshGNN). Of L layers, layer l = 1 .. L makes rows of level l from rows of level l - 1; level
 * 0 is the features. A row of level 1 .. L - 1 whose embedding the history has is not computed: before any feature is
 * read, the library removes its edges from the batch, with all nodes that only these edges need. The library decides
 * which rows to keep; the caller has them in one buffer, slot s at byte s * row_bytes.
 *
 * A pruned batch has the nodes that remain and the edges of all rows that a layer computes. In node tensors, only rows
 * of seeds and of level 0 are read; the others are zero. It also has these tensors, all int64:
 *   history_counts
 *       the iteration; loaded rows of features; nodes and edges of the plain batch; per node type, loaded rows and
 *       nodes of the plain batch; per level and node type, rows of the table and targets among them
 *   history_degree [nodes], history_loops [nodes]
 *       for graphs with one node type and one edge type: drawn in-edges, including pruned ones, and self-loops among
 *       them; the second is missing if there are none
 *   history_nodes_l [rows], level l = 0 .. L - 1
 *       the table of the level: the rows that layer l + 1 reads, as nodes of the batch within their node type, grouped
 *       by node type in order, targets first
 *   history_computed_l, history_hit_l, history_slot_l, level l = 1 .. L - 1
 *       positions in the table of the rows that layer l computes, in order; of the rows in the history; their slots
 *   history_ptr_l, history_edge_index_l, history_edge_l, layer l = 1 .. L, of each edge type
 *       its edges grouped by target, as rows of the source's type in the table of level l - 1 and of the target's type
 *       among its targets, and as edges of that type in the batch
 *   history_source_ptr_l, history_source_target_l, history_source_edge_l
 *       with `transpose`, of each edge type, its edges grouped by source
 *   history_probe_l, history_probe_slot_l, history_probe_age_l
 *       for a batch that is not pruned, to measure errors: positions of computed rows that are also in the history,
 *       their slots and their ages
 * Tensors of an edge type are named like its other tensors: see batch.h.
 *
 * Iterations are training steps on the batches of FG_TRAIN epochs, from 0 on, in the order of the batches:
 * fg_history_end, fg_loader_next unless the batch was taken before, fg_history_begin, fg_history_update. The caller
 * updates each pruned batch once; from a batch without an update nothing is kept. */
#ifndef FRESHGO_API_HISTORY_H
#define FRESHGO_API_HISTORY_H

#include "base.h"
#include "tensor.h"

/* The options of a loader's history. */
typedef struct fg_history_options {
  uint32_t struct_size;
  int32_t lag;            /* batches are pruned by the history of `lag` iterations ago, at most the number of
                             prefetched batches */
  double p_grad;          /* fraction of a layer's computed rows, those with the smallest gradients, that may enter */
  double t_stale;         /* maximum age of entries that are used; infinity: any age */
  double start;           /* time of the first use of the history */
  int32_t t_stale_epochs; /* t_stale is in epochs, else in iterations */
  int32_t start_epochs;   /* start is in epochs, else in iterations */
  FG_IN char *policy;     /* "gradient", "performance" or "all" */
  int64_t memory;         /* bytes of the buffer, or FG_AUTO: a tenth of the features; for aggregates of level 1
                             alone none, and no history, unless memory holds all features as well */
  int32_t outside;        /* the caller has the buffer, outside the loader's memory */
  int32_t aggregates;     /* entries are what a layer adds up */
  int64_t levels;         /* bit l - 1: hidden level l is kept; 0: all are */
  int64_t probe_every;    /* every `probe_every`-th batch is not pruned, to measure errors; 0: none */
} fg_history_options;

/* The buffer, a uint8 tensor of `memory` bytes. *out is empty if the caller has the buffer.
 * Blocks: no. Threads: any. Ownership: the tensor passes to the caller. Returns: FG_OK,
 * FG_CLOSED, FG_INVALID (no history). */
int32_t fg_history_buffer(fg_loader *loader, int32_t versioned, fg_tensor *out, fg_error *err);

/* Begins the step of the next batch that fg_loader_next has returned.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED,
 * FG_INVALID (no epoch, or no batch whose step has not begun). */
int32_t fg_history_begin(fg_loader *loader, fg_error *err);

/* Ends the step of the newest batch, with nothing kept if it has no update. Comes before the caller waits for the next
 * batch, which may have to be pruned by the updated history.
 * Blocks: up to timeout_ms, as fg_history_update. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_TIMEOUT, FG_CLOSED, FG_INVALID (no epoch). */
int32_t fg_history_end(fg_loader *loader, int32_t timeout_ms, fg_error *err);

/* The update of a hidden layer. Without norms (num_computed and num_hits are 0) none of its rows are kept. */
typedef struct fg_history_layer {
  FG_IN float *computed; /* gradient norms of the rows in history_computed, in that order */
  FG_IN float *hits;     /* and of the rows in history_hit; num_hits may be 0: hits are not judged */
  int64_t num_computed;
  int64_t num_hits;
  int64_t *rows;         /* out, [num_computed]: computed rows to keep, and ... */
  int64_t *slots;        /* out, [num_computed]: ... their slots; the caller fills them within the step */
  int64_t num_admitted;  /* out: the number of rows to keep */
} fg_history_layer;

/* Updates the history after the backward pass of a step, whose iteration is given. `layers` are the hidden
 * layers in order; row_bytes is the size of an embedding of the widest layer, equal in all calls. Without layers,
 * nothing is kept.
 * Blocks: up to timeout_ms, until batches that must not see this update are sampled. Threads: any.
 * Ownership: none passes. Returns: FG_OK, FG_TIMEOUT (nothing happened, call again), FG_CLOSED, FG_INVALID. */
int32_t fg_history_update(fg_loader *loader, int64_t iteration, int64_t row_bytes, fg_history_layer *layers,
                          int32_t num_layers, int32_t timeout_ms, fg_error *err);

/* Counters of the history, a JSON object, as fg_store_describe writes it.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_history_stats(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* Forecasts an epoch that would start now, after the first `first_batch` of its batches. counts is [4 + 2 *
 * num_layers]: rows, rows of plain batches, edges, edges of plain batches, then hits and misses of each hidden layer.
 * Draws all batches; no epoch may run.
 * Blocks: up to timeout_ms; after FG_TIMEOUT the same call continues. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_TIMEOUT, FG_CLOSED, FG_INVALID (gradients decide, or nothing was updated yet), FG_BUDGET. */
int32_t fg_history_forecast(fg_loader *loader, int64_t epoch, int64_t first_batch, int32_t num_layers,
                            int32_t timeout_ms, int64_t *counts, fg_error *err);

/* Bounds the age of entries that are used by `stale` iterations, at least 1, from the next epoch on, where t_stale is
 * more. It ends the running epoch.
 * Blocks: until the threads of the epoch have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_history_bound(fg_loader *loader, int64_t stale, fg_error *err);

/* The state of the history, a uint8 tensor, without the rows in the buffer.
 * Blocks: no. Threads: any. Ownership: the tensor passes to the caller. Returns: FG_OK,
 * FG_CLOSED, FG_INVALID, FG_BUDGET. */
int32_t fg_history_save(fg_loader *loader, int32_t versioned, fg_tensor *out, fg_error *err);

/* Restores a saved state and ends the running epoch. Bytes that are no state of this history change nothing.
 * Blocks: until the threads of the epoch have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_FORMAT. */
int32_t fg_history_restore(fg_loader *loader, FG_IN void *data, int64_t n_bytes, fg_error *err);

#endif
