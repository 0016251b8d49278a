#include "plan.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MOST INT32_MAX /* rows, columns, edges: see args.h */

static int32_t refuse(fgc_plan *p, int32_t code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(p->message, sizeof p->message, format, arguments);
  va_end(arguments);
  p->num_launches = 0;
  return code;
}

static int32_t misfit(fgc_plan *p) { return refuse(p, FG_INVALID, "the sizes of an operator's arrays do not match"); }

static int32_t begin(fgc_plan *p, uint32_t have, size_t want) {
  p->num_launches = 0;
  p->message[0] = 0;
  return have == want ? FG_OK : refuse(p, FG_INVALID, "struct_size is %u, expected %zu", have, want);
}

static bool too_many(fgc_plan *p, const char *what, int64_t n) {
  if (n <= MOST) return false;
  refuse(p, FG_INVALID, "%lld %s, expected at most %d on a device", (long long)n, what, MOST);
  return true;
}

static int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* A power of two that is at least n, within bounds that are such too. */
static int32_t power(int64_t n, int32_t least, int32_t most) {
  int32_t p = least;
  while (p < n && p < most) p *= 2;
  return p;
}

/* For `threads` threads in all; none where that is none. */
static void add(fgc_plan *p, const char *kernel, int64_t threads, int64_t shared_bytes, const void *arguments,
    size_t size) {
  if (threads == 0) return;
  fgc_launch *l = &p->launches[p->num_launches++];
  snprintf(l->kernel, sizeof l->kernel, "%s", kernel);
  l->blocks = parts(threads, FGC_THREADS);
  l->shared_bytes = (int32_t)shared_bytes;
  l->num_words = (int32_t)(size / 8);
  memcpy(l->words, arguments, size);
}
#define ADD(plan, kernel, threads, shared_bytes, arguments)                                                       \
  do {                                                                                                            \
    _Static_assert(sizeof(arguments) % 8 == 0 && sizeof(arguments) <= sizeof(((fgc_launch *)0)->words), "words"); \
    add(plan, kernel, threads, shared_bytes, &(arguments), sizeof(arguments));                                    \
  } while (0)

static bool aligned(const void *p, int64_t n) { return (uintptr_t)p % (uintptr_t)n == 0; }

/* ---- scratch -------------------------------------------------------------- */

/* Deals out scratch memory in pieces that are aligned as an allocator would. */
typedef struct purse {
  uintptr_t at;
  int64_t spent;
} purse;

static void *spend(purse *p, int64_t n_bytes) {
  void *piece = (void *)(p->at + (uintptr_t)p->spent); /* an address of the device: never read here */
  p->spent += parts(n_bytes, 256) * 256;
  return piece;
}

/* Whether the call only asks; else whether there is enough, with a code. */
static bool settled(fgc_plan *p, const void *scratch, int64_t *scratch_bytes, int64_t spent, int32_t *code) {
  *code = FG_OK;
  if (scratch == NULL) {
    *scratch_bytes = spent;
    return true;
  }
  if (*scratch_bytes >= spent && aligned(scratch, 16)) return false;
  *code = refuse(p, FG_INVALID, "scratch must have %lld bytes, aligned to 16, got %lld",
                 (long long)spent, (long long)*scratch_bytes);
  return true;
}

/* ---- aggregation ---------------------------------------------------------- */

static const char *dtype_name(DLDataType t) {
  if (t.lanes != 1) return NULL;
  if (t.code == kDLFloat && t.bits == 32) return "f32";
  if (t.code == kDLFloat && t.bits == 64) return "f64";
  if (t.code == kDLFloat && t.bits == 16) return "f16";
  if (t.code == kDLBfloat && t.bits == 16) return "bf16";
  return NULL;
}

/* Whether every load and store of `columns` elements is aligned, and of one head. */
static bool fits(const fg_aggregation *in, int64_t element, int64_t columns) {
  const int64_t size = columns * element;
  return in->columns / in->heads % columns == 0 && in->x_stride % columns == 0 && aligned(in->x, size) &&
         aligned(in->y, size) && aligned(in->own, size) && (in->own == NULL || in->own_stride % columns == 0) &&
         (in->kind == FG_DOT || aligned(in->out, size));
}

int32_t fgc_plan_aggregate(FG_IN fg_aggregation *in, void *scratch, int64_t *scratch_bytes, uintptr_t status,
    fgc_plan *p) {
  int32_t code = begin(p, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  const char *dtype = dtype_name(in->dtype);
  if (dtype == NULL) return refuse(p, FG_DTYPE, "the dtype must be float32, float64, float16 or bfloat16");
  if (in->dot != NULL) return refuse(p, FG_INVALID, "dot must be NULL on a device, which computes it with kind FG_DOT");
  if (in->kind < FG_SUM || in->kind > FG_MEAN || (in->index_bytes != 4 && in->index_bytes != 8) || in->columns < 0 ||
      in->heads < 1 || in->columns % in->heads != 0 || in->x_rows < 0 || in->rows < 0 || in->num_index < 0 ||
      (in->self_heads != 1 && in->self_heads != in->heads && in->self_weight != NULL) || in->self_rows > in->rows ||
      in->self_rows > in->x_rows || in->cut > in->x_rows || (in->rows == 0 && in->num_index > 0) ||
      (in->kind == FG_MEAN && (in->cut >= 0 || in->cut_at != NULL || in->row_scale != NULL)))
    return misfit(p);
  if (too_many(p, "rows", in->rows) || too_many(p, "rows", in->x_rows) || too_many(p, "edges", in->num_index) ||
      too_many(p, "columns", in->columns) || too_many(p, "weights", in->num_weights))
    return FG_INVALID;
  purse money = {.at = (uintptr_t)scratch};
  if (in->columns == 0) {
    settled(p, scratch, scratch_bytes, money.spent, &code);
    return code;
  }

  const int64_t element = in->dtype.bits / 8, real = element == 8 ? 8 : 4;
  int32_t columns = (int32_t)(16 / element);
  while (!fits(in, element, columns)) columns = columns > 2 ? 2 : 1;
  fgc_aggregate a = {
      .graph = {.ptr = in->ptr, .index = in->index, .rows = in->rows, .num_index = in->num_index, .limit = in->x_rows,
                .cut = in->cut, .cut_at = in->cut_at, .wide = in->index_bytes == 8, .status = (uint64_t *)status},
      .x = in->x, .y = in->y, .own = in->own, .x_stride = in->x_stride, .own_stride = in->own_stride,
      .edge = in->edge, .weight = in->weight, .row_scale = in->row_scale, .col_scale = in->col_scale,
      .self_weight = in->self_weight, .out = in->out, .count = in->count, .num_weights = in->num_weights,
      .self_rows = in->self_rows, .columns = (int32_t)in->columns,
      .heads = in->weight != NULL || in->kind == FG_DOT ? (int32_t)in->heads : 1, .self_heads = (int32_t)in->self_heads,
      .width = (int32_t)(in->columns / in->heads), .skip_self = in->skip_self, .least = in->kind == FG_MIN,
      .mean = in->kind == FG_MEAN,
  };
  const bool weighted = in->weight != NULL || in->col_scale != NULL || in->skip_self;
  const char *const sum = weighted ? "weighted" : "sum";
  const char *const names[] = {sum, "extreme", "extreme", "extreme_back", "dot", sum};
  char kernel[32];
  snprintf(kernel, sizeof kernel, "fg_%s_%sx%d", names[in->kind], dtype, columns);
  if (in->kind == FG_DOT) {
    if (settled(p, scratch, scratch_bytes, money.spent, &code)) return code;
    a.lanes = power(parts(a.width, columns), 1, FGC_WARP);
    ADD(p, kernel, parts(in->num_index, FGC_RUN) * a.lanes, 0, a);
    return FG_OK;
  }
  a.lanes = power(parts(a.columns, columns), FGC_FEWEST_LANES, FGC_WARP);
  a.tiles = (int32_t)parts(a.columns, a.lanes * columns);
  const int64_t threads = in->rows * a.tiles * a.lanes;
  if (parts(threads, FGC_THREADS) > MOST)
    return refuse(p, FG_INVALID, "the result is too large for one launch: use fewer rows or columns");
  a.segment_bits = FGC_SEGMENT_BITS;
  while (in->num_index >> a.segment_bits > FGC_SEGMENTS) a.segment_bits++;
  const int64_t segments = parts(in->num_index, (int64_t)1 << a.segment_bits);
  if (segments > 1) {
    const int64_t part = columns * real * (in->kind == FG_SUM || in->kind == FG_MEAN ? 1 : 2);
    const int64_t teams = segments * a.tiles;
    a.begun = spend(&money, teams * a.lanes * part);
    a.segments = spend(&money, teams * a.lanes * part);
    a.missing = spend(&money, teams * (int64_t)sizeof *a.missing);
  }
  if (settled(p, scratch, scratch_bytes, money.spent, &code)) return code;
  ADD(p, kernel, threads, 0, a);
  a.of_segments = 1;
  ADD(p, kernel, segments > 1 ? segments * a.tiles * a.lanes : 0, 0, a);
  return FG_OK;
}

/* ---- attention ------------------------------------------------------------ */

int32_t fgc_plan_attention(FG_IN fg_attention *in, int32_t back, uintptr_t status, fgc_plan *p) {
  int32_t code = begin(p, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->heads < 1 || in->rows < 0 || in->num_index < 0 ||
      in->self_rows > in->rows || in->self_rows > in->src_rows || (in->rows == 0 && in->num_index > 0))
    return misfit(p);
  if (too_many(p, "rows", in->rows) || too_many(p, "rows", in->src_rows) || too_many(p, "edges", in->num_index) ||
      too_many(p, "heads", in->heads))
    return FG_INVALID;
  fgc_attention a = {
      .graph = {.ptr = in->ptr, .index = in->index, .rows = in->rows, .num_index = in->num_index, .limit = in->src_rows,
                .cut = -1, .wide = in->index_bytes == 8, .status = (uint64_t *)status},
      .src = in->src, .dst = in->dst, .edge = in->edge, .alpha = in->alpha, .alpha_self = in->alpha_self,
      .grad = in->grad, .grad_self = in->grad_self, .grad_edge = in->grad_edge, .grad_edge_self = in->grad_edge_self,
      .grad_dst = in->grad_dst, .self_rows = in->self_rows, .slope = in->slope, .heads = (int32_t)in->heads,
      .columns = power(in->heads, 1, FGC_WARP),
  };
  char kernel[32];
  snprintf(kernel, sizeof kernel, "fg_attention_%sf%d", back ? "back_" : "", in->is_double ? 64 : 32);
  const int64_t threads = in->rows * parts(in->heads, a.columns) * FGC_WARP;
  if (parts(threads, FGC_THREADS) > MOST)
    return refuse(p, FG_INVALID, "the result is too large for one launch: use fewer rows or heads");
  ADD(p, kernel, threads, FGC_WARPS * FGC_WARP * (in->is_double ? 8 : 4), a);
  return FG_OK;
}

/* ---- grouping ------------------------------------------------------------- */

int32_t fgc_plan_transpose(FG_IN fg_transposition *in, void *scratch, int64_t *scratch_bytes, uintptr_t status,
    fgc_plan *p) {
  int32_t code = begin(p, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  const int64_t n = in->num_index, rows = in->ptr != NULL ? in->rows : 0;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->sources < 0 || n < 0 || rows < 0 ||
      (n > 0 && (in->ptr == NULL) != (in->target == NULL)) || (n > 0 && in->ptr != NULL && rows == 0))
    return misfit(p);
  if (too_many(p, "rows", rows) || too_many(p, "edges", n) || too_many(p, "sources", in->sources)) return FG_INVALID;

  purse money = {.at = (uintptr_t)scratch};
  const int64_t tiles = parts(n, FGC_TILE);
  uint32_t *key[2], *value[2];
  for (int i = 0; i < 2; i++) {
    key[i] = spend(&money, n * 4);
    value[i] = spend(&money, n * 4);
  }
  uint32_t *counts = spend(&money, tiles * FGC_DIGITS * 4);
  if (settled(p, scratch, scratch_bytes, money.spent, &code)) return code;

  const int64_t shared = FGC_WARPS * FGC_DIGITS * 4;
  int passes = 0;
  if (n > 0)
    do {
      fgc_sort s = {.index = in->index, .n = n, .limit = in->sources, .wide = in->index_bytes == 8, .shift = 8 * passes,
                    .status = (uint64_t *)status, .key_out = key[passes % 2], .value_out = value[passes % 2],
                    .counts = counts,
                    .tiles = tiles};
      if (passes > 0) {
        s.key_in = key[1 - passes % 2];
        s.value_in = value[1 - passes % 2];
      }
      fgc_scan c = {.counts = counts, .n = tiles * FGC_DIGITS};
      ADD(p, "fg_sort_count", tiles * FGC_THREADS, shared, s);
      ADD(p, "fg_scan", FGC_THREADS, FGC_WARPS * 4, c);
      ADD(p, "fg_sort_place", tiles * FGC_THREADS, shared, s);
      passes++;
    } while (in->sources >> 8 * passes > 0); /* a wrong index becomes `sources` itself */
  fgc_group g = {.key = key[(passes + 1) % 2], .value = value[(passes + 1) % 2], .n = n, .sources = in->sources,
                 .ptr = in->ptr, .rows = rows, .source_ptr = in->source_ptr, .target = in->target, .edge = in->edge,
                 .wide = in->index_bytes == 8, .status = (uint64_t *)status};
  ADD(p, "fg_group_ptr", in->sources + 1, 0, g);
  ADD(p, "fg_group_edges", n, 0, g);
  return FG_OK;
}

/* ---- map ------------------------------------------------------------------ */

int32_t fgc_plan_map(FG_IN fg_mapping *in, void *scratch, int64_t *scratch_bytes, uintptr_t status, fgc_plan *p) {
  int32_t code = begin(p, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->n < 0 || in->kept < 0 || in->kept > in->n)
    return misfit(p);
  if (in->n > 1 << 30)
    return refuse(p, FG_INVALID, "%lld ids, expected at most %d on a device", (long long)in->n, 1 << 30);

  int64_t slots = 64;
  while (slots < 2 * in->n) slots *= 2;
  purse money = {.at = (uintptr_t)scratch};
  fgc_map m = {.id = in->id, .n = in->n, .kept = in->kept, .node = in->node, .local = in->local,
               .tiles = parts(in->n, FGC_CHUNK), .slot_mask = (uint32_t)(slots - 1), .wide = in->index_bytes == 8,
               .padded = in->padded != 0, .status = (uint64_t *)status};
  m.keys = spend(&money, slots * 8);
  m.first = spend(&money, slots * 4);
  m.slot = spend(&money, in->n * 4);
  m.firsts = spend(&money, parts(in->n, FGC_WARP) * 4);
  m.counts = spend(&money, m.tiles * 4);
  if (settled(p, scratch, scratch_bytes, money.spent, &code)) return code;

  fgc_scan c = {.counts = m.counts, .n = m.tiles, .total = in->count};
  ADD(p, "fg_map_clear", in->n > 0 ? slots : 0, 0, m);
  ADD(p, "fg_map_insert", in->n, 0, m);
  ADD(p, "fg_map_count", m.tiles * FGC_WARP, 0, m);
  ADD(p, "fg_scan", FGC_THREADS, FGC_WARPS * 4, c);
  ADD(p, "fg_map_number", m.tiles * FGC_WARP, 0, m);
  ADD(p, "fg_map_local", in->n, 0, m);
  return FG_OK;
}

/* ---- draws ---------------------------------------------------------------- */

static bool has_ids(int32_t bits) { return (bits >= 1 && bits <= 57) || bits == 64; } /* core/packed */

static int32_t begin_draw(FG_IN fg_drawing *in, uintptr_t status, fgc_draw *d, fgc_plan *p) {
  int32_t code = begin(p, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  if (!has_ids(in->source_bits) || (in->edge_id != NULL && (in->edge == NULL || !has_ids(in->edge_bits))) ||
      in->num_nodes < 0 || in->num_edges < 0 || in->num_targets < 0 ||
      in->num_drawn < 0 || in->fanout < -1 || (in->num_targets > 0 && in->num_nodes == 0) ||
      (in->weight != NULL && ((in->weight_bytes != 4 && in->weight_bytes != 8) || in->sums == NULL)) ||
      (in->keep < 0) || (in->keep > 0 && in->replace != 0))
    return misfit(p);
  if (too_many(p, "nodes", in->num_nodes) || too_many(p, "targets", in->num_targets) ||
      too_many(p, "drawn edges", in->num_drawn))
    return FG_INVALID;
  *d = (fgc_draw){.ptr = in->ptr, .source = in->source, .nodes = in->num_nodes, .edges = in->num_edges,
                  .target = in->target, .targets = in->num_targets, .fanout = in->fanout, .key = in->key,
                  .first = in->first, .total = in->total, .tiles = parts(in->num_targets, FGC_CHUNK),
                  .position = in->position, .neighbor = in->neighbor, .drawn = in->num_drawn,
                  .source_bits = in->source_bits, .edge = in->edge, .edge_bits = in->edge_bits,
                  .edge_id = in->edge_id, .replace = in->replace != 0,
                  .padded = in->padded != 0, .weight = in->weight, .wide_weight = in->weight_bytes == 8,
                  .sums = in->sums, .positive = in->positive, .keep = (uint64_t)in->keep, .batch = in->batch,
                  .edge_weight = in->edge_weight,
                  .lanes = in->fanout < 0 || in->weight != NULL ? FGC_WARP : power(in->fanout, 1, FGC_WARP),
                  .status = (uint64_t *)status};
  return FG_OK;
}

int32_t fgc_plan_draw_count(FG_IN fg_drawing *in, void *scratch, int64_t *scratch_bytes, uintptr_t status,
    fgc_plan *p) {
  fgc_draw d;
  int32_t code = begin_draw(in, status, &d, p);
  if (code != FG_OK) return code;
  purse money = {.at = (uintptr_t)scratch};
  d.counts = spend(&money, d.tiles * 4);
  if (settled(p, scratch, scratch_bytes, money.spent, &code)) return code;
  fgc_scan c = {.counts = d.counts, .n = d.tiles};
  ADD(p, "fg_draw_count", d.tiles * FGC_WARP, 0, d);
  ADD(p, "fg_scan", d.tiles > 0 ? FGC_THREADS : 0, FGC_WARPS * 4, c);
  ADD(p, "fg_draw_first", d.tiles * FGC_WARP, 0, d);
  return FG_OK;
}

int32_t fgc_plan_draw(FG_IN fg_drawing *in, uintptr_t status, fgc_plan *p) {
  fgc_draw d;
  int32_t code = begin_draw(in, status, &d, p);
  if (code != FG_OK) return code;
  if (parts(d.targets * d.lanes, FGC_THREADS) > MOST)
    return refuse(p, FG_INVALID, "%lld targets are too many for one launch: use smaller batches", (long long)d.targets);
  const char *kernel = d.keep > 0 ? "fg_draw_labor" : d.weight != NULL ? "fg_draw_weighted" : "fg_draw";
  ADD(p, kernel, in->num_drawn == 0 ? 0 : d.targets * d.lanes, 0, d);
  return FG_OK;
}

/* ---- gather --------------------------------------------------------------- */

int32_t fgc_plan_gather(FG_IN fg_gathering *in, uintptr_t status, fgc_plan *p) {
  int32_t code = begin(p, in->struct_size, sizeof *in);
  if (code != FG_OK) return code;
  if ((in->index_bytes != 4 && in->index_bytes != 8) || in->n < 0 || in->row_bytes < 0 || in->table_rows < 0 ||
      in->cache_rows < 0)
    return misfit(p);
  int64_t piece = 16;
  while (in->row_bytes % piece != 0 || !aligned(in->out, piece) ||
         (in->table_rows > 0 && (in->table_stride % piece != 0 || !aligned(in->table, piece))) ||
         (in->cache_rows > 0 && (in->cache_stride % piece != 0 || !aligned(in->cache, piece))))
    piece /= 2;
  const int64_t pieces = in->row_bytes / piece, lanes = power(pieces, 1, FGC_WARP);
  if (pieces > MOST || parts(in->n * lanes, FGC_THREADS) > MOST)
    return refuse(p, FG_INVALID, "%lld rows of %lld bytes are too many for one launch: gather fewer rows",
                  (long long)in->n, (long long)in->row_bytes);
  fgc_gather g = {.index = in->index, .table = in->table, .cache = in->cache, .slot = in->slot, .n = in->n,
                  .table_rows = in->table_rows, .table_stride = in->table_stride, .cache_rows = in->cache_rows,
                  .cache_stride = in->cache_stride, .row_bytes = in->row_bytes, .out = in->out,
                  .wide = in->index_bytes == 8, .lanes = (int32_t)lanes, .pieces = (int32_t)pieces,
                  .status = (uint64_t *)status};
  char kernel[32];
  snprintf(kernel, sizeof kernel, "fg_gather_%d", (int)piece);
  ADD(p, kernel, pieces == 0 ? 0 : in->n * lanes, 0, g);
  return FG_OK;
}
