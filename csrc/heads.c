/*
 * fg_heads: products of rows for each head, what graph attention does to rows before and after its edges.
 *
 * Each row is read once and nothing of its size is written but the result. Sums over all rows are made of parts that
 * depend on their number alone, so that the bits do not depend on threads.
 */
#include <stdlib.h>
#include <string.h>

#include "operators.h"
#include "threads.h"

enum {
  ROWS = 256, /* that a kernel gets at a time */
  PARTS = 64  /* of a sum over all rows */
};

typedef struct heads_job {
  const fg_heads *in;
  const fgi_kernels *kernels;
  int64_t pieces, element, real; /* sizes in bytes */
  char *parts;                   /* real [pieces, columns] (FG_TOTAL) */
} heads_job;

/* Offsets of up to ROWS rows from the first on, which the kernels take as addresses. */
static int64_t offsets(const heads_job *j, int64_t row, int64_t end, int64_t *at) {
  int64_t n = end - row < ROWS ? end - row : ROWS, stride = j->in->x_stride * j->element;
  for (int64_t i = 0; i < n; i++) at[i] = i * stride;
  at[n] = at[n - 1];
  return n;
}

static void spread_row(const heads_job *j, int64_t row) {
  const fg_heads *in = j->in;
  char *out = (char *)in->out + row * in->columns * j->element;
  fgi_finish f = {
      .sum = out,
      .out = out,
      .width = in->columns / in->heads,
      .heads = in->heads,
      .scale = 1,
      .own = in->y,
      .self = (const char *)in->d + row * in->heads * j->real,
      .self_stride = 1,
  };
  j->kernels->finish(&f);
}

static void run_piece(void *data, int64_t piece, void *scratch) {
  const heads_job *j = data;
  const fg_heads *in = j->in;
  const int64_t end = in->rows * (piece + 1) / j->pieces;
  int64_t at[ROWS + 1], n;
  fgi_slice s = {.at = at, .width = in->columns / in->heads, .heads = in->heads, .scratch = scratch, .fresh = 1};
  for (int64_t row = in->rows * piece / j->pieces; row < end; row += n) {
    if (in->kind == FG_SPREAD) {
      spread_row(j, row);
      n = 1;
      continue;
    }
    n = offsets(j, row, in->kind == FG_ROW_DOT && in->y_stride != 0 ? row + 1 : end, at);
    char *d = (char *)in->d + row * in->heads * j->real;
    s.x = (const char *)in->x + row * in->x_stride * j->element;
    s.n = n;
    if (in->kind == FG_ROW_DOT) {
      s.own = (const char *)in->y + row * in->y_stride * j->element;
      s.sum = d;
      j->kernels->dot(&s);
    } else {
      s.weight = d;
      s.weight_stride = in->heads;
      s.sum = j->parts + piece * in->columns * j->real;
      j->kernels->sum(&s);
      s.fresh = 0;
    }
  }
}

#define ADD_UP(T)                                                                             \
  static void add_up_##T(const T *parts, int64_t pieces, int64_t columns, T *out) {           \
    memcpy(out, parts, (size_t)columns * sizeof *out);                                        \
    for (int64_t p = 1; p < pieces; p++)                                                      \
      for (int64_t c = 0; c < columns; c++) out[c] += parts[p * columns + c];                 \
  }
ADD_UP(float)
ADD_UP(double)

int32_t fg_heads_run(const fg_heads *in, fg_error *err) {
  int32_t code = fgi_struct_size(err, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  fgi_dtype dtype;
  heads_job j = {.in = in};
  if (!fgi_dtype_of(in->dtype, &dtype, &j.element))
    return fgi_fail(err, FG_DTYPE, "the dtype must be float32, float64, float16 or bfloat16");
  j.kernels = fgi_kernels_of(dtype);
  j.real = dtype == FGI_F64 ? 8 : 4;
  if (in->kind < FG_ROW_DOT || in->kind > FG_TOTAL || in->rows < 0 || in->heads < 1 || in->columns < in->heads ||
      in->columns % in->heads != 0 || (in->kind == FG_SPREAD && j.element != j.real))
    return fgi_fail(err, FG_INVALID, "the sizes of an operator's arrays do not match");
  if (in->rows == 0) {
    if (in->kind == FG_TOTAL) memset(in->out, 0, (size_t)(in->columns * j.real));
    return FG_OK;
  }
  j.pieces = in->kind == FG_TOTAL ? (in->rows < PARTS ? in->rows : PARTS)
                                  : fgi_pieces(in->threads, (double)in->rows * (double)(in->columns * j.element));
  if (j.pieces > in->rows) j.pieces = in->rows;
  if (in->kind == FG_TOTAL && (j.parts = malloc((size_t)(j.pieces * in->columns * j.real))) == NULL)
    return fgi_no_memory(err);
  code = fgi_share(in->threads, j.pieces, run_piece, &j, (size_t)((in->columns + 16 * in->heads) * j.real)) == 0
             ? FG_OK
             : fgi_no_memory(err);
  if (code == FG_OK && in->kind == FG_TOTAL) {
    if (dtype == FGI_F64)
      add_up_double((const double *)j.parts, j.pieces, in->columns, in->out);
    else
      add_up_float((const float *)j.parts, j.pieces, in->columns, in->out);
  }
  free(j.parts);
  return code;
}
