/*
 * The inner loops of the operators: for a run of rows that are read once, everything that stays in registers.
 *
 * This is FastGL's Memory-Aware aggregation (section 4.2) on a CPU: a target's partial sums live in registers, its
 * sources are streamed, and no message is ever written. The same source is compiled once for each instruction set
 * (kernels_*.c) and, in there, for each element type and vector length (lanes.h).
 */
#ifndef FRESHGO_KERNELS_H
#define FRESHGO_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "freshgo.h"

typedef enum { FGI_F32, FGI_F64, FGI_BF16, FGI_F16, FGI_DTYPES } fgi_dtype;

/* Rows that one output row takes in. Elements are of the dtype; `real` is the type of sums: double for double, else
 * float. Everything beyond the first `n` entries of `at` is only prefetched. */
typedef struct fgi_slice {
  const char *x;          /* table of rows, at the first column */
  const char *y;          /* a second table of the same layout (fgi_kernels.extreme_back) */
  const int64_t *at;      /* [n + ahead] byte offsets into the tables */
  int64_t n;              /* may be 0 */
  int64_t ahead;          /* rows to prefetch ahead */
  int64_t width;          /* columns: of the row, or of one head */
  int64_t heads;          /* the row has heads * width columns */
  const void *weight;     /* real, one for each row and head, or NULL for ones */
  int64_t weight_stride;  /* elements from one row's weights to the next one's */
  void *sum;              /* real [heads * width], in and out */
  void *count;            /* real [heads * width], in and out, or NULL (extreme) */
  const char *own;        /* the row compared with (extreme_back) or multiplied by (dot) */
  void *scratch;          /* real [heads * (width + 16)] (dot) */
  int32_t fresh;          /* sum and count hold nothing yet */
  int32_t least;          /* the minimum, not the maximum (extreme) */
} fgi_slice;

/* What is done to a finished row: out = scale * sum + own * self, rounded to the dtype. */
typedef struct fgi_finish {
  const void *sum; /* real; may be the place of `out` where that is real */
  char *out;
  int64_t width, heads;
  double scale;
  const char *own;  /* a row of the dtype, or NULL */
  const void *self; /* real, self_stride apart for each head (0: one for all) */
  int64_t self_stride;
} fgi_finish;

typedef struct fgi_kernels {
  /* sum += weight * x, rows in order */
  void (*sum)(const fgi_slice *s);
  /* sum = the largest (least) x so far, count = how many rows equal it; NaN wins */
  void (*extreme)(const fgi_slice *s);
  /* sum += y where x equals `own` */
  void (*extreme_back)(const fgi_slice *s);
  /* sum[row, head] = x . own; here sum is [n, heads] */
  void (*dot)(const fgi_slice *s);
  void (*finish)(const fgi_finish *f);
  /* fg_attention_forward and _back over some targets; false: an index out of range. Scratch is real [3 * heads] */
  bool (*attention)(const fg_attention *in, int64_t row, int64_t end, void *scratch);
  bool (*attention_back)(const fg_attention *in, int64_t row, int64_t end, void *scratch);
} fgi_kernels;

extern const fgi_kernels fgi_portable[FGI_DTYPES];
#if defined(__x86_64__)
extern const fgi_kernels fgi_avx2[FGI_DTYPES];
extern const fgi_kernels fgi_avx512[FGI_DTYPES];
#endif

#endif
