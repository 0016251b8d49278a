/*
 * Grouping by source on the device: a stable sort of the edges by their source, eight bits at a time (fg_sort_*), and
 * what it says (fg_group_*).
 *
 * A pass counts the digits of every tile, turns the counts into places (fg_scan) and moves the elements there. Equal
 * digits keep their order within a warp, warps within a tile, tiles within the whole, and no place is dealt out by an
 * atomic: the result is that of fg_transpose, whatever runs when. Sorting, not counting as the CPU does: a counter for
 * each source would be dealt out in any order, and a hub would make its edges wait for each other.
 */
#ifndef FRESHGO_CUDA_SORT_H
#define FRESHGO_CUDA_SORT_H

#include "warp.h"

namespace fgc {

FGC_FN uint32_t sort_key(const fgc_sort &s, int64_t i, bool notes) {
  if (s.key_in != nullptr) return s.key_in[i];
  const int64_t v = integer_at(s.index, s.wide, i);
  if ((uint64_t)v < (uint64_t)s.limit) return (uint32_t)v;
  if (notes) note(s.status, 1 /* FG_BAD_INDEX */, i);
  return (uint32_t)s.limit;
}

enum : uint32_t { NO_DIGIT = FGC_DIGITS }; /* of what is beyond the end */

FGC_FN uint32_t digit_of(const fgc_sort &s, uint32_t key) { return key >> s.shift & (FGC_DIGITS - 1); }

/* Counts the digits of the warp's chunk in `mine`, [FGC_DIGITS]. */
FGC_FN void count_chunk(const fgc_sort &s, bool notes, uint32_t *mine) {
  const int lane = lane_index();
  const int64_t first = (block_index() * FGC_WARPS + warp_index()) * FGC_CHUNK;
  for (int d = lane; d < FGC_DIGITS; d += FGC_WARP) mine[d] = 0;
  sync_warp();
  for (int i = 0; i < FGC_CHUNK; i += FGC_WARP) {
    const int64_t at = first + i + lane;
    const uint32_t digit = at < s.n ? digit_of(s, sort_key(s, at, notes)) : NO_DIGIT;
    const unsigned same = same_as(digit);
    if (at < s.n && lane == first_one(same)) mine[digit] += (uint32_t)count_ones(same);
    sync_warp();
  }
}

FGC_FN void sort_count(const fgc_sort &s) {
  uint32_t *counts = (uint32_t *)shared(); /* [FGC_WARPS, FGC_DIGITS] */
  count_chunk(s, true, counts + warp_index() * FGC_DIGITS);
  sync_block();
  const int digit = thread_index();
  uint32_t n = 0;
  for (int w = 0; w < FGC_WARPS; w++) n += counts[w * FGC_DIGITS + digit];
  s.counts[digit * s.tiles + block_index()] = n;
}

FGC_FN void sort_place(const fgc_sort &s) {
  uint32_t *counts = (uint32_t *)shared(), *mine = counts + warp_index() * FGC_DIGITS;
  count_chunk(s, false, mine);
  sync_block();
  const int digit_of_thread = thread_index(), lane = lane_index();
  uint32_t place = s.counts[digit_of_thread * s.tiles + block_index()];
  for (int w = 0; w < FGC_WARPS; w++) {
    uint32_t *c = &counts[w * FGC_DIGITS + digit_of_thread];
    const uint32_t n = *c;
    *c = place;
    place += n;
  }
  sync_block();
  const int64_t first = (block_index() * FGC_WARPS + warp_index()) * FGC_CHUNK;
  for (int i = 0; i < FGC_CHUNK; i += FGC_WARP) {
    const int64_t at = first + i + lane;
    const uint32_t key = at < s.n ? sort_key(s, at, false) : 0;
    const uint32_t digit = at < s.n ? digit_of(s, key) : NO_DIGIT;
    const unsigned same = same_as(digit);
    if (at < s.n) {
      const uint32_t to = mine[digit] + (uint32_t)count_ones(same & ((1u << lane) - 1));
      s.key_out[to] = key;
      s.value_out[to] = s.value_in != nullptr ? s.value_in[at] : (uint32_t)at;
    }
    sync_warp(); /* all have read the place before it moves on */
    if (at < s.n && lane == first_one(same)) mine[digit] += (uint32_t)count_ones(same);
    sync_warp();
  }
}

/* One block: each thread sums a run of its own of every stretch, and the runs are summed by one warp. */
FGC_FN void scan(const fgc_scan &s) {
  enum { RUN = 8, STRETCH = RUN * FGC_THREADS };
  uint32_t *of_warp = (uint32_t *)shared(); /* [FGC_WARPS] */
  const Team t = team_of(FGC_WARP);
  uint32_t before = 0;
  for (int64_t from = 0; from < s.n; from += STRETCH) {
    const int64_t first = from + (int64_t)thread_index() * RUN;
    uint32_t value[RUN], sum = 0;
    for (int i = 0; i < RUN; i++) {
      value[i] = first + i < s.n ? s.counts[first + i] : 0;
      sum += value[i];
    }
    uint32_t upto = sum; /* over the lanes up to this one */
    for (int by = 1; by < FGC_WARP; by *= 2) {
      const uint32_t other = shuffle(t, upto, (t.lane - by) & (FGC_WARP - 1));
      if (t.lane >= by) upto += other;
    }
    if (t.lane == FGC_WARP - 1) of_warp[warp_index()] = upto;
    sync_block();
    uint32_t place = before + upto - sum;
    for (int w = 0; w < FGC_WARPS; w++) {
      if (w < warp_index()) place += of_warp[w];
      before += of_warp[w];
    }
    for (int i = 0; i < RUN; i++) {
      if (first + i < s.n) s.counts[first + i] = place;
      place += value[i];
    }
    sync_block();
  }
  if (s.total != nullptr && thread_index() == 0) *s.total = before;
}

/* source_ptr[s] is the first place whose key is not below s. */
FGC_FN void group_ptr(const fgc_group &g) {
  const int64_t source = block_index() * FGC_THREADS + thread_index();
  if (source > g.sources) return;
  int64_t lo = 0, hi = g.n;
  while (lo < hi) {
    const int64_t middle = lo + (hi - lo) / 2;
    if (g.key[middle] < source)
      lo = middle + 1;
    else
      hi = middle;
  }
  g.source_ptr[source] = lo;
}

FGC_FN void group_edges(const fgc_group &g) {
  const int64_t i = block_index() * FGC_THREADS + thread_index();
  if (i == 0 && g.ptr != nullptr && (g.ptr[0] != 0 || g.ptr[g.rows] != g.n))
    note(g.status, 3 /* FG_BAD_PTR */, g.ptr[0] != 0 ? 0 : g.rows);
  if (i >= g.n) return;
  const bool there = g.key[i] < g.sources;
  const int64_t e = g.value[i];
  put_integer(g.edge, g.wide, i, there ? e : 0);
  if (g.ptr == nullptr) return;
  int64_t row = row_of(g.ptr, g.rows, e);
  if (row == g.rows || g.ptr[row] > e) {
    note(g.status, 3, row);
    row = 0;
  }
  put_integer(g.target, g.wide, i, there ? row : 0);
}

}  // namespace fgc

#endif
