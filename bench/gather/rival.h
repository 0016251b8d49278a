// The rivals of bench/gather: memcpy of rows, with and without prefetch.
#ifndef FRESHGO_BENCH_GATHER_RIVAL_H
#define FRESHGO_BENCH_GATHER_RIVAL_H

#include <stdint.h>

// rows_copy copies row idx[i] of src to row i of dst, prefetching ahead rows before their turn (0: not at all).
void rows_copy(char *dst, const char *src, int64_t row_bytes, const int64_t *idx, int64_t n, int64_t ahead);

#endif
