/*
 * freshgo: mini-batches of graphs that do not fit in memory.
 *
 * This header is the whole C API and its documentation.
 *
 * Shape. Every function takes handles, then what is read (FG_IN), then what
 * is written, then an fg_error, and returns a code. FG_OK, FG_TIMEOUT and
 * FG_END are no errors; with any other code the fg_error says what happened.
 * `err` may be NULL; no other pointer may, unless it says so.
 *
 * Strings are UTF-8 (paths: bytes as the system has them) and end in a zero.
 * Sizes are in bytes where the name says n_bytes, else in elements.
 *
 * Structs whose first member is struct_size hold options: set it to sizeof of
 * the struct and the rest to zero before filling it in. A library newer than
 * its caller takes the missing tail for zero; one that is older refuses.
 *
 * Handles are made by _open or a job, used from any thread, and closed once.
 * A handle that was closed gives FG_CLOSED, one of another kind FG_INVALID.
 * A store or a graph may be closed while loaders or jobs use it: the handle
 * ends at once, what it holds is freed with the last of them.
 *
 * Jobs. What takes long is started by a function that returns a job. Wait
 * for it with fg_job_wait in steps, then close it, in every case.
 *
 * Threads. Every function may be called from any thread at any time, except
 * that a process which forked after its first call must not call in the child.
 * Tensors may be used and deleted there.
 *
 * Defects. Should the library break one of its own invariants, that call and
 * every later one return FG_INTERNAL with the message of the first.
 */
#ifndef FRESHGO_H
#define FRESHGO_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

/* Only read by the callee. The exporting file defines it away, because the
 * prototypes generated from Go, which this header is checked against, have no
 * word for const. */
#ifndef FG_IN
#define FG_IN const
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a function changes in a way that breaks callers. */
#define FG_ABI_VERSION 3

enum {
  FG_OK = 0,
  FG_TIMEOUT = 1, /* not finished within timeout_ms; nothing is lost, call again */
  FG_END = 2,     /* the epoch has no more batches */

  FG_INVALID = 10,    /* an argument has a value that cannot work */
  FG_DTYPE = 11,      /* an array has a dtype that cannot be used there */
  FG_NOT_FOUND = 12,  /* nothing at the path */
  FG_EXISTS = 13,     /* the path is taken */
  FG_PERMISSION = 14, /* the system refuses access to the path */
  FG_READ = 15,       /* reading failed: sys_errno, path */
  FG_WRITE = 16,      /* writing failed, disk full included: sys_errno, path */
  FG_FORMAT = 17,     /* not a store, or not laid out as its header says */
  FG_VERSION = 18,    /* a store of a newer version */
  FG_CORRUPT = 19,    /* data that do not match their checksum or size: path */
  FG_BUDGET = 20,     /* the memory budget is too small: minimum */
  FG_CLOSED = 21,     /* a closed handle, or a loader without a running epoch */
  FG_BUSY = 22,       /* another conversion is writing to the path */
  FG_CANCELLED = 23,  /* the job was cancelled */
  FG_INTERNAL = 24,   /* a defect of the library, which is unusable from now on */
  FG_CUDA = 25        /* CUDA is not there, or a call of its driver failed: the message says which */
};

/* What went wrong. Owned by the caller, needs no initialisation and no free. */
typedef struct fg_error {
  int32_t code;
  int32_t sys_errno;  /* 0 if no system call is behind it */
  int64_t minimum;    /* FG_BUDGET: the smallest budget in bytes that works, 0 if unknown */
  char message[1024]; /* cut at a character if longer */
  char path[4096];    /* the file concerned, or empty */
} fg_error;

typedef struct fg_store fg_store;
typedef struct fg_graph fg_graph;
typedef struct fg_loader fg_loader;
typedef struct fg_job fg_job;

/* ---- the library ------------------------------------------------------ */

/* Lets a binding check that its declarations are those of the library. */
typedef struct fg_version_info {
  uint32_t abi; /* FG_ABI_VERSION; the sizes below are meaningful only if it agrees */
  uint32_t size_error;
  uint32_t size_counters;
  uint32_t size_array;
  uint32_t size_tensor;
  uint32_t size_progress;
  uint32_t size_graph_input;
  uint32_t size_convert_input;
  uint32_t size_loader_options;
  uint32_t size_loader_details;
  uint32_t size_batch;
  uint32_t size_python_api;
  uint32_t size_simulation;
  uint32_t size_relayout_input;
  uint32_t size_history_options;
  uint32_t size_history_layer;
  uint32_t size_node_type;
  uint32_t size_edge_type;
} fg_version_info;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK. */
int32_t fg_version(fg_version_info *out, fg_error *err);

/* What is alive. All are zero when everything was closed and deleted. */
typedef struct fg_counters_info {
  int64_t stores;
  int64_t graphs;
  int64_t loaders;
  int64_t jobs;
  int64_t buffers;      /* tensor memory in use: number of buffers ... */
  int64_t buffer_bytes; /* ... and their size */
  int64_t pooled_bytes; /* kept for reuse; bounded, zero when no loader is open */
} fg_counters_info;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK. */
int32_t fg_counters(fg_counters_info *out, fg_error *err);

/* ---- tensors ---------------------------------------------------------- */

/* An array to be read, in memory or in a file. */
typedef struct fg_array {
  FG_IN char *name;       /* of the tensor or the split; NULL where it is clear */
  FG_IN void *data;       /* first element, in memory; NULL when path is set */
  FG_IN char *path;       /* a file that holds the elements, or NULL */
  int64_t offset;         /* path: where in the file the first element is */
  DLDataType dtype;       /* little-endian */
  int32_t ndim;
  FG_IN int64_t *shape;
  FG_IN int64_t *strides; /* in bytes, may be zero or negative; NULL: row-major without gaps */
} fg_array;

/* A tensor that the library made. `managed` is a DLManagedTensor or a
 * DLManagedTensorVersioned, as was asked for: CPU memory, row-major, writable,
 * aligned to 64 bytes. It belongs to the receiver, who calls its deleter once,
 * on any thread, whenever he likes: after the loader was closed, in a forked
 * child, while the process exits. `name` is part of it. */
typedef struct fg_tensor {
  FG_IN char *name;
  void *managed;
} fg_tensor;

/* What this library calls of Python, which it is not linked with: PyCapsule_New, PyCapsule_IsValid,
 * PyCapsule_GetPointer, PyList_New, PyList_SetItem, Py_DecRef. A capsule or a list is a void* here. */
typedef struct fg_python_api {
  void *(*capsule_new)(void *pointer, const char *name, void (*destructor)(void *capsule));
  int (*capsule_is_valid)(void *capsule, const char *name);
  void *(*capsule_get_pointer)(void *capsule, const char *name);
  void *(*list_new)(intptr_t length);
  int (*list_set_item)(void *list, intptr_t index, void *item);
  void (*decref)(void *object);
} fg_python_api;

/* Blocks: no. Threads: those that hold the GIL, before the first capsule. Ownership: *api is copied. Returns: nothing. */
void fg_python_init(FG_IN fg_python_api *api);

/* A new list with a PyCapsule for each tensor, named as consumers of DLPack expect it. A capsule that nobody
 * consumes deletes its tensor when it is collected.
 * Blocks: no. Threads: those that hold the GIL. Ownership: tensors pass to their capsules, their `managed` becomes NULL.
 * Returns: a new reference; or NULL with a Python exception set, and some tensors left to the caller. */
void *fg_capsules_new(fg_tensor *tensors, int32_t num_tensors, int32_t versioned);

/* What the library calls of the CUDA driver to lock the memory of tensors for a device: cuCtxPushCurrent_v2,
 * cuCtxPopCurrent_v2, cuMemHostRegister_v2, cuMemHostUnregister; and the context for that. They return 0 if they work. */
typedef struct fg_lock_api {
  int (*push)(void *context);
  int (*pop)(void **context);
  int (*lock)(void *data, size_t n_bytes, unsigned flags);
  int (*unlock)(void *data);
  void *context;
} fg_lock_api;

/* From now on memory for tensors, 64 KiB of it and more, is locked when it is mapped, about 0.1 s a GB, and unlocked
 * before it is unmapped; with NULL it no longer is. What cannot be locked is used as it is. A forked child locks
 * nothing.
 * Blocks: no. Threads: any. Ownership: *api is copied, what it names must stay for as long as the process.
 * Returns: FG_OK, FG_BUDGET. */
int32_t fg_buffers_lock(FG_IN fg_lock_api *api, fg_error *err);

/* ---- jobs ------------------------------------------------------------- */

typedef struct fg_progress {
  int64_t done;
  int64_t total; /* 0: unknown */
  void *result;  /* what the job made, see the function that started it; once */
  char stage[32];
} fg_progress;

/* Waits for a job, at most timeout_ms (0: only looks; negative: for ever).
 * Blocks: up to timeout_ms. Threads: any.
 * Ownership: the first call that returns FG_OK passes `result` to the caller; later ones set it to NULL.
 * Returns: FG_TIMEOUT while the job runs, FG_OK when it succeeded, otherwise why it failed, every time. */
int32_t fg_job_wait(fg_job *job, int32_t timeout_ms, fg_progress *out, fg_error *err);

/* Asks a job to end; fg_job_wait then returns FG_CANCELLED, unless it had ended before.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_job_cancel(fg_job *job, fg_error *err);

/* Cancels the job if it runs, waits until it has stopped and frees it. A result that nobody took is
 * closed. After the return the job reads none of its inputs.
 * Blocks: until the job notices, as a rule below 100 ms. Threads: any.
 * Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_job_close(fg_job *job, fg_error *err);

/* ---- stores ----------------------------------------------------------- */

/* Opens the store at `path` for reading and validates it (header, version, sizes; not every byte).
 * Blocks: for a few small reads. Threads: any. Ownership: the caller closes *out.
 * Returns: FG_OK, FG_NOT_FOUND, FG_PERMISSION, FG_FORMAT, FG_VERSION, FG_CORRUPT, FG_READ. */
int32_t fg_store_open(FG_IN char *path, fg_store **out, fg_error *err);

/* Writes a description of the store, a JSON object, to `json` (no zero at the end). *n_bytes becomes its
 * length; when that exceeds `capacity`, nothing is written.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_store_describe(fg_store *store, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

enum { FG_SPLIT = 0, FG_NODE_TENSOR = 1, FG_EDGE_TENSOR = 2 };

/* Starts reading a whole split (ids, int64) or tensor (all rows, in the user's order). The result of the job is a
 * DLManagedTensorVersioned* if `versioned`, else a DLManagedTensor*.
 * Blocks: no. Threads: any. Ownership: the caller closes *job and deletes the tensor.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID (no such name; the message lists those there are); the job: FG_NOT_FOUND,
 * FG_CORRUPT, FG_READ, FG_BUDGET, FG_CANCELLED. */
int32_t fg_store_read(fg_store *store, int32_t kind, FG_IN char *name, int32_t versioned, fg_job **job,
                      fg_error *err);

/* The same of a store that has types. `type` is a place in the lists of fg_store_describe: in "node_types" for a split
 * or a tensor of nodes, in "edge_types" for one of edges.
 * Blocks: no. Threads: any. Ownership: the caller closes *job and deletes the tensor.
 * Returns: as fg_store_read; FG_INVALID also for a type that is not there. */
int32_t fg_store_read_type(fg_store *store, int32_t kind, int32_t type, FG_IN char *name, int32_t versioned,
                           fg_job **job, fg_error *err);

/* Starts comparing every block of the store with its checksum. The job has no result; its progress counts bytes.
 * Blocks: no. Threads: any. Ownership: the caller closes *job.
 * Returns: FG_OK, FG_CLOSED; the job: FG_CORRUPT for the first damaged block, FG_READ, FG_CANCELLED. */
int32_t fg_store_verify(fg_store *store, fg_job **job, fg_error *err);

/* Blocks: no. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_store_close(fg_store *store, fg_error *err);

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

typedef struct fg_convert_input {
  uint32_t struct_size;
  int32_t overwrite; /* replace what is at the path */
  int64_t num_nodes; /* -1: derive it from the arrays */
  int64_t memory;    /* bytes that the conversion may use */
  fg_array edge_index; /* integers, [2, edges] */
  FG_IN fg_array *node_tensors;
  FG_IN fg_array *edge_tensors;
  FG_IN fg_array *splits; /* int64 ids or a bool mask over the nodes */
  int32_t num_node_tensors;
  int32_t num_edge_tensors;
  int32_t num_splits;
  int32_t reserved; /* zero */
  FG_IN char *relayout; /* NULL, or the order in which fg_relayout_start will be asked to put the rows */
  FG_IN fg_node_type *node_types; /* a graph with types: num_nodes is -1 and there are no other arrays; no relayout */
  FG_IN fg_edge_type *edge_types;
  int32_t num_node_types; /* 0: a homogeneous graph */
  int32_t num_edge_types;
  /* NULL, or for each type of edges (one entry without types) the name of the tensor whose numbers are stored by position
   * too, with sums, so that draws by weight need not read whole lists from the disk; NULL entries: none of this type. */
  FG_IN char *FG_IN *weights;
} fg_convert_input;

/* Starts writing a store at `path`. It appears there whole or not at all. The job has no result; with `relayout` it
 * does not publish the store, and the result is an fg_store* that can be read as any other and that fg_relayout_start
 * finishes, without a second copy on the disk. Closing that handle before discards the store.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of the arrays unchanged until then; the struct, the
 * descriptions, types, names, shapes and strides are copied. With `relayout` he closes the store.
 * Returns: FG_OK, FG_INVALID, FG_DTYPE; the job: also FG_EXISTS, FG_PERMISSION, FG_BUSY, FG_BUDGET, FG_READ,
 * FG_WRITE, FG_CANCELLED. */
int32_t fg_convert_start(FG_IN fg_convert_input *in, FG_IN char *path, fg_job **job, fg_error *err);

typedef struct fg_relayout_input {
  uint32_t struct_size;
  int32_t overwrite;    /* replace what is at the path */
  int64_t memory;       /* bytes that it may use, `scores` apart */
  int64_t hot_rows;     /* "hot+community": how many rows are laid out by score, or FG_AUTO */
  FG_IN float *scores;  /* one for each node, by the user's id, finite and not negative; NULL: none, for "community" */
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

/* ---- graphs in memory ------------------------------------------------- */

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

/* ---- loaders ---------------------------------------------------------- */

#define FG_AUTO (-1)

/* A cache of historical embeddings, see "history" below. */
typedef struct fg_history_options {
  uint32_t struct_size;
  int32_t lag;            /* batches are pruned with the cache of so many iterations ago, at most as many as are prefetched */
  double p_grad;          /* of the computed rows of a layer, those with the smallest gradients that may enter: 0 to 1 */
  double t_stale;         /* how old an entry may be that is used; infinity: any age */
  double start;           /* when the cache begins */
  int32_t t_stale_epochs; /* t_stale is in epochs, else in iterations */
  int32_t start_epochs;   /* start is */
  FG_IN char *policy;     /* "gradient", "performance" or "all" */
  int64_t memory;         /* bytes of the buffer, or FG_AUTO: a tenth of the features */
  int32_t outside;        /* the buffer is the caller's and no part of the loader's memory */
  int32_t features;       /* with a cache that is filled by hotness, its rows lie at the other end of the buffer */
  int64_t probe_every;    /* every so many iterations no batch is pruned, so that embeddings can be compared; 0: never */
} fg_history_options;
typedef struct fg_walk {
  int64_t walks;  /* that start at a target */
  int64_t length; /* steps of each */
  double restart; /* probability to go back to the target before a step, in [0, 1) */
} fg_walk;

/* Edge types that walks go along in a graph with types, by their places in it: each is walked against its edges. */
typedef struct fg_metapath {
  FG_IN int64_t *path; /* [length], in the order of walking */
  int64_t length;      /* at least 1 */
} fg_metapath;

/* Links that batches are drawn for, and negatives beside them. */
typedef struct fg_links {
  FG_IN int64_t *sources; /* [num_links]; NULL, as `targets`: every edge of the graph, in the caller's order */
  FG_IN int64_t *targets;
  int64_t num_links;
  FG_IN double *src_weight; /* by node: what sources of negatives are drawn in proportion to; NULL: uniformly */
  int64_t num_src_weight;   /* its length */
  FG_IN double *dst_weight; /* and their targets */
  int64_t num_dst_weight;
  double negatives;         /* for each link, rounded up for a batch; 0: none */
  int32_t triplets;         /* negatives are targets for the source of each link, else pairs */
  int32_t strict;           /* a negative is no edge, no link and no node with itself */
  int32_t exclude;          /* 1: the batch's links are not among its edges; 2: nor their reverse */
  int32_t reserved;         /* zero */
} fg_links;

typedef struct fg_loader_options {
  uint32_t struct_size;
  int32_t num_hops;       /* 0: a batch is its seeds and their rows */
  FG_IN int64_t *fanouts; /* neighbours per hop, nearest the seeds first; -1: all */
  FG_IN int64_t *seeds;   /* node ids in the caller's order */
  int64_t num_seeds;
  int64_t batch_size; /* seeds per batch */
  uint64_t seed;      /* everything random follows from it */
  int32_t all_nodes;  /* every node is a seed; `seeds` is ignored */
  int32_t replace;    /* draw with replacement */
  int32_t shuffle;    /* the seeds anew in every epoch */
  int32_t drop_last;  /* leave out a last batch that is not full */
  int32_t checksums;  /* check every page that is read */
  int32_t workers;    /* sampling threads; 0: chosen */
  int32_t prefetch;   /* batches prepared ahead */
  int32_t transpose;  /* batches bring their edges grouped by source too */
  int64_t memory;     /* bytes for everything; 0: unlimited */
  int64_t feature_cache;  /* bytes of it for cached rows, or FG_AUTO */
  int64_t neighbor_cache; /* bytes of it for adjacency, or FG_AUTO */
  FG_IN char *cache;      /* which rows are cached, see below; NULL: "auto" */
  FG_IN char *io;         /* "auto", "io_uring", "pread", "buffered"; NULL: "auto" */
  int64_t superbatch;     /* "belady": batches planned together, or FG_AUTO */
  int32_t carry_over;     /* "belady": a superbatch begins with the rows that the one before left */
  int32_t lookahead;      /* "belady": a plan knows the superbatch after its own */
  FG_IN float *hotness;   /* "vector": a score per node id, finite and not negative */
  int64_t num_hotness;    /* its length */
  uint64_t hotness_seed;  /* "random": what the scores are drawn from */
  int32_t presc_epochs;   /* "presc": epochs that are sampled to count; 0: 1 */
  int32_t reserved2;      /* zero */
  int64_t reorder;        /* batches per block that may change places; 0: none, or FG_AUTO */
  int64_t reorder_rows;   /* rows of the cache that an order is judged with, or FG_AUTO: those of this loader */
  FG_IN char *transfer;   /* how rows that are not cached are read, see below; NULL: "auto" */
  int64_t trace_memory;   /* bytes of `memory` for traces and plans, or FG_AUTO */
  int64_t buffer_memory;  /* bytes of `memory` for rows read before their batch, or FG_AUTO */
  FG_IN char *scratch;    /* directory for a temporary file; NULL: none */
  int64_t scratch_bytes;  /* what that file may take, or FG_AUTO; 0: none */
  FG_IN char *calibration; /* file that keeps what the device was found to do; NULL: measured anew */
  FG_IN fg_history_options *history; /* NULL: none */
  FG_IN int32_t *held;    /* by node id: which of the caller's rows it is, or -1; NULL: he holds none */
  int64_t num_held;       /* its length */
  int32_t holds;          /* batches that the caller keeps at a time, counted in `memory`; 0: one */
  int32_t reserved3;      /* zero */
  FG_IN char *weight_attr; /* edge tensor that edges are drawn in proportion to; NULL: uniformly */
  int32_t labor;           /* 1: draw layer by layer: the sources of a hop have one variate for all targets; 2: and
                              give no edge_weight */
  int32_t layer_dependency; /* "labor": and for all hops */
  int64_t batch_dependency; /* "labor": for how many batches a source keeps its variate, at least 1 */
  FG_IN fg_walk *walks;    /* [num_hops]: neighbours by random walks, of which `fanouts` are kept; NULL: none */
  int32_t subgraph_type;   /* edges of a batch: 0: those drawn; 1: and one against each; 2: all among its nodes */
  int32_t reserved4;       /* zero */
  FG_IN fg_links *links;   /* what batches are drawn for, with `all_nodes`; NULL: for seeds */
  FG_IN int64_t *relation_fanouts; /* of a graph with types: [num_relations, num_hops], the edge types in its order; 0: none
                                      of this type in this hop. `fanouts` is then not read. NULL: `fanouts` for each */
  int64_t num_relations;           /* rows of it: as many as there are edge types */
  FG_IN char *time_attr;   /* edge or node tensor of integers, when each was: of a neighbour nothing later than its seed
                              is drawn; NULL: without times */
  FG_IN int64_t *input_time; /* of each seed, or link; NULL: those of the nodes, where `time_attr` has times of nodes and
                                there are no links, or of the edges, where every edge is a link and edges have times */
  int64_t num_input_time;  /* its length: the number of seeds, or links */
  int64_t time_window;     /* draw only what is less than so much earlier; 0: whatever is past */
  int32_t temporal_last;   /* draw the latest, not any */
  int32_t disjoint;        /* every seed has a tree of its own; with `time_attr` always */
  int32_t link_relation;   /* of a graph with types: the edge type that `links` are of, ids are those of its types; else 0 */
  int32_t link_reverse;    /* and the one from target to source that `exclude` 2 looks in; else 0 */
  FG_IN fg_metapath *metapaths; /* of a graph with types: [num_metapaths]. They are in the place of edge types, also in
                                   `relation_fanouts`; `walks` is then [num_metapaths, num_hops]. NULL: none */
  int64_t num_metapaths;
} fg_loader_options;

/* What `cache` may be. Planned: "belady". By hotness, filled once: "degree", "in-degree", "random", "presc",
 * "expected", "oracle" (counts of the epoch that runs next), "vector". Batch by batch: "lru", "clock", "sieve",
 * "s3fifo", "match" (what the batch before held). And "none", and "auto": "belady" unless it cannot be.
 * With types, nodes of all types are numbered one after the other: node v of a type is v plus the number of nodes of the
 * types before. `seeds` and `hotness` are by these numbers; the seeds of a type follow one another, the types in any
 * order. `weight_attr` names a tensor of one edge type at least; types without it are drawn from uniformly. `cache` is
 * not "expected"; there is no `history`, no `held`, no `walks` without `metapaths`.
 * What `transfer` may be: "auto", "random", "page-once", "scan", "pack", "forward", and one of the middle three with
 * "+forward". All of them change when a row is read, none what is in a batch.
 *
 * Starts opening a loader over a store or a graph (the other is NULL). The result of the job is an fg_loader*.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and the loader, and keeps the memory of `seeds`, `hotness`, `held`, `input_time` and
 * the arrays of `links` unchanged until the loader is closed; the rest of the options is copied.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: also FG_BUDGET, FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_loader_open(fg_store *store, fg_graph *graph, FG_IN fg_loader_options *options, fg_job **job,
                       fg_error *err);

typedef struct fg_loader_details {
  int64_t num_batches; /* per epoch */
  int32_t max_tensors; /* no batch has more */
  int32_t reserved;
} fg_loader_details;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_info(fg_loader *loader, fg_loader_details *out, fg_error *err);

enum {
  FG_TRAIN = 0, /* the batches, pruned by the history if there is one */
  FG_TRACE = 1, /* n_id and input_id only, of each type; no features are read */
  FG_PLAIN = 2  /* the batches as if there were no history */
};

/* Ends what runs and begins `epoch` at batch `first_batch`. `mode` is FG_TRAIN, FG_TRACE or FG_PLAIN.
 * Blocks: until the threads of the epoch before have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_loader_start(fg_loader *loader, int64_t epoch, int64_t first_batch, int32_t mode, fg_error *err);

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
 * A batch pruned by the history brings, instead of those, the tensors that are listed there. With
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

/* Ends the running epoch and frees what was prepared. Stopping again does nothing.
 * Blocks: until its threads have stopped. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_stop(fg_loader *loader, fg_error *err);

/* Counters since the loader was opened, a JSON object, as fg_store_describe writes it.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_stats(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* How the memory is divided and what is planned, a JSON object, as fg_store_describe writes it: "split", "superbatch",
 * "cache", "why", "capacity_rows", "device", "reorder", "reorder_rows", and "windows" with what every option of a
 * transfer would take, which was chosen and why, and what it took.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_plan(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* Ends the epoch and frees everything but the tensors that were handed out.
 * Blocks: until its threads have stopped. Threads: any. Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_loader_close(fg_loader *loader, fg_error *err);

/* ---- history ---------------------------------------------------------- */

/* Historical embeddings (FreshGNN). Of L layers, layer l = 1 .. L makes rows of level l from rows of level l - 1; level 0
 * is the features. A row of a level 1 .. L - 1 whose embedding the history has is not computed: its edges, and all that
 * only they need, are taken out of the batch before any feature is read. The library decides; the caller has the rows,
 * in one buffer, slot s at byte s * row_bytes.
 *
 * A pruned batch has the nodes that are still needed and the edges of the rows that any layer computes; rows of node
 * tensors that are neither of seeds nor of level 0 are zero. Beside its other tensors it has, all int64:
 *   history_counts [4]             iteration, rows of features loaded, and the nodes and edges that it would have had
 *   history_degree [nodes]         in-edges drawn, those pruned included
 *   history_loops [nodes]          and how many of them lead from the node to itself; missing where none does
 *   history_nodes_l [rows]         level l = 0 .. L - 1: the rows that layer l + 1 reads, as nodes of the batch: first those that it computes
 *   history_computed_l, history_hit_l, history_slot_l   for l = 1 .. L - 1: positions in that list which layer l computes, in the order
 *                                  of its rows; which the history has; and their slots
 *   history_ptr_l, history_edge_index_l, history_edge_l   layer l = 1 .. L: its edges by target, as positions in the lists of levels
 *                                  l - 1 and l, and as edges of the batch
 *   history_source_ptr_l, history_source_target_l, history_source_edge_l   with `transpose`, its edges grouped by source
 *   history_probe_l, history_probe_slot_l, history_probe_age_l   of a batch that was left whole to compare: positions of
 *                                  computed rows that the history has too, their slots and ages
 *
 * Iterations are batches handed over in FG_TRAIN epochs, from 0 on. Each pruned batch is updated once, before the next
 * is asked for; one that is not counts as updated with nothing. */

/* The buffer, a uint8 tensor of `memory` bytes. *out is empty where the caller has it.
 * Blocks: no. Threads: any. Ownership: the tensor passes to the caller. Returns: FG_OK, FG_CLOSED, FG_INVALID (no history). */
int32_t fg_history_buffer(fg_loader *loader, int32_t versioned, fg_tensor *out, fg_error *err);

typedef struct fg_history_layer {
  FG_IN float *computed; /* gradient norms of the rows in history_computed, in that order */
  FG_IN float *hits;     /* and of those in history_hit */
  int64_t num_computed;
  int64_t num_hits;
  int64_t *rows;         /* out, [num_computed]: which of the computed rows are kept, and ... */
  int64_t *slots;        /* out, [num_computed]: ... where; written by the caller before he asks for the next batch */
  int64_t num_admitted;  /* out: how many those are */
} fg_history_layer;

/* Updates the batch of an iteration, the one that was handed over last, after its backward pass. `layers` are the hidden
 * layers in order; row_bytes is the size of an embedding of the widest, always the same. Without layers nothing is kept.
 * Blocks: up to timeout_ms, until the batches are sampled that may not know of this one yet. Threads: any.
 * Ownership: none passes. Returns: FG_OK, FG_TIMEOUT (nothing happened, call again), FG_CLOSED, FG_INVALID. */
int32_t fg_history_update(fg_loader *loader, int64_t iteration, int64_t row_bytes, fg_history_layer *layers,
                          int32_t num_layers, int32_t timeout_ms, fg_error *err);

/* What the history did, a JSON object, as fg_store_describe writes it.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED, FG_INVALID. */
int32_t fg_history_stats(fg_loader *loader, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* The state of the decisions, a uint8 tensor; with the buffer it is all there is.
 * Blocks: no. Threads: any. Ownership: the tensor passes to the caller. Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_BUDGET. */
int32_t fg_history_save(fg_loader *loader, int32_t versioned, fg_tensor *out, fg_error *err);

/* Takes over a saved state and ends the running epoch. Bytes that are no state of this history change nothing.
 * Blocks: until the threads of the epoch have stopped. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_FORMAT. */
int32_t fg_history_restore(fg_loader *loader, FG_IN void *data, int64_t n_bytes, fg_error *err);

/* ---- policy laboratory ------------------------------------------------ */

typedef struct fg_simulation {
  uint32_t struct_size;
  int32_t carry_over;    /* "belady", as in fg_loader_options */
  int32_t lookahead;     /* "belady", as in fg_loader_options */
  int32_t reserved;      /* zero */
  FG_IN char *policy;    /* "none", "belady", "lru", "clock", "sieve", "s3fifo", "match", "oracle", "random", "vector" */
  int64_t superbatch;    /* "belady": batches planned together; 0: all */
  FG_IN float *hotness;  /* "vector": a score per node id, finite and not negative */
  int64_t num_hotness;   /* its length */
  uint64_t hotness_seed; /* "random" */
  int64_t num_nodes;     /* ids are below it */
  int64_t capacity;      /* rows that the cache has room for */
  FG_IN fg_array *trace; /* the ids of every batch, none twice in one: integers, one dimension without gaps */
  int64_t num_batches;
  int64_t *reads;        /* out: rows fetched for a batch, [num_batches] */
  int64_t *hits;         /* out: rows found in the cache, [num_batches] */
  int64_t *swaps;        /* out: rows that others took the place of, [num_batches] */
  int64_t *fill;         /* out: rows fetched before the first batch */
} fg_simulation;

/* Starts counting what a cache of rows would do on a trace: no row is read. The job has no result.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of `trace`, `hotness` and the four outputs until then; the
 * struct and the descriptions are copied.
 * Returns: FG_OK, FG_INVALID, FG_DTYPE; the job: FG_INVALID (an id that is out of range or comes twice), FG_BUDGET,
 * FG_CANCELLED. */
int32_t fg_simulate(FG_IN fg_simulation *in, fg_job **job, fg_error *err);

/* Starts computing the hotness of every node: the scores by which a loader with these options and a `cache` of
 * "degree", "in-degree", "random", "presc" or "expected" would fill it. The job has no result.
 * Blocks: no. Threads: any.
 * Ownership: the caller closes *job and keeps the memory of `seeds` and of `out` until then.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID; the job: FG_BUDGET, FG_READ, FG_CORRUPT, FG_CANCELLED. */
int32_t fg_hotness(fg_store *store, fg_graph *graph, FG_IN fg_loader_options *options, float *out, int64_t num_out,
                   fg_job **job, fg_error *err);
/* ---- operators -------------------------------------------------------- */

/* Message passing over memory of the caller. These functions are plain C: they keep no state but idle threads, need
 * no handle, and may also be called in a forked child. A graph is `index`, the source row of every edge, grouped by
 * target, and `ptr`: target t has edges ptr[t] to ptr[t + 1]. Nothing of size edges x columns is written anywhere.
 * Every index and pointer is checked as it is used; memory outside of the arrays is never read. Results do not depend
 * on `threads`. `real` is double where dtype is float64, else float: the type of sums, weights and scales. */

enum { FG_ISA_PORTABLE = 0, FG_ISA_AVX2 = 1, FG_ISA_AVX512 = 2 };

/* How the operators run: with the instruction set `isa`, or the best where the processor does not have that one
 * (negative: the best). `team` is GOMP_parallel of the OpenMP runtime that the process uses for other things, whose
 * threads then run the operators too, or NULL: threads of our own.
 * Blocks: no. Threads: any, while no operator runs. Ownership: none passes. Returns: the FG_ISA_ value in use. */
int32_t fg_operators_init(void *team, int32_t isa);

enum {
  FG_SUM = 0,           /* out[t] = row_scale[t] * sum of weight[e] * col_scale[s] * x[s], + self_weight[t] * x[t] */
  FG_MAX = 1,           /* out[t] = the largest x[s] of each column, 0 without edges; count[t] = how many are equal */
  FG_MIN = 2,           /* or the smallest */
  FG_EXTREME_BACK = 3,  /* of FG_MAX and FG_MIN: out[s] = sum of y[t] where x[t] equals own[s] */
  FG_DOT = 4            /* out[e] = row_scale[t] * col_scale[s] * (x[s] . own[t]), for each head; real */
};

typedef struct fg_aggregation {
  uint32_t struct_size;
  int32_t kind;
  int32_t threads;
  int32_t index_bytes;       /* 4 or 8: of the elements of index and edge */
  DLDataType dtype;          /* of x, y, own, out: float32, float64, bfloat16 or float16 */
  int32_t skip_self;         /* edges from a row to itself count for nothing (FG_SUM, FG_DOT) */
  int64_t cut;               /* a list ends at its first index that is not below it, at most x_rows; -1: at its end */
  int64_t columns;           /* of every row */
  int64_t heads;             /* weights of an edge: each for columns / heads columns */
  FG_IN void *x;             /* the rows that index selects */
  int64_t x_rows;
  int64_t x_stride;          /* elements from row to row, of x and y */
  FG_IN void *y;             /* [x_rows, columns] */
  FG_IN void *own;           /* [rows, columns] */
  int64_t own_stride;
  FG_IN int64_t *ptr;        /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;         /* [num_index] */
  int64_t num_index;
  FG_IN void *edge;          /* [num_index]: which weights belong to it; NULL: its own position */
  FG_IN void *weight;        /* real [num_weights, heads], or NULL: ones */
  int64_t num_weights;
  FG_IN void *row_scale;     /* real [rows], or NULL: ones */
  FG_IN void *col_scale;     /* real [x_rows], or NULL: ones */
  FG_IN void *self_weight;   /* real [self_rows, self_heads], or NULL: zeros */
  int64_t self_rows;
  int64_t self_heads;        /* 1 or heads */
  void *out;                 /* row-major without gaps */
  void *count;               /* real [rows, columns], or NULL */
  void *dot;                 /* of FG_SUM with `own`: real [num_weights, heads], out[e] = row_scale[t] * col_scale[s] *
                                (x[s] . own[t]), the derivative by `weight`, while the rows are at hand; or NULL */
} fg_aggregation;

/* Blocks: while it computes. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_INVALID (an index or a pointer out of range: the message says where), FG_DTYPE, FG_BUDGET. */
int32_t fg_aggregate(FG_IN fg_aggregation *in, fg_error *err);

typedef struct fg_attention {
  uint32_t struct_size;
  int32_t threads;
  int32_t index_bytes;     /* 4 or 8 */
  int32_t is_double;       /* what real is */
  int64_t heads;
  FG_IN void *src;         /* real [src_rows, heads] */
  int64_t src_rows;
  FG_IN void *dst;         /* real [rows, heads], or NULL: zeros */
  FG_IN void *edge;        /* real [num_index, heads], or NULL: zeros */
  FG_IN int64_t *ptr;      /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;       /* [num_index] */
  int64_t num_index;
  int64_t self_rows;       /* so many of the first targets have an edge from themselves too, in place of any listed */
  double slope;            /* of negative sums */
  void *alpha;             /* real [num_index, heads]: out; of fg_attention_back: in */
  void *alpha_self;        /* real [self_rows, heads]: out; of fg_attention_back: in */
  FG_IN void *grad;        /* of fg_attention_back: real [num_index, heads] */
  FG_IN void *grad_self;   /* real [self_rows, heads] */
  void *grad_edge;         /* out: real [num_index, heads], of src + dst + edge */
  void *grad_edge_self;    /* out: real [self_rows, heads] */
  void *grad_dst;          /* out: real [rows, heads] */
} fg_attention;

/* alpha = softmax over the edges of a target of leaky_relu(src[s] + dst[t] + edge[e]).
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_attention_forward(FG_IN fg_attention *in, fg_error *err);

/* Its derivative: from that by alpha to that by src + dst + edge, and summed by target.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_attention_back(FG_IN fg_attention *in, fg_error *err);

enum {
  FG_ROW_DOT = 0, /* d[r, h] = x[r] . y[r], of the columns of each head */
  FG_SPREAD = 1,  /* out[r] += d[r, h] * y of the columns of head h; float32 and float64 */
  FG_TOTAL = 2    /* out = sum over r of d[r, h] * x[r] */
};

typedef struct fg_heads {
  uint32_t struct_size;
  int32_t kind;
  int32_t threads;
  int32_t reserved;  /* zero */
  DLDataType dtype;  /* of x and y: as that of fg_aggregation */
  int32_t reserved2; /* zero */
  int64_t rows;
  int64_t columns;   /* of every row, head after head, at least one for each */
  int64_t heads;
  FG_IN void *x;     /* [rows, columns] */
  int64_t x_stride;  /* elements from row to row */
  FG_IN void *y;     /* [rows, columns], or with y_stride 0 one row for all; of FG_SPREAD one row */
  int64_t y_stride;
  void *d;           /* real [rows, heads] */
  void *out;         /* FG_SPREAD: [rows, columns] in and out; FG_TOTAL: real [columns] */
} fg_heads;

/* Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_DTYPE, FG_BUDGET. */
int32_t fg_heads_run(FG_IN fg_heads *in, fg_error *err);

typedef struct fg_transposition {
  uint32_t struct_size;
  int32_t threads;
  int32_t index_bytes;  /* 4 or 8: of index, target and edge */
  int32_t reserved;     /* zero */
  FG_IN int64_t *ptr;   /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;    /* [num_index] */
  int64_t num_index;
  int64_t sources;
  int64_t *source_ptr;  /* out: [sources + 1] */
  void *target;         /* out: [num_index], grouped by source, ascending in each group */
  void *edge;           /* out: [num_index]: where in index */
} fg_transposition;

/* Memory for a result, a tensor without gaps whose contents are undefined. What its deleter gives back is used for later
 * results: at most a sixteenth of the machine's memory is kept, and 512 MiB. Worth its calls from 2 MiB on, where the
 * memory is huge pages.
 * Blocks: no. Threads: any. Ownership: `out` passes to the caller, as those of a batch do.
 * Returns: FG_OK, FG_INVALID, FG_BUDGET (the system has no memory). */
int32_t fg_result(FG_IN int64_t *shape, int32_t ndim, DLDataType dtype, int32_t versioned, fg_tensor *out, fg_error *err);

/* The same graph grouped by source, for the way back.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_transpose(FG_IN fg_transposition *in, fg_error *err);

/* Groups edges by target: ptr [targets + 1] and, where `target` decreases somewhere, order [num_edges], the edges in
 * groups, each in its old order. *sorted says whether it does not; `order` is then left alone.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_group(FG_IN void *target, int32_t index_bytes, int64_t num_edges, int64_t targets, int64_t *ptr, void *order,
                 int32_t *sorted, fg_error *err);

/* ---- cuda ------------------------------------------------------------- */

/* The device path. Two libraries have this API, of which a process loads one. libfreshgo.so is built without CUDA; there
 * every function of this section returns FG_CUDA. libfreshgo_cuda.so (`make cuda`) has the kernels as well. It is not
 * linked with the driver but looks for libcuda.so.1 in the first call of this section, so that it can be loaded on any
 * machine, and loading it initialises nothing: fg_cuda_probe says what there is.
 *
 * Work is queued on a stream of a device's primary context, which is PyTorch's. These functions return when it is queued:
 * they neither wait for the device nor allocate there nor keep an address. Every address in the structs is one that the
 * device can use: its own memory, or host memory that is registered. What is not in the structs is on the host. The
 * driver may load a kernel at its first use, which takes milliseconds.
 *
 * Indices and pointers are checked by the device as it uses them; it touches nothing outside of the arrays, and takes an
 * edge with a wrong index, or a row with wrong pointers, for absent. Nobody waits, so nobody can return an error: the
 * kernel notes the first place in `status`, which reads 0 while all is well. */

enum {
  FG_BAD_INDEX = 1, /* index[position] is out of range */
  FG_BAD_EDGE = 2,  /* edge[position] is out of range */
  FG_BAD_PTR = 3,   /* ptr[position] is out of range, decreases, or does not begin or end as it must */
  FG_BAD_SLOT = 4   /* slot[position] is beyond the cache */
};
#define FG_BAD_KIND(status) ((int32_t)((status) >> 56))
#define FG_BAD_POSITION(status) ((int64_t)(0xffffffffffffffull - ((status)&0xffffffffffffffull)))

typedef struct fg_cuda_queue {
  uint32_t struct_size;
  int32_t device;   /* as CUDA counts them in this process */
  uintptr_t stream; /* a CUstream as a number, as PyTorch has it; 0: the default one */
  uint64_t *status; /* a word that the device can write, zero at first, or NULL; of all that is wrong it keeps the highest
                       kind and of that the first position, so one word may serve any number of calls */
} fg_cuda_queue;

/* What there is: *num_devices (may be 0) and the version of the driver's API, 13000 for 13.0.
 * Blocks: while the driver initialises, at first. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CUDA (a line that says why there is none: not built in, no driver, or what the driver says). */
int32_t fg_cuda_probe(int32_t *num_devices, int32_t *driver, fg_error *err);

/* Memory of a device, in bytes: what is free for everybody, and all.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID (no such device), FG_CUDA. */
int32_t fg_cuda_memory(int32_t device, int64_t *free_bytes, int64_t *total_bytes, fg_error *err);

/* Locks host memory in place, so that devices can read and write it and copies are asynchronous. *address is where
 * `device` sees it; with unified addressing, that is on every 64-bit system, it is `data`.
 * Blocks: while pages are locked, about 0.1 s a GB. Threads: any.
 * Ownership: the caller keeps the memory until he has unregistered it, and unregisters it after the last stream that
 * uses it is done. Returns: FG_OK, FG_INVALID, FG_CUDA (already registered, or more than may be locked). */
int32_t fg_cuda_register_host(int32_t device, void *data, int64_t n_bytes, void **address, fg_error *err);

/* Blocks: while pages are unlocked. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_unregister_host(int32_t device, void *data, fg_error *err);

/* fg_aggregate on a device; of `threads` no notice is taken. Rows of up to 1024 edges are summed in their order, longer
 * ones in a fixed number of parts.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_DTYPE, FG_CUDA. */
int32_t fg_cuda_aggregate(FG_IN fg_aggregation *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_attention_forward on a device.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_attention_forward(FG_IN fg_attention *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_attention_back on a device.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_attention_back(FG_IN fg_attention *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_transpose on a device: a stable sort, so its result is the same as there. With `ptr` and `target` NULL it groups
 * `index` alone, as fg_group does: source_ptr is then its `ptr` and edge its `order`, which is always written. Fewer than
 * 2^31 edges and sources. With `scratch` NULL nothing is queued and *scratch_bytes becomes what is needed; else it is
 * the size of `scratch`, memory of the device that may be reused by what is queued later on the same stream.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_transpose(FG_IN fg_transposition *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                          fg_error *err);

/* FastGL's Fused-Map (section 4.3): ids become local ids, 0 for the first, in the order in which they first occur. Put
 * the seeds first, or the nodes that are already numbered, which keep their numbers. */
typedef struct fg_mapping {
  uint32_t struct_size;
  int32_t index_bytes; /* 4 or 8: of id, node and local */
  FG_IN void *id;      /* [n], none negative; -1 becomes the local id of one that is, noted as FG_BAD_INDEX */
  int64_t n;           /* at most 2^30 */
  void *node;          /* out: [n], of which the first *count are written: each id once */
  void *local;         /* out: [n]: node[local[i]] is id[i] */
  int64_t *count;      /* out, on the device */
} fg_mapping;

/* `scratch` as for fg_cuda_transpose.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_map(FG_IN fg_mapping *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on, fg_error *err);

/* One-sided loading: the device reads rows where they are. out[i] = cache[slot[i]] where slot[i] is not negative, else
 * table[index[i]]; a row that is noted as wrong is filled with zeros. */
typedef struct fg_gathering {
  uint32_t struct_size;
  int32_t index_bytes;  /* 4 or 8: of index */
  int64_t n;
  int64_t row_bytes;    /* any; fast where rows and strides are multiples of 16 and aligned to it */
  FG_IN void *index;    /* [n]; not read where slot[i] is not negative */
  FG_IN void *table;    /* [table_rows], registered host memory or the device's own; NULL where table_rows is 0 */
  int64_t table_rows;
  int64_t table_stride; /* bytes from row to row */
  FG_IN int32_t *slot;  /* [n], or NULL: nothing is cached */
  FG_IN void *cache;    /* [cache_rows], the device's own memory */
  int64_t cache_rows;
  int64_t cache_stride; /* bytes */
  void *out;            /* [n], without gaps */
} fg_gathering;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_gather(FG_IN fg_gathering *in, FG_IN fg_cuda_queue *on, fg_error *err);

#ifdef __cplusplus
}
#endif

#endif
