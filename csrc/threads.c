#include "threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static const size_t LINE = 64;         /* scratch of two threads shares no cache line */
enum { MOST_WORKERS = 255 };           /* arbitrary: beyond the processors of any one socket */

typedef struct work {
  fgi_piece run;
  void *job;
  int64_t pieces;
  char *scratch;
  size_t scratch_bytes;
  /* atomics: the threads of one call take pieces and scratch by counting up */
  _Atomic int64_t next;
  _Atomic int32_t joined;
  int32_t threads;
} work;

/* What every thread of a call does. */
static void take_part(void *data) {
  work *w = data;
  int32_t me = atomic_fetch_add_explicit(&w->joined, 1, memory_order_relaxed);
  if (me >= w->threads) return; /* a runtime that brings more threads than it was asked for */
  void *scratch = w->scratch + (size_t)me * w->scratch_bytes;
  for (;;) {
    int64_t piece = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
    if (piece >= w->pieces) return;
    w->run(w->job, piece, scratch);
  }
}

static struct {
  pthread_mutex_t taken; /* held by the caller whose work it is */
  pthread_mutex_t lock;  /* guards the rest */
  pthread_cond_t begin, end;
  work *open;      /* may be joined; NULL: nothing to do */
  int32_t places;  /* how many more may join it */
  int32_t running; /* how many have joined and not left */
  int32_t workers; /* threads that exist */
} pool = {
    .taken = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .begin = PTHREAD_COND_INITIALIZER,
    .end = PTHREAD_COND_INITIALIZER,
};

/* atomic: borrowed once per process, read by any thread; NULL in a forked child */
static _Atomic(fgi_team) borrowed;

void fgi_threads_borrow(fgi_team team) { atomic_store(&borrowed, team); }

static void forget_threads(void) {
  atomic_store(&borrowed, NULL);
  pthread_mutex_init(&pool.taken, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.begin, NULL);
  pthread_cond_init(&pool.end, NULL);
  pool.open = NULL;
  pool.places = pool.running = pool.workers = 0;
}

__attribute__((constructor)) static void start_over_after_fork(void) { pthread_atfork(NULL, NULL, forget_threads); }

static void *serve(void *unused) {
  (void)unused;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (pool.open == NULL || pool.places == 0) pthread_cond_wait(&pool.begin, &pool.lock);
    work *w = pool.open;
    pool.places--;
    pool.running++;
    pthread_mutex_unlock(&pool.lock);
    take_part(w);
    pthread_mutex_lock(&pool.lock);
    if (--pool.running == 0) pthread_cond_signal(&pool.end);
  }
  return NULL;
}

/* Under pool.lock: starts what is missing of n workers; with fewer the work only takes longer. Signals stay with the
 * interpreter's threads. */
static void hire(int32_t n) {
  sigset_t all, before;
  sigfillset(&all);
  if (pool.workers >= n || pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (pool.workers < n && pthread_create(&thread, &attributes, serve, NULL) == 0) pool.workers++;
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool run_in_pool(work *w) {
  if (pthread_mutex_trylock(&pool.taken) != 0) return false;
  pthread_mutex_lock(&pool.lock);
  hire(w->threads - 1 < MOST_WORKERS ? w->threads - 1 : MOST_WORKERS);
  pool.open = w;
  pool.places = w->threads - 1;
  pthread_cond_broadcast(&pool.begin);
  pthread_mutex_unlock(&pool.lock);
  take_part(w);
  /* Whoever has not joined by now would find nothing to do: only those that have are waited for. */
  pthread_mutex_lock(&pool.lock);
  pool.open = NULL;
  while (pool.running > 0) pthread_cond_wait(&pool.end, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
  pthread_mutex_unlock(&pool.taken);
  return true;
}

int fgi_share(int32_t threads, int64_t n, fgi_piece run, void *job, size_t scratch_bytes) {
  if (threads > n) threads = (int32_t)n;
  if (threads < 1) threads = 1;
  work w = {.run = run, .job = job, .pieces = n, .threads = threads};
  w.scratch_bytes = (scratch_bytes + LINE - 1) / LINE * LINE;
  if (scratch_bytes > 0 && (w.scratch = aligned_alloc(LINE, (size_t)threads * w.scratch_bytes)) == NULL) return -1;
  fgi_team team = atomic_load(&borrowed);
  if (threads == 1)
    take_part(&w);
  else if (team != NULL)
    team(take_part, &w, (unsigned)threads, 0);
  else if (!run_in_pool(&w))
    take_part(&w);
  free(w.scratch);
  return 0;
}
