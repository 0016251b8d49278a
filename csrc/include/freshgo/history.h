/* Historical embeddings (FreshGNN). Of L layers, layer l = 1 .. L makes rows of level l from rows of level l - 1; level
 * 0 is the features. A row of a level 1 .. L - 1 whose embedding the history has is not computed: its edges, and all
 * that only they need, are taken out of the batch before any feature is read. The library decides; the caller has the
 * rows, in one buffer, slot s at byte s * row_bytes.
 *
 * A pruned batch has the nodes that are still needed and the edges of the rows that any layer computes; rows of node
 * tensors that are neither of seeds nor of level 0 are zero. Beside its other tensors it has, all int64:
 *   history_counts
 *       the iteration; the rows of features loaded; the nodes and the edges that the batch would have had; of each node
 *       type the rows loaded and the nodes that it would have had; of each level and node type the rows of its table
 *       and the targets among them
 *   history_degree [nodes], history_loops [nodes]
 *       of graphs with one node type and one edge type: in-edges drawn, those pruned included, and how many of them
 *       lead from the node to itself; the second is missing where none does
 *   history_nodes_l [rows], level l = 0 .. L - 1
 *       its table, the rows that layer l + 1 reads, as nodes of the batch within their node type; those of a node type
 *       follow those of the one before, targets first
 *   history_computed_l, history_hit_l, history_slot_l, level l = 1 .. L - 1
 *       positions in that table which layer l computes, in the order of its rows; which the history has; their slots
 *   history_ptr_l, history_edge_index_l, history_edge_l, layer l = 1 .. L, of each edge type
 *       its edges by target, as rows of the source's type in the table of level l - 1 and of the target's type among
 *       its targets, and as edges of that type in the batch
 *   history_source_ptr_l, history_source_target_l, history_source_edge_l
 *       with `transpose`, of each edge type, its edges grouped by source
 *   history_probe_l, history_probe_slot_l, history_probe_age_l
 *       of a batch that was left whole to compare: positions of computed rows that the history has too, their slots
 *       and ages
 * Tensors of an edge type are called as its other tensors are: see batch.h.
 *
 * Iterations are batches handed over in FG_TRAIN epochs, from 0 on. Each pruned batch is updated once, before the next
 * is asked for; one that is not counts as updated with nothing. */
#ifndef FRESHGO_API_HISTORY_H
#define FRESHGO_API_HISTORY_H

#include "base.h"
#include "tensor.h"

/* The options of a loader's history. */
typedef struct fg_history_options {
  uint32_t struct_size;
  int32_t lag;            /* batches are pruned with the cache of `lag` iterations ago, at most the number of
                             prefetched batches */
  double p_grad;          /* of the computed rows of a layer, the fraction with the smallest gradients that may enter */
  double t_stale;         /* the oldest age at which an entry is used; infinity: any age */
  double start;           /* the time at which the cache begins */
  int32_t t_stale_epochs; /* t_stale is in epochs, else in iterations */
  int32_t start_epochs;   /* start is */
  FG_IN char *policy;     /* "gradient", "performance" or "all" */
  int64_t memory;         /* bytes of the buffer, or FG_AUTO: a tenth of the features */
  int32_t outside;        /* the buffer is the caller's and no part of the loader's memory */
  int64_t levels;         /* bit l - 1: hidden level l is kept; 0: all are */
  int64_t probe_every;    /* every `probe_every`-th batch is left whole, to compare embeddings; 0: none */
} fg_history_options;

/* The buffer, a uint8 tensor of `memory` bytes. *out is empty where the caller has it.
 * Blocks: no. Threads: any. Ownership: the tensor passes to the caller. Returns: FG_OK,
 * FG_CLOSED, FG_INVALID (no history). */
int32_t fg_history_buffer(fg_loader *loader, int32_t versioned, fg_tensor *out, fg_error *err);

/* What an update says of a hidden layer. Without any norms (num_computed and num_hits are 0) the layer is not judged:
 * none of its rows are kept. */
typedef struct fg_history_layer {
  FG_IN float *computed; /* gradient norms of the rows in history_computed, in that order */
  FG_IN float *hits;     /* and of those in history_hit; num_hits may be 0: these are not judged */
  int64_t num_computed;
  int64_t num_hits;
  int64_t *rows;         /* out, [num_computed]: which of the computed rows are kept, and ... */
  int64_t *slots;        /* out, [num_computed]: ... where; written by the caller before the next batch is asked for */
  int64_t num_admitted;  /* out: how many those are */
} fg_history_layer;

/* Updates the batch of an iteration, the one that was handed over last, after its backward pass. `layers` are the
 * hidden layers in order; row_bytes is the size of an embedding of the widest, always the same. Without layers nothing
 * is kept.
 * Blocks: up to timeout_ms, until the batches are sampled that may not know of this one yet. Threads: any.
 * Ownership: none passes. Returns: FG_OK, FG_TIMEOUT (nothing happened, call again), FG_CLOSED, FG_INVALID. */
int32_t fg_history_update(fg_loader *loader, int64_t iteration, int64_t row_bytes, fg_history_layer *layers,
                          int32_t num_layers, int32_t timeout_ms, fg_error *err);

/* What the history did, a JSON object, as fg_store_describe writes it.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_history_stats(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* What the history will do in an epoch, if it began now where `first_batch` batches of it have been made. For
 * num_layers hidden layers counts is [4 + 2 * num_layers]: rows, rows of plain batches, edges,
 * edges of plain batches, then hits and misses of each hidden layer. All batches are drawn; no epoch may run.
 * Blocks: up to timeout_ms; after FG_TIMEOUT the same call goes on. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_TIMEOUT, FG_CLOSED, FG_INVALID (gradients decide, or nothing was updated yet), FG_BUDGET. */
int32_t fg_history_forecast(fg_loader *loader, int64_t epoch, int64_t first_batch, int32_t num_layers,
                            int32_t timeout_ms, int64_t *counts, fg_error *err);

/* The state of the decisions, a uint8 tensor; with the buffer it is all there is.
 * Blocks: no. Threads: any. Ownership: the tensor passes to the caller. Returns: FG_OK,
 * FG_CLOSED, FG_INVALID, FG_BUDGET. */
int32_t fg_history_save(fg_loader *loader, int32_t versioned, fg_tensor *out, fg_error *err);

/* Takes over a saved state and ends the running epoch. Bytes that are no state of this history change nothing.
 * Blocks: until the threads of the epoch have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_FORMAT. */
int32_t fg_history_restore(fg_loader *loader, FG_IN void *data, int64_t n_bytes, fg_error *err);

#endif
