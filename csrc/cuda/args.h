/*
 * What the kernels are launched with: one struct each, plain C, the same on the host and on the device.
 *
 * Rows, columns and edges of a launch are below 2^31 (plan.c refuses more), so that indices travel between the lanes of
 * a warp as 32 bits; offsets into memory are computed with 64.
 */
#ifndef FRESHGO_CUDA_ARGS_H
#define FRESHGO_CUDA_ARGS_H

#include <stdint.h>

enum {
  FGC_WARP = 32,
  FGC_WARPS = 8,                     /* of a block */
  FGC_THREADS = FGC_WARPS * FGC_WARP,
  FGC_FEWEST_LANES = 4,              /* that work on a row of a sum: as many as it has loads on their way at a time */
  /* edges of a team of fg_dot_*: a search of their target costs two products or so */
  FGC_RUN = 8,
  FGC_LONG = 1024,                   /* fg_attention_*: a row with more edges is shared by the warps of its block */
  /* fg_sum_* and such: the edges of a graph are cut into segments of at least 2^FGC_SEGMENT_BITS edges, large enough
   * that there are at most FGC_SEGMENTS + 1 */
  FGC_SEGMENT_BITS = 8,
  FGC_SEGMENTS = 16384,
  FGC_DIGITS = 256,                  /* of the sort: eight bits at a time */
  FGC_CHUNK = 1024,                  /* consecutive elements that one warp sorts or numbers */
  FGC_TILE = FGC_WARPS * FGC_CHUNK,  /* and a block */
  FGC_SUM_BLOCK = 16                 /* weights of a list between two of its sums: core/sample/weights.go */
};

/* The grouped edges that a launch runs over. */
typedef struct fgc_graph {
  const int64_t *ptr;  /* [rows + 1] */
  const void *index;   /* [num_index] */
  int64_t rows, num_index;
  int64_t limit;       /* what index is below */
  int64_t cut;         /* a list ends at its first index that is not below it; -1: at its end */
  const int64_t *cut_at; /* where that is, and index goes on after the last row; or NULL */
  int32_t wide;        /* index and edge have 8 bytes, not 4 */
  int32_t reserved;
  uint64_t *status;    /* see fg_cuda_queue; or NULL */
} fgc_graph;

/* fg_sum_*, fg_extreme_*, fg_extreme_back_*, fg_dot_*: fg_aggregation with what the launch was cut into. */
typedef struct fgc_aggregate {
  fgc_graph graph;
  const void *x, *y, *own;
  int64_t x_stride, own_stride; /* elements */
  const void *edge, *weight, *row_scale, *col_scale, *self_weight;
  void *out, *count;
  int64_t num_weights, self_rows;
  int32_t columns, heads, self_heads;
  int32_t width;      /* columns of a head */
  int32_t lanes;      /* that work on one row: a power of two; fg_dot_*: on one product */
  int32_t tiles;      /* that a row is cut into */
  int32_t skip_self, least, mean;
  int32_t segment_bits;
  int32_t of_segments; /* this launch works on the segments of long rows, the one before it on rows */
  void *begun, *segments; /* [segments, tiles, lanes] partial results: of a long row's first edges, and of segments */
  uint32_t *missing;      /* [segments, tiles]: how many of a row's segments are not done, at its first */
} fgc_aggregate;

/* fg_attention_*, fg_attention_back_*. */
typedef struct fgc_attention {
  fgc_graph graph;
  const void *src, *dst, *edge;
  void *alpha, *alpha_self; /* out; of the derivative: in */
  const void *grad, *grad_self;
  void *grad_edge, *grad_edge_self, *grad_dst;
  int64_t self_rows;
  double slope;
  int32_t heads;
  int32_t columns; /* heads worked on at a time, with those that fill it up: a power of two up to 32 */
} fgc_attention;

/* fg_sort_*: a stable sort of (key, value) by one digit of the key at a time, least first. */
typedef struct fgc_sort {
  const void *index;  /* of the first pass: the keys; the values are their positions */
  int64_t n, limit;   /* a key that is not below the limit is noted and becomes the limit */
  int32_t wide;
  int32_t shift;      /* of the digit */
  uint64_t *status;
  const uint32_t *key_in, *value_in; /* of the other passes */
  uint32_t *key_out, *value_out;
  uint32_t *counts;   /* [digits, tiles] */
  int64_t tiles;
} fgc_sort;

/* fg_scan: counts[i] becomes the sum of those before it. One block. */
typedef struct fgc_scan {
  uint32_t *counts;
  int64_t n;
  int64_t *total;    /* or NULL */
} fgc_scan;

/* fg_group_*: what the sorted keys and values say. */
typedef struct fgc_group {
  const uint32_t *key, *value;
  int64_t n, sources;
  const int64_t *ptr; /* [rows + 1], or NULL: no targets */
  int64_t rows;
  int64_t *source_ptr;
  void *target, *edge;
  int32_t wide;
  int32_t reserved;
  uint64_t *status;
} fgc_group;

/* fg_draw_*: see draw.h. */
typedef struct fgc_draw {
  const int64_t *ptr; /* [nodes + 1] */
  const void *source; /* [edges] */
  int64_t nodes, edges;
  const int64_t *target; /* [targets] */
  int64_t targets, fanout;
  uint64_t key;
  int64_t *first;   /* [targets] */
  uint64_t *total;
  uint32_t *counts; /* [tiles] */
  int64_t tiles;
  int64_t *position, *neighbor; /* [drawn] */
  int64_t drawn;
  const void *weight;      /* [edges], or NULL */
  const double *sums;      /* [edges / FGC_SUM_BLOCK] */
  const int32_t *positive; /* [nodes], or NULL */
  uint64_t keep, batch;
  float *edge_weight;      /* [drawn], or NULL */
  const void *edge;        /* [edges] */
  int64_t *edge_id;        /* [drawn], or NULL */
  int32_t source_bits, edge_bits, wide_weight, replace, padded;
  int32_t lanes; /* that draw for one target: a power of two */
  uint64_t *status;
} fgc_draw;

/* fg_map_*: see map.h. */
typedef struct fgc_map {
  const void *id;
  int64_t n, kept;
  void *node, *local;
  uint64_t *keys;      /* [slots] */
  uint32_t *first;     /* [slots]: where the id occurs first; then its number */
  uint32_t *slot;      /* [n]: of each id */
  uint32_t *firsts;    /* [n / FGC_WARP]: a bit for each id, whether it stands where it occurs first */
  uint32_t *counts;    /* [tiles] */
  int64_t tiles;
  uint32_t slot_mask;  /* slots - 1, slots being a power of two */
  int32_t wide, padded, reserved;
  uint64_t *status;
} fgc_map;

/* fg_gather_*. */
typedef struct fgc_gather {
  const void *index, *table, *cache;
  const int32_t *slot;
  int64_t n, table_rows, table_stride, cache_rows, cache_stride, row_bytes;
  void *out;
  int32_t wide;
  int32_t lanes;  /* that copy one row: a power of two */
  int32_t pieces; /* of a row, as large as the kernel's loads */
  int32_t reserved;
  uint64_t *status;
} fgc_gather;

#endif
