/*
 * Buffers: the memory of tensors that leave the library.
 *
 * A buffer is aligned to 64 bytes (to 2 MiB, with huge pages, from 2 MiB on),
 * counts its references and goes back to a pool when the last one is dropped.
 * Nothing here calls Go, so the last reference may be dropped on any thread,
 * without the GIL, in a forked child, or while the process exits.
 */
#ifndef FRESHGO_BUFFER_H
#define FRESHGO_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

typedef struct fgi_buffer fgi_buffer;
typedef struct fgi_pool fgi_pool;

/* Where buffers go back to: those of the loaders' batches, whose budgets they count in; the same of loaders that send
 * their batches to a device themselves, which alone are locked (fg_buffers_lock); and results of operators. */
extern fgi_pool fgi_batches, fgi_sent, fgi_results;

/* A buffer of at least n_bytes with one reference; contents undefined. NULL: no memory. */
fgi_buffer *fgi_buffer_acquire(fgi_pool *pool, size_t n_bytes);
void *fgi_buffer_data(const fgi_buffer *b);
void fgi_buffer_retain(fgi_buffer *b);
void fgi_buffer_release(fgi_buffer *b);

/* A buffer over memory of somebody else's, with one reference, that is in no pool: with the last one `gone` is called.
 * NULL: no memory. */
fgi_buffer *fgi_buffer_over(void *data, void (*gone)(void *data, void *context), void *context);

/* The same over memory that its owner keeps for longer than the buffer. */
fgi_buffer *fgi_buffer_lent(void *data);

/* Raises (or lowers, if negative) the bytes of unused buffers that the pool may keep: `kept` bytes at any time, and
 * `reserved` bytes while buffers in use do not need them. A pool begins with none. */
void fgi_pool_grow(fgi_pool *pool, int64_t kept, int64_t reserved);

typedef struct fgi_buffer_counters {
  int64_t live;
  int64_t live_bytes;
  int64_t pooled_bytes;
} fgi_buffer_counters;

void fgi_buffer_count(fgi_pool *pool, fgi_buffer_counters *out);

/* A DLManagedTensorVersioned, or else a DLManagedTensor, over the start of b; row-major. It takes a reference of
 * its own, which its deleter drops. Shape and name are copied. NULL: no memory. */
void *fgi_tensor_new(fgi_buffer *b, DLDataType dtype, int32_t ndim, const int64_t *shape, int versioned,
                     const char *name, size_t name_bytes);
/* The name of what fgi_tensor_new made, zero-terminated; it lives as long as the tensor. */
const char *fgi_tensor_name(const void *managed);
void fgi_tensor_delete(void *managed, int versioned);

#endif
