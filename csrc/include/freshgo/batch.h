/* A batch: its tensors, and how to get it. */
#ifndef FRESHGO_API_BATCH_H
#define FRESHGO_API_BATCH_H

#include "base.h"
#include "tensor.h"

typedef struct fg_batch {
  fg_tensor *tensors;  /* in: an array of the caller's ... */
  int32_t capacity;    /* in: ... with this many places, at least max_tensors */
  int32_t versioned;   /* in: which DLPack structure to make */
  int32_t num_tensors; /* out */
  int32_t reserved;
  int64_t index;       /* out: position in the epoch */
  int64_t num_seeds;   /* out */
} fg_batch;

/* The next batch of the epoch, in order. Its tensors: n_id [nodes], edge_index [2, edges], e_id [edges],
 * ptr [targets + 1], input_id [seeds], num_sampled_nodes [hops + 1], num_sampled_edges [hops], all int64, then
 * every node tensor (rows of n_id) and every edge tensor (rows of e_id). With `transpose`, unless there are 2^31
 * edges: source_ptr int64 [nodes + 1], source_target and source_edge int32 [edges], the edges grouped by source.
 * A batch pruned by the history brings, instead of those, the tensors that history.h lists. With
 * `held`: place int32 [nodes], for each of n_id the caller's row, or ~i where row i of the node tensors is its; these
 * then have one row for each node that he does not hold.
 * With `labor` and with `walks`: edge_weight float32 [edges], weights that estimate the mean over all neighbours, or
 * numbers of visits. With `walks` there is no e_id and no edge tensor. With a `subgraph_type` other than 0 all nodes are
 * targets, and num_sampled_nodes and num_sampled_edges are missing. With `disjoint` and with `time_attr`: batch int64
 * [nodes], the place of the seed in whose tree each node is; with the latter also seed_time int64 [seeds].
 * With `links` the seeds of a batch are the nodes at the ends of its links and negatives, ascending, and input_id are
 * the places of its links. Positions in n_id, int64: edge_label_index [2, links + negatives], sources above targets,
 * or with `triplets` src_index [links], dst_pos_index [links], dst_neg_index [links] or [links, negatives]. With
 * `disjoint` and with `time_attr` each of these ends is a seed of its own, in this order, those of triplets' negatives
 * one for each link after the other, and batch has the place of the link with which a tree goes: negative j goes with
 * link j modulo their number. With `time_attr` pairs then have edge_label_time int64 [links + negatives] in place of
 * seed_time, which triplets have for each link.
 * With types: for each node type i in the order of the graph, from 0, the tensors n<i>/n_id, n<i>/input_id (places in the
 * list of the seeds of this type), n<i>/num_sampled_nodes and n<i>/NAME for its tensors; for each edge type j e<j>/edge_index,
 * e<j>/ptr, e<j>/e_id, e<j>/num_sampled_edges, e<j>/NAME for its tensors, and with `labor` or `transpose` the ones above.
 * With `disjoint` also n<i>/batch, the trees over the seeds of all types, type after type, and with `time_attr` n<i>/seed_time.
 * With `subgraph_type` 1 a relation whose reverse is another one (rev_NAME, or the only one back) has no e_id and no tensors.
 * With `metapaths` these are the edge types j, with edge_weight and without e_id and tensors of the graph.
 * Ids, rows of edge_index and edge numbers are those within the type. All are there, empty where a batch reaches nothing of
 * a type. With `links` of the edge type j from node type s to t there is e<j>/input_id and no n<i>/input_id, and e<j>/
 * edge_label_index or n<s>/src_index, n<t>/dst_pos_index and n<t>/dst_neg_index: positions in n_id of the end's type.
 * Blocks: up to timeout_ms (0: only looks; negative: for ever). Threads: any.
 * Ownership: with FG_OK the tensors pass to the caller, with any other code there are none.
 * Returns: FG_OK, FG_TIMEOUT, FG_END, FG_CLOSED, FG_INVALID, FG_READ, FG_CORRUPT, FG_BUDGET. */
int32_t fg_loader_next(fg_loader *loader, int32_t timeout_ms, fg_batch *batch, fg_error *err);

#endif
