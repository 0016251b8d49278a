#include "lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "freshgo.h"

/* CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTREGISTER_DEVICEMAP: every device may copy it and read it in place. */
enum { PORTABLE = 1, MAPPED = 2 };

static const fg_lock_api *_Atomic current; /* lives as long as the process, since what it locked may */

/* A driver must not be called in a forked child, which has no part in the parent's locks. Written in the child alone,
 * before it has a second thread. */
static int in_child;
static void forget(void) {
  in_child = 1;
  atomic_store(&current, NULL);
}
__attribute__((constructor)) static void forget_in_children(void) { pthread_atfork(NULL, NULL, forget); }

int32_t fg_buffers_lock(const fg_lock_api *api, fg_error *err) {
  fg_lock_api *copy = NULL;
  if (api != NULL) {
    copy = malloc(sizeof *copy);
    if (copy == NULL) {
      if (err != NULL) *err = (fg_error){.code = FG_BUDGET, .message = "no memory"};
      return FG_BUDGET;
    }
    *copy = *api;
  }
  atomic_store(&current, copy);
  return FG_OK;
}

const void *fgi_lock(void *data, size_t n_bytes) {
  const fg_lock_api *api = atomic_load(&current);
  if (api == NULL || api->push(api->context) != 0) return NULL;
  int failed = api->lock(data, n_bytes, PORTABLE | MAPPED);
  void *context;
  api->pop(&context);
  return failed ? NULL : api;
}

void fgi_unlock(const void *lock, void *data) {
  const fg_lock_api *api = lock;
  void *context;
  if (in_child || api->push(api->context) != 0) return; /* while the process exits there is no context any more */
  api->unlock(data);
  api->pop(&context);
}
