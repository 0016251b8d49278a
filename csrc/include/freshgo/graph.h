/* Graphs in memory, and the types that a graph may have, in memory or in a store. */
#ifndef FRESHGO_API_GRAPH_H
#define FRESHGO_API_GRAPH_H

#include "base.h"
#include "tensor.h"

/* The nodes of one type. */
typedef struct fg_node_type {
  FG_IN char *name;
  int64_t num_nodes; /* -1: derive it from the arrays */
  FG_IN fg_array *tensors;
  FG_IN fg_array *splits; /* int64 ids or a bool mask over the nodes */
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
  int32_t reserved; /* zero */
} fg_edge_type;

typedef struct fg_graph_input {
  uint32_t struct_size;
  int32_t num_node_tensors;
  int64_t num_nodes;
  fg_array edge_index; /* integers, [2, edges] */
  FG_IN fg_array *node_tensors;
  FG_IN fg_array *edge_tensors;
  int32_t num_edge_tensors;
  int32_t reserved; /* zero */
  FG_IN fg_node_type *node_types; /* a graph with types: num_nodes is -1 and there are no other arrays, nor splits */
  FG_IN fg_edge_type *edge_types;
  int32_t num_node_types; /* 0: a homogeneous graph */
  int32_t num_edge_types;
} fg_graph_input;

/* Starts building a graph over arrays in memory. The result of the job is an fg_graph*.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and the graph. Rows of the tensors are used in place: their memory must
 * stay until the graph and every loader over it are closed; that of edge_index until the job is closed; the
 * struct and the descriptions are copied.
 * Returns: FG_OK, FG_INVALID, FG_DTYPE; the job: also FG_CANCELLED. */
int32_t fg_graph_open(FG_IN fg_graph_input *in, fg_job **job, fg_error *err);

/* Blocks: no. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_graph_close(fg_graph *graph, fg_error *err);

#endif
