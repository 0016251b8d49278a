/*
 * The operators over arrays that end, or begin, where memory does: pages that nobody may touch lie before and behind
 * every array, so that a single byte too many is a fault. Shapes, graphs, types and instruction sets are drawn; the
 * argument is the seed, and the second one how many calls. Built with sanitizers by make sanitize, it looks into the
 * scratch memory too.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "freshgo.h"

static uint64_t state;

static int64_t below(int64_t n) { /* xorshift64* */
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return (int64_t)((state * 2685821657736338717ull >> 33) % (uint64_t)n);
}

enum { MOST = 64 };
static struct {
  char *base;
  size_t n_bytes;
} maps[MOST];
static int num_maps, at_end;

/* An array of this size, zeroed, between two guard pages: flush with the one behind it, or with the one before. */
static void *guarded(size_t n_bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n_bytes + page - 1) / page * page;
  char *base = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED || num_maps == MOST) abort();
  if (inner > 0 && mprotect(base + page, inner, PROT_READ | PROT_WRITE) != 0) abort();
  maps[num_maps].base = base;
  maps[num_maps++].n_bytes = inner + 2 * page;
  return at_end ? base + page + inner - n_bytes : base + page;
}

static void give_back(void) {
  while (num_maps > 0) num_maps--, munmap(maps[num_maps].base, maps[num_maps].n_bytes);
}

static const struct {
  DLDataType dtype;
  size_t element, real;
} TYPES[] = {
    {{kDLFloat, 32, 1}, 4, 4}, {{kDLFloat, 64, 1}, 8, 8}, {{kDLBfloat, 16, 1}, 2, 4}, {{kDLFloat, 16, 1}, 2, 4}};

/* Numbers that are whole and small in every type: their bytes are 0 or those of 1.0 where it matters little. */
static void *numbers(size_t n, size_t size) {
  char *p = guarded(n * size);
  for (size_t i = 0; i < n; i++) {
    float one = (float)below(3);
    double wide = one;
    if (size == 8) memcpy(p + i * 8, &wide, 8);
    if (size == 4) memcpy(p + i * 4, &one, 4);
    if (size == 2) p[i * 2] = (char)below(4);
  }
  return p;
}

static void *indices(int64_t n, int64_t limit, int32_t size, int wild) {
  char *p = guarded((size_t)n * (size_t)size);
  for (int64_t i = 0; i < n; i++) {
    int64_t v = below(limit > 0 ? limit : 1);
    if (wild && below(20) == 0) v = below(2) ? -1 - below(1 << 20) : limit + below(1 << 20);
    int32_t narrow = (int32_t)v;
    memcpy(p + i * size, size == 4 ? (void *)&narrow : (void *)&v, (size_t)size);
  }
  return p;
}

static int64_t *pointers(int64_t rows, int64_t edges, int wild) {
  int64_t *ptr = guarded((size_t)(rows + 1) * 8);
  for (int64_t r = 1, left = edges; r <= rows; r++) {
    int64_t take = r == rows ? left : below(left + 1);
    ptr[r] = ptr[r - 1] + take, left -= take;
  }
  if (wild) ptr[below(rows + 1)] += below(1 << 20) - (1 << 19);
  return ptr;
}

static long accepted, refused;

static void note(int32_t code) {
  if (code == FG_OK)
    accepted++;
  else if (code == FG_INVALID)
    refused++;
  else
    printf("code %d\n", code), exit(1);
}

static void call(int wild) {
  int t = (int)below(4);
  size_t element = TYPES[t].element, real = TYPES[t].real;
  int64_t rows = 1 + below(40), x_rows = 1 + below(60), edges = below(200), heads = 1 + below(4);
  int64_t columns = heads * (1 + below(70)), stride = columns + (below(2) ? below(9) : 0);
  int32_t index_bytes = below(2) ? 4 : 8, threads = 1 + (int32_t)below(3);
  int64_t *ptr = pointers(rows, edges, wild && below(2));
  void *index = indices(edges, x_rows, index_bytes, wild);
  fg_error err;
  /* the last row ends with its columns, and not with its stride */
  size_t table = (size_t)((x_rows - 1) * stride + columns);
  fg_aggregation a = {.struct_size = sizeof a, .threads = threads, .index_bytes = index_bytes, .dtype = TYPES[t].dtype,
      .cut = -1, .columns = columns, .heads = heads, .x = numbers(table, element), .x_rows = x_rows, .x_stride = stride,
      .ptr = ptr, .rows = rows, .index = index, .num_index = edges, .num_weights = edges,
      .out = guarded((size_t)(rows * columns) * element)};
  switch (below(4)) {
    case 0:
      a.kind = FG_SUM;
      if (below(2)) a.weight = numbers((size_t)(edges * heads), real);
      if (below(2)) a.row_scale = numbers((size_t)rows, real);
      if (below(2)) a.col_scale = numbers((size_t)x_rows, real);
      if (a.weight && below(2)) a.edge = indices(edges, edges, index_bytes, wild);
      break;
    case 1:
      a.kind = below(2) ? FG_MAX : FG_MIN, a.heads = 1;
      a.count = guarded((size_t)(rows * columns) * real);
      break;
    case 2:
      a.kind = FG_EXTREME_BACK, a.heads = 1;
      a.y = numbers(table, element), a.own = numbers((size_t)(rows * columns), element), a.own_stride = columns;
      break;
    default:
      a.kind = FG_DOT;
      a.own = numbers((size_t)(rows * columns), element), a.own_stride = columns;
      a.out = guarded((size_t)(edges * heads) * real);
  }
  note(fg_aggregate(&a, &err));

  int is_double = (int)below(2);
  size_t size = is_double ? 8 : 4, each = (size_t)(edges * heads), own = (size_t)(rows * heads);
  fg_attention s = {.struct_size = sizeof s, .threads = threads, .index_bytes = index_bytes, .is_double = is_double,
      .heads = heads, .src = numbers((size_t)(x_rows * heads), size), .src_rows = x_rows, .ptr = ptr, .rows = rows,
      .index = index, .num_index = edges, .slope = 0.2, .alpha = guarded(each * size), .alpha_self = guarded(0)};
  if (below(2)) s.dst = numbers(own, size);
  if (below(2)) s.edge = numbers(each, size);
  note(fg_attention_forward(&s, &err));
  s.grad = numbers(each, size), s.grad_self = guarded(0), s.grad_edge = guarded(each * size);
  s.grad_edge_self = guarded(0), s.grad_dst = guarded(own * size);
  note(fg_attention_back(&s, &err));

  fg_heads h = {.struct_size = sizeof h, .kind = (int32_t)below(2) ? FG_ROW_DOT : FG_TOTAL, .threads = threads,
      .dtype = TYPES[t].dtype, .rows = x_rows, .columns = columns, .heads = heads, .x = a.x, .x_stride = stride,
      .y = numbers((size_t)columns, element), .d = guarded((size_t)(x_rows * heads) * real),
      .out = guarded((size_t)columns * real)};
  note(fg_heads_run(&h, &err));

  fg_transposition p = {.struct_size = sizeof p, .threads = threads, .index_bytes = index_bytes, .ptr = ptr,
      .rows = rows, .index = index, .num_index = edges, .sources = x_rows,
      .source_ptr = guarded((size_t)(x_rows + 1) * 8),
      .target = guarded((size_t)(edges * index_bytes)), .edge = guarded((size_t)(edges * index_bytes))};
  note(fg_transpose(&p, &err));
  int32_t sorted;
  note(fg_group(index, index_bytes, edges, x_rows, p.source_ptr, p.edge, &sorted, &err));
  give_back();
}

int main(int argc, char **argv) {
  state = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 2654435761u + 1;
  long calls = argc > 2 ? strtol(argv[2], NULL, 10) : 300;
  for (long i = 0; i < calls; i++) {
    at_end = (int)below(2);
    fg_operators_init(NULL, (int32_t)below(3));
    call(below(3) == 0);
  }
  printf("%ld calls, %ld of them refused\n", accepted + refused, refused);
  return accepted > 0 && refused > 0 ? 0 : 1;
}
