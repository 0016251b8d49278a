/* Writing stores: from arrays, and from a store that is changed, that grows, or whose rows are put in another order. */
#ifndef FRESHGO_API_CONVERT_H
#define FRESHGO_API_CONVERT_H

#include "base.h"
#include "graph.h"
#include "tensor.h"

typedef struct fg_convert_input {
  uint32_t struct_size;
  int32_t overwrite; /* replace what is at the path */
  int64_t memory;    /* bytes that the conversion may use */
  FG_IN fg_node_type *node_types;
  FG_IN fg_edge_type *edge_types;
  int32_t num_node_types;
  int32_t num_edge_types;
  FG_IN char *relayout; /* NULL, or the order in which fg_relayout_start will be asked to put the rows */
  int32_t clip;         /* clip values that overflow the dtype in which they are stored; else they are an error */
  int32_t num_attachments;
  /* Arrays of the graph as a whole, with rows of their own, that are kept with the store: see fg_store_read_rows. */
  FG_IN fg_array *attachments;
  FG_IN char *details; /* a line for people in the history of a converted store, or NULL */
} fg_convert_input;

/* Starts writing a store at `path`. It appears there whole or not at all. The job has no result; with `relayout` it
 * does not publish the store, and the result is an fg_store* that can be read as any other and that fg_relayout_start
 * finishes, without a second copy on the disk. Closing that handle before discards the store.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of the arrays unchanged until then; the structs,
 * the descriptions, names, shapes and strides are copied. With `relayout` the caller closes the store.
 * Returns: FG_OK, FG_INVALID, FG_DTYPE; the job: also FG_EXISTS, FG_PERMISSION, FG_BUSY, FG_BUDGET, FG_READ,
 * FG_WRITE, FG_CANCELLED. */
int32_t fg_convert_start(FG_IN fg_convert_input *in, FG_IN char *path, fg_job **job, fg_error *err);

typedef struct fg_relayout_input {
  uint32_t struct_size;
  int32_t overwrite;    /* replace what is at the path */
  int64_t memory;       /* bytes that it may use, `scores` apart */
  int64_t hot_rows;     /* "hot+community": how many rows are laid out by score, or FG_AUTO */
  /* One for each node, finite and not negative: by node type as the store lists them, and within it by the user's id.
   * NULL: none, for "community". */
  FG_IN float *scores;
  int64_t num_scores;
  FG_IN char *order;    /* "hot", "community", "hot+community" */
} fg_relayout_input;

/* Starts writing a copy of a store at `path` in which the rows of the node tensors are stored in another order. What is
 * read from it is in the user's order as before. `path` is NULL for a store that fg_convert_start did not publish: it
 * is put in order in place, published where it belongs, and can no longer be read by this handle, even if that fails.
 * The job has no result; its progress counts bytes read and written.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of `scores` unchanged until then; the struct is copied.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_EXISTS, FG_PERMISSION, FG_BUSY, FG_BUDGET, FG_READ, FG_WRITE,
 * FG_CORRUPT, FG_VERSION (the store holds what this library cannot carry over), FG_CANCELLED. */
int32_t fg_relayout_start(fg_store *store, FG_IN fg_relayout_input *in, FG_IN char *path, fg_job **job, fg_error *err);

/* What an update leaves out. */
typedef struct fg_drop {
  int32_t kind;       /* FG_SPLIT, FG_NODE_TENSOR, FG_EDGE_TENSOR, FG_ATTACHMENT */
  int32_t type;       /* its place among the node types, or edge types, of the update; 0 of an attachment */
  FG_IN char *name;
} fg_drop;

typedef struct fg_update_input {
  uint32_t struct_size;
  int32_t overwrite; /* replace what is at the path */
  int64_t memory;    /* bytes that it may use */
  /* Types of the store, by name, with the tensors and splits that are replaced or added. Numbers of nodes, edge_index
   * and weights are not looked at. */
  FG_IN fg_node_type *node_types;
  FG_IN fg_edge_type *edge_types;
  FG_IN fg_drop *drops;
  int32_t num_node_types;
  int32_t num_edge_types;
  int32_t num_drops;
  int32_t clip; /* as of fg_convert_input */
  FG_IN fg_array *attachments; /* as of fg_convert_input, replaced or added */
  int32_t num_attachments;
  int32_t reserved; /* zero */
} fg_update_input;

/* Starts writing a store at `path` that is `store` with some tensors and splits replaced, added or left out. What stays
 * shares its blocks with the files of the store, or is them, where the file system can do that, and is copied where it
 * cannot. A computed tensor goes with what it was computed from. The job has no result.
 * Blocks: no. Threads: any. Ownership: as of fg_convert_start.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_DTYPE; the job: also FG_NOT_FOUND (no such type), FG_EXISTS,
 * FG_PERMISSION, FG_BUSY, FG_BUDGET, FG_READ, FG_WRITE, FG_CORRUPT,
 * FG_VERSION, FG_CANCELLED. */
int32_t fg_update_start(fg_store *store, FG_IN fg_update_input *in, FG_IN char *path, fg_job **job, fg_error *err);

/* Starts writing a store at `path` that is `store` with further nodes and edges of its types, which `in` has by name:
 * what a conversion of all of them would write, the old ones first. `num_nodes` is how many nodes are new, or -1 for as
 * many as there are rows; splits are ids of old and new nodes or a mask of the new ones; edges have ids of both.
 * Every tensor of a type that grows needs its new rows, which are stored as those that it has; attachments are further
 * rows of those that the store has. `relayout` is NULL and `weights` are those of the store. What does not grow is
 * shared as by fg_update_start. The job has no result.
 * Blocks: no. Threads: any. Ownership: as of fg_convert_start.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_DTYPE; the job: also FG_NOT_FOUND (no such type), FG_EXISTS,
 * FG_PERMISSION, FG_BUSY, FG_BUDGET, FG_READ, FG_WRITE, FG_CORRUPT, FG_VERSION, FG_CANCELLED. */
int32_t fg_append_start(fg_store *store, FG_IN fg_convert_input *in, FG_IN char *path, fg_job **job, fg_error *err);

typedef struct fg_propagate_input {
  uint32_t struct_size;
  int32_t overwrite;        /* replace computed tensors of these names */
  int64_t memory;           /* bytes that it may use */
  int64_t hops;             /* how often, at least 1; more than once in a homogeneous graph only */
  FG_IN char *tensor;       /* of nodes, of floats: what is added up */
  FG_IN char *reduce;       /* "mean", "sum", "gcn" */
  FG_IN char *weight_attr;  /* edge tensor of numbers; edge types without it are not weighted. NULL: none is */
  FG_IN char *name;         /* of the tensor that is made; of hop 2 with a 2 behind it, and so on */
  FG_IN int64_t *relations; /* places of edge types; NULL: all whose sources have the tensor */
  int64_t num_relations;
} fg_propagate_input;

/* Starts adding tensors to the store at the path of `store`, which must be opened again to see them: for every node
 * what the rows of its in-neighbours add up to, along each edge type, in the first hop and unless `reduce` is "gcn"
 * behind the node's own row. Batches bring such a tensor where the option `aggregate` names it. The store has all of
 * the tensors or, after an error, none of them; what it had before stays as it is, for whoever has it open. The job
 * has no result; its progress counts rows written.
 * Blocks: no. Threads: any. Ownership: the caller closes *job; the struct is copied.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_EXISTS, FG_PERMISSION, FG_BUSY, FG_BUDGET, FG_READ, FG_WRITE,
 * FG_CORRUPT, FG_CANCELLED. */
int32_t fg_propagate_start(fg_store *store, FG_IN fg_propagate_input *in, fg_job **job, fg_error *err);

#endif
