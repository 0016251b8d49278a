/*
 * fg_draw_labor: the edges of each target whose sources have the smallest variates of the hop, or arrive first in an
 * exponential race, as the CPU draws them (core/sample/labor.go), with their weights.
 *
 * A team finds the bound of the chosen keys by bisection of their 64 bits: each step counts the keys up to a bound, and
 * ends once it counts as many as are drawn, for uniform keys after log2 of the length of the list and one or two more.
 * Keys are computed anew in each step, and nothing is stored: lists have any length.
 */
#ifndef FRESHGO_CUDA_LABOR_H
#define FRESHGO_CUDA_LABOR_H

#include "draw.h"
#include "logarithm.h"

namespace fgc {

enum : uint64_t { NEVER = ~0ull }; /* the key of an edge of weight 0 */

FGC_FN double weight_at(const fgc_draw &d, int64_t i) {
  return d.wide_weight ? ((const double *)d.weight)[i] : (double)((const float *)d.weight)[i];
}

/* The running sum of the weights of a list, which the CPU computes edge after edge. */
FGC_FN double sum_of(const fgc_draw &d, const Target &of) {
  const int64_t blocks = of.degree / FGC_SUM_BLOCK;
  double sum = blocks > 0 ? d.sums[of.start / FGC_SUM_BLOCK + blocks - 1] : 0;
  for (int64_t i = blocks * FGC_SUM_BLOCK; i < of.degree; i++) sum = plus(sum, weight_at(d, of.start + i));
  return sum;
}

/* The key of edge i of a list. */
FGC_FN uint64_t labor_key(const fgc_draw &d, int64_t start, int64_t i) {
  uint64_t x = absorb(d.key, (uint64_t)id_at(d.source, d.source_bits, start + i));
  if (d.keep > 1) x = absorb(x, (d.batch + x % d.keep) / d.keep);
  if (d.weight == nullptr) return x;
  const double w = weight_at(d, start + i);
  return w > 0 ? bits_of(over(exponential(x), w)) : NEVER;
}

/* The number of edges with a key up to a bound. */
FGC_FN int64_t upto(const fgc_draw &d, const Target &of, uint64_t bound) {
  const Team &t = of.team;
  int64_t count = 0;
  for (int64_t i = t.lane; i < of.degree; i += t.size) count += labor_key(d, of.start, i) <= bound;
  for (int with = 1; with < t.size; with *= 2) count += shuffle_xor(t, count, with);
  return count;
}

FGC_FN void draw_labor(const fgc_draw &d) {
  const Target of = target_of(d, d.lanes);
  if (of.count == 0) return;
  const Team &t = of.team;
  const int64_t start = of.start, degree = of.degree, k = of.count;
  /* Keys below the bound are drawn, and of those at the bound the first `equal`. */
  uint64_t bound = NEVER, most = NEVER;
  int64_t equal = 0;
  const bool all = d.fanout < 0 || degree <= d.fanout;
  if (!all) {
    uint64_t least = 0;
    while (least < bound) {
      const uint64_t middle = least + (bound - least) / 2;
      const int64_t count = upto(d, of, middle);
      if (count == k) {
        least = bound = middle + 1;
      } else if (count > k) {
        bound = middle;
      } else {
        least = middle + 1;
      }
    }
    equal = k - (bound == 0 ? 0 : upto(d, of, bound - 1));
  }
  double tau = 0, sum = 0;
  if (d.weight != nullptr) {
    sum = sum_of(d, of);
    /* The first arrival that came too late: at the bound, or the earliest behind it. */
    int64_t there = 0;
    for (int64_t i = t.lane; i < degree && !all; i += t.size) {
      const uint64_t x = labor_key(d, start, i);
      there += x == bound;
      if (x > bound && x < most) most = x;
    }
    for (int with = 1; with < t.size; with *= 2) {
      there += shuffle_xor(t, there, with);
      const uint64_t other = shuffle_xor(t, most, with);
      if (other < most) most = other;
    }
    if (there > equal) most = bound;
    tau = most == NEVER ? infinity(0.0) : double_of(most);
  }
  int64_t drawn = 0, equals = 0; /* before this round */
  const unsigned before = (1u << t.lane) - 1;
  for (int64_t from = 0; from < degree; from += t.size) {
    const int64_t i = from + t.lane;
    uint64_t x = NEVER;
    if (i < degree) x = all && d.weight == nullptr ? 0 : labor_key(d, start, i);
    const unsigned same = ballot(t, i < degree && x == bound);
    const bool mine = i < degree && (x < bound || (x == bound && equals + count_ones(same & before) < equal));
    const unsigned chosen = ballot(t, mine);
    if (mine) {
      const int64_t e = of.at + drawn + count_ones(chosen & before);
      put_edge(d, e, start + i);
      if (d.edge_weight != nullptr) {
        float share = 1.0f / (float)k;
        if (d.weight != nullptr) {
          const double w = weight_at(d, start + i);
          share = (float)over(over(w, sum), -exponential_minus_1(-times(w, tau)));
        }
        d.edge_weight[e] = share;
      }
    }
    drawn += count_ones(chosen);
    equals += count_ones(same);
  }
}

}  // namespace fgc

#endif
