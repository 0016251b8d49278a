/*
 * fg_draw_*: the in-edges of the targets of a hop, drawn uniformly, as the CPU draws them (core/sample/draw.go).
 *
 * A target's draws follow from the key of the hop and its own id. Neither threads nor the order of the work enter, and
 * positions equal the CPU's to the bit. Counts of each chunk of targets, a scan of them and a prefix sum in the chunk
 * say where the edges of each target begin. A team then draws for one target: every lane computes every number of the
 * stream, which costs less than exchanging them, and the lanes compare it with what was drawn before.
 */
#ifndef FRESHGO_CUDA_DRAW_H
#define FRESHGO_CUDA_DRAW_H

#include "warp.h"

namespace fgc {

enum : uint64_t { GOLDEN = 0x9e3779b97f4a7c15ull };

FGC_FN uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

FGC_FN uint64_t absorb(uint64_t key, uint64_t word) { return mix((key ^ word) + GOLDEN); }

/* A uniform number in [0, n) by Lemire's method; the state goes on by one for each number that it takes. */
FGC_FN uint64_t below(uint64_t *state, uint64_t n) {
  for (;;) {
    const uint64_t x = mix(*state += GOLDEN), low = x * n;
    if (low >= n || low >= (0 - n) % n) return multiply_high(x, n);
  }
}

/* Element i of ids of 32 or 64 bits, or of fewer, one behind the other (core/packed). */
FGC_FN int64_t id_at(const void *ids, int bits, int64_t i) {
  if (bits == 64) return ((const int64_t *)ids)[i];
  if (bits == 32) return ((const uint32_t *)ids)[i];
  const uint64_t at = (uint64_t)i * (uint64_t)bits, shift = at % 32;
  const uint32_t *word = (const uint32_t *)ids + at / 32;
  uint64_t id = (word[0] | (uint64_t)word[1] << 32) >> shift;
  if (shift + (uint64_t)bits > 64) id |= (uint64_t)word[2] << (64 - shift);
  return (int64_t)(id & ((1ull << bits) - 1));
}

/* The in-edges of target i, and how many may be drawn: none where it is no node, or its pointers are wrong. */
FGC_FN int64_t list_of(const fgc_draw &d, int64_t i, bool notes, int64_t *first, int64_t *degree) {
  const int64_t node = d.target[i];
  *first = *degree = 0;
  if ((uint64_t)node >= (uint64_t)d.nodes) {
    if (notes && !(d.padded && node == -1)) note(d.status, 1 /* FG_BAD_INDEX */, i);
    return 0;
  }
  const int64_t a = d.ptr[node], b = d.ptr[node + 1];
  if (a < 0 || b < a || b > d.edges) {
    if (notes) note(d.status, 3 /* FG_BAD_PTR */, node);
    return 0;
  }
  *first = a;
  *degree = b - a;
  return d.positive != nullptr ? d.positive[node] : b - a;
}

/* The number of edges that are drawn from a list, by the number that may be drawn. */
FGC_FN int64_t drawn_of(const fgc_draw &d, int64_t count) {
  if (d.fanout < 0 || (!d.replace && count < d.fanout)) return count;
  return count == 0 ? 0 : d.fanout;
}

/* A target that a team draws for: `count` of its `degree` in-edges, which begin at `start`, for the places from `at`
 * on. */
struct Target {
  Team team;
  int64_t node, start, degree, count, at;
};

/* The target of this team. No edges are drawn for teams behind the last target, and where edges have no room. */
FGC_FN Target target_of(const fgc_draw &d, int lanes) {
  Target of = {team_of(lanes), 0, 0, 0, 0, 0};
  const int64_t i = team_index(lanes);
  if (i >= d.targets) return of;
  of.node = d.target[i];
  of.at = d.first[i];
  const int64_t k = drawn_of(d, list_of(d, i, false, &of.start, &of.degree));
  if (of.at >= 0 && of.at + k <= d.drawn) {
    of.count = k;
  } else if (of.team.lane == 0 && !d.padded) {
    note(d.status, 3 /* FG_BAD_PTR */, i); /* not what fg_draw_first wrote */
  }
  return of;
}

FGC_FN void draw_count(const fgc_draw &d) {
  const int64_t chunk = team_index(FGC_WARP), from = chunk * FGC_CHUNK;
  if (chunk >= d.tiles) return;
  uint64_t sum = 0;
  for (int64_t i = from + lane_index(); i < from + FGC_CHUNK && i < d.targets; i += FGC_WARP) {
    int64_t first, degree;
    sum += (uint64_t)drawn_of(d, list_of(d, i, true, &first, &degree));
  }
  const Team t = team_of(FGC_WARP);
  for (int with = 1; with < FGC_WARP; with *= 2) sum += shuffle_xor(t, sum, with);
  if (lane_index() != 0) return;
  d.counts[chunk] = (uint32_t)sum; /* where this overflows, the total says so */
  atomic_add(d.total, sum);
}

FGC_FN void draw_first(const fgc_draw &d) {
  const int64_t chunk = team_index(FGC_WARP), from = chunk * FGC_CHUNK;
  if (chunk >= d.tiles) return;
  const Team t = team_of(FGC_WARP);
  int64_t before = d.counts[chunk];
  for (int64_t at = from; at < from + FGC_CHUNK && at < d.targets; at += FGC_WARP) {
    int64_t first, degree, own = 0;
    if (at + t.lane < d.targets) own = drawn_of(d, list_of(d, at + t.lane, false, &first, &degree));
    int64_t upto = own; /* over the lanes up to this one */
    for (int by = 1; by < FGC_WARP; by *= 2) {
      const int64_t other = shuffle(t, upto, (t.lane - by) & (FGC_WARP - 1));
      if (t.lane >= by) upto += other;
    }
    if (at + t.lane < d.targets) d.first[at + t.lane] = before + upto - own;
    before += shuffle(t, upto, FGC_WARP - 1);
  }
}

FGC_FN void put_edge(const fgc_draw &d, int64_t at, int64_t position) {
  d.position[at] = position;
  d.neighbor[at] = id_at(d.source, d.source_bits, position);
  if (d.edge_id != nullptr) d.edge_id[at] = id_at(d.edge, d.edge_bits, position);
}

/* Reports whether an edge is among the first n of a target. Each lane looks at its own ones. */
FGC_FN bool among(const fgc_draw &d, const Target &of, int64_t n, int64_t position) {
  bool there = false;
  for (int64_t b = of.team.lane; b < n; b += of.team.size) there = there || d.position[of.at + b] == position;
  return there;
}

FGC_FN void draw(const fgc_draw &d) {
  const Target of = target_of(d, d.lanes);
  if (of.count == 0) return;
  const Team &t = of.team;
  uint64_t state = absorb(d.key, (uint64_t)of.node);
  if (d.fanout < 0 || (!d.replace && of.count == of.degree)) {
    for (int64_t e = t.lane; e < of.count; e += t.size) put_edge(d, of.at + e, of.start + e);
    return;
  }
  if (d.replace) {
    for (int64_t e = 0; e < of.count; e++) {
      const int64_t p = (int64_t)below(&state, (uint64_t)of.degree);
      if (e % t.size == t.lane) put_edge(d, of.at + e, of.start + p);
    }
    return;
  }
  /* Floyd's method: draw e is a number up to j, or j if that was drawn before. A lane holds one draw of a round; those
   * of the rounds before are in memory. */
  for (int64_t round = 0; round < of.count; round += t.size) {
    int64_t mine = -1;
    for (int64_t e = round; e < round + t.size && e < of.count; e++) {
      const int64_t j = of.degree - of.count + e;
      int64_t p = (int64_t)below(&state, (uint64_t)j + 1);
      const bool there = mine == p || among(d, of, round, of.start + p);
      if (ballot(t, there) != 0) p = j;
      if (e - round == t.lane) mine = p;
    }
    if (mine >= 0) put_edge(d, of.at + round + t.lane, of.start + mine);
    sync_team(t);
  }
}

}  // namespace fgc

#endif
