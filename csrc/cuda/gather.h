/*
 * fg_gather_*: rows from where they are, host memory read through the bus or a cache on the device, in one pass.
 *
 * A team copies a row, four loads of each lane on their way. Over the bus that keeps enough requests in flight however
 * long one takes, and a row's loads lie side by side, so that the bus sees whole lines (FGNN section 5, FreshGNN's
 * one-sided loading).
 */
#ifndef FRESHGO_CUDA_GATHER_H
#define FRESHGO_CUDA_GATHER_H

#include "number.h"

namespace fgc {

template <int n>
FGC_FN void gather(const fgc_gather &g) {
  typedef Bytes<n> Piece;
  const Team t = team_of(g.lanes);
  const int64_t i = team_index(g.lanes);
  if (i >= g.n) return;
  const int64_t slot = g.slot != nullptr ? g.slot[i] : -1;
  const char *from = nullptr;
  if (slot >= 0) {
    if (slot < g.cache_rows)
      from = (const char *)g.cache + slot * g.cache_stride;
    else if (t.lane == 0)
      note(g.status, 4 /* FG_BAD_SLOT */, i);
  } else {
    const int64_t row = integer_at(g.index, g.wide, i);
    if ((uint64_t)row < (uint64_t)g.table_rows)
      from = (const char *)g.table + row * g.table_stride;
    else if (t.lane == 0)
      note(g.status, 1 /* FG_BAD_INDEX */, i);
  }
  Piece *to = (Piece *)((char *)g.out + i * g.row_bytes);
  constexpr int AHEAD = 4;
  for (int c = t.lane; c < g.pieces; c += AHEAD * g.lanes) {
    Piece p[AHEAD] = {};
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++)
      if (from != nullptr && c + u * g.lanes < g.pieces)
        p[u] = load_const<Piece>(from + (int64_t)(c + u * g.lanes) * n);
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++)
      if (c + u * g.lanes < g.pieces) put(&to[c + u * g.lanes], p[u]);
  }
}

}  // namespace fgc

#endif
