/* The device path. Two libraries have this API, and a process loads one of them. libfreshgo.so is built without CUDA;
 * there every function of this header returns FG_CUDA. libfreshgo_cuda.so (`make cuda`) has the kernels as well. It is
 * not linked with the driver: the first call of this header loads libcuda.so.1. So the library can be loaded on any
 * machine and initialises nothing; fg_cuda_probe reports the devices.
 *
 * Work is queued on a stream of a device's primary context, which is PyTorch's. These functions return once the
 * work is queued: they do not wait for the device, do not allocate device memory and keep no address. Addresses in the
 * structs are device memory or registered host memory; other arguments are in host memory. The driver may load a
 * kernel at its first use, which takes milliseconds.
 *
 * The device checks indices and pointers as it uses them. It accesses nothing outside the arrays and skips edges with
 * wrong indices and rows with wrong pointers. As no function waits, the kernel records the first error in `status`,
 * which stays 0 otherwise. */
#ifndef FRESHGO_API_CUDA_H
#define FRESHGO_API_CUDA_H

#include "base.h"
#include "operators.h"

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
  int32_t device;   /* its CUDA ordinal in this process */
  uintptr_t stream; /* a CUstream as an integer, as in PyTorch; 0: the default stream */
  uint64_t *status; /* a word that the device can write, initially zero, or NULL; keeps the highest kind of error and
                       its first position, so one word may serve any number of calls */
} fg_cuda_queue;

/* Reports the number of devices, which may be 0, and the version of the driver's API, 13000 for 13.0.
 * Blocks: while the driver initialises, at first. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CUDA (the message says why: not built in, no driver, or the driver's error). */
int32_t fg_cuda_probe(int32_t *num_devices, int32_t *driver, fg_error *err);

/* The memory of a device, in bytes: free, over all processes, and total.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID (no such device), FG_CUDA. */
int32_t fg_cuda_memory(int32_t device, int64_t *free_bytes, int64_t *total_bytes, fg_error *err);

/* Locks host memory in place, so that devices can read and write it and copies are asynchronous. *address is its
 * address on `device`; with unified addressing, on every 64-bit system, it equals `data`.
 * Blocks: while pages are locked, about 0.1 s a GB. Threads: any.
 * Ownership: the caller keeps the memory until it is unregistered, after the last stream that uses it has
 * finished. Returns: FG_OK, FG_INVALID, FG_CUDA (already registered, or more than may be locked). */
int32_t fg_cuda_register_host(int32_t device, void *data, int64_t n_bytes, void **address, fg_error *err);

/* Blocks: while pages are unlocked. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_unregister_host(int32_t device, void *data, fg_error *err);

/* fg_aggregate on a device; `threads` is ignored. Rows of up to 512 edges are summed in the order of the edges, longer
 * rows in parts that depend only on `ptr`. With `cut`, lists ascend. With `scratch` NULL nothing is queued and
 * *scratch_bytes becomes the required size; else it is the size of `scratch`, device memory that later work on the same
 * stream may reuse.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_DTYPE, FG_CUDA. */
int32_t fg_cuda_aggregate(FG_IN fg_aggregation *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                          fg_error *err);

/* fg_attention_forward on a device.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_attention_forward(FG_IN fg_attention *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_attention_back on a device.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_attention_back(FG_IN fg_attention *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_transpose on a device, by a stable sort, with the same result. With `ptr` and `target` NULL it groups `index`
 * alone, like fg_group, with source_ptr for `ptr` and edge for `order`, which is always written. Fewer than 2^31 edges
 * and sources. `scratch` as for fg_cuda_aggregate.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_transpose(FG_IN fg_transposition *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                          fg_error *err);

/* FastGL's Fused-Map (section 4.3): numbers ids by local ids from 0, in the order of first occurrence. Put the seeds
 * first, or nodes that already have local ids, which keep them. */
typedef struct fg_mapping {
  uint32_t struct_size;
  int32_t index_bytes; /* 4 or 8: of id, node and local */
  FG_IN void *id;      /* [n], not negative; a negative id gets the local id -1 and is reported as FG_BAD_INDEX, but
                          for an id that pads */
  int64_t n;           /* at most 2^30 */
  int64_t kept;        /* the first ids, which keep their places as numbers, also where one occurs again among them;
                          later ids have the number of the first place */
  void *node;          /* out: [n]; the first *count elements are written, each id once */
  void *local;         /* out: [n]: node[local[i]] is id[i] */
  int64_t *count;      /* out, on the device */
  int32_t padded;      /* ids of -1 pad; those among the first `kept` have places like others */
  int32_t reserved;    /* zero */
} fg_mapping;

/* `scratch` as for fg_cuda_aggregate.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_map(FG_IN fg_mapping *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                    fg_error *err);

/* The in-edges of the targets of a hop that a loader draws by this key (see `seeds_only`): uniformly, in proportion to
 * `weight`, or layer by layer, with `keep`. First call fg_cuda_draw_count, then fg_cuda_draw with num_drawn of *total
 * and the same other members. */
typedef struct fg_drawing {
  uint32_t struct_size;
  int32_t source_bits;   /* of an id in source, see fg_stored_list */
  FG_IN int64_t *ptr;    /* [num_nodes + 1]: the in-edges of each node are ptr[v] to ptr[v + 1] */
  int64_t num_nodes;     /* fewer than 2^31, as are targets */
  FG_IN void *source;    /* [num_edges]: this, edge, weight and sums may be in registered host memory */
  int64_t num_edges;
  FG_IN int64_t *target; /* [num_targets]: nodes; one may occur several times, with the same draws */
  int64_t num_targets;
  int64_t fanout;        /* edges drawn for a target, 0 or more; -1: all, in their order */
  uint64_t key;          /* of the hop */
  int32_t replace;       /* draw with replacement; not with `keep` */
  int32_t weight_bytes;  /* 4 or 8: of weight */
  FG_IN void *weight;    /* [num_edges], fg_stored_lists.weight; NULL: all alike */
  FG_IN double *sums;    /* [num_edges / 16], fg_stored_lists.sum; NULL without weight */
  FG_IN int32_t *positive; /* [num_nodes], FG_LIST_POSITIVE; NULL: all edges have a weight above 0 */
  int64_t keep;          /* layer by layer: batches for which a source keeps its variate; 0: not layer by layer */
  uint64_t batch;        /* layer by layer: the number of the batch in its epoch */
  int64_t *first;        /* [num_targets]: where the drawn edges of each target begin; out of fg_cuda_draw_count */
  uint64_t *total;       /* their number, zero before; out of fg_cuda_draw_count, on the device */
  int64_t num_drawn;     /* fewer than 2^31 */
  int64_t *position;     /* out: [num_drawn]: of each edge in source */
  int64_t *neighbor;     /* out: [num_drawn]: source[position] */
  float *edge_weight;    /* out: [num_drawn], layer by layer: the weights of the edges in a mean; NULL: none */
  int32_t padded;        /* targets of -1 pad, and have no edges; num_drawn is room, so that nothing waits for *total.
                            Targets whose edges have no room are left out, and elements behind the edges as they are */
  int32_t edge_bits;     /* of a number in edge, see fg_stored_list */
  FG_IN void *edge;      /* [num_edges], fg_stored_lists.edge; NULL without edge_id */
  int64_t *edge_id;      /* out: [num_drawn]: edge[position]; NULL: none */
} fg_drawing;

/* `scratch` as for fg_cuda_aggregate.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_draw_count(FG_IN fg_drawing *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                           fg_error *err);

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_draw(FG_IN fg_drawing *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* One-sided loading: the device reads rows from host memory. out[i] = cache[slot[i]] if slot[i] is not negative, else
 * table[index[i]]; rows with wrong indices or slots become zeros. */
typedef struct fg_gathering {
  uint32_t struct_size;
  int32_t index_bytes;  /* 4 or 8: of index */
  int64_t n;
  int64_t row_bytes;    /* any; fast if rows and strides are multiples of 16 bytes and aligned to them */
  FG_IN void *index;    /* [n]; ignored if slot[i] is not negative */
  FG_IN void *table;    /* [table_rows], registered host memory or device memory; NULL if table_rows is 0 */
  int64_t table_rows;
  int64_t table_stride; /* bytes between rows */
  FG_IN int32_t *slot;  /* [n], or NULL: nothing is cached */
  FG_IN void *cache;    /* [cache_rows], device memory */
  int64_t cache_rows;
  int64_t cache_stride; /* bytes */
  void *out;            /* [n], contiguous */
} fg_gathering;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_gather(FG_IN fg_gathering *in, FG_IN fg_cuda_queue *on, fg_error *err);

#endif
