/*
 * The memory of tensors from many threads at a time: buffers are acquired, filled, passed on, made tensors and capsules
 * of, and deleted wherever they are by then, in forked children too, while the pool grows and shrinks and memory is
 * locked by a driver that refuses at random. What is written stays as it is while a tensor lives, and in the end
 * nothing is left. The arguments are the seed and how many steps each thread takes. Built with sanitizers by
 * make sanitize; without, it is a test as it is.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buffer.h"
#include "freshgo.h"

#define REQUIRE(what)                                                       \
  do {                                                                      \
    if (!(what)) fprintf(stderr, "%d: not %s\n", __LINE__, #what), abort(); \
  } while (0)

static int64_t below(uint64_t *state, int64_t n) { /* xorshift64* */
  *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
  return (int64_t)((*state * 2685821657736338717ull >> 33) % (uint64_t)n);
}

/* Python, as far as capsules need it: names, destructors, lists; and the lock that its callers hold. */
typedef struct capsule {
  void *pointer;
  const char *name;
  void (*destructor)(void *capsule);
} capsule;
typedef struct list {
  intptr_t length;
  capsule *items[];
} list;
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;
static int until_failure = -1; /* capsules; negative: none fails */

static void *capsule_new(void *pointer, const char *name, void (*destructor)(void *)) {
  if (until_failure >= 0 && until_failure-- == 0) return NULL;
  capsule *c = malloc(sizeof *c);
  *c = (capsule){pointer, name, destructor};
  return c;
}
static int capsule_is_valid(void *of, const char *name) { return strcmp(((capsule *)of)->name, name) == 0; }
static void *capsule_get_pointer(void *of, const char *name) {
  REQUIRE(capsule_is_valid(of, name));
  return ((capsule *)of)->pointer;
}
static void *list_new(intptr_t length) {
  list *l = calloc(1, sizeof *l + (size_t)length * sizeof(capsule *));
  l->length = length;
  return l;
}
static int list_set_item(void *of, intptr_t index, void *item) {
  list *l = of;
  REQUIRE(index >= 0 && index < l->length);
  l->items[index] = item;
  return 0;
}
static void decref(void *object) { /* of lists alone, which hold the only references to their capsules */
  list *l = object;
  for (intptr_t i = 0; i < l->length; i++)
    if (l->items[i] != NULL) l->items[i]->destructor(l->items[i]), free(l->items[i]);
  free(l);
}

/* A driver that locks memory, or does not. */
static _Atomic int64_t locked;
static _Atomic uint64_t calls;
static int push(void *context) { return context != &locked || atomic_fetch_add(&calls, 1) % 13 == 12; }
static int pop(void **context) { return *context = &locked, 0; }
static int lock(void *data, size_t n_bytes, unsigned flags) {
  if (atomic_fetch_add(&calls, 1) % 3 == 0) return 1;
  REQUIRE(flags == 3 && n_bytes >= (64 << 10) && (uintptr_t)data % 4096 == 0);
  return atomic_fetch_add(&locked, 1), 0;
}
static int unlock(void *data) { return (void)data, atomic_fetch_sub(&locked, 1), 0; }

/* A tensor that somebody holds; its bytes are a function of its address alone. */
enum { SHARED = 16, HELD = 8, THREADS = 4 };
typedef struct held {
  void *managed;
  int versioned;
} held;
static pthread_mutex_t passing = PTHREAD_MUTEX_INITIALIZER;
static held shared[SHARED]; /* what is between threads */

static DLTensor *view(held h) {
  return h.versioned ? &((DLManagedTensorVersioned *)h.managed)->dl_tensor : &((DLManagedTensor *)h.managed)->dl_tensor;
}

static size_t bytes_of(const DLTensor *t) {
  size_t n = t->dtype.bits / 8;
  for (int32_t i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
  return n;
}

static unsigned char mark(const DLTensor *t) { return (unsigned char)((uintptr_t)t >> 5); }

static void check(held h) {
  const DLTensor *t = view(h);
  const unsigned char *p = t->data;
  size_t n = bytes_of(t);
  REQUIRE((uintptr_t)p % 64 == 0 && t->byte_offset == 0 && t->device.device_type == kDLCPU);
  for (size_t i = 0; i < n; i += 1 + n / 64) REQUIRE(p[i] == mark(t));
  if (n > 0) REQUIRE(p[n - 1] == mark(t));
}

static void drop(held *h) {
  if (h->managed == NULL) return;
  check(*h);
  fgi_tensor_delete(h->managed, h->versioned);
  h->managed = NULL;
}

static held make(uint64_t *state) {
  int64_t shape[3];
  int32_t ndim = (int32_t)below(state, 4);
  for (int32_t i = 0; i < ndim; i++) shape[i] = below(state, below(state, 8) ? 40 : 400);
  DLDataType dtype = {kDLInt, (uint8_t)(8 << below(state, 4)), 1};
  held h = {NULL, (int)below(state, 2)};
  if (below(state, 3) == 0) {
    fg_tensor out = {0};
    fg_error err;
    REQUIRE(fg_result(shape, ndim, dtype, h.versioned, &out, &err) == FG_OK);
    h.managed = out.managed;
  } else {
    size_t n = dtype.bits / 8;
    for (int32_t i = 0; i < ndim; i++) n *= (size_t)shape[i];
    fgi_buffer *b = fgi_buffer_acquire(below(state, 2) ? &fgi_sent : &fgi_batches, n);
    REQUIRE(b != NULL);
    h.managed = fgi_tensor_new(b, dtype, ndim, shape, h.versioned, "name", (size_t)below(state, 5));
    REQUIRE(h.managed != NULL);
    fgi_buffer_release(b);
    REQUIRE(strncmp(fgi_tensor_name(h.managed), "name", strlen(fgi_tensor_name(h.managed))) == 0);
  }
  memset(view(h)->data, mark(view(h)), bytes_of(view(h)));
  return h;
}

/* Tensors through capsules: some are consumed, some go with the list, some capsules cannot be made. */
static void capsules(uint64_t *state) {
  fg_tensor out[5] = {0};
  held h[5];
  int32_t n = 1 + (int32_t)below(state, 5), versioned = (int32_t)below(state, 2);
  for (int32_t i = 0; i < n; i++) {
    do {
      h[i] = make(state);
      if (h[i].versioned != versioned) drop(&h[i]);
    } while (h[i].managed == NULL);
    out[i].managed = h[i].managed;
  }
  pthread_mutex_lock(&gil);
  until_failure = below(state, 3) == 0 ? (int)below(state, n) : -1;
  list *l = fg_capsules_new(out, n, versioned);
  until_failure = -1;
  for (int32_t i = 0; i < n; i++) REQUIRE(l == NULL || out[i].managed == NULL);
  if (l != NULL)
    for (int32_t i = 0; i < n; i++) {
      capsule *c = l->items[i];
      check(h[i]);
      if (below(state, 2)) continue;
      c->name = versioned ? "used_dltensor_versioned" : "used_dltensor";
      held taken = {c->pointer, versioned};
      drop(&taken);
    }
  if (l != NULL) decref(l);
  pthread_mutex_unlock(&gil);
  for (int32_t i = 0; i < n; i++)
    if (out[i].managed != NULL) fgi_tensor_delete(out[i].managed, versioned); /* stayed the caller's */
}

static int64_t steps;
static uint64_t seed;

static void *work(void *number) {
  uint64_t state = seed * 1000003 + 7 * (uintptr_t)number + 1;
  held mine[HELD] = {{0}};
  for (int64_t i = 0; i < steps; i++) {
    held *h = &mine[below(&state, HELD)];
    int64_t kept;
    switch (below(&state, 11)) {
      default: drop(h), *h = make(&state); break;
      case 5: case 6: drop(h); break;
      case 7: case 8:
        pthread_mutex_lock(&passing);
        held *other = &shared[below(&state, SHARED)], between = *other;
        *other = *h, *h = between;
        pthread_mutex_unlock(&passing);
        break;
      case 9: capsules(&state); break;
      case 10:
        kept = below(&state, 1 << 22);
        fgi_pool_grow(&fgi_batches, kept, kept / 2), fgi_pool_grow(&fgi_sent, kept, kept / 2);
        if (h->managed != NULL) check(*h);
        fgi_pool_grow(&fgi_batches, -kept, -kept / 2), fgi_pool_grow(&fgi_sent, -kept, -kept / 2);
        break;
    }
  }
  for (int i = 0; i < HELD; i++) drop(&mine[i]);
  return NULL;
}

/* Tensors of this process are deleted in a child whatever the other threads were doing. */
static void forked(uint64_t *state) {
  held h[3];
  for (int i = 0; i < 3; i++) h[i] = make(state);
  pid_t child = fork();
  REQUIRE(child >= 0);
  for (int i = 0; i < 3; i++) drop(&h[i]);
  if (child == 0) _exit(0);
  int status;
  REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  steps = argc > 2 ? atoll(argv[2]) : 1000;
  int forks = argc > 3 ? atoi(argv[3]) : 20;
  uint64_t state = seed + 1;
  fg_python_init(&(fg_python_api){capsule_new, capsule_is_valid, capsule_get_pointer, list_new, list_set_item, decref});
  REQUIRE(fg_buffers_lock(&(fg_lock_api){push, pop, lock, unlock, &locked}, NULL) == FG_OK);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < forks; i++) forked(&state);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < SHARED; i++) drop(&shared[i]);
  fgi_buffer_counters batches, sent, results;
  fgi_buffer_count(&fgi_batches, &batches), fgi_buffer_count(&fgi_sent, &sent);
  fgi_buffer_count(&fgi_results, &results);
  REQUIRE(batches.live == 0 && batches.live_bytes == 0 && batches.pooled_bytes == 0);
  REQUIRE(sent.live == 0 && sent.live_bytes == 0 && sent.pooled_bytes == 0);
  REQUIRE(results.live == 0 && results.live_bytes == 0);
  printf("%lld steps of %d threads, %d forks: nothing left\n", (long long)steps, THREADS, forks);
  return 0;
}
