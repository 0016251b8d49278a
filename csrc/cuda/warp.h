/*
 * What a kernel knows of the machine: lanes that work together, a block's shared memory and barrier, atomics.
 *
 * Bodies are written against this file alone. Compiled by nvcc it is the hardware; compiled by any C++ compiler it is
 * the emulator (emulator.h), in which every lane is a thread of its own, lanes meet only where they say so here, and
 * everything else happens in a random order.
 */
#ifndef FRESHGO_CUDA_WARP_H
#define FRESHGO_CUDA_WARP_H

#include <stdint.h>

#include "args.h"

#if defined(__CUDACC__)
#define FGC_FN __device__ __forceinline__
#define FGC_UNROLL _Pragma("unroll")
#define FGC_RESTRICT __restrict__
#else
#include "emulator/emulator.h"
#define FGC_FN inline
#define FGC_UNROLL
#define FGC_RESTRICT
#endif

namespace fgc {

/* Lanes of one warp, 1 to 32 of them, that run the same way. */
struct Team {
  unsigned mask; /* which lanes of the warp */
  int size;      /* a power of two */
  int lane;      /* of the team */
};

#if defined(__CUDACC__)

FGC_FN int thread_index() { return (int)threadIdx.x; }
FGC_FN int64_t block_index() { return blockIdx.x; }
FGC_FN int64_t num_blocks() { return gridDim.x; }
FGC_FN void sync_block() { __syncthreads(); }
/* Whether v holds in any lane of the block; all of them ask. */
FGC_FN bool any_in_block(bool v) { return __syncthreads_or(v) != 0; }
FGC_FN char *shared() {
  extern __shared__ __align__(16) char memory[];
  return memory;
}

/* What `v` is in lane `from` of the team. */
template <typename T>
FGC_FN T shuffle(const Team &t, T v, int from) {
  return __shfl_sync(t.mask, v, from, t.size);
}
template <typename T>
FGC_FN T shuffle_xor(const Team &t, T v, int with) {
  return __shfl_xor_sync(t.mask, v, with, t.size);
}
/* Of a whole warp: bit i is lane i's. */
FGC_FN unsigned ballot(bool v) { return __ballot_sync(~0u, v); }
/* Bit i is lane i's of the team. */
FGC_FN unsigned ballot(const Team &t, bool v) {
  return __ballot_sync(t.mask, v) >> (__ffs((int)t.mask) - 1);
}
FGC_FN void sync_warp() { __syncwarp(); }
FGC_FN void sync_team(const Team &t) { __syncwarp(t.mask); }
/* Of a whole warp: the lanes whose v is this lane's. */
FGC_FN unsigned same_as(uint32_t v) { return __match_any_sync(~0u, v); }

FGC_FN int count_ones(unsigned v) { return __popc(v); }
FGC_FN int first_one(unsigned v) { return __ffs((int)v) - 1; }
/* The upper half of a product. */
FGC_FN uint64_t multiply_high(uint64_t a, uint64_t b) { return __umul64hi(a, b); }

FGC_FN uint64_t compare_and_swap(uint64_t *p, uint64_t old, uint64_t v) {
  return atomicCAS((unsigned long long *)p, (unsigned long long)old, (unsigned long long)v);
}
FGC_FN void atomic_max(uint64_t *p, uint64_t v) { atomicMax((unsigned long long *)p, (unsigned long long)v); }
FGC_FN void atomic_min(uint32_t *p, uint32_t v) { atomicMin(p, v); }
FGC_FN void atomic_add(uint64_t *p, uint64_t v) { atomicAdd((unsigned long long *)p, (unsigned long long)v); }
/* Subtracts 1 and returns what was there. */
FGC_FN uint32_t atomic_decrement(uint32_t *p) { return atomicSub(p, 1u); }
/* What the lane has written is there for whoever sees what it writes next; and the other way round. */
FGC_FN void fence() { __threadfence(); }
/* What is there now, which others change meanwhile. */
template <typename T>
FGC_FN T peek(const T *p) {
  return *(const volatile T *)p;
}

#else

FGC_FN int thread_index() { return emulator::thread(); }
FGC_FN int64_t block_index() { return emulator::block(); }
FGC_FN int64_t num_blocks() { return emulator::blocks(); }
FGC_FN void sync_block() { emulator::meet_block(false); }
FGC_FN bool any_in_block(bool v) { return emulator::meet_block(v); }
FGC_FN char *shared() { return emulator::shared(); }
template <typename T>
FGC_FN T shuffle(const Team &t, T v, int from) {
  return emulator::exchange(t.mask, v, (emulator::thread() % 32 & ~(t.size - 1)) + (from & (t.size - 1)));
}
template <typename T>
FGC_FN T shuffle_xor(const Team &t, T v, int with) {
  return emulator::exchange(t.mask, v, emulator::thread() % 32 ^ with);
}
FGC_FN unsigned ballot(bool v) { return emulator::vote(~0u, v); }
FGC_FN unsigned ballot(const Team &t, bool v) { return emulator::vote(t.mask, v) >> __builtin_ctz(t.mask); }
FGC_FN void sync_warp() { emulator::vote(~0u, false); }
FGC_FN void sync_team(const Team &t) { emulator::vote(t.mask, false); }
FGC_FN unsigned same_as(uint32_t v) { return emulator::match(~0u, v); }
FGC_FN int count_ones(unsigned v) { return __builtin_popcount(v); }
FGC_FN int first_one(unsigned v) { return __builtin_ffs((int)v) - 1; }
FGC_FN uint64_t multiply_high(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  return (uint64_t)((Wide)a * b >> 64);
}
FGC_FN uint64_t compare_and_swap(uint64_t *p, uint64_t old, uint64_t v) {
  emulator::perhaps_yield();
  uint64_t was = *p;
  if (was == old) *p = v;
  return was;
}
FGC_FN void atomic_max(uint64_t *p, uint64_t v) {
  emulator::perhaps_yield();
  if (*p < v) *p = v;
}
FGC_FN void atomic_min(uint32_t *p, uint32_t v) {
  emulator::perhaps_yield();
  if (*p > v) *p = v;
}
FGC_FN void atomic_add(uint64_t *p, uint64_t v) {
  emulator::perhaps_yield();
  *p += v;
}
FGC_FN uint32_t atomic_decrement(uint32_t *p) {
  emulator::perhaps_yield();
  return (*p)--;
}
FGC_FN void fence() { emulator::perhaps_yield(); }
template <typename T>
FGC_FN T peek(const T *p) {
  const T v = *p;
  emulator::perhaps_yield(); /* so that it may be old when it is used */
  return v;
}

#endif

FGC_FN int warp_index() { return thread_index() / FGC_WARP; }
FGC_FN int lane_index() { return thread_index() % FGC_WARP; }

/* The calling thread's team, where warps are cut into teams of `size` lanes. */
FGC_FN Team team_of(int size) {
  const int lane = lane_index(), first = lane & ~(size - 1);
  Team t;
  t.mask = size == 32 ? ~0u : ((1u << size) - 1) << first;
  t.size = size;
  t.lane = lane - first;
  return t;
}

/* Its number among all of the grid. */
FGC_FN int64_t team_index(int size) { return (block_index() * FGC_THREADS + thread_index()) / size; }

/* Notes what is wrong where, see fg_cuda_queue. */
FGC_FN void note(uint64_t *status, int kind, int64_t position) {
  if (status != nullptr) atomic_max(status, (uint64_t)kind << 56 | (0xffffffffffffffull - (uint64_t)position));
}

/* Element i of an array of integers of 4 or 8 bytes. */
FGC_FN int64_t integer_at(const void *p, int wide, int64_t i) {
  return wide ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}
FGC_FN void put_integer(void *p, int wide, int64_t i, int64_t v) {
  if (wide)
    ((int64_t *)p)[i] = v;
  else
    ((int32_t *)p)[i] = (int32_t)v;
}

/* The edges of a row, none where its pointers are wrong. Every lane of a team may ask; the first of it notes. */
FGC_FN void edges_of(const fgc_graph &g, int64_t row, bool notes, int64_t *first, int64_t *end) {
  const int64_t a = g.ptr[row], b = g.ptr[row + 1];
  *first = a;
  *end = b;
  if (a < 0 || b < a || b > g.num_index) {
    if (notes) note(g.status, 3 /* FG_BAD_PTR */, a < 0 ? row : row + 1);
    *end = *first = 0;
  }
  if (notes && ((row == 0 && a != 0) || (row == g.rows - 1 && b != g.num_index && g.cut < 0 && g.cut_at == nullptr)))
    note(g.status, 3, a != 0 && row == 0 ? 0 : g.rows);
}

/* The row that edge e belongs to: the first whose end is beyond it. */
FGC_FN int64_t row_of(const int64_t *ptr, int64_t rows, int64_t e) {
  int64_t lo = 0, hi = rows;
  while (lo < hi) {
    const int64_t middle = lo + (hi - lo) / 2;
    if (ptr[middle + 1] <= e)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}

}  // namespace fgc

#endif
