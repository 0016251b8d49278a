#define _GNU_SOURCE
#include "buffer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "arena.h"
#include "lock.h"

/* Four classes per doubling: at most a quarter of a buffer is unused. */
enum { SMALLEST_LOG2 = 8, CLASSES_PER_DOUBLING = 4, LARGEST_LOG2 = 47 };
enum { NUM_CLASSES = (LARGEST_LOG2 - SMALLEST_LOG2) * CLASSES_PER_DOUBLING + 1 };
_Static_assert((int)NUM_CLASSES <= (int)FGI_ARENA_CLASSES, "the arena has a list for each class");

static const size_t ALIGNMENT = 64;          /* a cache line, and what DLPack asks for */
static const size_t HUGE_PAGE = (size_t)2 << 20;
/* From here on a buffer is a map of its own, which goes back to the system when it is freed: what malloc gets back from
 * several threads it keeps, 26 MiB of a loader of 64. Such a one can be locked; a device copies smaller ones at once
 * anyway. */
static const size_t MAPPED = 64 << 10;

struct fgi_buffer {
  fgi_pool *pool;
  _Atomic int32_t references;
  int32_t size_class;
  size_t capacity;
  void *data;
  const void *lock; /* of its pages, or NULL */
  int shared;       /* it lies in the arena */
  void (*gone)(void *data, void *context); /* of one that is in no pool */
  void *context;
  /* In the pool: */
  fgi_buffer *next_of_class; /* younger */
  fgi_buffer *older, *younger; /* of all classes */
};

/* Unused buffers, per class a queue from the oldest to the youngest, all of them in one list by age. Both
 * acquire and evict take the oldest, so both take heads of queues. */
struct fgi_pool {
  pthread_mutex_t lock;
  fgi_buffer *head[NUM_CLASSES], *tail[NUM_CLASSES];
  fgi_buffer *oldest, *youngest;
  int64_t limit, reserve;
  fgi_buffer_counters count;
};

fgi_pool fgi_batches = {.lock = PTHREAD_MUTEX_INITIALIZER}, fgi_sent = {.lock = PTHREAD_MUTEX_INITIALIZER},
         fgi_results = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(fgi_pool *p) { pthread_mutex_lock(&p->lock); }
static void unlock(fgi_pool *p) { pthread_mutex_unlock(&p->lock); }

/* Tensors may be deleted in a forked child, whatever another thread of the parent was doing in a pool. */
static void lock_pools(void) { lock(&fgi_batches), lock(&fgi_sent), lock(&fgi_results); }
static void unlock_pools(void) { unlock(&fgi_results), unlock(&fgi_sent), unlock(&fgi_batches); }
__attribute__((constructor)) static void keep_pools_whole_across_fork(void) {
  pthread_atfork(lock_pools, unlock_pools, unlock_pools);
}

/* The class of a size, and the size of that class: 2^k * (1, 1.25, 1.5, 1.75). */
static int class_of(size_t n_bytes, size_t *capacity) {
  if (n_bytes <= (size_t)1 << SMALLEST_LOG2) {
    *capacity = (size_t)1 << SMALLEST_LOG2;
    return 0;
  }
  int log2 = 63 - __builtin_clzll((unsigned long long)n_bytes - 1);
  size_t base = (size_t)1 << log2, step = base / CLASSES_PER_DOUBLING;
  size_t quarter = (n_bytes - 1 - base) / step;
  *capacity = base + (quarter + 1) * step;
  return (log2 - SMALLEST_LOG2) * CLASSES_PER_DOUBLING + (int)quarter + 1;
}

/* Pages, from a huge one on aligned to those: map one more and give the ends back. */
static void *map(size_t n_bytes) {
  if (n_bytes < HUGE_PAGE) {
    void *data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
  }
  char *start = mmap(NULL, n_bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return NULL;
  size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
  if (before > 0) munmap(start, before);
  munmap(start + before + n_bytes, HUGE_PAGE - before);
  madvise(start + before, n_bytes, MADV_HUGEPAGE); /* refused by some kernels; only slower then */
  return start + before;
}

static fgi_buffer *allocate(fgi_pool *pool, int size_class, size_t capacity) {
  fgi_buffer *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->size_class = size_class;
  b->capacity = capacity;
  b->shared = pool != &fgi_results && fgi_arena_begun();
  b->data = b->shared            ? fgi_arena_take(size_class, capacity)
            : capacity >= MAPPED ? map(capacity)
                                 : aligned_alloc(ALIGNMENT, capacity);
  if (b->data == NULL) {
    free(b);
    return NULL;
  }
  if (capacity >= MAPPED && pool == &fgi_sent && !b->shared) b->lock = fgi_lock(b->data, capacity);
  return b;
}

static void deallocate(fgi_buffer *b) {
  if (b->lock != NULL) fgi_unlock(b->lock, b->data);
  if (b->shared)
    fgi_arena_give(b->size_class, b->data, b->capacity);
  else if (b->capacity >= MAPPED)
    munmap(b->data, b->capacity);
  else
    free(b->data);
  free(b);
}

/* Under the lock: takes the oldest buffer of its class out of the pool. */
static fgi_buffer *take(fgi_pool *pool, int size_class) {
  fgi_buffer *b = pool->head[size_class];
  if (b == NULL) return NULL;
  pool->head[size_class] = b->next_of_class;
  if (pool->head[size_class] == NULL) pool->tail[size_class] = NULL;
  *(b->older != NULL ? &b->older->younger : &pool->oldest) = b->younger;
  *(b->younger != NULL ? &b->younger->older : &pool->youngest) = b->older;
  b->next_of_class = b->older = b->younger = NULL;
  pool->count.pooled_bytes -= (int64_t)b->capacity;
  return b;
}

/* Under the lock: puts b in as the youngest. */
static void put(fgi_buffer *b) {
  fgi_pool *pool = b->pool;
  *(pool->tail[b->size_class] != NULL ? &pool->tail[b->size_class]->next_of_class : &pool->head[b->size_class]) = b;
  pool->tail[b->size_class] = b;
  b->older = pool->youngest;
  *(b->older != NULL ? &b->older->younger : &pool->oldest) = b;
  pool->youngest = b;
  pool->count.pooled_bytes += (int64_t)b->capacity;
}

/* Under the lock: takes out the oldest until the rest fits the limit, or what the buffers in use leave of the reserve;
 * the caller frees the chain after unlocking. */
static fgi_buffer *evict(fgi_pool *pool) {
  fgi_buffer *out = NULL;
  int64_t unused = pool->reserve - pool->count.live_bytes;
  int64_t room = pool->limit + (unused > 0 ? unused : 0);
  while (pool->count.pooled_bytes > room) {
    fgi_buffer *b = take(pool, pool->oldest->size_class);
    b->next_of_class = out;
    out = b;
  }
  return out;
}

static void deallocate_all(fgi_buffer *b) {
  while (b != NULL) {
    fgi_buffer *next = b->next_of_class;
    deallocate(b);
    b = next;
  }
}

fgi_buffer *fgi_buffer_acquire(fgi_pool *pool, size_t n_bytes) {
  if (n_bytes > (size_t)1 << LARGEST_LOG2) return NULL;
  size_t capacity;
  int size_class = class_of(n_bytes, &capacity);
  lock(pool);
  fgi_buffer *b = take(pool, size_class);
  unlock(pool);
  if (b == NULL && (b = allocate(pool, size_class, capacity)) == NULL) return NULL;
  b->pool = pool;
  atomic_init(&b->references, 1);
  lock(pool);
  pool->count.live++;
  pool->count.live_bytes += (int64_t)capacity;
  fgi_buffer *evicted = evict(pool);
  unlock(pool);
  deallocate_all(evicted);
  return b;
}

fgi_buffer *fgi_buffer_over(void *data, void (*gone)(void *data, void *context), void *context) {
  fgi_buffer *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->data = data;
  b->gone = gone;
  b->context = context;
  atomic_init(&b->references, 1);
  return b;
}

static void left(void *data, void *context) { (void)data, (void)context; }
fgi_buffer *fgi_buffer_lent(void *data) { return fgi_buffer_over(data, left, NULL); }

void *fgi_buffer_data(const fgi_buffer *b) { return b->data; }

void fgi_buffer_retain(fgi_buffer *b) {
  /* relaxed: whoever retains holds a reference, so the count cannot reach zero meanwhile */
  atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
}

void fgi_buffer_release(fgi_buffer *b) {
  /* acq_rel: every use through other references happened before the memory is reused */
  if (atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel) != 1) return;
  fgi_pool *pool = b->pool;
  if (pool == NULL) {
    b->gone(b->data, b->context);
    free(b);
    return;
  }
  lock(pool);
  pool->count.live--;
  pool->count.live_bytes -= (int64_t)b->capacity;
  put(b);
  fgi_buffer *evicted = evict(pool);
  unlock(pool);
  deallocate_all(evicted);
}

void fgi_pool_grow(fgi_pool *pool, int64_t kept, int64_t reserved) {
  lock(pool);
  pool->limit += kept;
  pool->reserve += reserved;
  fgi_buffer *evicted = evict(pool);
  unlock(pool);
  deallocate_all(evicted);
}

void fgi_buffer_count(fgi_pool *pool, fgi_buffer_counters *out) {
  lock(pool);
  *out = pool->count;
  unlock(pool);
}
