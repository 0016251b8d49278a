/* Tensors over the batches of another process: fg_shared_map and its neighbours in freshgo/tensor.h. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "arena.h"
#include "buffer.h"
#include "freshgo.h"
#include "operators.h"

typedef struct mapping {
  _Atomic int64_t references;
  char *data;
  size_t n_bytes;
} mapping;

/* A tensor that dies in a forked child lives on in its parent. Written in the child alone, before it has a second
 * thread. */
static int in_child;
static void forget(void) { in_child = 1; }
__attribute__((constructor)) static void forget_in_children(void) { pthread_atfork(NULL, NULL, forget); }

static void drop(mapping *m) {
  /* acq_rel: every use through other references happened before it is unmapped */
  if (atomic_fetch_sub_explicit(&m->references, 1, memory_order_acq_rel) != 1) return;
  munmap(m->data, m->n_bytes);
  free(m);
}

static void died(void *data, void *context) {
  mapping *m = context;
  if (!in_child) {
    char *lent = m->data + (size_t)((char *)data - m->data) / FGI_ARENA_BLOCK;
    __atomic_store_n(lent, 0, __ATOMIC_RELEASE); /* every read of the tensor happened before */
  }
  drop(m);
}

int32_t fg_shared_map(int32_t fd, void **shared, fg_error *err) {
  struct stat file;
  if (fstat(fd, &file) != 0 || file.st_size < 2 * FGI_ARENA_BLOCK || file.st_size % FGI_ARENA_BLOCK != 0)
    return fgi_fail(err, FG_INVALID, "file descriptor %d is not of shared memory", (int)fd);
  mapping *m = calloc(1, sizeof *m);
  if (m == NULL) return fgi_no_memory(err);
  m->n_bytes = (size_t)file.st_size;
  m->data = fgi_arena_map(fd, m->n_bytes);
  if (m->data == NULL) {
    free(m);
    return fgi_fail(err, FG_BUDGET, "mapping %lld bytes of shared memory: %s", (long long)file.st_size,
                    strerror(errno));
  }
  atomic_init(&m->references, 1);
  *shared = m;
  return FG_OK;
}

/* Returns the bytes of an array, or -1 if it is larger than `most`. */
static int64_t bytes_of(const fg_array *a, int64_t most) {
  int64_t n = a->dtype.bits / 8;
  for (int32_t i = 0; i < a->ndim; i++) {
    if (a->shape[i] < 0 || (a->shape[i] > 0 && n > most / a->shape[i])) return -1;
    n *= a->shape[i];
  }
  return n;
}

int32_t fg_shared_tensors(void *shared, const fg_array *arrays, int32_t num_arrays, int32_t versioned,
                          fg_tensor *tensors, fg_error *err) {
  mapping *m = shared;
  int64_t first = (int64_t)fgi_arena_whole(m->n_bytes / FGI_ARENA_BLOCK);
  int32_t made = 0, code = FG_OK;
  for (; made < num_arrays && code == FG_OK; made++) {
    const fg_array *a = &arrays[made];
    int64_t left = (int64_t)m->n_bytes - a->offset;
    int64_t n = bytes_of(a, (int64_t)m->n_bytes);
    if (a->offset < first || a->offset % FGI_ARENA_BLOCK != 0 || n < 0 || n > left) {
      code = fgi_fail(err, FG_INVALID, "array %d at offset %lld does not lie in the shared memory", (int)made,
                      (long long)a->offset);
      break;
    }
    fgi_buffer *b = fgi_buffer_over(m->data + a->offset, died, m);
    void *managed = NULL;
    if (b != NULL) {
      atomic_fetch_add_explicit(&m->references, 1, memory_order_relaxed); /* of the caller's, which is held */
      managed = fgi_tensor_new(b, a->dtype, a->ndim, a->shape, versioned, a->name, strlen(a->name));
      fgi_buffer_release(b); /* the tensor has its own reference; without one this gives the memory back */
    }
    if (managed == NULL) {
      code = fgi_no_memory(err);
      break;
    }
    tensors[made] = (fg_tensor){.name = fgi_tensor_name(managed), .managed = managed};
  }
  if (code != FG_OK)
    while (made-- > 0) {
      fgi_tensor_delete(tensors[made].managed, versioned);
      tensors[made] = (fg_tensor){0};
    }
  return code;
}

int32_t fg_shared_unmap(void *shared, fg_error *err) {
  (void)err;
  drop(shared);
  return FG_OK;
}
