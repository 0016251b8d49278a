/*
 * The softmax of graph attention and its derivative: fg_attention_*, fg_attention_back_*; semantics in ../attention.c.
 *
 * A warp works on a row, or on 32 of its heads: its lanes take as many edges at a time as there is room for, and meet
 * for the maximum and the sum only. A row of more than FGC_LONG edges is taken by the whole block. Each lane reads back
 * what it wrote itself, so nothing but those two waits for others. What is joined is joined in a fixed order.
 */
#ifndef FRESHGO_CUDA_ATTENTION_H
#define FRESHGO_CUDA_ATTENTION_H

#include "number.h"

namespace fgc {

#if defined(__CUDACC__)
FGC_FN float exponential(float x) { return expf(x); }
FGC_FN double exponential(double x) { return exp(x); }
#else
FGC_FN float exponential(float x) { return ::expf(x); }
FGC_FN double exponential(double x) { return ::exp(x); }
#endif

/* The second if one is NaN. */
template <typename T>
FGC_FN T larger(T a, T b) {
  return a > b ? a : b;
}

/* The lanes that share a row: a warp, or every warp of the block. */
template <typename T, bool whole_block>
struct Crew {
  Team warp;
  int columns; /* heads worked on at a time */
  int64_t begin, step; /* this lane's first edge of the row, and from one to the next */
  T *memory; /* [FGC_WARPS, 32], of a whole block */

  /* Over all lanes of the lane's head. */
  template <bool is_sum>
  FGC_FN T joined(T v) const {
    for (int with = columns; with < FGC_WARP; with *= 2) {
      const T other = shuffle_xor(warp, v, with);
      v = is_sum ? v + other : larger(other, v);
    }
    if (!whole_block) return v;
    sync_block(); /* what was joined before has been read */
    memory[warp_index() * FGC_WARP + warp.lane] = v;
    sync_block();
    v = memory[warp.lane];
    for (int w = 1; w < FGC_WARPS; w++) {
      const T other = memory[w * FGC_WARP + warp.lane];
      v = is_sum ? v + other : larger(other, v);
    }
    return v;
  }
};

template <typename T, bool whole_block>
FGC_FN Crew<T, whole_block> crew_of(const fgc_attention &a) {
  Crew<T, whole_block> c;
  c.warp = team_of(FGC_WARP);
  c.columns = a.columns;
  const int edges = FGC_WARP / a.columns; /* of a warp at a time */
  c.begin = c.warp.lane / a.columns + (whole_block ? warp_index() * edges : 0);
  c.step = whole_block ? edges * FGC_WARPS : edges;
  c.memory = (T *)shared();
  return c;
}

template <typename T>
FGC_FN T leaky(T v, T slope) {
  if (slope <= 1) return larger(v, v * slope);
  return v > 0 ? v : v * slope;
}

/* src + dst + edge, of one edge and head. Returns whether the edge is there. */
template <typename T>
FGC_FN bool logit(const fgc_attention &a, int64_t row, int64_t e, int head, T *v, int64_t *source) {
  *source = integer_at(a.graph.index, a.graph.wide, e);
  if ((uint64_t)*source >= (uint64_t)a.graph.limit) return false;
  *v = ((const T *)a.src)[*source * a.heads + head] + (a.dst != nullptr ? ((const T *)a.dst)[row * a.heads + head] : 0);
  if (a.edge != nullptr) *v += ((const T *)a.edge)[e * a.heads + head];
  return true;
}

template <typename T, bool whole_block>
FGC_FN void attend(const fgc_attention &a, int64_t row, int head, int64_t first, int64_t end) {
  const Crew<T, whole_block> c = crew_of<T, whole_block>(a);
  const T least = -infinity((T)0), slope = (T)a.slope;
  const bool has_self = row < a.self_rows, active = head < a.heads, leads = c.begin == 0;
  T *alpha = (T *)a.alpha, most = least, own = 0, total = 0, v;
  int64_t source;
  if (active) {
    for (int64_t e = first + c.begin; e < end; e += c.step) {
      if (!logit(a, row, e, head, &v, &source)) {
        note(a.graph.status, 1 /* FG_BAD_INDEX */, e);
        v = least;
      } else {
        v = has_self && source == row ? least : leaky(v, slope);
      }
      alpha[e * a.heads + head] = v;
      most = larger(v, most);
    }
    if (has_self) {
      v = ((const T *)a.src)[row * a.heads + head] + (a.dst != nullptr ? ((const T *)a.dst)[row * a.heads + head] : 0);
      own = v > 0 ? v : v * slope;
      most = larger(own, most);
    }
  }
  most = c.template joined<false>(most);
  if (active) {
    for (int64_t e = first + c.begin; e < end; e += c.step) {
      v = alpha[e * a.heads + head];
      if (v == least && (uint64_t)integer_at(a.graph.index, a.graph.wide, e) >= (uint64_t)a.graph.limit)
        v = 0; /* absent, where all others are -inf too */
      else
        v = exponential(v - most);
      alpha[e * a.heads + head] = v;
      total += v;
    }
    if (has_self) own = exponential(own - most);
    if (has_self && leads) total += own;
  }
  total = 1 / c.template joined<true>(total);
  if (!active) return;
  for (int64_t e = first + c.begin; e < end; e += c.step) alpha[e * a.heads + head] *= total;
  if (has_self && leads) ((T *)a.alpha_self)[row * a.heads + head] = own * total;
}

/* d(logit) = alpha * (grad - sum of alpha * grad), times the slope where leaky_relu was negative. */
template <typename T, bool whole_block>
FGC_FN void attend_back(const fgc_attention &a, int64_t row, int head, int64_t first, int64_t end) {
  const Crew<T, whole_block> c = crew_of<T, whole_block>(a);
  const T slope = (T)a.slope;
  const bool has_self = row < a.self_rows, active = head < a.heads, leads = c.begin == 0;
  const T *alpha = (const T *)a.alpha, *grad = (const T *)a.grad;
  const int64_t self = row * a.heads + head;
  T mean = 0, total = 0, v;
  int64_t source;
  if (active) {
    if (has_self && leads) mean = ((const T *)a.alpha_self)[self] * ((const T *)a.grad_self)[self];
    for (int64_t e = first + c.begin; e < end; e += c.step)
      mean += alpha[e * a.heads + head] * grad[e * a.heads + head];
  }
  mean = c.template joined<true>(mean);
  if (active) {
    for (int64_t e = first + c.begin; e < end; e += c.step) {
      const int64_t at = e * a.heads + head;
      T d = 0;
      if (!logit(a, row, e, head, &v, &source)) {
        note(a.graph.status, 1 /* FG_BAD_INDEX */, e);
      } else if (!(has_self && source == row)) { /* whose alpha is 0, but 0 times what is not finite is not */
        d = alpha[at] * (grad[at] - mean);
        d = v > 0 ? d : d * slope;
      }
      ((T *)a.grad_edge)[at] = d;
      total += d;
    }
    if (has_self && leads) {
      v = ((const T *)a.src)[self] + (a.dst != nullptr ? ((const T *)a.dst)[self] : 0);
      T d = ((const T *)a.alpha_self)[self] * (((const T *)a.grad_self)[self] - mean);
      d = v > 0 ? d : d * slope;
      ((T *)a.grad_edge_self)[self] = d;
      total += d;
    }
  }
  total = c.template joined<true>(total);
  if (active && leads) ((T *)a.grad_dst)[self] = total;
}

template <typename T, bool back, bool whole_block>
FGC_FN void attention_item(const fgc_attention &a, int64_t item, int64_t first, int64_t end) {
  const int tiles = (a.heads + a.columns - 1) / a.columns;
  const int head = (int)(item % tiles) * a.columns + lane_index() % a.columns;
  if (back)
    attend_back<T, whole_block>(a, item / tiles, head, first, end);
  else
    attend<T, whole_block>(a, item / tiles, head, first, end);
}

template <typename T, bool back>
FGC_FN void attention(const fgc_attention &a) {
  const int tiles = (a.heads + a.columns - 1) / a.columns;
  const int64_t item = team_index(FGC_WARP), items = a.graph.rows * tiles;
  int64_t first = 0, end = 0;
  if (item < items) edges_of(a.graph, item / tiles, lane_index() == 0, &first, &end);
  const bool is_long = end - first > FGC_LONG;
  if (item < items && !is_long) attention_item<T, back, false>(a, item, first, end);
  if (!any_in_block(is_long)) return;
  for (int w = 0; w < FGC_WARPS; w++) {
    const int64_t shared_item = item - warp_index() + w;
    if (shared_item >= items) return; /* so does every lane of the block */
    edges_of(a.graph, shared_item / tiles, false, &first, &end);
    if (end - first > FGC_LONG) attention_item<T, back, true>(a, shared_item, first, end);
  }
}

}  // namespace fgc

#endif
