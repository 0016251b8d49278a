/*
 * Memory for the results of operators: huge pages that are used again.
 *
 * PyTorch returns large tensors to the system, and the first touch of fresh pages then costs more than what is computed
 * into them: 158 MB took 46 ms to zero in pages of 4 KiB, 27 ms to compute. Results of one training step have the sizes
 * of those of the step before, so what comes back is kept, at most a sixteenth of the machine's memory and 512 MiB.
 */
#include <pthread.h>
#include <unistd.h>

#include "buffer.h"
#include "operators.h"

static const int64_t MOST_KEPT = (int64_t)512 << 20;

static void size_the_pool(void) {
  int64_t sixteenth = (int64_t)sysconf(_SC_PHYS_PAGES) / 16 * (int64_t)sysconf(_SC_PAGESIZE);
  fgi_pool_grow(&fgi_results, sixteenth < MOST_KEPT ? sixteenth : MOST_KEPT, 0);
}

int32_t fg_result(const int64_t *shape, int32_t ndim, DLDataType dtype, int32_t versioned, fg_tensor *out,
    fg_error *err) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, size_the_pool);
  size_t n_bytes = dtype.bits / 8;
  for (int32_t i = 0; i < ndim; i++)
    if (shape[i] < 0 || __builtin_mul_overflow(n_bytes, (size_t)shape[i], &n_bytes))
      return fgi_fail(err, FG_INVALID, "dimension %d of a result is %lld: it is negative or the result too large",
                      (int)i, (long long)shape[i]);
  fgi_buffer *b = fgi_buffer_acquire(&fgi_results, n_bytes);
  if (b == NULL)
    return fgi_fail(err, FG_BUDGET, "out of memory: the system refuses %zu bytes for a result", n_bytes);
  out->managed = fgi_tensor_new(b, dtype, ndim, shape, versioned, "", 0);
  fgi_buffer_release(b); /* the tensor has a reference of its own */
  if (out->managed == NULL) return fgi_no_memory(err);
  out->name = fgi_tensor_name(out->managed);
  return FG_OK;
}
