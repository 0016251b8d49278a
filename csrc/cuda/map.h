/*
 * Fused-Map (FastGL, section 4.3): fg_map_*. Ids become local ids in one pass of insertion and numbering.
 *
 * The paper inserts an id and, in the same kernel, takes the next number from a counter: no pass over the table, no
 * barrier, but numbers in the order in which warps happen to run. Here insertion is that same single pass, and what it
 * leaves at the id is the first place where it occurs (an atomic minimum), which no order of warps changes. Whoever
 * stands at that place is its first, and its number is how many firsts stand before it: a count of each chunk, which
 * leaves a bit an id, a scan of the counts, and the numbers. Insertion, count and the last step, in which every id
 * fetches its number, access the table at random, 32 bytes an id each; all else is 30 bytes an id in order.
 *
 * Local ids equal the local ids of the CPU (core/sample/nodes.go): ids are numbered by first occurrence, seeds first.
 * The ids before `kept` keep their places as numbers, also those that occur again among them, and those that pad.
 */
#ifndef FRESHGO_CUDA_MAP_H
#define FRESHGO_CUDA_MAP_H

#include "warp.h"

namespace fgc {

enum : uint64_t { EMPTY = ~0ull }; /* no id is negative */
enum : uint32_t { NOWHERE = ~0u };

FGC_FN void map_clear(const fgc_map &m) {
  const int64_t i = block_index() * FGC_THREADS + thread_index();
  if (i > m.slot_mask) return;
  m.keys[i] = EMPTY;
  m.first[i] = NOWHERE;
}

/* The low bits of a product with 2^64 / golden ratio depend on the low bits only: take the high ones. */
FGC_FN uint32_t map_hash(uint64_t id) { return (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32); }

FGC_FN void map_insert(const fgc_map &m) {
  const int64_t i = block_index() * FGC_THREADS + thread_index();
  if (i >= m.n) return;
  const int64_t id = integer_at(m.id, m.wide, i);
  if (id < 0) {
    if (!(m.padded && id == -1)) note(m.status, 1 /* FG_BAD_INDEX */, i);
    m.slot[i] = NOWHERE;
    return;
  }
  uint32_t at = map_hash((uint64_t)id) & m.slot_mask;
  for (;; at = (at + 1) & m.slot_mask) { /* half of the slots stay empty, so this ends */
    uint64_t key = peek(&m.keys[at]); /* written once: what is not EMPTY is final */
    if (key == EMPTY) key = compare_and_swap(&m.keys[at], EMPTY, (uint64_t)id);
    if (key == EMPTY || key == (uint64_t)id) break;
  }
  if (peek(&m.first[at]) > i) atomic_min(&m.first[at], (uint32_t)i); /* it only falls */
  m.slot[i] = at;
}

FGC_FN void map_count(const fgc_map &m) {
  const int64_t chunk = team_index(FGC_WARP), first = chunk * FGC_CHUNK;
  if (chunk >= m.tiles) return;
  constexpr int AHEAD = 8; /* reads of the table on their way */
  uint32_t n = 0;
  for (int i = 0; i < FGC_CHUNK; i += AHEAD * FGC_WARP) {
    uint32_t slot[AHEAD], place[AHEAD];
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++) {
      const int64_t at = first + i + u * FGC_WARP + lane_index();
      slot[u] = at < m.n ? m.slot[at] : NOWHERE;
    }
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++) place[u] = slot[u] != NOWHERE ? m.first[slot[u]] : NOWHERE;
    FGC_UNROLL
    for (int u = 0; u < AHEAD; u++) {
      const int64_t at = first + i + u * FGC_WARP;
      const int64_t mine = at + lane_index();
      const unsigned firsts = ballot(mine < m.kept || (slot[u] != NOWHERE && place[u] == mine));
      if (lane_index() == 0 && at < m.n) m.firsts[at / FGC_WARP] = firsts;
      n += (uint32_t)count_ones(firsts);
    }
  }
  if (lane_index() == 0) m.counts[chunk] = n;
}

FGC_FN void map_number(const fgc_map &m) {
  const int64_t chunk = team_index(FGC_WARP), first = chunk * FGC_CHUNK;
  if (chunk >= m.tiles) return;
  uint32_t next = m.counts[chunk];
  for (int64_t at = first; at < first + FGC_CHUNK && at < m.n; at += FGC_WARP) {
    const unsigned firsts = m.firsts[at / FGC_WARP];
    if (firsts >> lane_index() & 1) {
      const uint32_t number = next + (uint32_t)count_ones(firsts & ((1u << lane_index()) - 1));
      put_integer(m.node, m.wide, number, integer_at(m.id, m.wide, at + lane_index()));
      if (at + lane_index() >= m.kept) m.first[m.slot[at + lane_index()]] = number; /* else it is the place */
    }
    next += (uint32_t)count_ones(firsts);
  }
}

FGC_FN void map_local(const fgc_map &m) {
  const int64_t i = block_index() * FGC_THREADS + thread_index();
  if (i >= m.n) return;
  put_integer(m.local, m.wide, i, m.slot[i] == NOWHERE ? -1 : (int64_t)m.first[m.slot[i]]);
}

}  // namespace fgc

#endif
