/*
 * fg_attention_*: cuts the targets into pieces for the threads; softmax.h is what is done to them.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "operators.h"
#include "threads.h"

typedef bool (*rows_fn)(const fg_attention *in, int64_t row, int64_t end, void *scratch);

typedef struct attend {
  const fg_attention *in;
  rows_fn rows;
  int64_t pieces;
  _Atomic int32_t bad; /* atomic: any thread may find a wrong index */
} attend;

static void run_piece(void *data, int64_t piece, void *scratch) {
  attend *a = data;
  const fg_attention *in = a->in;
  int64_t row = fgi_cut(in->ptr, in->rows, a->pieces, piece), end = fgi_cut(in->ptr, in->rows, a->pieces, piece + 1);
  if (!a->rows(in, row, end, scratch)) atomic_store(&a->bad, 1);
}

static int32_t attend_with(const fg_attention *in, rows_fn rows, fg_error *err) {
  int32_t code = fgi_struct_size(err, in->struct_size, sizeof *in);
  if (code != FG_OK || (code = fgi_check_ptr(in->ptr, in->rows, in->num_index, false, err)) != FG_OK) return code;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->heads < 1 || in->self_rows > in->rows ||
      in->self_rows > in->src_rows)
    return fgi_fail(err, FG_INVALID, "the sizes of an operator's arrays do not match");
  const double work = (double)(in->num_index + in->rows) * (double)in->heads * 16;
  attend a = {.in = in, .rows = rows, .pieces = fgi_pieces(in->threads, work)};
  if (fgi_share(in->threads, a.pieces, run_piece, &a, (size_t)in->heads * 3 * sizeof(double)) != 0)
    return fgi_no_memory(err);
  if (!atomic_load(&a.bad)) return FG_OK;
  return fgi_bad_index(in->index, in->index_bytes, in->num_index, in->src_rows, 0, "index", err);
}

static const fgi_kernels *kernels_of(const fg_attention *in) {
  return fgi_kernels_of(in->is_double ? FGI_F64 : FGI_F32);
}

int32_t fg_attention_forward(const fg_attention *in, fg_error *err) {
  return attend_with(in, kernels_of(in)->attention, err);
}

int32_t fg_attention_back(const fg_attention *in, fg_error *err) {
  return attend_with(in, kernels_of(in)->attention_back, err);
}
