/*
 * Graphs regrouped: by source for the way back (fg_transpose), by target for the way there (fg_group).
 *
 * Both are stable counting sorts. The transposition is shared by threads: each counts and places a range of edges, and
 * a source's places are dealt out in the order of the ranges, so that the result is the same for any number.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"
#include "threads.h"

enum {
  MOST_RANGES = 8, /* each has a counter for every source: more would cost more than they save */
  AHEAD = 16       /* edges: counters are prefetched that far; as many loads as a core keeps on their way */
};

typedef struct regroup {
  const fg_transposition *in;
  int64_t ranges;
  int64_t *counters;  /* [ranges, sources] */
  _Atomic int32_t bad; /* atomic: any thread may find a wrong index */
} regroup;

static int64_t edge_at(const regroup *g, int64_t range) {
  return (int64_t)((double)g->in->num_index * ((double)range / (double)g->ranges));
}

#define COUNT(T)                                                                                 \
  static bool count_##T(const T *index, int64_t first, int64_t end, int64_t sources, int64_t *counters) { \
    for (int64_t e = first; e < end; e++) {                                                      \
      if ((uint64_t)index[e] >= (uint64_t)sources) return false;                                 \
      if (e + AHEAD < end) __builtin_prefetch(&counters[index[e + AHEAD]], 1);                   \
      counters[index[e]]++;                                                                      \
    }                                                                                            \
    return true;                                                                                 \
  }
COUNT(int32_t)
COUNT(int64_t)

static void count_range(void *data, int64_t range, void *unused) {
  (void)unused;
  regroup *g = data;
  const fg_transposition *in = g->in;
  int64_t first = edge_at(g, range), end = edge_at(g, range + 1), *counters = g->counters + range * in->sources;
  bool good = in->index_bytes == 4 ? count_int32_t(in->index, first, end, in->sources, counters)
                                   : count_int64_t(in->index, first, end, in->sources, counters);
  if (!good) atomic_store(&g->bad, 1);
}

/* Counters become the places of each range's first edge of each source. */
static void deal_out(regroup *g) {
  int64_t sources = g->in->sources, sum = 0;
  for (int64_t s = 0; s < sources; s++) {
    g->in->source_ptr[s] = sum;
    for (int64_t r = 0; r < g->ranges; r++) {
      int64_t n = g->counters[r * sources + s];
      g->counters[r * sources + s] = sum;
      sum += n;
    }
  }
  g->in->source_ptr[sources] = sum;
}

/* The index was checked while it was counted; should it change meanwhile, an edge goes to a wrong place of ours. */
#define PLACE(T)                                                                                                \
  static void place_##T(const fg_transposition *in, int64_t first, int64_t end, int64_t *counters) {            \
    const T *index = in->index;                                                                                 \
    T *target = in->target, *edge = in->edge;                                                                   \
    int64_t t = fgi_row_of(in->ptr, in->rows, first);                                                           \
    for (int64_t e = first; e < end; e++) {                                                                     \
      while (in->ptr[t + 1] <= e) t++;                                                                          \
      if (e + AHEAD < end) __builtin_prefetch(&counters[index[e + AHEAD]], 1);                                  \
      if ((uint64_t)index[e] >= (uint64_t)in->sources) continue;                                                \
      int64_t place = counters[index[e]]++;                                                                     \
      if (place >= in->num_index) continue;                                                                     \
      target[place] = (T)t;                                                                                     \
      edge[place] = (T)e;                                                                                       \
    }                                                                                                           \
  }

/* The row that edge e belongs to. */
static int64_t fgi_row_of(const int64_t *ptr, int64_t rows, int64_t e) {
  int64_t lo = 0, hi = rows;
  while (lo < hi) {
    int64_t middle = lo + (hi - lo) / 2;
    if (ptr[middle + 1] <= e)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}
PLACE(int32_t)
PLACE(int64_t)

static void place_range(void *data, int64_t range, void *unused) {
  (void)unused;
  regroup *g = data;
  int64_t first = edge_at(g, range), end = edge_at(g, range + 1), *counters = g->counters + range * g->in->sources;
  if (g->in->index_bytes == 4)
    place_int32_t(g->in, first, end, counters);
  else
    place_int64_t(g->in, first, end, counters);
}

int32_t fg_transpose(const fg_transposition *in, fg_error *err) {
  int32_t code = fgi_struct_size(err, in->struct_size, sizeof *in);
  if (code != FG_OK || (code = fgi_check_ptr(in->ptr, in->rows, in->num_index, false, err)) != FG_OK) return code;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->sources < 0)
    return fgi_fail(err, FG_INVALID, "the sizes of an operator's arrays do not match");
  regroup g = {.in = in, .ranges = in->threads < MOST_RANGES ? in->threads : MOST_RANGES};
  if (in->num_index < 1 << 15 || g.ranges < 1) g.ranges = 1;
  g.counters = calloc((size_t)(g.ranges * in->sources) + 1, sizeof *g.counters);
  if (g.counters == NULL) return fgi_no_memory(err);
  fgi_share(in->threads, g.ranges, count_range, &g, 0);
  if (atomic_load(&g.bad)) {
    code = fgi_bad_index(in->index, in->index_bytes, in->num_index, in->sources, 0, "index", err);
  } else {
    deal_out(&g);
    fgi_share(in->threads, g.ranges, place_range, &g, 0);
  }
  free(g.counters);
  return code;
}

int32_t fg_group(const void *target, int32_t index_bytes, int64_t num_edges, int64_t targets, int64_t *ptr, void *order,
                 int32_t *sorted, fg_error *err) {
  if ((index_bytes != 4 && index_bytes != 8) || num_edges < 0 || targets < 0)
    return fgi_fail(err, FG_INVALID, "the sizes of an operator's arrays do not match");
  memset(ptr, 0, (size_t)(targets + 1) * sizeof *ptr);
  /* ptr[t + 1] counts the edges of t; a run of equal targets is counted at once */
  int64_t falls = 0;
  for (int64_t e = 0, before = 0; e < num_edges;) {
    int64_t t = fgi_index(target, index_bytes, e), first = e;
    if ((uint64_t)t >= (uint64_t)targets)
      return fgi_bad_index(target, index_bytes, num_edges, targets, 0, "target", err);
    while (e < num_edges && fgi_index(target, index_bytes, e) == t) e++;
    falls |= t - before;
    before = t;
    ptr[t + 1] += e - first;
  }
  for (int64_t t = 0; t < targets; t++) ptr[t + 1] += ptr[t];
  *sorted = falls >= 0;
  if (*sorted || order == NULL) return FG_OK;

  int64_t *place = malloc((size_t)(targets + 1) * sizeof *place);
  if (place == NULL) return fgi_no_memory(err);
  memcpy(place, ptr, (size_t)(targets + 1) * sizeof *place);
  for (int64_t e = 0; e < num_edges; e++) {
    if (e + AHEAD < num_edges) __builtin_prefetch(&place[fgi_index(target, index_bytes, e + AHEAD)], 1);
    int64_t t = fgi_index(target, index_bytes, e);
    if ((uint64_t)t >= (uint64_t)targets || place[t] >= num_edges) continue; /* changed since it was counted */
    if (index_bytes == 4)
      ((int32_t *)order)[place[t]++] = (int32_t)e;
    else
      ((int64_t *)order)[place[t]++] = e;
  }
  free(place);
  return FG_OK;
}
