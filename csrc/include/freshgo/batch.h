/* A batch: its tensors, and how to get it. */
#ifndef FRESHGO_API_BATCH_H
#define FRESHGO_API_BATCH_H

#include "base.h"
#include "tensor.h"

/* The tensors of a batch. They are int64 unless the table says otherwise. "Seeds" and "links" are those of the batch.
 *
 * tensor                shape                     there, and what it is
 * n_id                  [nodes]                   always: the nodes, seeds first
 * edge_index            [2, edges]                always: positions in n_id, the neighbour above its target
 * ptr                   [targets + 1]             always: where the edges of each target begin
 * e_id                  [edges]                   not with `walks`: the caller's number of each edge
 * input_id              [seeds] or [links]        always: the places of the seeds, or links, in the caller's list
 * num_sampled_nodes     [hops + 1]                `subgraph_type` 0: nodes that each hop added
 * num_sampled_edges     [hops]                    `subgraph_type` 0: edges of each hop
 * NAME of a node tensor [nodes, ...], its dtype   always: the rows of n_id. With `held` only those that are not held
 * NAME of an edge tensor [edges, ...], its dtype  not with `walks`: the rows of e_id
 * edge_weight           [edges] float32           not with `no_edge_weight`; `sampler` "labor": weights that
 *                                                 estimate the mean over all neighbours; `walks`: numbers of visits
 * source_ptr            [nodes + 1]               `transpose`, with fewer than 2^31 edges, not pruned: where the
 *                                                 edges of each source begin in the next two
 * source_target         [edges] int32             likewise: the targets, by source
 * source_edge           [edges] int32             likewise: the places in edge_index, by source
 * place                 [nodes] int32             `held`: the caller's row of a node; or ~i, and row i of the node
 *                                                 tensors is its row
 * batch                 [nodes]                   `disjoint` or `time_attr`: the place in input_id of the seed, or
 *                                                 link, in whose tree a node is
 * seed_time             [seeds] or [links]        `time_attr`, but not with pairs: their times
 * edge_label_index      [2, links + negatives]    `links` as pairs: positions in n_id of sources, above targets
 * edge_label_time       [links + negatives]       `links` as pairs with `time_attr`: their times
 * src_index             [links]                   `links` as triplets: positions in n_id of sources
 * dst_pos_index         [links]                   likewise of targets
 * dst_neg_index         [links] or                likewise of negatives, one or several for each link
 *                       [links, negatives]
 * history_...           see history.h             `history`: the levels of a pruned batch
 *
 * With a `subgraph_type` other than 0 all nodes are targets. With `links` the seeds are the nodes at the ends of
 * links and negatives, ascending. With `disjoint` or `time_attr` each end is a seed of its own, in the order of
 * edge_label_index or of the three of triplets, whose negatives come one for each link after the other. Negative j
 * goes with link j modulo their number.
 *
 * Of a heterogeneous graph there are these tensors for each type, empty where a batch reaches nothing of it. Node
 * type i (from 0, in the order of the graph) has n<i>/n_id, n<i>/input_id, n<i>/num_sampled_nodes, n<i>/place,
 * n<i>/batch, n<i>/seed_time and n<i>/NAME; edge type j has e<j>/edge_index, e<j>/ptr, e<j>/e_id,
 * e<j>/num_sampled_edges, e<j>/NAME, e<j>/edge_weight and e<j>/source_.... Ids, positions and numbers of edges are
 * those within the type. Trees are numbered over the seeds of all types, type after type. With `subgraph_type` 1 a
 * relation whose reverse is another one (rev_NAME, or the only one back) has no e_id and no edge tensors. With
 * `metapaths` these are the edge types, with edge_weight and without e_id and edge tensors. With `links` of edge
 * type j, from node type s to t, there is e<j>/input_id instead of n<i>/input_id, and e<j>/edge_label_index with
 * e<j>/edge_label_time, or n<s>/src_index, n<t>/dst_pos_index and n<t>/dst_neg_index, with seed_time of s and t. */
typedef struct fg_batch {
  fg_tensor *tensors;  /* in: an array of the caller's ... */
  int32_t capacity;    /* in: ... with this many places, at least max_tensors */
  int32_t versioned;   /* in: which DLPack structure to make */
  int64_t num_tensors; /* out */
  int64_t index;       /* out: position in the epoch */
  int64_t num_seeds;   /* out */
} fg_batch;

/* The next batch of the epoch, in order.
 * Blocks: up to timeout_ms (0: only looks; negative: for ever). Threads: any.
 * Ownership: with FG_OK the tensors pass to the caller, with any other code there are none.
 * Returns: FG_OK, FG_TIMEOUT, FG_END, FG_CLOSED, FG_INVALID, FG_READ, FG_CORRUPT, FG_BUDGET. */
int32_t fg_loader_next(fg_loader *loader, int32_t timeout_ms, fg_batch *batch, fg_error *err);

/* Takes the batch that fg_loader_sample made.
 * Blocks: no. Threads: any. Ownership: the handle ends, also with an error of the batch; with FG_OK the tensors pass to
 * the caller, with any other code there are none. Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_sampled_take(fg_sampled *sampled, fg_batch *batch, fg_error *err);

#endif
