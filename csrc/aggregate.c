/*
 * fg_aggregate: cuts the rows into pieces for the threads and brings each piece's edges to the kernels.
 *
 * Edges pass through a small buffer that stays in the first-level cache: there an index is checked and becomes an
 * address, and weight, scales and the edge's place become one number. So the kernels know one kind of input only, and
 * a wild index is found before the row behind it is touched.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "operators.h"
#include "threads.h"

enum {
  BUFFER = 512,          /* edges: with their addresses 4 KiB */
  MOST_AHEAD = 16,       /* rows */
  AHEAD_BYTES = 4096,    /* prefetched at a time: 64 lines, a little more than a core keeps on their way */
  WEIGHTS = 4096,        /* of a buffer: fewer edges where there are many heads */
  WEIGHTS_AHEAD = 24     /* edges: their weights are prefetched that far where they come in another order */
};

typedef struct segment {
  int64_t row, first_edge;
  int32_t begin, n; /* in the buffer */
  bool fresh, last;
} segment;

typedef struct job {
  const fg_aggregation *in;
  const fgi_kernels *kernels;
  int64_t pieces, element, real; /* sizes in bytes */
  int64_t buffer, ahead;
  bool is_double, weighted;
  _Atomic int32_t bad; /* atomic: any thread may find a wrong index; what it is, is looked up afterwards */
} job;

typedef struct scratch {
  int64_t at[BUFFER + MOST_AHEAD];
  segment segments[BUFFER];
  int64_t filled, num_segments;
  char *weights, *dots, *sum, *count, *dot; /* behind this struct */
} scratch;

enum { BAD_INDEX = 1, BAD_EDGE = 2 };

static size_t align(size_t n) { return (n + 63) / 64 * 64; }

static size_t weight_bytes(const job *j) { return align((size_t)(j->buffer * j->in->heads * j->real)); }
static size_t row_bytes(const job *j) { return align((size_t)((j->in->columns + 16 * j->in->heads) * j->real)); }

static size_t scratch_bytes(const job *j) { return align(sizeof(scratch)) + 2 * weight_bytes(j) + 3 * row_bytes(j); }

static void lay_out(const job *j, scratch *s) {
  s->weights = (char *)s + align(sizeof *s);
  s->dots = s->weights + weight_bytes(j);
  s->sum = s->dots + weight_bytes(j);
  s->count = s->sum + row_bytes(j);
  s->dot = s->count + row_bytes(j);
  s->filled = s->num_segments = 0;
}

/* Addresses of n edges from edge k on. Returns how many there are before the list is cut, or -1. */
#define ADDRESSES(T)                                                                                  \
  static int64_t addresses_##T(const fg_aggregation *in, int64_t k, int64_t n, int64_t stride, int64_t *at) { \
    const T *index = (const T *)in->index + k;                                                        \
    const uint64_t rows = (uint64_t)(in->cut >= 0 ? in->cut : in->x_rows);                            \
    if (in->cut >= 0) {                                                                               \
      int64_t i = 0;                                                                                  \
      for (; i < n && (uint64_t)index[i] < rows; i++) at[i] = index[i] * stride;                      \
      return i < n && index[i] < 0 ? -1 : i;                                                          \
    }                                                                                                 \
    uint64_t bad = 0;                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                 \
      bad |= (uint64_t)index[i] >= rows;                                                              \
      at[i] = index[i] * stride;                                                                      \
    }                                                                                                 \
    return bad ? -1 : n;                                                                              \
  }
ADDRESSES(int32_t)
ADDRESSES(int64_t)

/* Brings what edge k of the list reads and writes of `weight` and `dot` nearer; a wild address does no harm here. */
static inline void expect_edge(const fg_aggregation *in, int64_t k, size_t real) {
  if (k >= in->num_index) return;
  const int64_t at = fgi_index(in->edge, in->index_bytes, k) * in->heads * (int64_t)real;
  __builtin_prefetch((const void *)((uintptr_t)in->weight + (uintptr_t)at));
  if (in->dot != NULL) __builtin_prefetch((const void *)((uintptr_t)in->dot + (uintptr_t)at), 1);
}

/* Weights of the n edges from edge k on, of a row. Returns false where `edge` is out of range. */
#define STAGE(T)                                                                                      \
  static bool stage_##T(const fg_aggregation *in, int64_t row, int64_t k, int64_t n, T *w) {          \
    const T *weight = in->weight, *scale = in->col_scale;                                             \
    const int64_t heads = in->heads;                                                                  \
    for (int64_t i = 0; i < n; i++, w += heads) {                                                     \
      int64_t source = fgi_index(in->index, in->index_bytes, k + i), e = k + i;                       \
      T factor = scale != NULL ? scale[source] : 1;                                                   \
      if (in->skip_self && source == row) factor = 0;                                                 \
      if (weight == NULL) {                                                                           \
        for (int64_t h = 0; h < heads; h++) w[h] = factor;                                            \
        continue;                                                                                     \
      }                                                                                               \
      if (in->edge != NULL) {                                                                         \
        e = fgi_index(in->edge, in->index_bytes, k + i);                                              \
        expect_edge(in, k + i + WEIGHTS_AHEAD, sizeof(T));                                            \
      }                                                                                               \
      if ((uint64_t)e >= (uint64_t)in->num_weights) return false;                                     \
      if (in->skip_self && source == row)                                                             \
        for (int64_t h = 0; h < heads; h++) w[h] = 0;                                                 \
      else                                                                                            \
        for (int64_t h = 0; h < heads; h++) w[h] = weight[e * heads + h] * factor;                    \
    }                                                                                                 \
    return true;                                                                                      \
  }
STAGE(float)
STAGE(double)

static double real_at(const job *j, const void *p, int64_t i) {
  return j->is_double ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* 1 / the edges of a row, which the derivative finds in `count`. */
static double mean_of(const job *j, int64_t row) {
  const fg_aggregation *in = j->in;
  const int64_t edges = in->ptr[row + 1] - in->ptr[row], n = edges > 1 ? edges : 1;
  const double scale = j->is_double ? 1.0 / (double)n : (double)(1.0f / (float)n);
  if (in->count != NULL) {
    if (j->is_double)
      ((double *)in->count)[row] = scale;
    else
      ((float *)in->count)[row] = (float)scale;
  }
  return scale;
}

static void finish_row(const job *j, const segment *g, const void *sum, char *out) {
  const fg_aggregation *in = j->in;
  fgi_finish f = {.sum = sum, .out = out, .width = in->columns, .heads = 1, .scale = 1};
  if (in->kind == FG_MEAN) f.scale = mean_of(j, g->row);
  else if (in->row_scale != NULL) f.scale = real_at(j, in->row_scale, g->row);
  if (in->self_weight != NULL && g->row < in->self_rows) {
    f.own = (const char *)in->x + g->row * in->x_stride * j->element;
    f.self = (const char *)in->self_weight + g->row * in->self_heads * j->real;
    if (in->self_heads > 1) {
      f.heads = in->self_heads;
      f.width = in->columns / f.heads;
      f.self_stride = 1;
    }
  }
  j->kernels->finish(&f);
}

/* An extreme over nothing is 0, as in PyTorch; one row is its own. */
static void finish_empty(const job *j, char *out, char *count) {
  memset(out, 0, (size_t)(j->in->columns * j->element));
  for (int64_t c = 0; count != NULL && c < j->in->columns; c++) {
    if (j->is_double)
      ((double *)count)[c] = 1;
    else
      ((float *)count)[c] = 1;
  }
}

/* What a product of edge i of a segment is multiplied by. */
static double dot_factor(const job *j, const segment *g, int64_t i) {
  const fg_aggregation *in = j->in;
  int64_t source = fgi_index(in->index, in->index_bytes, g->first_edge + i);
  if (in->skip_self && source == g->row) return 0;
  return (in->row_scale != NULL ? real_at(j, in->row_scale, g->row) : 1) *
         (in->col_scale != NULL ? real_at(j, in->col_scale, source) : 1);
}

#define SCALE(T)                                                                                      \
  static void scale_##T(const T *from, T *to, int64_t heads, double factor) {                         \
    for (int64_t h = 0; h < heads; h++) to[h] = from[h] * (T)factor;                                  \
  }
SCALE(float)
SCALE(double)

/* Products of a segment go to their edges: to `edge` of an edge (which staging its weight has checked), or in order. */
static void deliver_dots(const job *j, const segment *g, const char *from, char *to, bool by_edge) {
  const fg_aggregation *in = j->in;
  const bool scaled = in->row_scale != NULL || in->col_scale != NULL || in->skip_self;
  if (!by_edge && !scaled) return; /* the slices are in place already */
  const int64_t bytes = in->heads * j->real;
  for (int64_t i = 0; i < g->n; i++) {
    char *place = to + i * bytes;
    if (by_edge && in->edge != NULL) {
      int64_t e = fgi_index(in->edge, in->index_bytes, g->first_edge + i);
      if ((uint64_t)e >= (uint64_t)in->num_weights) continue; /* changed since it was checked */
      place = (char *)in->dot + e * bytes;
    }
    const double factor = scaled ? dot_factor(j, g, i) : 1;
    if (j->is_double)
      scale_double((const double *)(from + i * bytes), (double *)place, in->heads, factor);
    else
      scale_float((const float *)(from + i * bytes), (float *)place, in->heads, factor);
  }
}

static void run_segment(const job *j, scratch *s, const segment *g) {
  const fg_aggregation *in = j->in;
  const bool in_place = j->element == j->real; /* sums need no room of their own */
  char *out = (char *)in->out + g->row * in->columns * j->element;
  char *count = in->count != NULL && in->kind != FG_MEAN ? (char *)in->count + g->row * in->columns * j->real : NULL;
  fgi_slice k = {
      .x = in->x,
      .at = s->at + g->begin,
      .n = g->n,
      .ahead = j->ahead,
      .width = in->columns,
      .heads = 1,
      .sum = in_place ? out : s->sum,
      .fresh = g->fresh,
  };
  switch (in->kind) {
    case FG_SUM:
    case FG_MEAN:
      if (j->weighted) {
        k.heads = in->heads;
        k.width = in->columns / in->heads;
        k.weight = s->weights + g->begin * in->heads * j->real;
        k.weight_stride = in->heads;
      }
      j->kernels->sum(&k);
      if (in->dot != NULL) { /* the rows are in the first-level cache now */
        fgi_slice d = k;
        d.own = (const char *)in->own + g->row * in->own_stride * j->element;
        d.scratch = s->dot;
        d.sum = s->dots;
        d.ahead = 0; /* nothing is left to prefetch */
        j->kernels->dot(&d);
        deliver_dots(j, g, s->dots, (char *)in->dot + g->first_edge * in->heads * j->real, true);
      }
      if (g->last && (!in_place || in->kind == FG_MEAN || in->row_scale != NULL || in->self_weight != NULL))
        finish_row(j, g, k.sum, out);
      return;
    case FG_MAX:
    case FG_MIN:
      if (g->fresh && g->last && g->n == 0) {
        finish_empty(j, out, count);
        return;
      }
      k.least = in->kind == FG_MIN;
      k.count = count;
      j->kernels->extreme(&k);
      if (g->last && !in_place) finish_row(j, g, k.sum, out);
      return;
    case FG_EXTREME_BACK:
      k.y = in->y;
      k.own = (const char *)in->own + g->row * in->own_stride * j->element;
      j->kernels->extreme_back(&k);
      if (g->last && !in_place) finish_row(j, g, k.sum, out);
      return;
    default:
      k.heads = in->heads;
      k.width = in->columns / in->heads;
      k.own = (const char *)in->own + g->row * in->own_stride * j->element;
      k.scratch = s->dot;
      k.sum = (char *)in->out + g->first_edge * in->heads * j->real;
      j->kernels->dot(&k);
      deliver_dots(j, g, k.sum, k.sum, false);
  }
}

/* Hands the buffer to the kernels. Its first rows were nobody's to prefetch. */
static void flush(const job *j, scratch *s) {
  const fg_aggregation *in = j->in;
  int64_t last = s->filled > 0 ? s->at[s->filled - 1] : 0;
  for (int64_t i = 0; i < j->ahead; i++) s->at[s->filled + i] = last;
  for (int64_t i = 0; i < j->ahead && i < s->filled; i++)
    for (int64_t b = 0; b < in->columns * j->element && b < AHEAD_BYTES; b += 64)
      __builtin_prefetch((const char *)in->x + s->at[i] + b);
  for (int64_t i = 0; i < s->num_segments; i++) run_segment(j, s, &s->segments[i]);
  s->filled = s->num_segments = 0;
}

static void run_piece(void *data, int64_t piece, void *memory) {
  job *j = data;
  const fg_aggregation *in = j->in;
  scratch *s = memory;
  lay_out(j, s);
  const int64_t stride = in->x_stride * j->element;
  const int64_t end = fgi_cut(in->ptr, in->rows, j->pieces, piece + 1);
  for (int64_t row = fgi_cut(in->ptr, in->rows, j->pieces, piece); row < end; row++) {
    int64_t k = in->ptr[row], stop = in->ptr[row + 1];
    bool fresh = true, last;
    do {
      if (s->filled == j->buffer || s->num_segments == BUFFER) flush(j, s);
      int64_t n = stop - k < j->buffer - s->filled ? stop - k : j->buffer - s->filled;
      int64_t got = in->index_bytes == 4 ? addresses_int32_t(in, k, n, stride, s->at + s->filled)
                                         : addresses_int64_t(in, k, n, stride, s->at + s->filled);
      if (got < 0) {
        atomic_store(&j->bad, BAD_INDEX);
        return;
      }
      if (j->weighted && !(j->is_double ? stage_double(in, row, k, got, (double *)s->weights + s->filled * in->heads)
                                        : stage_float(in, row, k, got, (float *)s->weights + s->filled * in->heads))) {
        atomic_store(&j->bad, BAD_EDGE);
        return;
      }
      last = got < n || k + n == stop;
      s->segments[s->num_segments++] =
          (segment){.row = row, .first_edge = k, .begin = (int32_t)s->filled, .n = (int32_t)got, .fresh = fresh,
              .last = last};
      s->filled += got;
      k += n;
      fresh = false;
    } while (!last);
  }
  flush(j, s);
}

static int32_t check(const fg_aggregation *in, fg_error *err) {
  if (in->kind < FG_SUM || in->kind > FG_MEAN || (in->index_bytes != 4 && in->index_bytes != 8) || in->columns < 0 ||
      in->heads < 1 || in->columns % in->heads != 0 || in->x_rows < 0 || in->rows < 0 || in->num_index < 0 ||
      (in->self_heads != 1 && in->self_heads != in->heads && in->self_weight != NULL) || in->self_rows > in->rows ||
      in->self_rows > in->x_rows || in->cut > in->x_rows || in->cut_at != NULL ||
      (in->dot != NULL && (in->kind != FG_SUM || in->weight == NULL || in->own == NULL)) ||
      (in->kind == FG_MEAN && (in->cut >= 0 || in->row_scale != NULL)))
    return fgi_fail(err, FG_INVALID, "the sizes of an operator's arrays do not match");
  return fgi_check_ptr(in->ptr, in->rows, in->num_index, in->cut >= 0, err);
}

int32_t fg_aggregate(const fg_aggregation *in, fg_error *err) {
  int32_t code = fgi_struct_size(err, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  fgi_dtype dtype;
  job j = {.in = in};
  if (!fgi_dtype_of(in->dtype, &dtype, &j.element))
    return fgi_fail(err, FG_DTYPE, "the dtype must be float32, float64, float16 or bfloat16");
  if ((code = check(in, err)) != FG_OK) return code;
  if (in->columns == 0) return FG_OK;

  j.kernels = fgi_kernels_of(dtype);
  j.is_double = dtype == FGI_F64;
  j.real = j.is_double ? 8 : 4;
  j.weighted = (in->kind == FG_SUM || in->kind == FG_MEAN) &&
               (in->weight != NULL || in->col_scale != NULL || in->skip_self);
  j.buffer = in->heads > WEIGHTS / BUFFER ? WEIGHTS / in->heads + 1 : BUFFER;
  int64_t row = in->columns * j.element;
  j.ahead = AHEAD_BYTES / row < 2 ? 2 : AHEAD_BYTES / row > MOST_AHEAD ? MOST_AHEAD : AHEAD_BYTES / row;
  double work = (double)(in->ptr[in->rows] + in->rows) * (double)row;
  j.pieces = fgi_pieces(in->threads, work);
  if (fgi_share(in->threads, j.pieces, run_piece, &j, scratch_bytes(&j)) != 0) return fgi_no_memory(err);
  switch (atomic_load(&j.bad)) {
    case BAD_INDEX:
      return fgi_bad_index(in->index, in->index_bytes, in->ptr[in->rows], in->x_rows, in->cut >= 0, "index", err);
    case BAD_EDGE:
      if (in->edge != NULL)
        return fgi_bad_index(in->edge, in->index_bytes, in->num_index, in->num_weights, 0, "edge", err);
      return fgi_fail(err, FG_INVALID, "weight has %lld rows for %lld edges", (long long)in->num_weights,
                      (long long)in->num_index);
    default:
      return FG_OK;
  }
}
