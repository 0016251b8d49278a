/* Message passing over memory of the caller. These functions are plain C: they keep no state except idle threads,
 * take no handle, and may also be called in a forked child. A graph is `index`, the source row of each edge, grouped by
 * target, and `ptr`: target t has edges ptr[t] to ptr[t + 1]. No intermediate result has edges x columns elements.
 * Every index and pointer is checked as it is used; memory outside the arrays is never read. Results do not depend on
 * `threads`. `real`, the type of sums, weights and scales, is double if dtype is float64, else float. */
#ifndef FRESHGO_API_OPERATORS_H
#define FRESHGO_API_OPERATORS_H

#include "base.h"
#include "tensor.h"

enum { FG_ISA_PORTABLE = 0, FG_ISA_AVX2 = 1, FG_ISA_AVX512 = 2 };

/* Sets the instruction set of the operators to `isa`, or to the best one if the processor lacks it or `isa` is
 * negative. `team` is GOMP_parallel of the process's OpenMP runtime, whose threads then run the operators, or NULL for
 * separate threads.
 * Blocks: no. Threads: any, while no operator runs. Ownership: none passes. Returns: the FG_ISA_ value in use. */
int32_t fg_operators_init(void *team, int32_t isa);

enum {
  FG_SUM = 0,           /* out[t] = row_scale[t] * sum of weight[e] * col_scale[s] * x[s], + self_weight[t] * x[t] */
  FG_MAX = 1,           /* out[t] = the maximum of x[s] by column, 0 without edges; count[t] = edges that attain it */
  FG_MIN = 2,           /* the same for the minimum */
  FG_EXTREME_BACK = 3,  /* derivative of FG_MAX and FG_MIN: out[s] = sum of y[t] over x[t] equal to own[s] */
  FG_DOT = 4,           /* out[e] = row_scale[t] * col_scale[s] * (x[s] . own[t]), for each head; real */
  FG_MEAN = 5           /* FG_SUM with row_scale[t] = 1 / the edges of t, 1 without edges, which it writes to `count`;
                           lists are not cut */
};

typedef struct fg_aggregation {
  uint32_t struct_size;
  int32_t kind;
  int32_t threads;
  int32_t index_bytes;       /* 4 or 8: size of the elements of index and edge */
  DLDataType dtype;          /* of x, y, own, out: float32, float64, bfloat16 or float16 */
  int32_t skip_self;         /* ignore self-loops (FG_SUM, FG_DOT) */
  int64_t cut;               /* a list ends before its first index >= cut, at most x_rows, and index may go on after
                                the last list; -1: lists are not cut */
  FG_IN int64_t *cut_at;     /* fg_cuda_aggregate only: address of `cut` on the device; the lists are then of a larger
                                graph, whose last edges may come from rows beyond x_rows; NULL: `cut` is used */
  int64_t columns;           /* of every row */
  int64_t heads;             /* weights per edge, each for columns / heads columns */
  FG_IN void *x;             /* the rows that index selects */
  int64_t x_rows;
  int64_t x_stride;          /* elements between rows of x and y */
  FG_IN void *y;             /* [x_rows, columns] */
  FG_IN void *own;           /* [rows, columns] */
  int64_t own_stride;
  FG_IN int64_t *ptr;        /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;         /* [num_index] */
  int64_t num_index;
  FG_IN void *edge;          /* [num_index]: the row of `weight` of each edge; NULL: its position */
  FG_IN void *weight;        /* real [num_weights, heads], or NULL: ones */
  int64_t num_weights;
  FG_IN void *row_scale;     /* real [rows], or NULL: ones */
  FG_IN void *col_scale;     /* real [x_rows], or NULL: ones */
  FG_IN void *self_weight;   /* real [self_rows, self_heads], or NULL: zeros */
  int64_t self_rows;
  int64_t self_heads;        /* 1 or heads */
  void *out;                 /* row-major, contiguous */
  void *count;               /* real [rows, columns], FG_MEAN: [rows]; or NULL */
  void *dot;                 /* FG_SUM with `own`: real [num_weights, heads], the derivative by `weight`:
                                row_scale[t] * col_scale[s] * (x[s] . own[t]), in the same pass; or NULL */
} fg_aggregation;

/* Blocks: while it computes. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_INVALID (an index or a pointer out of range: the message says where), FG_DTYPE, FG_BUDGET. */
int32_t fg_aggregate(FG_IN fg_aggregation *in, fg_error *err);

typedef struct fg_attention {
  uint32_t struct_size;
  int32_t threads;
  int32_t index_bytes;     /* 4 or 8 */
  int32_t is_double;       /* 1: real is double, 0: float */
  int64_t heads;
  FG_IN void *src;         /* real [src_rows, heads] */
  int64_t src_rows;
  FG_IN void *dst;         /* real [rows, heads], or NULL: zeros */
  FG_IN void *edge;        /* real [num_index, heads], or NULL: zeros */
  FG_IN int64_t *ptr;      /* [rows + 1] */
  int64_t rows;
  FG_IN void *index;       /* [num_index] */
  int64_t num_index;
  int64_t self_rows;       /* the first self_rows targets have one self-loop, which replaces listed ones */
  double slope;            /* of leaky_relu for negative sums */
  void *alpha;             /* real [num_index, heads]: out; in fg_attention_back: in */
  void *alpha_self;        /* real [self_rows, heads]: out; in fg_attention_back: in */
  FG_IN void *grad;        /* fg_attention_back: real [num_index, heads] */
  FG_IN void *grad_self;   /* real [self_rows, heads] */
  void *grad_edge;         /* out: real [num_index, heads], of src + dst + edge */
  void *grad_edge_self;    /* out: real [self_rows, heads] */
  void *grad_dst;          /* out: real [rows, heads] */
} fg_attention;

/* alpha = softmax over the edges of a target of leaky_relu(src[s] + dst[t] + edge[e]).
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_attention_forward(FG_IN fg_attention *in, fg_error *err);

/* The backward pass: from the gradient of alpha to the gradient of src + dst + edge, and its sums by target.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_attention_back(FG_IN fg_attention *in, fg_error *err);

enum {
  FG_ROW_DOT = 0, /* d[r, h] = x[r] . y[r] over the columns of head h */
  FG_SPREAD = 1,  /* out[r] += d[r, h] * y of the columns of head h; float32 and float64 */
  FG_TOTAL = 2    /* out = sum over r of d[r, h] * x[r] */
};

typedef struct fg_heads {
  uint32_t struct_size;
  int32_t kind;
  int32_t threads;
  int32_t reserved;  /* zero */
  DLDataType dtype;  /* of x and y, as in fg_aggregation */
  int32_t reserved2; /* zero */
  int64_t rows;
  int64_t columns;   /* of every row, grouped by head, at least one per head */
  int64_t heads;
  FG_IN void *x;     /* [rows, columns] */
  int64_t x_stride;  /* elements between rows */
  FG_IN void *y;     /* [rows, columns], or one row with y_stride 0; FG_SPREAD: one row */
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
  void *edge;           /* out: [num_index]: positions in index */
} fg_transposition;

/* Groups the edges of a graph by source, for backward passes.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_transpose(FG_IN fg_transposition *in, fg_error *err);

/* Groups edges by target: writes ptr [targets + 1] and, unless `target` is sorted, order [num_edges], the edges by
 * target in a stable order. *sorted becomes 1 if `target` is sorted; `order` is then not written.
 * Blocks: while it computes. Threads: any. Ownership: none passes. Returns: FG_OK, FG_INVALID, FG_BUDGET. */
int32_t fg_group(FG_IN void *target, int32_t index_bytes, int64_t num_edges, int64_t targets, int64_t *ptr, void *order,
                 int32_t *sorted, fg_error *err);

/* Allocates a contiguous tensor with undefined content for a result. Memory of deleted results is reused: up to a
 * sixteenth of the machine's memory and 512 MiB are kept. Pays off from 2 MiB on, where the memory is in huge pages.
 * Blocks: no. Threads: any. Ownership: `out` passes to the caller, like the tensors of a batch.
 * Returns: FG_OK, FG_INVALID, FG_BUDGET (the system is out of memory). */
int32_t fg_result(FG_IN int64_t *shape, int32_t ndim, DLDataType dtype, int32_t versioned, fg_tensor *out,
                  fg_error *err);

#endif
