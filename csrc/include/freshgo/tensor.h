/* Arrays that come in, tensors that go out, and their memory. */
#ifndef FRESHGO_API_TENSOR_H
#define FRESHGO_API_TENSOR_H

#include "../dlpack.h"
#include "base.h"

/* An array to be read, in memory, in a file, or from a pipe. */
typedef struct fg_array {
  FG_IN char *name;       /* of the tensor or the split; NULL where it is clear */
  FG_IN void *data;       /* first element, in memory; NULL when path is set */
  FG_IN char *path;       /* a file that holds the elements, or NULL */
  int64_t offset;         /* path: where in the file the first element is */
  DLDataType dtype;       /* little-endian */
  int32_t ndim;
  /* 0, or a descriptor of the caller's from which all elements come once, in row-major order without gaps; data and
   * path are then NULL. For tensors that are stored as they are; not for edges, nor for weights. The caller keeps it
   * open until the job has ended, and closes its other end where no more comes. */
  int32_t pipe;
  FG_IN int64_t *shape;
  FG_IN int64_t *strides; /* in bytes, may be zero or negative; NULL: row-major without gaps */
  /* Of a tensor to be stored: floats in fewer bytes, as "float16", "bfloat16", "int8", "int8-per-row" or
   * "int8-per-column". NULL: as they are. */
  FG_IN char *stored;
} fg_array;

/* A tensor that the library made. `managed` is a DLManagedTensor or a
 * DLManagedTensorVersioned, as was asked for: CPU memory, row-major, writable,
 * aligned to 64 bytes. It belongs to the receiver, which calls its deleter once,
 * on any thread, at any time: after the loader was closed, in a forked child,
 * while the process exits. `name` is part of it. */
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

/* Blocks: no. Threads: those that hold the GIL, before the first capsule. Ownership: *api is copied. Returns:
 * nothing. */
void fg_python_init(FG_IN fg_python_api *api);

/* A new list with a PyCapsule for each tensor, named as consumers of DLPack expect it. A capsule that nobody
 * consumes deletes its tensor when it is collected.
 * Blocks: no. Threads: those that hold the GIL. Ownership: tensors pass to their capsules, their `managed` becomes
 * NULL.
 * Returns: a new reference; or NULL with a Python exception set, and some tensors left to the caller. */
void *fg_capsules_new(fg_tensor *tensors, int32_t num_tensors, int32_t versioned);

/* What the library calls of the CUDA driver to lock the memory of tensors for a device: cuCtxPushCurrent_v2,
 * cuCtxPopCurrent_v2, cuMemHostRegister_v2, cuMemHostUnregister; and the context for that. They return 0 if they
 * work. */
typedef struct fg_lock_api {
  int (*push)(void *context);
  int (*pop)(void **context);
  int (*lock)(void *data, size_t n_bytes, unsigned flags);
  int (*unlock)(void *data);
  void *context;
} fg_lock_api;

/* From now on memory for tensors of loaders with `lock_memory`, 64 KiB of it and more, is locked when it is mapped,
 * about 0.1 s a GB, and unlocked before it is unmapped; with NULL it no longer is. What cannot be locked is used as it
 * is. A forked child locks nothing. The memory of a deleted tensor is used again at once: who copies from locked memory
 * keeps the tensor until the device has finished the copy.
 * Blocks: no. Threads: any. Ownership: *api is copied, what it names must stay for as long as the process.
 * Returns: FG_OK, FG_BUDGET. */
int32_t fg_buffers_lock(FG_IN fg_lock_api *api, fg_error *err);

/* Memory for the tensors of batches that processes share: a file in memory, mapped by the one that makes the batches
 * and by those that receive them. It begins with a byte for each of its blocks of 64 KiB. The byte of the block with
 * which a tensor begins is 1 while a receiver has the tensor. */
typedef struct fg_shared {
  int64_t n_bytes; /* in: its size, whole blocks; memory is taken as it is used */
  int32_t fd;      /* out: its descriptor, which the caller closes */
  int32_t reserved;
  void *data;      /* out: where it is mapped, as long as the process lives */
} fg_shared;

/* From now on the tensors of batches of this process lie in memory that can be shared, each from a block of its own on.
 * Only before there is a loader, and once.
 * Blocks: no. Threads: any. Ownership: the descriptor is the caller's.
 * Returns: FG_OK, FG_BUDGET, FG_BUSY (it was called before). */
int32_t fg_batches_share(fg_shared *shared, fg_error *err);

/* Maps such memory of another process, all of it.
 * Blocks: no. Threads: any. Ownership: the descriptor stays the caller's, who calls fg_shared_unmap once.
 * Returns: FG_OK, FG_BUDGET, FG_INVALID (it is none). */
int32_t fg_shared_map(int32_t fd, void **shared, fg_error *err);

/* Makes a tensor of each array: row-major, at `offset` in the memory, whose block's byte is 1. When a tensor dies, its
 * byte becomes 0, except in a forked child.
 * Blocks: no. Threads: any.
 * Ownership: tensors pass to the caller, and may outlive fg_shared_unmap; with an error there are none, and `managed`
 * is NULL.
 * Returns: FG_OK, FG_BUDGET, FG_INVALID (an array does not lie in the memory). */
int32_t fg_shared_tensors(void *shared, FG_IN fg_array *arrays, int32_t num_arrays, int32_t versioned,
                          fg_tensor *tensors, fg_error *err);

/* Unmaps the memory once its last tensor has died. Blocks: no. Threads: any. Ownership: `shared` ends. Returns: FG_OK.
 */
int32_t fg_shared_unmap(void *shared, fg_error *err);

#endif
