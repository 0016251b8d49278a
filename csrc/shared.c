#define _GNU_SOURCE
#include "shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "freshgo.h"
#include "operators.h"

/* Where ranges begin and end: a page of any system. Of a range that is shorter only its first pages take memory. */
enum { BLOCK = 64 << 10 };

/* Every size of a buffer from 8 MiB on is whole huge pages. Such ranges lie in the second half of the address space,
 * which the system fills with huge pages where it may do so for shared memory. */
enum { HUGE_PAGE = 2 << 20, HUGE_RANGE = 4 * HUGE_PAGE };

static size_t whole(size_t n_bytes) { return (n_bytes + BLOCK - 1) / BLOCK * BLOCK; }

/* Where the half of huge pages begins. Memory that is too small has none. */
static size_t huge_from(size_t n_bytes) {
  size_t half = (n_bytes / 2 + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  return half < n_bytes ? half : n_bytes;
}

static char *map(int fd, size_t n_bytes) {
  char *data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) return NULL;
  madvise(data, n_bytes, MADV_DONTDUMP); /* refused by some kernels; only larger dumps then */
  size_t first = huge_from(n_bytes);
  if (first < n_bytes) madvise(data + first, n_bytes - first, MADV_HUGEPAGE); /* refused by many; only slower then */
  return data;
}

/* The one that makes batches. A range stays in the class that it was cut for: there is more address space than memory,
 * and what is not used is only address space. */
typedef struct range {
  struct range *next;
  void *data;
} range;

static struct {
  pthread_mutex_t lock;
  char *data;
  size_t n_bytes, used, used_huge; /* up to where the first half is used, and the second */
  range *unused[FGI_SHARED_CLASSES];
} ours = {.lock = PTHREAD_MUTEX_INITIALIZER};

int fgi_shared_begun(void) { return ours.data != NULL; }

int32_t fg_batches_share(fg_shared *shared, fg_error *err) {
  if (shared->n_bytes < 2 * BLOCK || shared->n_bytes % BLOCK != 0)
    return fgi_fail(err, FG_INVALID, "n_bytes is %lld, expected whole blocks of 64 KiB, two at least",
                    (long long)shared->n_bytes);
  pthread_mutex_lock(&ours.lock);
  int32_t code = FG_OK;
  size_t n_bytes = (size_t)shared->n_bytes;
  int fd = -1;
  if (ours.data != NULL) {
    code = fgi_fail(err, FG_BUSY, "the batches of this process are shared already");
  } else if ((fd = memfd_create("freshgo", MFD_CLOEXEC)) < 0 || ftruncate(fd, shared->n_bytes) != 0 ||
             (ours.data = map(fd, n_bytes)) == NULL) {
    code = fgi_fail(err, FG_BUDGET, "no shared memory of %lld bytes of address space: %s", (long long)n_bytes,
                    strerror(errno));
    if (fd >= 0) close(fd);
  } else {
    ours.n_bytes = n_bytes;
    ours.used = whole(n_bytes / BLOCK); /* a byte for each block comes first */
    ours.used_huge = huge_from(n_bytes);
    shared->fd = fd;
    shared->data = ours.data;
  }
  pthread_mutex_unlock(&ours.lock);
  return code;
}

void *fgi_shared_take(int size_class, size_t capacity) {
  int huge = capacity >= HUGE_RANGE;
  size_t n_bytes = whole(capacity), *used = huge ? &ours.used_huge : &ours.used;
  size_t end = huge ? ours.n_bytes : huge_from(ours.n_bytes);
  void *data = NULL;
  pthread_mutex_lock(&ours.lock);
  range *r = ours.unused[size_class];
  if (r != NULL) {
    ours.unused[size_class] = r->next;
    data = r->data;
    free(r);
  } else if (n_bytes <= end - *used) {
    data = ours.data + *used;
    *used += n_bytes;
  }
  pthread_mutex_unlock(&ours.lock);
  return data;
}

void fgi_shared_give(int size_class, void *data, size_t capacity) {
  madvise(data, whole(capacity), MADV_REMOVE);
  range *r = malloc(sizeof *r);
  if (r == NULL) return; /* its address space is lost, its memory is not */
  pthread_mutex_lock(&ours.lock);
  r->data = data;
  r->next = ours.unused[size_class];
  ours.unused[size_class] = r;
  pthread_mutex_unlock(&ours.lock);
}

/* The ones that receive them. */
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
    char *lent = m->data + (size_t)((char *)data - m->data) / BLOCK;
    __atomic_store_n(lent, 0, __ATOMIC_RELEASE); /* every read of the tensor happened before */
  }
  drop(m);
}

int32_t fg_shared_map(int32_t fd, void **shared, fg_error *err) {
  struct stat file;
  if (fstat(fd, &file) != 0 || file.st_size < 2 * BLOCK || file.st_size % BLOCK != 0)
    return fgi_fail(err, FG_INVALID, "descriptor %d is not that of shared memory", (int)fd);
  mapping *m = calloc(1, sizeof *m);
  if (m == NULL) return fgi_no_memory(err);
  m->n_bytes = (size_t)file.st_size;
  m->data = map(fd, m->n_bytes);
  if (m->data == NULL) {
    free(m);
    return fgi_fail(err, FG_BUDGET, "no %lld bytes of address space for shared memory: %s", (long long)file.st_size,
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
  int64_t first = (int64_t)whole(m->n_bytes / BLOCK);
  int32_t made = 0, code = FG_OK;
  for (; made < num_arrays && code == FG_OK; made++) {
    const fg_array *a = &arrays[made];
    int64_t left = (int64_t)m->n_bytes - a->offset;
    int64_t n = bytes_of(a, (int64_t)m->n_bytes);
    if (a->offset < first || a->offset % BLOCK != 0 || n < 0 || n > left) {
      code = fgi_fail(err, FG_INVALID, "array %d at %lld does not lie in the shared memory", (int)made,
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
