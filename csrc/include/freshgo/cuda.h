/* The device path. Two libraries have this API, and a process loads one of them. libfreshgo.so is built without CUDA;
 * there every function of this section returns FG_CUDA. libfreshgo_cuda.so (`make cuda`) has the kernels as well. It is
 * not linked with the driver but looks for libcuda.so.1 in the first call of this section, so that it can be loaded on
 * any machine, and loading it initialises nothing: fg_cuda_probe says what there is.
 *
 * Work is queued on a stream of a device's primary context, which is PyTorch's. These functions return when it is
 * queued: they neither wait for the device nor allocate there nor keep an address. Every address in the structs is one
 * that the device can use: its own memory, or host memory that is registered. What is not in the structs is on the
 * host. The driver may load a kernel at its first use, which takes milliseconds.
 *
 * Indices and pointers are checked by the device as it uses them; it touches nothing outside of the arrays, and takes
 * an edge with a wrong index, or a row with wrong pointers, for absent. Nobody waits, so nobody can return an error:
 * the kernel notes the first place in `status`, which reads 0 while all is well. */
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
  int32_t device;   /* as CUDA counts them in this process */
  uintptr_t stream; /* a CUstream as a number, as PyTorch has it; 0: the default one */
  uint64_t *status; /* a word that the device can write, zero at first, or NULL; of all that is wrong it keeps the
                       highest kind and of that the first position, so one word may serve any number of calls */
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
 * Ownership: the caller keeps the memory until it is unregistered, which it may be when the last stream that uses it is
 * done. Returns: FG_OK, FG_INVALID, FG_CUDA (already registered, or more than may be locked). */
int32_t fg_cuda_register_host(int32_t device, void *data, int64_t n_bytes, void **address, fg_error *err);

/* Blocks: while pages are unlocked. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_unregister_host(int32_t device, void *data, fg_error *err);

/* fg_aggregate on a device; of `threads` no notice is taken. Rows of up to 512 edges are summed in their order, longer
 * ones in parts, which depend on `ptr` alone. With `cut`, lists ascend. With `scratch` NULL nothing is queued and
 * *scratch_bytes becomes what is needed; else it is the size of `scratch`, memory of the device that may be reused by
 * what is queued later on the same stream.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_DTYPE, FG_CUDA. */
int32_t fg_cuda_aggregate(FG_IN fg_aggregation *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                          fg_error *err);

/* fg_attention_forward on a device.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_attention_forward(FG_IN fg_attention *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_attention_back on a device.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_attention_back(FG_IN fg_attention *in, FG_IN fg_cuda_queue *on, fg_error *err);

/* fg_transpose on a device: a stable sort, so its result is the same as there. With `ptr` and `target` NULL it groups
 * `index` alone, as fg_group does: source_ptr is then its `ptr` and edge its `order`, which is always written. Fewer
 * than 2^31 edges and sources. `scratch` as for fg_cuda_aggregate.
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
  void *node;          /* out: [n]; the first *count elements are written, each id once */
  void *local;         /* out: [n]: node[local[i]] is id[i] */
  int64_t *count;      /* out, on the device */
} fg_mapping;

/* `scratch` as for fg_cuda_aggregate.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_CUDA. */
int32_t fg_cuda_map(FG_IN fg_mapping *in, void *scratch, int64_t *scratch_bytes, FG_IN fg_cuda_queue *on,
                    fg_error *err);

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

#endif
