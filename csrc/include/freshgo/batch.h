/* Batches and their tensors. */
#ifndef FRESHGO_API_BATCH_H
#define FRESHGO_API_BATCH_H

#include "base.h"
#include "tensor.h"

/* The tensors of a batch. They are int64 unless the table says otherwise. Seeds and links are the batch's own.
 *
 * tensor                shape                     present with, and content
 * n_id                  [nodes]                   always: the nodes, seeds first
 * edge_index            [2, edges]                always: positions in n_id, sources in row 0, targets in row 1
 * ptr                   [targets + 1]             always: the first edge of each target
 * e_id                  [edges]                   not with `walks`: positions in the caller's edge_index
 * input_id              [seeds] or [links]        always: positions of the seeds, or links, in the caller's list
 * num_sampled_nodes     [hops + 1]                `subgraph_type` 0: new nodes of each hop
 * num_sampled_edges     [hops]                    `subgraph_type` 0: edges of each hop
 * NAME of a node tensor [nodes, ...], its dtype   always: the rows of n_id; with `held`, of nodes that are not held,
 *                                                 and behind them, if the batch is pruned and has nodes whose rows
 *                                                 are not read, a row of zeros for all of these
 * NAME of an edge tensor [edges, ...], its dtype  not with `walks`: the rows of e_id
 * edge_weight           [edges] float32           not with `no_edge_weight`; `sampler` "labor": weights that
 *                                                 estimate the mean over all neighbours; `walks`: visits
 * source_ptr            [nodes + 1]               `transpose`, with fewer than 2^31 edges, not pruned: the first
 *                                                 edge of each source in the next two tensors
 * source_target         [edges] int32             likewise: targets, grouped by source
 * source_edge           [edges] int32             likewise: positions in edge_index, grouped by source
 * place                 [nodes] int32             `held`: a node's row in the caller's table, or ~i for row i of
 *                                                 the node tensors
 * batch                 [nodes]                   `disjoint` or `time_attr`: a node's tree, as the position of its
 *                                                 seed, or link, in input_id
 * seed_time             [seeds] or [links]        `time_attr`, not with links as pairs: their times
 * edge_label_index      [2, links + negatives]    `links` as pairs: positions in n_id, sources in row 0
 * edge_label_time       [links + negatives]       `links` as pairs with `time_attr`: their times
 * src_index             [links]                   `links` as triplets: positions in n_id of sources
 * dst_pos_index         [links]                   likewise, of targets
 * dst_neg_index         [links] or                likewise, of negatives, one or several per link
 *                       [links, negatives]
 * history_...           see history.h             `history`: the levels of a pruned batch
 *
 * With a `subgraph_type` other than 0, all nodes are targets. With `links`, the seeds are the end nodes of links and
 * negatives in ascending order; with `disjoint` or `time_attr` each end is a separate seed, in the order of
 * edge_label_index, or of sources, targets and negatives of triplets. Negatives come in rounds of one per link:
 * negative j belongs to link j modulo the number of links.
 *
 * In a heterogeneous graph each type has these tensors, which are empty if the batch has no nodes or edges of the type.
 * Node type i (from 0, in the order of the graph) has n<i>/n_id, n<i>/input_id, n<i>/num_sampled_nodes, n<i>/place,
 * n<i>/batch, n<i>/seed_time and n<i>/NAME; edge type j has e<j>/edge_index, e<j>/ptr, e<j>/e_id,
 * e<j>/num_sampled_edges, e<j>/NAME, e<j>/edge_weight and e<j>/source_.... Ids, positions and edge
 * numbers are within the type. Trees are numbered over the seeds of all types, in the order of the types. With
 * `subgraph_type` 1, a relation that has a reverse (rev_NAME, or the only relation in the opposite direction) has no
 * e_id and no edge tensors. With `metapaths`, the metapaths are the edge types; they have edge_weight, and no e_id and
 * no edge tensors. With `links` of edge type j, from node type s to t, there is e<j>/input_id instead of n<i>/input_id,
 * and e<j>/edge_label_index with e<j>/edge_label_time, or n<s>/src_index, n<t>/dst_pos_index and n<t>/dst_neg_index,
 * with seed_time of s and t.
 *
 * With `packed`, all tensors but the rows of node and edge tensors that are not int64 are in one tensor:
 *
 * fg/packed             [bytes] uint8             the tensors, each at a multiple of 64 bytes; int64 in the narrowest
 *                                                 signed integers that hold its values
 * fg/layout             [bytes] uint8             JSON: a list of [name, stored dtype, dtype, first byte, shape]
 *
 * Of edge_index it has row 0, of shape [edges]; ptr gives the targets. */
typedef struct fg_batch {
  fg_tensor *tensors;  /* in: the caller's array ... */
  int32_t capacity;    /* in: ... and its length, at least max_tensors */
  int32_t versioned;   /* in: 1: DLManagedTensorVersioned, 0: DLManagedTensor */
  int64_t num_tensors; /* out */
  int64_t index;       /* out: position in the epoch */
  int64_t num_seeds;   /* out */
} fg_batch;

/* Takes the next batch of the epoch, in order.
 * Blocks: up to timeout_ms (0: polls; negative: without limit). Threads: any.
 * Ownership: with FG_OK the tensors pass to the caller; any other code makes none.
 * Returns: FG_OK, FG_TIMEOUT, FG_END, FG_CLOSED, FG_INVALID, FG_READ, FG_CORRUPT, FG_BUDGET. */
int32_t fg_loader_next(fg_loader *loader, int32_t timeout_ms, fg_batch *batch, fg_error *err);

/* The node tensors whose rows batches leave out because of `rows_by_id`: all that are whole in memory and locked for
 * the device (fg_buffers_lock), but for int64 tensors of a packed loader, whose rows are few bytes. A tensor has the
 * name that it would have in a batch, and its memory is the loader's: nothing reads it after fg_loader_close.
 * Blocks: no. Threads: any. Ownership: as fg_loader_next. Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_BUDGET. */
int32_t fg_loader_tables(fg_loader *loader, fg_batch *tables, fg_error *err);

enum {
  FG_LIST_PTR = 0,     /* where the in-edges of each node begin, [num_nodes + 1] */
  FG_LIST_POSITIVE = 1 /* the number of in-edges of each node with a weight above 0, [num_nodes]; none: all have */
};

/* Copies n elements of a list of a relation, from `first` on, to out. The loader has `seeds_only`.
 * Blocks: no. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_END (there is none, and nothing is copied), FG_CLOSED, FG_INVALID. */
int32_t fg_loader_list(fg_loader *loader, int32_t relation, int32_t list, int64_t first, int64_t n, int64_t *out,
                       fg_error *err);

/* A list as it lies in memory of the loader. */
typedef struct fg_stored_list {
  FG_IN void *data; /* NULL without edges */
  int64_t n_bytes;
  int32_t bits;     /* of an element: 32 or 64; ids, which are not negative, may have fewer, one behind the other from
                       the lowest bit on, in words of four bytes; two more words follow. 0: there is no list */
  int32_t reserved; /* zero */
} fg_stored_list;

/* The stored lists of a relation. */
typedef struct fg_stored_lists {
  fg_stored_list source; /* the sources of the in-edges of each node, [num_edges], ids */
  fg_stored_list edge;   /* the numbers of the edges, [num_edges], ids; none: their positions, or edges have none */
  fg_stored_list weight; /* the weights that edges are drawn by, [num_edges], floats; none: all alike */
  fg_stored_list sum;    /* sums of blocks of weights, [num_edges / 16], floats; none: without weights */
} fg_stored_lists;

/* Finds the stored lists of a relation, of a loader with `seeds_only`.
 * Blocks: no. Threads: any. Ownership: the memory is the loader's; nothing reads it after fg_loader_close.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_loader_stored_lists(fg_loader *loader, int32_t relation, fg_stored_lists *out, fg_error *err);

/* Locks the stored lists of all relations for the device (fg_buffers_lock) until fg_loader_close. Ends a running epoch.
 * Blocks: for about 0.1 s per GB. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_END (the system refuses some, and nothing is locked), FG_CLOSED, FG_INVALID. */
int32_t fg_loader_lock_lists(fg_loader *loader, fg_error *err);

/* Takes the batch that fg_loader_sample made.
 * Blocks: no. Threads: any. Ownership: the handle ends, also with an error of the batch; with FG_OK the tensors pass to
 * the caller; any other code makes none. Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_sampled_take(fg_sampled *sampled, fg_batch *batch, fg_error *err);

#endif
