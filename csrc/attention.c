/*
 * fg_attention_*: the softmax of graph attention over the edges of each target, and its derivative.
 *
 * What is written is one number for an edge and head. Exponentials of float are computed by vectors (isa.h): a call of
 * expf for each would cost as much as the rows that the weights are for.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "operators.h"
#include "threads.h"

typedef struct attend {
  const fg_attention *in;
  int64_t pieces;
  _Atomic int32_t bad; /* atomic: any thread may find a wrong index */
} attend;

static void exp_float(float *x, int64_t n) { fgi_kernels_of(FGI_F32)->exp(x, n); }
static void exp_double(double *x, int64_t n) { fgi_kernels_of(FGI_F64)->exp(x, n); }

enum { AHEAD = 16 }; /* edges: rows of src are prefetched that far */

/* NaN if the second is NaN. */
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

#define FORWARD(T, EXP)                                                                                             \
  static bool forward_##T(const fg_attention *in, int64_t row, T *most, T *total) {                                 \
    const int64_t heads = in->heads, first = in->ptr[row], n = in->ptr[row + 1] - first;                            \
    const T *src = in->src, *dst = in->dst != NULL ? (const T *)in->dst + row * heads : NULL, slope = (T)in->slope; \
    const T *edge = in->edge != NULL ? (const T *)in->edge + first * heads : NULL;                                  \
    T *alpha = (T *)in->alpha + first * heads;                                                                      \
    T *own = row < in->self_rows ? (T *)in->alpha_self + row * heads : NULL;                                        \
    for (int64_t h = 0; h < heads; h++) most[h] = -(T)INFINITY, total[h] = 0;                                       \
    T *base = total + heads;                                                                                        \
    for (int64_t h = 0; h < heads; h++) base[h] = dst != NULL ? dst[h] : 0;                                         \
    for (int64_t i = 0; i < n; i++) {                                                                               \
      int64_t s = fgi_index(in->index, in->index_bytes, first + i);                                                 \
      if ((uint64_t)s >= (uint64_t)in->src_rows) return false;                                                      \
      if (first + i + AHEAD < in->num_index)                                                                        \
        __builtin_prefetch(src + fgi_index(in->index, in->index_bytes, first + i + AHEAD) * heads);                 \
      const T *restrict from = src + s * heads;                                                                     \
      T *restrict to = alpha + i * heads;                                                                           \
      for (int64_t h = 0; h < heads; h++) to[h] = from[h] + base[h];                                                \
      for (int64_t h = 0; edge != NULL && h < heads; h++) to[h] += edge[i * heads + h];                             \
      if (slope <= 1) /* leaky_relu in a form that needs no branch */                                               \
        for (int64_t h = 0; h < heads; h++) to[h] = LARGER(to[h], to[h] * slope);                                   \
      else                                                                                                          \
        for (int64_t h = 0; h < heads; h++) to[h] = to[h] > 0 ? to[h] : to[h] * slope;                              \
      if (own != NULL && s == row)                                                                                  \
        for (int64_t h = 0; h < heads; h++) to[h] = -(T)INFINITY;                                                   \
      for (int64_t h = 0; h < heads; h++) most[h] = LARGER(to[h], most[h]);                                         \
    }                                                                                                               \
    for (int64_t h = 0; own != NULL && h < heads; h++) {                                                            \
      T v = src[row * heads + h] + (dst != NULL ? dst[h] : 0);                                                      \
      own[h] = v = v > 0 ? v : v * slope;                                                                           \
      most[h] = v > most[h] ? v : most[h];                                                                          \
    }                                                                                                               \
    for (int64_t i = 0; i < n; i++)                                                                                 \
      for (int64_t h = 0; h < heads; h++) alpha[i * heads + h] -= most[h];                                          \
    EXP(alpha, n *heads);                                                                                           \
    for (int64_t h = 0; own != NULL && h < heads; h++) own[h] -= most[h];                                           \
    if (own != NULL) EXP(own, heads);                                                                               \
    for (int64_t i = 0; i < n; i++)                                                                                 \
      for (int64_t h = 0; h < heads; h++) total[h] += alpha[i * heads + h];                                         \
    for (int64_t h = 0; own != NULL && h < heads; h++) total[h] += own[h];                                          \
    for (int64_t h = 0; h < heads; h++) total[h] = 1 / total[h];                                                    \
    for (int64_t i = 0; i < n; i++)                                                                                 \
      for (int64_t h = 0; h < heads; h++) alpha[i * heads + h] *= total[h];                                         \
    for (int64_t h = 0; own != NULL && h < heads; h++) own[h] *= total[h];                                          \
    return true;                                                                                                    \
  }
FORWARD(float, exp_float)
FORWARD(double, exp_double)

/* d(logit) = alpha * (grad - sum of alpha * grad), times the slope where leaky_relu was negative. */
#define BACK(T)                                                                                                     \
  static bool back_##T(const fg_attention *in, int64_t row, T *mean, T *total) {                                    \
    const int64_t heads = in->heads, first = in->ptr[row], n = in->ptr[row + 1] - first;                            \
    const T *src = in->src, *dst = in->dst != NULL ? (const T *)in->dst + row * heads : NULL, slope = (T)in->slope; \
    const T *edge = in->edge != NULL ? (const T *)in->edge + first * heads : NULL;                                  \
    const T *alpha = (const T *)in->alpha + first * heads, *grad = (const T *)in->grad + first * heads;             \
    const bool has_self = row < in->self_rows;                                                                      \
    const T *own = has_self ? (const T *)in->alpha_self + row * heads : NULL;                                       \
    const T *own_grad = has_self ? (const T *)in->grad_self + row * heads : NULL;                                   \
    T *out = (T *)in->grad_edge + first * heads;                                                                    \
    for (int64_t h = 0; h < heads; h++) mean[h] = has_self ? own[h] * own_grad[h] : 0, total[h] = 0;                \
    for (int64_t i = 0; i < n; i++)                                                                                 \
      for (int64_t h = 0; h < heads; h++) mean[h] += alpha[i * heads + h] * grad[i * heads + h];                    \
    T *base = total + heads;                                                                                        \
    for (int64_t h = 0; h < heads; h++) base[h] = dst != NULL ? dst[h] : 0;                                         \
    for (int64_t i = 0; i < n; i++) {                                                                               \
      int64_t s = fgi_index(in->index, in->index_bytes, first + i);                                                 \
      if ((uint64_t)s >= (uint64_t)in->src_rows) return false;                                                      \
      if (first + i + AHEAD < in->num_index)                                                                        \
        __builtin_prefetch(src + fgi_index(in->index, in->index_bytes, first + i + AHEAD) * heads);                 \
      const T *restrict from = src + s * heads, *restrict a = alpha + i * heads, *restrict g = grad + i * heads;    \
      T *restrict to = out + i * heads;                                                                             \
      for (int64_t h = 0; h < heads; h++) to[h] = from[h] + base[h];                                                \
      for (int64_t h = 0; edge != NULL && h < heads; h++) to[h] += edge[i * heads + h];                             \
      for (int64_t h = 0; h < heads; h++) {                                                                         \
        T d = a[h] * (g[h] - mean[h]), less = d * slope;                                                            \
        to[h] = to[h] > 0 ? d : less;                                                                               \
      }                                                                                                             \
      if (has_self && s == row) /* its alpha is 0, but 0 times what is not finite is not */                         \
        for (int64_t h = 0; h < heads; h++) to[h] = 0;                                                              \
      for (int64_t h = 0; h < heads; h++) total[h] += to[h];                                                        \
    }                                                                                                               \
    for (int64_t h = 0; has_self && h < heads; h++) {                                                               \
      T v = src[row * heads + h] + (dst != NULL ? dst[h] : 0), d = own[h] * (own_grad[h] - mean[h]);                \
      ((T *)in->grad_edge_self)[row * heads + h] = d = v > 0 ? d : d * slope;                                       \
      total[h] += d;                                                                                                \
    }                                                                                                               \
    for (int64_t h = 0; h < heads; h++) ((T *)in->grad_dst)[row * heads + h] = total[h];                            \
    return true;                                                                                                    \
  }
BACK(float)
BACK(double)

#define PIECE(name, T)                                                                                    \
  static void piece_##name##_##T(void *data, int64_t piece, void *scratch) {                              \
    attend *a = data;                                                                                     \
    const fg_attention *in = a->in;                                                                       \
    int64_t end = fgi_cut(in->ptr, in->rows, a->pieces, piece + 1);                                       \
    for (int64_t row = fgi_cut(in->ptr, in->rows, a->pieces, piece); row < end; row++)                    \
      if (!name##_##T(in, row, scratch, (T *)scratch + in->heads)) {                                      \
        atomic_store(&a->bad, 1);                                                                         \
        return;                                                                                           \
      }                                                                                                   \
  }
PIECE(forward, float)
PIECE(forward, double)
PIECE(back, float)
PIECE(back, double)

static int32_t attend_with(const fg_attention *in, fgi_piece run, fg_error *err) {
  int32_t code = fgi_struct_size(err, in->struct_size, sizeof *in);
  if (code != FG_OK || (code = fgi_check_ptr(in->ptr, in->rows, in->num_index, err)) != FG_OK) return code;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->heads < 1 || in->self_rows > in->rows || in->self_rows > in->src_rows)
    return fgi_fail(err, FG_INVALID, "operators: sizes that do not fit together");
  attend a = {.in = in, .pieces = fgi_pieces(in->threads, (double)(in->num_index + in->rows) * (double)in->heads * 16)};
  if (fgi_share(in->threads, a.pieces, run, &a, (size_t)in->heads * 3 * sizeof(double)) != 0) return fgi_no_memory(err);
  if (!atomic_load(&a.bad)) return FG_OK;
  return fgi_bad_index(in->index, in->index_bytes, in->num_index, in->src_rows, 0, "index", err);
}

int32_t fg_attention_forward(const fg_attention *in, fg_error *err) {
  return attend_with(in, in->is_double ? piece_forward_double : piece_forward_float, err);
}

int32_t fg_attention_back(const fg_attention *in, fg_error *err) {
  return attend_with(in, in->is_double ? piece_back_double : piece_back_float, err);
}
