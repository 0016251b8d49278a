/* Message passing over memory of the caller. These functions are plain C: they keep no state but idle threads, need
 * no handle, and may also be called in a forked child. A graph is `index`, the source row of every edge, grouped by
 * target, and `ptr`: target t has edges ptr[t] to ptr[t + 1]. Nothing of size edges x columns is written anywhere.
 * Every index and pointer is checked as it is used; memory outside of the arrays is never read. Results do not depend
 * on `threads`. `real` is double where dtype is float64, else float: the type of sums, weights and scales. */
#ifndef FRESHGO_API_OPERATORS_H
#define FRESHGO_API_OPERATORS_H

#include "base.h"
#include "tensor.h"

enum { FG_ISA_PORTABLE = 0, FG_ISA_AVX2 = 1, FG_ISA_AVX512 = 2 };

/* How the operators run: with the instruction set `isa`, or the best where the processor does not have that one
 * (negative: the best). `team` is GOMP_parallel of the OpenMP runtime that the process uses for other things, whose
 * threads then run the operators too, or NULL: threads of our own.
 * Blocks: no. Threads: any, while no operator runs. Ownership: none passes. Returns: the FG_ISA_ value in use. */
int32_t fg_operators_init(void *team, int32_t isa);

enum {
  FG_SUM = 0,           /* out[t] = row_scale[t] * sum of weight[e] * col_scale[s] * x[s], + self_weight[t] * x[t] */
  FG_MAX = 1,           /* out[t] = the largest x[s] of each column, 0 without edges; count[t] = how many are equal */
  FG_MIN = 2,           /* or the smallest */
  FG_EXTREME_BACK = 3,  /* of FG_MAX and FG_MIN: out[s] = sum of y[t] where x[t] equals own[s] */
  FG_DOT = 4            /* out[e] = row_scale[t] * col_scale[s] * (x[s] . own[t]), for each head; real */
};

typedef struct fg_aggregation {
  uint32_t struct_size;
  int32_t kind;
  int32_t threads;
  int32_t index_bytes;       /* 4 or 8: of the elements of index and edge */
  DLDataType dtype;          /* of x, y, own, out: float32, float64, bfloat16 or float16 */
  int32_t skip_self;         /* edges from a row to itself count for nothing (FG_SUM, FG_DOT) */
  int64_t cut;               /* a list ends at its first index that is not below it, at most x_rows; -1: at its end */
  FG_IN int64_t *cut_at;     /* where the device has `cut`, for fg_cuda_aggregate alone: the lists are then of a larger
                                graph, whose last edges may be of rows beyond these; NULL: it is `cut` */
  int64_t columns;           /* of every row */
  int64_t heads;             /* weights of an edge: each for columns / heads columns */
  FG_IN void *x;             /* the rows that index selects */
  int64_t x_rows;
  int64_t x_stride;          /* elements from row to row, of x and y */
  FG_IN void *y;             /* [x_rows, columns] */
  FG_IN void *own;           /* [rows, columns] */
  int64_t own_stride;
  FG_IN int64_t *ptr;        /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;         /* [num_index] */
  int64_t num_index;
  FG_IN void *edge;          /* [num_index]: which weights belong to it; NULL: its own position */
  FG_IN void *weight;        /* real [num_weights, heads], or NULL: ones */
  int64_t num_weights;
  FG_IN void *row_scale;     /* real [rows], or NULL: ones */
  FG_IN void *col_scale;     /* real [x_rows], or NULL: ones */
  FG_IN void *self_weight;   /* real [self_rows, self_heads], or NULL: zeros */
  int64_t self_rows;
  int64_t self_heads;        /* 1 or heads */
  void *out;                 /* row-major without gaps */
  void *count;               /* real [rows, columns], or NULL */
  void *dot;                 /* of FG_SUM with `own`: real [num_weights, heads], out[e] = row_scale[t] * col_scale[s] *
                                (x[s] . own[t]), the derivative by `weight`, while the rows are at hand; or NULL */
} fg_aggregation;

/* Blocks: while it computes. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_INVALID (an index or a pointer out of range: the message says where), FG_DTYPE, FG_BUDGET. */
int32_t fg_aggregate(FG_IN fg_aggregation *in, fg_error *err);

typedef struct fg_attention {
  uint32_t struct_size;
  int32_t threads;
  int32_t index_bytes;     /* 4 or 8 */
  int32_t is_double;       /* what real is */
  int64_t heads;
  FG_IN void *src;         /* real [src_rows, heads] */
  int64_t src_rows;
  FG_IN void *dst;         /* real [rows, heads], or NULL: zeros */
  FG_IN void *edge;        /* real [num_index, heads], or NULL: zeros */
  FG_IN int64_t *ptr;      /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;       /* [num_index] */
  int64_t num_index;
  int64_t self_rows;       /* the first targets, this many, have an edge from themselves, in place of any listed */
  double slope;            /* of negative sums */
  void *alpha;             /* real [num_index, heads]: out; of fg_attention_back: in */
  void *alpha_self;        /* real [self_rows, heads]: out; of fg_attention_back: in */
  FG_IN void *grad;        /* of fg_attention_back: real [num_index, heads] */
  FG_IN void *grad_self;   /* real [self_rows, heads] */
  void *grad_edge;         /* out: real [num_index, heads], of src + dst + edge */
  void *grad_edge_self;    /* out: real [self_rows, heads] */
  void *grad_dst;          /* out: real [rows, heads] */
} fg_attention;

/* alpha = softmax over the edges of a target of leaky_relu(src[s] + dst[t] + edge[e]).
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_attention_forward(FG_IN fg_attention *in, fg_error *err);

/* Its derivative: from that by alpha to that by src + dst + edge, and summed by target.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_attention_back(FG_IN fg_attention *in, fg_error *err);

enum {
  FG_ROW_DOT = 0, /* d[r, h] = x[r] . y[r], of the columns of each head */
  FG_SPREAD = 1,  /* out[r] += d[r, h] * y of the columns of head h; float32 and float64 */
  FG_TOTAL = 2    /* out = sum over r of d[r, h] * x[r] */
};

typedef struct fg_heads {
  uint32_t struct_size;
  int32_t kind;
  int32_t threads;
  int32_t reserved;  /* zero */
  DLDataType dtype;  /* of x and y: as that of fg_aggregation */
  int32_t reserved2; /* zero */
  int64_t rows;
  int64_t columns;   /* of every row, head after head, at least one for each */
  int64_t heads;
  FG_IN void *x;     /* [rows, columns] */
  int64_t x_stride;  /* elements from row to row */
  FG_IN void *y;     /* [rows, columns], or with y_stride 0 one row for all; of FG_SPREAD one row */
  int64_t y_stride;
  void *d;           /* real [rows, heads] */
  void *out;         /* FG_SPREAD: [rows, columns] in and out; FG_TOTAL: real [columns] */
} fg_heads;

/* Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_DTYPE, FG_BUDGET. */
int32_t fg_heads_run(FG_IN fg_heads *in, fg_error *err);

typedef struct fg_transposition {
  uint32_t struct_size;
  int32_t threads;
  int32_t index_bytes;  /* 4 or 8: of index, target and edge */
  int32_t reserved;     /* zero */
  FG_IN int64_t *ptr;   /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;    /* [num_index] */
  int64_t num_index;
  int64_t sources;
  int64_t *source_ptr;  /* out: [sources + 1] */
  void *target;         /* out: [num_index], grouped by source, ascending in each group */
  void *edge;           /* out: [num_index]: where in index */
} fg_transposition;

/* The same graph grouped by source, for the way back.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_transpose(FG_IN fg_transposition *in, fg_error *err);

/* Groups edges by target: ptr [targets + 1] and, where `target` decreases somewhere, order [num_edges], the edges in
 * groups, each in its old order. *sorted says whether it does not; `order` is then left alone.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_group(FG_IN void *target, int32_t index_bytes, int64_t num_edges, int64_t targets, int64_t *ptr, void *order,
                 int32_t *sorted, fg_error *err);

/* Memory for a result, a tensor without gaps whose contents are undefined. What its deleter gives back is used for
 * later results: at most a sixteenth of the machine's memory is kept, and 512 MiB. Worth its calls from 2 MiB on, where
 * the memory is huge pages.
 * Blocks: no. Threads: any. Ownership: `out` passes to the caller, as those of a batch do.
 * Returns: FG_OK, FG_INVALID, FG_BUDGET (the system has no memory). */
int32_t fg_result(FG_IN int64_t *shape, int32_t ndim, DLDataType dtype, int32_t versioned, fg_tensor *out,
                  fg_error *err);

#endif
