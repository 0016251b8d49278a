/* Input arrays, output tensors, and their memory. */
#ifndef FRESHGO_API_TENSOR_H
#define FRESHGO_API_TENSOR_H

#include "../dlpack.h"
#include "base.h"

/* An input array: in memory, in a file, or from a pipe. */
typedef struct fg_array {
  FG_IN char *name;       /* of the tensor or the split; NULL where it is clear */
  FG_IN void *data;       /* first element, in memory; NULL when path is set */
  FG_IN char *path;       /* the file with the elements, or NULL */
  int64_t offset;         /* path: position of the first element in the file, in bytes */
  DLDataType dtype;       /* little-endian */
  int32_t ndim;
  /* 0, or the caller's descriptor of a pipe that delivers all elements once, row-major and contiguous; data and path
   * are then NULL. Only for tensors in their own dtype, not for edges or weights. The caller keeps it open until the
   * job has ended, and closes the other end after the last element. */
  int32_t pipe;
  FG_IN int64_t *shape;
  FG_IN int64_t *strides; /* in bytes, may be zero or negative; NULL: row-major, contiguous */
  /* For a tensor to be stored: the narrower dtype of its floats: "float16", "bfloat16", "int8", "int8-per-row" or
   * "int8-per-column". NULL: their own. */
  FG_IN char *stored;
} fg_array;

/* A tensor of the library. `managed` is a DLManagedTensor or, if `versioned`, a
 * DLManagedTensorVersioned: CPU memory, row-major, writable, aligned to 64 bytes. It belongs to the receiver, which
 * calls its deleter once, on any thread, at any time: after the loader was closed, in a forked child, while the process
 * exits. `name` is part of it. */
typedef struct fg_tensor {
  FG_IN char *name;
  void *managed;
} fg_tensor;

/* Functions of Python that the library calls, as it is not linked with Python: PyCapsule_New, PyCapsule_IsValid,
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

/* Makes a list with a PyCapsule for each tensor, with the name that DLPack prescribes. A capsule that is never consumed
 * deletes its tensor when it is collected.
 * Blocks: no. Threads: those that hold the GIL. Ownership: tensors pass to their capsules, their `managed` becomes
 * NULL.
 * Returns: a new reference, or NULL with a Python exception set; some tensors may then still be the caller's. */
void *fg_capsules_new(fg_tensor *tensors, int32_t num_tensors, int32_t versioned);

/* Functions of the CUDA driver that lock the memory of tensors for a device: cuCtxPushCurrent_v2, cuCtxPopCurrent_v2,
 * cuMemHostRegister_v2, cuMemHostUnregister; and their context. They return 0 on success. */
typedef struct fg_lock_api {
  int (*push)(void *context);
  int (*pop)(void **context);
  int (*lock)(void *data, size_t n_bytes, unsigned flags);
  int (*unlock)(void *data);
  void *context;
} fg_lock_api;

/* From this call on, memory of at least 64 KiB for tensors of loaders with `lock_memory` is locked when it is mapped,
 * in about 0.1 s a GB, and unlocked before it is unmapped; NULL ends this. Memory that cannot be locked is used
 * unlocked. A forked child locks nothing. The memory of a deleted tensor is reused at once: keep the tensor until the
 * device has finished its copy.
 * Blocks: no. Threads: any. Ownership: *api is copied, what it names must stay for as long as the process.
 * Returns: FG_OK, FG_BUDGET. */
int32_t fg_buffers_lock(FG_IN fg_lock_api *api, fg_error *err);

/* Memory for tensors of batches that processes share: a file in memory, mapped by the process that makes the batches
 * and by its receivers. It begins with a byte for each of its blocks of 64 KiB. The byte of a tensor's first block is 1
 * while a receiver has the tensor. */
typedef struct fg_shared {
  int64_t n_bytes; /* in: its size, whole blocks; memory is allocated on first use */
  int32_t fd;      /* out: its descriptor, which the caller closes */
  int32_t reserved;
  void *data;      /* out: its address until the process ends */
} fg_shared;

/* From this call on, tensors of batches of this process are in shared memory, each from the start of a block. Call it
 * once, before a loader exists.
 * Blocks: no. Threads: any. Ownership: the descriptor is the caller's.
 * Returns: FG_OK, FG_BUDGET, FG_BUSY (called before). */
int32_t fg_batches_share(fg_shared *shared, fg_error *err);

/* Maps the whole shared memory of another process.
 * Blocks: no. Threads: any. Ownership: the descriptor stays the caller's, who calls fg_shared_unmap once.
 * Returns: FG_OK, FG_BUDGET, FG_INVALID (not such memory). */
int32_t fg_shared_map(int32_t fd, void **shared, fg_error *err);

/* Makes a tensor of each array: row-major, at `offset` in the memory, in a block whose byte is 1. Deleting a tensor
 * clears the byte, except in a forked child.
 * Blocks: no. Threads: any.
 * Ownership: tensors pass to the caller and may outlive fg_shared_unmap; an error makes none and sets `managed` to
 * NULL.
 * Returns: FG_OK, FG_BUDGET, FG_INVALID (an array is not within the memory). */
int32_t fg_shared_tensors(void *shared, FG_IN fg_array *arrays, int32_t num_arrays, int32_t versioned,
                          fg_tensor *tensors, fg_error *err);

/* Unmaps the memory after its last tensor is deleted.
 * Blocks: no. Threads: any. Ownership: `shared` ends. Returns: FG_OK. */
int32_t fg_shared_unmap(void *shared, fg_error *err);

#endif
