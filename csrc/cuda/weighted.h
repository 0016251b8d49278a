/*
 * fg_draw_weighted: edges drawn in proportion to their weights, as the CPU draws them (core/sample/weighted.go, which
 * explains the ways: short lists by units, long ones by sums of blocks, and races). A warp draws for one target.
 */
#ifndef FRESHGO_CUDA_WEIGHTED_H
#define FRESHGO_CUDA_WEIGHTED_H

#include "labor.h"

namespace fgc {

/* A list of at most 64 edges: lane i has edges i and i + 32. */
struct Short {
  double weight[2];
  uint64_t unit[2];
};

/* Converts the weights to units, and returns their sum. */
FGC_FN uint64_t measure(const Team &t, Short *s) {
  for (;;) {
    const uint64_t a = bits_of(s->weight[0]) & INT64_MAX, b = bits_of(s->weight[1]) & INT64_MAX;
    uint64_t most = a > b ? a : b;
    for (int with = 1; with < FGC_WARP; with *= 2) {
      const uint64_t other = shuffle_xor(t, most, with);
      if (other > most) most = other;
    }
    if (most >> 52 >= 56) {
      const double per_weight = double_of((2 * 1023 + 56 - (most >> 52)) << 52);
      uint64_t sum = 0;
      FGC_UNROLL
      for (int j = 0; j < 2; j++) sum += s->unit[j] = (uint64_t)(int64_t)times(s->weight[j], per_weight);
      for (int with = 1; with < FGC_WARP; with *= 2) sum += shuffle_xor(t, sum, with);
      return sum;
    }
    FGC_UNROLL
    for (int j = 0; j < 2; j++) s->weight[j] = times(s->weight[j], 0x1p200);
  }
}

/* The number of running sums of units up to a point. */
FGC_FN int under(const Team &t, const Short &s, uint64_t point) {
  uint64_t before = 0;
  int n = 0;
  FGC_UNROLL
  for (int j = 0; j < 2; j++) {
    uint64_t sum = s.unit[j];
    for (int by = 1; by < FGC_WARP; by *= 2) {
      const uint64_t other = shuffle(t, sum, (t.lane - by) & (FGC_WARP - 1));
      if (t.lane >= by) sum += other;
    }
    n += count_ones(ballot(t, before + sum <= point));
    before += shuffle(t, sum, FGC_WARP - 1);
  }
  return n;
}

FGC_FN void draw_short(const fgc_draw &d, const Target &of, uint64_t state) {
  const Team &t = of.team;
  Short s;
  FGC_UNROLL
  for (int j = 0; j < 2; j++) {
    const int64_t i = t.lane + j * FGC_WARP;
    s.weight[j] = i < of.degree ? weight_at(d, of.start + i) : 0;
  }
  uint64_t total = measure(t, &s);
  for (int64_t e = 0; e < of.count; e++) {
    const int i = under(t, s, multiply_high(mix(state += GOLDEN), total));
    if (t.lane == 0) put_edge(d, of.at + e, of.start + i);
    if (d.replace) continue;
    const uint64_t unit = shuffle(t, i < FGC_WARP ? s.unit[0] : s.unit[1], i % FGC_WARP);
    total -= unit;
    FGC_UNROLL
    for (int j = 0; j < 2; j++)
      if (t.lane + j * FGC_WARP == i) {
        s.weight[j] = 0;
        s.unit[j] = 0;
      }
    if (total < 1ull << 52 && e + 1 < of.count) total = measure(t, &s);
  }
}

/* The first edge whose running sum exceeds u; the last one above 0 if there is none. Every lane finds it. */
FGC_FN int64_t find(const fgc_draw &d, const Target &of, double u) {
  const int64_t start = of.start, degree = of.degree;
  const double *sums = d.sums + start / FGC_SUM_BLOCK;
  int64_t block = 0;
  for (int64_t n = degree / FGC_SUM_BLOCK; n > 0;) {
    const int64_t half = (n + 1) / 2;
    if (sums[block + half - 1] <= u) block += half;
    n -= half;
  }
  double sum = block > 0 ? sums[block - 1] : 0;
  int64_t i = block * FGC_SUM_BLOCK;
  for (const int64_t end = i + FGC_SUM_BLOCK < degree ? i + FGC_SUM_BLOCK : degree; i < end; i++) {
    sum = plus(sum, weight_at(d, start + i));
    if (!(sum <= u)) return i;
  }
  i = degree - 1;
  while (!(weight_at(d, start + i) > 0)) i--;
  return i;
}

/* Draws the edges of a target behind the first n by an exponential race of the edges that are not drawn: time and again
 * the next one to arrive. */
FGC_FN void race_on(const fgc_draw &d, const Target &of, uint64_t state, int64_t n) {
  const Team &t = of.team;
  const int64_t start = of.start, degree = of.degree;
  uint64_t last = 0;
  int64_t last_at = -1;
  for (int64_t e = n; e < of.count; e++) {
    uint64_t best = NEVER;
    int64_t best_at = degree, number = 0; /* in the stream */
    for (int64_t from = 0; from < degree; from += t.size) {
      const int64_t i = from + t.lane;
      const double w = i < degree ? weight_at(d, start + i) : 0;
      bool runs = w > 0;
      for (int64_t b = 0; runs && b < n; b++) runs = d.position[of.at + b] != start + i;
      const unsigned running = ballot(t, runs);
      if (runs) {
        const int64_t mine = number + count_ones(running & ((1u << t.lane) - 1));
        const uint64_t x = bits_of(over(exponential(mix(state + (uint64_t)(mine + 1) * GOLDEN)), w));
        const bool later = x > last || (x == last && i > last_at);
        if (later && x < best) { /* of equal ones the first */
          best = x;
          best_at = i;
        }
      }
      number += count_ones(running);
    }
    for (int with = 1; with < t.size; with *= 2) {
      const uint64_t other = shuffle_xor(t, best, with);
      const int64_t other_at = shuffle_xor(t, best_at, with);
      if (other < best || (other == best && other_at < best_at)) {
        best = other;
        best_at = other_at;
      }
    }
    if (t.lane == 0) put_edge(d, of.at + e, start + best_at);
    last = best;
    last_at = best_at;
  }
}

FGC_FN void draw_long(const fgc_draw &d, const Target &of, uint64_t state) {
  if (!d.replace && of.degree <= 2 * d.fanout) return race_on(d, of, state, 0);
  const Team &t = of.team;
  const double total = sum_of(d, of);
  int64_t wasted = 0;
  for (int64_t n = 0; n < d.fanout;) {
    const uint64_t x = mix(state += GOLDEN);
    const int64_t position = of.start + find(d, of, times(times((double)(x >> 11), 0x1p-53), total));
    if (d.replace || ballot(t, among(d, of, n, position)) == 0) {
      if (t.lane == 0) put_edge(d, of.at + n, position);
      sync_team(t);
      n++;
    } else if (++wasted > 2 * d.fanout + 16) {
      return race_on(d, of, state, n);
    }
  }
}

FGC_FN void draw_weighted(const fgc_draw &d) {
  const Target of = target_of(d, FGC_WARP);
  if (of.count == 0) return;
  const Team &t = of.team;
  const uint64_t state = absorb(d.key, (uint64_t)of.node);
  const int64_t some = of.degree <= 64 && d.positive != nullptr ? d.positive[of.node] : of.degree;
  if (d.fanout < 0 || (!d.replace && some <= d.fanout)) {
    int64_t drawn = 0; /* all of a weight above 0 */
    for (int64_t from = 0; from < of.degree; from += t.size) {
      const int64_t e = from + t.lane;
      const unsigned there = ballot(t, e < of.degree && weight_at(d, of.start + e) > 0);
      if (there >> t.lane & 1) {
        put_edge(d, of.at + drawn + count_ones(there & ((1u << t.lane) - 1)), of.start + e);
      }
      drawn += count_ones(there);
    }
  } else if (of.degree <= 64) {
    draw_short(d, of, state);
  } else {
    draw_long(d, of, state);
  }
}

}  // namespace fgc

#endif
