/*
 * fg_dot_*: what the derivative of a weighted sum needs, out[e] = row_scale[t] * col_scale[s] * (x[s] . own[t]).
 *
 * Teams take runs of edges, not rows: each product is written by itself, so a row of any length is shared by as many
 * teams as it has runs. The target is looked up once for a run.
 */
#ifndef FRESHGO_CUDA_DOT_H
#define FRESHGO_CUDA_DOT_H

#include "number.h"

namespace fgc {

template <class E, int V>
FGC_FN void dot(const fgc_aggregate &a) {
  typedef typename E::Real Real;
  typedef typename E::Stored Stored;
  const fgc_graph &g = a.graph;
  const Team t = team_of(a.lanes);
  const int64_t run = team_index(a.lanes), first = run * FGC_RUN;
  if (run == 0 && t.lane == 0 && (g.ptr[0] != 0 || g.ptr[g.rows] != g.num_index))
    note(g.status, 3 /* FG_BAD_PTR */, g.ptr[0] != 0 ? 0 : g.rows);
  if (first >= g.num_index) return;
  const int64_t end = first + FGC_RUN < g.num_index ? first + FGC_RUN : g.num_index;
  int64_t row = row_of(g.ptr, g.rows, first);
  for (int64_t e = first; e < end; e++) {
    while (row < g.rows && g.ptr[row + 1] <= e) row++;
    const int64_t source = integer_at(g.index, g.wide, e);
    const bool in_row = row < g.rows && g.ptr[row] <= e;
    const bool there = in_row && (uint64_t)source < (uint64_t)g.limit;
    if (t.lane == 0 && !in_row) note(g.status, 3, row < g.rows ? row : g.rows);
    if (t.lane == 0 && in_row && !there) note(g.status, 1 /* FG_BAD_INDEX */, e);
    Real factor = 1;
    if (there && a.row_scale != nullptr) factor = ((const Real *)a.row_scale)[row];
    if (there && a.col_scale != nullptr) factor *= ((const Real *)a.col_scale)[source];
    if (a.skip_self && source == row) factor = 0;
    for (int h = 0; h < a.heads; h++) {
      Real sum = 0;
      if (there) {
        const Stored *x = (const Stored *)a.x + source * a.x_stride + h * a.width;
        const Stored *own = (const Stored *)a.own + row * a.own_stride + h * a.width;
        for (int c = t.lane * V; c < a.width; c += t.size * V) {
          const Pack<E, V> l = load_const<Pack<E, V>>(x + c), r = load_const<Pack<E, V>>(own + c);
          FGC_UNROLL
          for (int v = 0; v < V; v++) sum += E::load(l.e[v]) * E::load(r.e[v]);
        }
      }
      for (int with = t.size / 2; with > 0; with /= 2) sum += shuffle_xor(t, sum, with);
      if (t.lane == 0) ((Real *)a.out)[e * a.heads + h] = there ? sum * factor : 0;
    }
  }
}

}  // namespace fgc

#endif
