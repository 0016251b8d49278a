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

FGC_FN void draw_short(const fgc_draw &d, const Team &t, uint64_t state, int64_t start, int64_t degree, int64_t k,
                       int64_t at) {
  Short s;
  FGC_UNROLL
  for (int j = 0; j < 2; j++) {
    const int64_t i = t.lane + j * FGC_WARP;
    s.weight[j] = i < degree ? weight_at(d, start + i) : 0;
  }
  uint64_t total = measure(t, &s);
  for (int64_t e = 0; e < k; e++) {
    const int i = under(t, s, multiply_high(mix(state += GOLDEN), total));
    if (t.lane == 0) put_edge(d, at + e, start + i);
    if (d.replace) continue;
    const uint64_t unit = shuffle(t, i < FGC_WARP ? s.unit[0] : s.unit[1], i % FGC_WARP);
    total -= unit;
    FGC_UNROLL
    for (int j = 0; j < 2; j++)
      if (t.lane + j * FGC_WARP == i) {
        s.weight[j] = 0;
        s.unit[j] = 0;
      }
    if (total < 1ull << 52 && e + 1 < k) total = measure(t, &s);
  }
}

/* The first edge whose running sum exceeds u; the last one above 0 if there is none. Every lane finds it. */
FGC_FN int64_t find(const fgc_draw &d, int64_t start, int64_t degree, double u) {
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

/* Whether an edge is among the first n of a target. The lanes share the work. */
FGC_FN bool is_drawn(const fgc_draw &d, const Team &t, int64_t at, int64_t n, int64_t position) {
  bool there = false;
  for (int64_t b = t.lane; b < n; b += t.size) there = there || d.position[at + b] == position;
  return ballot(t, there) != 0;
}

/* Draws edges n to k, the rest of a target's, by an exponential race of those that are not drawn: time and again the
 * next one to arrive. */
FGC_FN void race_on(const fgc_draw &d, const Team &t, uint64_t state, int64_t start, int64_t degree, int64_t n,
                    int64_t k, int64_t at) {
  uint64_t last = 0;
  int64_t last_at = -1;
  for (int64_t e = n; e < k; e++) {
    uint64_t best = NEVER;
    int64_t best_at = degree, number = 0; /* in the stream */
    for (int64_t from = 0; from < degree; from += t.size) {
      const int64_t i = from + t.lane;
      const double w = i < degree ? weight_at(d, start + i) : 0;
      bool runs = w > 0;
      for (int64_t b = 0; runs && b < n; b++) runs = d.position[at + b] != start + i;
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
    if (t.lane == 0) put_edge(d, at + e, start + best_at);
    last = best;
    last_at = best_at;
  }
}

FGC_FN void draw_long(const fgc_draw &d, const Team &t, uint64_t state, int64_t start, int64_t degree, int64_t k,
                      int64_t at) {
  if (!d.replace && degree <= 2 * d.fanout) return race_on(d, t, state, start, degree, 0, k, at);
  const double total = sum_of(d, start, degree);
  int64_t wasted = 0;
  for (int64_t n = 0; n < d.fanout;) {
    const uint64_t x = mix(state += GOLDEN);
    const int64_t i = find(d, start, degree, times(times((double)(x >> 11), 0x1p-53), total));
    if (d.replace || !is_drawn(d, t, at, n, start + i)) {
      if (t.lane == 0) put_edge(d, at + n, start + i);
      sync_team(t);
      n++;
    } else if (++wasted > 2 * d.fanout + 16) {
      return race_on(d, t, state, start, degree, n, k, at);
    }
  }
}

FGC_FN void draw_weighted(const fgc_draw &d) {
  const Team t = team_of(FGC_WARP);
  const int64_t i = team_index(FGC_WARP);
  if (i >= d.targets) return;
  int64_t start, degree, at;
  const int64_t k = place_of(d, t, i, &start, &degree, &at);
  if (k == 0) return;
  const uint64_t state = absorb(d.key, (uint64_t)d.target[i]);
  const int64_t some = degree <= 64 && d.positive != nullptr ? d.positive[d.target[i]] : degree;
  if (d.fanout < 0 || (!d.replace && some <= d.fanout)) {
    int64_t drawn = 0; /* all of a weight above 0 */
    for (int64_t from = 0; from < degree; from += t.size) {
      const int64_t e = from + t.lane;
      const unsigned there = ballot(t, e < degree && weight_at(d, start + e) > 0);
      if (there >> t.lane & 1) put_edge(d, at + drawn + count_ones(there & ((1u << t.lane) - 1)), start + e);
      drawn += count_ones(there);
    }
  } else if (degree <= 64) {
    draw_short(d, t, state, start, degree, k, at);
  } else {
    draw_long(d, t, state, start, degree, k, at);
  }
}

}  // namespace fgc

#endif
