/* What the files of the operators share: errors, checks of a graph, the kernels in use. */
#ifndef FRESHGO_OPERATORS_H
#define FRESHGO_OPERATORS_H

#include <stdbool.h>
#include <stdint.h>

#include "freshgo.h"
#include "kernels.h"

/* The kernels of the instruction set in use. */
const fgi_kernels *fgi_kernels_of(fgi_dtype dtype);

/* Fills err, which may be NULL, and returns code. */
int32_t fgi_fail(fg_error *err, int32_t code, const char *format, ...) __attribute__((format(printf, 3, 4)));

int32_t fgi_no_memory(fg_error *err);
int32_t fgi_struct_size(fg_error *err, uint32_t have, uint32_t want);

/* Which dtype of rows it is and the bytes of an element; false: none. */
bool fgi_dtype_of(DLDataType t, fgi_dtype *out, int64_t *element);

/* Whether ptr begins with 0, never decreases and ends with num_index, or before it where `part`. */
int32_t fgi_check_ptr(const int64_t *ptr, int64_t rows, int64_t num_index, bool part, fg_error *err);

/* The error for the first of n indices that is not in [0, limit), with any above allowed where `cut`. */
int32_t fgi_bad_index(const void *index, int32_t index_bytes, int64_t n, int64_t limit, int cut, const char *name,
    fg_error *err);

static inline int64_t fgi_index(const void *index, int32_t index_bytes, int64_t i) {
  return index_bytes == 4 ? ((const int32_t *)index)[i] : ((const int64_t *)index)[i];
}

/* Pieces of rows of about equal work, counted as rows plus edges: piece p has rows fgi_cut(.., p) to fgi_cut(.., p +
 * 1). */
static inline int64_t fgi_cut(const int64_t *ptr, int64_t rows, int64_t pieces, int64_t p) {
  /* as a product of doubles: exact enough, and monotone in p */
  int64_t work = (int64_t)((double)(ptr[rows] + rows) * ((double)p / (double)pieces)), lo = 0, hi = rows;
  if (p == pieces) return rows;
  while (lo < hi) {
    int64_t middle = lo + (hi - lo) / 2;
    if (ptr[middle] + middle < work)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}

/* How many pieces work is cut into: enough to even threads out, none smaller than a hand-over is worth (16 KiB). */
static inline int64_t fgi_pieces(int32_t threads, double work_bytes) {
  int64_t most = (int64_t)(work_bytes / 16384) + 1, want = threads > 1 ? (int64_t)threads * 16 : 1;
  return most < want ? most : want;
}

#endif
