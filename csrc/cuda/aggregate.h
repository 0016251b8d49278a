/*
 * Memory-Aware aggregation (FastGL, section 4.2): fg_sum_*, fg_extreme_*, fg_extreme_back_*.
 *
 * A team of lanes works on one row of the result, or on a tile of its columns, each lane on the few that one load
 * brings. Partial results stay in registers and what an edge is (its source, its weight) in the team, read once for all
 * columns; source rows are streamed, four of them on their way at a time. The paper keeps both in shared memory; a
 * register is nearer, and nobody else wants them.
 *
 * A row is summed in the order of its edges by one team. A row of two segments of the graph's edges or more is cut
 * where these begin: its own team takes the edges before its first segment, and a second launch has a team for each
 * segment. Whichever of these is last joins the results, in their order: nothing is added by atomics, so bits never
 * differ. Segments and not blocks, since the sources of a batch are most unequal: of a million nodes in the order of
 * their popularity, the first eight had 300,000 of 15 million edges, which one block would work on alone.
 */
#ifndef FRESHGO_CUDA_AGGREGATE_H
#define FRESHGO_CUDA_AGGREGATE_H

#include "number.h"

namespace fgc {

/* Which part of the result a team makes. */
struct Place {
  int64_t row;
  int column; /* the lane's first */
  int head;   /* that it belongs to */
  bool active;
};

/* What a lane knows of one edge, for its team. */
template <typename Real>
struct Staged {
  int source; /* -1: absent */
  int edge;   /* whose weights are its; -1: they are zero */
  Real factor;
};

/* Stages the edges from k on, a lane each. Returns how many there are, fewer than `n` where the list is cut. */
template <bool weighted, typename Real>
FGC_FN int stage(const fgc_aggregate &a, const Team &t, const Place &p, int64_t k, int n, int64_t cut,
    Staged<Real> *s) {
  const int64_t at = k + t.lane;
  bool here = t.lane < n;
  const int64_t source = here ? integer_at(a.graph.index, a.graph.wide, at) : -1;
  if (cut >= 0) {
    const unsigned beyond = ballot(t, here && source >= cut);
    if (beyond != 0) n = first_one(beyond);
    here = t.lane < n;
  }
  s->source = -1;
  s->edge = -1;
  s->factor = 1;
  if (!here) return n;
  if ((uint64_t)source >= (uint64_t)a.graph.limit) {
    note(a.graph.status, 1 /* FG_BAD_INDEX */, at);
    return n;
  }
  s->source = (int)source;
  if (!weighted) return n;
  const bool skip = a.skip_self && source == p.row;
  if (a.col_scale != nullptr) s->factor = ((const Real *)a.col_scale)[source];
  if (a.weight != nullptr) {
    const int64_t e = a.edge != nullptr ? integer_at(a.edge, a.graph.wide, at) : at;
    if ((uint64_t)e >= (uint64_t)a.num_weights) {
      note(a.graph.status, 2 /* FG_BAD_EDGE */, at);
      s->source = -1;
    } else if (!skip) {
      s->edge = (int)e;
      if (a.heads == 1) s->factor *= ((const Real *)a.weight)[e];
    }
  }
  if (skip) s->factor = 0;
  return n;
}

/* sum += weight * x; out = row_scale * sum + self_weight * x, where row_scale is 1 / the edges of a row if `mean` */
template <class E, int V, bool weigh>
struct Sum {
  typedef E Element;
  typedef typename E::Real Real;
  typedef Pack<E, V> Loaded;
  static constexpr int columns = V;
  static constexpr bool weighted = weigh;
  struct Part {
    Real sum[V];
  };

  static FGC_FN void begin(const fgc_aggregate &, const Place &, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) r->sum[v] = 0;
  }
  static FGC_FN Loaded load(const fgc_aggregate &a, const Place &p, int source) {
    return load_const<Loaded>((const typename E::Stored *)a.x + source * a.x_stride + p.column);
  }
  static FGC_FN void add(const fgc_aggregate &, const Loaded &x, Real w, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) r->sum[v] = weigh ? r->sum[v] + w * E::load(x.e[v]) : r->sum[v] + E::load(x.e[v]);
  }
  static FGC_FN void join(const Part &next, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) r->sum[v] += next.sum[v];
  }
  static FGC_FN void finish(const fgc_aggregate &a, const Place &p, const Part &r) {
    Real scale = a.row_scale != nullptr ? ((const Real *)a.row_scale)[p.row] : 1;
    if (a.mean) {
      const int64_t n = a.graph.ptr[p.row + 1] - a.graph.ptr[p.row];
      scale = 1 / (Real)(n > 1 ? n : 1);
      if (a.count != nullptr && p.column == 0) ((Real *)a.count)[p.row] = scale;
    }
    Pack<E, V> out;
    if (a.self_weight != nullptr && p.row < a.self_rows) {
      const Loaded own = load(a, p, (int)p.row);
      const Real w = ((const Real *)a.self_weight)[p.row * a.self_heads + (a.self_heads > 1 ? p.head : 0)];
      FGC_UNROLL
      for (int v = 0; v < V; v++) out.e[v] = E::store(r.sum[v] * scale + E::load(own.e[v]) * w);
    } else {
      FGC_UNROLL
      for (int v = 0; v < V; v++) out.e[v] = E::store(r.sum[v] * scale);
    }
    put((typename E::Stored *)a.out + p.row * a.columns + p.column, out);
  }
};

/* The largest x, the first of equals, and how many equal it; NaN is larger than all. 0 and one without any edge. */
template <class E, int V>
struct Extreme {
  typedef E Element;
  typedef typename E::Real Real;
  typedef Pack<E, V> Loaded;
  static constexpr int columns = V;
  static constexpr bool weighted = false;
  struct Part {
    Real best[V], count[V];
  };

  static FGC_FN void begin(const fgc_aggregate &, const Place &, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) {
      r->best[v] = -infinity((Real)0);
      r->count[v] = 0;
    }
  }
  static FGC_FN Loaded load(const fgc_aggregate &a, const Place &p, int source) {
    return load_const<Loaded>((const typename E::Stored *)a.x + source * a.x_stride + p.column);
  }
  static FGC_FN void take(Real x, Real n, Real *best, Real *count) {
    if (x > *best || x != x) {
      *best = x;
      *count = n;
    } else if (x == *best) {
      *count += n;
    }
  }
  static FGC_FN void add(const fgc_aggregate &a, const Loaded &x, Real, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) {
      const Real e = E::load(x.e[v]);
      take(a.least ? -e : e, 1, &r->best[v], &r->count[v]);
    }
  }
  static FGC_FN void join(const Part &next, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) take(next.best[v], next.count[v], &r->best[v], &r->count[v]);
  }
  static FGC_FN void finish(const fgc_aggregate &a, const Place &p, const Part &r) {
    const int64_t at = p.row * a.columns + p.column;
    Pack<E, V> out;
    FGC_UNROLL
    for (int v = 0; v < V; v++) {
      const Real best = a.least ? -r.best[v] : r.best[v];
      const bool any = r.count[v] > 0;
      out.e[v] = E::store(any ? best : 0);
      if (a.count != nullptr) ((Real *)a.count)[at + v] = any ? r.count[v] : 1;
    }
    put((typename E::Stored *)a.out + at, out);
  }
};

/* sum += y where x equals the row's own */
template <class E, int V>
struct ExtremeBack {
  typedef E Element;
  typedef typename E::Real Real;
  struct Loaded {
    Pack<E, V> x, y;
  };
  static constexpr int columns = V;
  static constexpr bool weighted = false;
  struct Part {
    Real sum[V], own[V];
  };

  static FGC_FN void begin(const fgc_aggregate &a, const Place &p, Part *r) {
    Pack<E, V> own = {};
    if (p.active) own = load_const<Pack<E, V>>((const typename E::Stored *)a.own + p.row * a.own_stride + p.column);
    FGC_UNROLL
    for (int v = 0; v < V; v++) {
      r->sum[v] = 0;
      r->own[v] = E::load(own.e[v]);
    }
  }
  static FGC_FN Loaded load(const fgc_aggregate &a, const Place &p, int source) {
    const int64_t at = source * a.x_stride + p.column;
    Loaded r;
    r.x = load_const<Pack<E, V>>((const typename E::Stored *)a.x + at);
    r.y = load_const<Pack<E, V>>((const typename E::Stored *)a.y + at);
    return r;
  }
  static FGC_FN void add(const fgc_aggregate &, const Loaded &l, Real, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++)
      if (E::load(l.x.e[v]) == r->own[v]) r->sum[v] += E::load(l.y.e[v]);
  }
  static FGC_FN void join(const Part &next, Part *r) {
    FGC_UNROLL
    for (int v = 0; v < V; v++) r->sum[v] += next.sum[v];
  }
  static FGC_FN void finish(const fgc_aggregate &a, const Place &p, const Part &r) {
    Pack<E, V> out;
    FGC_UNROLL
    for (int v = 0; v < V; v++) out.e[v] = E::store(r.sum[v]);
    put((typename E::Stored *)a.out + p.row * a.columns + p.column, out);
  }
};

/* Edges k to stop - 1 of a row. */
template <class Op>
FGC_FN void walk(const fgc_aggregate &a, const Team &t, const Place &p, int64_t k, int64_t stop, typename Op::Part *r) {
  typedef typename Op::Real Real;
  /* rows on their way: with 16 bytes a lane and 64 warps, more than memory's latency asks for */
  constexpr int AHEAD = FGC_FEWEST_LANES;
  const int64_t cut = a.graph.cut_at != nullptr ? *a.graph.cut_at : a.graph.cut;
  for (int n, got; k < stop; k += n) {
    n = stop - k < t.size ? (int)(stop - k) : t.size;
    Staged<Real> mine;
    got = stage<Op::weighted>(a, t, p, k, n, cut, &mine);
    for (int j = 0; j < got; j += AHEAD) {
      int source[AHEAD];
      Real weight[AHEAD];
      typename Op::Loaded x[AHEAD];
      FGC_UNROLL
      for (int u = 0; u < AHEAD; u++) {
        source[u] = shuffle(t, mine.source, j + u); /* -1 from the lanes beyond `got` */
        weight[u] = 1;
        if (Op::weighted) {
          weight[u] = shuffle(t, mine.factor, j + u);
          if (a.heads > 1) {
            const int e = shuffle(t, mine.edge, j + u);
            if (a.weight != nullptr && source[u] >= 0 && p.active)
              weight[u] = e >= 0 ? weight[u] * ((const Real *)a.weight)[(int64_t)e * a.heads + p.head] : 0;
          }
        }
        if (source[u] >= 0 && p.active) x[u] = Op::load(a, p, source[u]);
      }
      FGC_UNROLL
      for (int u = 0; u < AHEAD; u++)
        if (source[u] >= 0 && p.active) Op::add(a, x[u], weight[u], r);
    }
    if (got < n) break;
  }
}

/* Joins the results of a long row's segments, `first` to `last`; the results of `stride` teams are adjacent. */
template <class Op>
FGC_FN void join_segments(const typename Op::Part *of, int64_t stride, int64_t first, int64_t last,
    typename Op::Part *r) {
  constexpr int AHEAD = sizeof(typename Op::Part) > 16 ? 1 : 4; /* on their way at a time */
  for (int64_t i = first; i <= last; i += AHEAD) {
    typename Op::Part next[AHEAD];
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++)
      if (i + u <= last) next[u] = of[(i + u) * stride];
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++)
      if (i + u <= last) Op::join(next[u], r);
  }
}

template <class Op>
FGC_FN void aggregate(const fgc_aggregate &a) {
  typedef typename Op::Part Part;
  const Team t = team_of(a.lanes);
  const int64_t item = team_index(a.lanes), tile = item % a.tiles;
  int64_t k = 0;
  Place p;
  p.row = item / a.tiles;
  if (a.of_segments) {
    k = p.row << a.segment_bits;
    if (k >= a.graph.num_index) return;
    p.row = row_of(a.graph.ptr, a.graph.rows, k);
  }
  if (p.row >= a.graph.rows) return;
  p.column = ((int)tile * t.size + t.lane) * Op::columns;
  p.active = p.column < a.columns;
  p.head = p.active ? p.column / a.width : 0;

  int64_t first, end;
  edges_of(a.graph, p.row, t.lane == 0 && !a.of_segments, &first, &end);
  const int64_t size = (int64_t)1 << a.segment_bits;
  const bool is_long = end - first >= 2 * size;
  int64_t stop = end;
  if (a.of_segments) {
    if (!is_long || first > k || end <= k) return;
    if (stop > k + size) stop = k + size;
  } else {
    k = first;
    if (is_long) stop = (first + size - 1) >> a.segment_bits << a.segment_bits;
  }
  Part r;
  Op::begin(a, p, &r);
  walk<Op>(a, t, p, k, stop, &r);

  if (is_long) {
    edges_of(a.graph, p.row, false, &first, &end); /* again: registers are scarcer in between */
    const int64_t first_segment = (first + size - 1) >> a.segment_bits, last_segment = (end - 1) >> a.segment_bits;
    const int64_t stride = (int64_t)a.tiles * t.size, mine = tile * t.size + t.lane;
    Part *begun = (Part *)a.begun + first_segment * stride + mine, *segments = (Part *)a.segments + mine;
    uint32_t *missing = a.missing + first_segment * a.tiles + tile;
    if (!a.of_segments) {
      *begun = r;
      if (t.lane == 0) *missing = (uint32_t)(last_segment - first_segment + 1);
      return;
    }
    segments[(k >> a.segment_bits) * stride] = r;
    fence();
    sync_team(t);
    const int is_last = shuffle(t, t.lane == 0 ? (int)(atomic_decrement(missing) == 1) : 0, 0);
    if (!is_last) return;
    fence();
    r = *begun;
    join_segments<Op>(segments, stride, first_segment, last_segment, &r);
  }
  if (p.active) Op::finish(a, p, r);
}

}  // namespace fgc

#endif
