#define _GNU_SOURCE
#include "arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "freshgo.h"
#include "operators.h"

/* Every size of a buffer from 8 MiB on is whole huge pages. Such ranges lie in the second half of the address space,
 * which the system fills with huge pages where it may do so for shared memory. */
enum { HUGE_PAGE = 2 << 20, HUGE_RANGE = 4 * HUGE_PAGE };

size_t fgi_arena_whole(size_t n_bytes) { return (n_bytes + FGI_ARENA_BLOCK - 1) / FGI_ARENA_BLOCK * FGI_ARENA_BLOCK; }

/* Where the half of huge pages begins. Memory that is too small has none. */
static size_t huge_from(size_t n_bytes) {
  size_t half = (n_bytes / 2 + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  return half < n_bytes ? half : n_bytes;
}

char *fgi_arena_map(int fd, size_t n_bytes) {
  char *data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) return NULL;
  madvise(data, n_bytes, MADV_DONTDUMP); /* refused by some kernels; only larger dumps then */
  size_t first = huge_from(n_bytes);
  if (first < n_bytes) madvise(data + first, n_bytes - first, MADV_HUGEPAGE); /* refused by many; only slower then */
  return data;
}

/* A range stays in the class that it was cut for: there is more address space than memory, and a range that is not used
 * is only address space. */
typedef struct range {
  struct range *next;
  void *data;
} range;

static struct {
  pthread_mutex_t lock;
  char *data;
  size_t n_bytes, used, used_huge; /* up to where the first half is used, and the second */
  range *unused[FGI_ARENA_CLASSES];
} ours = {.lock = PTHREAD_MUTEX_INITIALIZER};

int fgi_arena_begun(void) { return ours.data != NULL; }

int32_t fg_batches_share(fg_shared *shared, fg_error *err) {
  if (shared->n_bytes < 2 * FGI_ARENA_BLOCK || shared->n_bytes % FGI_ARENA_BLOCK != 0)
    return fgi_fail(err, FG_INVALID, "n_bytes is %lld, expected a multiple of 64 KiB, at least 128 KiB",
                    (long long)shared->n_bytes);
  pthread_mutex_lock(&ours.lock);
  int32_t code = FG_OK;
  size_t n_bytes = (size_t)shared->n_bytes;
  int fd = -1;
  if (ours.data != NULL) {
    code = fgi_fail(err, FG_BUSY, "the batches of this process are shared already");
  } else if ((fd = memfd_create("freshgo", MFD_CLOEXEC)) < 0 || ftruncate(fd, shared->n_bytes) != 0 ||
             (ours.data = fgi_arena_map(fd, n_bytes)) == NULL) {
    code = fgi_fail(err, FG_BUDGET, "mapping %lld bytes of shared memory: %s", (long long)n_bytes,
                    strerror(errno));
    if (fd >= 0) close(fd);
  } else {
    ours.n_bytes = n_bytes;
    ours.used = fgi_arena_whole(n_bytes / FGI_ARENA_BLOCK); /* a byte for each block comes first */
    ours.used_huge = huge_from(n_bytes);
    shared->fd = fd;
    shared->data = ours.data;
  }
  pthread_mutex_unlock(&ours.lock);
  return code;
}

void *fgi_arena_take(int size_class, size_t capacity) {
  int huge = capacity >= HUGE_RANGE;
  size_t n_bytes = fgi_arena_whole(capacity), *used = huge ? &ours.used_huge : &ours.used;
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

void fgi_arena_give(int size_class, void *data, size_t capacity) {
  madvise(data, fgi_arena_whole(capacity), MADV_REMOVE);
  range *r = malloc(sizeof *r);
  if (r == NULL) return; /* its address space is lost, its memory is not */
  pthread_mutex_lock(&ours.lock);
  r->data = data;
  r->next = ours.unused[size_class];
  ours.unused[size_class] = r;
  pthread_mutex_unlock(&ours.lock);
}
