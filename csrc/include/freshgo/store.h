/* Stores: opened, described, read and verified. */
#ifndef FRESHGO_API_STORE_H
#define FRESHGO_API_STORE_H

#include "base.h"

/* Opens the store at `path` for reading and validates it (header, version, sizes; not every byte).
 * Blocks: for a few small reads. Threads: any. Ownership: the caller closes *out.
 * Returns: FG_OK, FG_NOT_FOUND, FG_PERMISSION, FG_FORMAT, FG_VERSION, FG_CORRUPT, FG_READ. */
int32_t fg_store_open(FG_IN char *path, fg_store **out, fg_error *err);

/* Writes a description of the store, a JSON object, to `json` (no zero at the end). *n_bytes becomes its
 * length; when that exceeds `capacity`, nothing is written.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_store_describe(fg_store *store, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* The kinds of content of a store. An attachment is an array of the graph as a whole, read by fg_store_read_rows. */
enum { FG_SPLIT = 0, FG_NODE_TENSOR = 1, FG_EDGE_TENSOR = 2, FG_ATTACHMENT = 3 };

/* Starts reading a whole split (ids, int64) or tensor (all rows, in the user's order). `type` is a position in the
 * lists of fg_store_describe: in "node_types" for a split or a tensor of nodes, in "edge_types" for a tensor of edges;
 * of a homogeneous store it is 0. The result of the job is a DLManagedTensorVersioned* if `versioned`, else a
 * DLManagedTensor*.
 * Blocks: no. Threads: any. Ownership: the caller closes *job and deletes the tensor.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID (no such type or name; the message lists the names there are); the job:
 * FG_NOT_FOUND, FG_CORRUPT, FG_READ, FG_BUDGET, FG_CANCELLED. */
int32_t fg_store_read(fg_store *store, int32_t kind, int32_t type, FG_IN char *name, int32_t versioned, fg_job **job,
                      fg_error *err);

/* Starts reading rows `first` to `first` + `count` of an attachment, an array that was converted with the graph and is
 * in no batch, and verifies their pages. The result of the job is like the result of fg_store_read.
 * Blocks: no. Threads: any. Ownership: the caller closes *job and deletes the tensor.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID (no such name; the message lists the names there are); the job: FG_INVALID (no
 * such rows), FG_CORRUPT, FG_READ, FG_BUDGET, FG_CANCELLED. */
int32_t fg_store_read_rows(fg_store *store, FG_IN char *name, int64_t first, int64_t count, int32_t versioned,
                           fg_job **job, fg_error *err);

/* Starts comparing every block of the store with its checksum. The job has no result; its progress counts bytes.
 * Blocks: no. Threads: any. Ownership: the caller closes *job.
 * Returns: FG_OK, FG_CLOSED; the job: FG_CORRUPT for the first damaged block, FG_READ, FG_CANCELLED. */
int32_t fg_store_verify(fg_store *store, fg_job **job, fg_error *err);

/* fg_store_verify for the edges and the order of the rows alone, without tensors and splits.
 * Blocks: no. Threads: any. Ownership: the caller closes *job.
 * Returns: FG_OK, FG_CLOSED; the job: FG_CORRUPT for the first damaged block, FG_READ, FG_CANCELLED. */
int32_t fg_store_verify_topology(fg_store *store, fg_job **job, fg_error *err);

/* Blocks: no. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_store_close(fg_store *store, fg_error *err);

#endif
