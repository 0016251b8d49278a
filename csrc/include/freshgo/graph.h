/* Graphs: node types, relations between them, and a graph over arrays in memory. */
#ifndef FRESHGO_API_GRAPH_H
#define FRESHGO_API_GRAPH_H

#include "base.h"
#include "tensor.h"

/* A homogeneous graph has one node type and one edge type with empty names (or NULL). In a heterogeneous graph all
 * types have names. */

/* The nodes of one type. */
typedef struct fg_node_type {
  FG_IN char *name;
  int64_t num_nodes; /* -1, for stores only: derived from the arrays */
  FG_IN fg_array *tensors;
  FG_IN fg_array *splits; /* int64 ids or a bool mask over the nodes; only for stores */
  int32_t num_tensors;
  int32_t num_splits;
} fg_node_type;

/* The edges of one type, from nodes of `source` to nodes of `target`. */
typedef struct fg_edge_type {
  FG_IN char *source;
  FG_IN char *relation;
  FG_IN char *target;
  fg_array edge_index; /* integers, [2, edges] */
  FG_IN fg_array *tensors;
  int32_t num_tensors;
  /* for stores only: not 0 leaves out the numbers of edges that are not their positions; batches then have no e_id, and
   * there are no tensors */
  int32_t unnumbered;
  FG_IN char *weights; /* for stores only: the tensor that is also stored by position, with prefix sums, so that
                          weighted draws do not read whole lists from disk; NULL: none */
  FG_IN fg_array *more_edges; /* for stores only: edges that follow those of `edge_index`, of its dtype */
  int64_t num_more_edges;
} fg_edge_type;

typedef struct fg_graph_input {
  uint32_t struct_size;
  int32_t reserved; /* zero */
  FG_IN fg_node_type *node_types;
  FG_IN fg_edge_type *edge_types;
  int32_t num_node_types;
  int32_t num_edge_types;
  int64_t memory; /* limit in bytes for building the index; 0: unlimited */
} fg_graph_input;

/* Starts building a graph over arrays in memory. The result of the job is an fg_graph*.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and the graph. Rows of the tensors are used in place: their memory must
 * stay until the graph and every loader over it are closed, and the memory of edge_index until the job is closed. The
 * structs and descriptions are copied.
 * Returns: FG_OK, FG_INVALID, FG_DTYPE; the job: also FG_BUDGET, FG_CANCELLED. */
int32_t fg_graph_open(FG_IN fg_graph_input *in, fg_job **job, fg_error *err);

/* Blocks: no. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_graph_close(fg_graph *graph, fg_error *err);

#endif
