// Draws of a hop against a sampler that keeps a set.
#include <set>

#include "check.h"

using namespace fgc;

namespace {

/* The positions that core/sample/draw.go draws, one after the other. */
std::vector<int64_t> expected(uint64_t state, int64_t start, int64_t degree, int64_t fanout, bool replace) {
  std::vector<int64_t> out;
  if (fanout < 0 || (!replace && degree <= fanout)) {
    for (int64_t e = 0; e < degree; e++) out.push_back(start + e);
    return out;
  }
  std::set<int64_t> drawn;
  for (int64_t e = 0; e < fanout && degree > 0; e++) {
    const int64_t j = replace ? degree - 1 : degree - fanout + e;
    int64_t p = (int64_t)below(&state, (uint64_t)j + 1);
    if (!replace && !drawn.insert(p).second) drawn.insert(p = j);
    out.push_back(start + p);
  }
  return out;
}

struct Hop {
  std::vector<int64_t> lengths, targets;
  int64_t fanout;
  bool replace;
  int bits; /* of ids */
  bool padded = false;
};

/* Ids of some bits, one behind the other, and two words more. */
std::vector<uint32_t> packed(const std::vector<int64_t> &ids, int bits) {
  std::vector<uint32_t> out((ids.size() * (size_t)bits + 31) / 32 + 2);
  for (size_t i = 0; i < ids.size(); i++)
    for (size_t b = 0, at = i * (size_t)bits; b < (size_t)bits; b++, at++)
      out[at / 32] |= (uint32_t)((uint64_t)ids[i] >> b & 1) << at % 32;
  return out;
}

void check_hop(const Hop &h, uint64_t seed) {
  const int64_t nodes = (int64_t)h.lengths.size();
  const Graph g = graph_of(h.lengths, nodes);
  Array<int64_t> ptr(g.ptr), target(h.targets), first((int64_t)h.targets.size());
  std::vector<int64_t> numbers; /* of edges, of other bits than the sources */
  const int number_bits = h.bits == 64 ? 32 : h.bits == 32 ? 64 : 57;
  for (size_t i = 0; i < g.index.size(); i++)
    numbers.push_back((int64_t)(mix(i) & ((1ull << (number_bits == 64 ? 62 : number_bits)) - 1)));
  Array<uint32_t> source(packed(g.index, h.bits)), edge(packed(numbers, number_bits));
  Array<uint64_t> total(1), status(1);
  total[0] = status[0] = 0;
  fg_drawing in = {};
  in.struct_size = sizeof in;
  in.source_bits = h.bits;
  in.edge_bits = number_bits;
  in.edge = edge.data();
  in.ptr = ptr.data();
  in.num_nodes = nodes;
  in.source = source.data();
  in.num_edges = (int64_t)g.index.size();
  in.target = target.data();
  in.num_targets = target.size();
  in.fanout = h.fanout;
  in.key = absorb(seed * 0x1234567ull, seed % 3);
  in.replace = h.replace;
  in.padded = h.padded;
  in.first = first.data();
  in.total = total.data();
  fgc_plan p;
  int64_t n_bytes = 0;
  REQUIRE(fgc_plan_draw_count(&in, nullptr, &n_bytes, 0, &p) == FG_OK, "%s", p.message);
  Array<uint64_t> scratch(n_bytes / 8 + 2);
  REQUIRE(fgc_plan_draw_count(&in, scratch.data() + (uintptr_t)scratch.data() / 8 % 2, &n_bytes,
              (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
  run(p, seed);
  std::vector<int64_t> positions, firsts;
  for (int64_t v : h.targets) {
    firsts.push_back((int64_t)positions.size());
    if (v < 0 || v >= nodes) continue;
    const uint64_t state = absorb(in.key, (uint64_t)v);
    for (int64_t at : expected(state, g.ptr[(size_t)v], h.lengths[(size_t)v], h.fanout, h.replace))
      positions.push_back(at);
  }
  REQUIRE(total[0] == positions.size(), "%zu edges, got %lu", positions.size(), (unsigned long)total[0]);
  for (size_t i = 0; i < firsts.size(); i++)
    REQUIRE(first[(int64_t)i] == firsts[i], "first[%zu]: %ld, got %ld", i, (long)firsts[i], (long)first[(int64_t)i]);
  /* With padding also more room, and too little: targets whose edges have room are drawn. */
  const int64_t num_drawn = (int64_t)positions.size();
  for (int64_t room : h.padded ? std::vector<int64_t>{num_drawn, num_drawn + 9, num_drawn / 2}
                               : std::vector<int64_t>{num_drawn}) {
    Array<int64_t> position(room), neighbor(room), edge_id(room);
    for (int64_t i = 0; i < room; i++) position[i] = neighbor[i] = edge_id[i] = -7;
    in.num_drawn = room;
    in.position = position.data();
    in.neighbor = neighbor.data();
    in.edge_id = seed % 4 != 1 ? edge_id.data() : nullptr;
    REQUIRE(fgc_plan_draw(&in, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
    run(p, seed + 50);
    std::vector<int64_t> want((size_t)room, -7);
    for (size_t i = 0; i < firsts.size(); i++) {
      const int64_t end = i + 1 < firsts.size() ? firsts[i + 1] : num_drawn;
      for (int64_t e = firsts[i]; e < end && end <= room; e++) want[(size_t)e] = positions[(size_t)e];
    }
    for (int64_t i = 0; i < room; i++) {
      const int64_t at = want[(size_t)i];
      REQUIRE(position[i] == at, "position[%ld]: %ld, got %ld", (long)i, (long)at, (long)position[i]);
      REQUIRE(neighbor[i] == (at < 0 ? at : g.index[(size_t)at]), "neighbor[%ld]", (long)i);
      const int64_t number = at < 0 || in.edge_id == nullptr ? -7 : numbers[(size_t)at];
      REQUIRE(edge_id[i] == number, "edge_id[%ld]: %ld, got %ld", (long)i, (long)number, (long)edge_id[i]);
    }
  }
  const bool bad = std::any_of(h.targets.begin(), h.targets.end(), [&](int64_t v) {
    return (v < 0 || v >= nodes) && !(h.padded && v == -1);
  });
  REQUIRE(bad ? FG_BAD_KIND(status[0]) == FG_BAD_INDEX : status[0] == 0, "status %lx", (unsigned long)status[0]);
}

}  // namespace

void check_draws() {
  /* A number of the stream is rejected where its low product is below 2^64 mod n, which lists are too short for. */
  int rejected = 0;
  for (uint64_t i = 0; i < 200; i++) {
    const uint64_t n = (1ull << 63) + 1 + (i << 40);
    uint64_t state = i, want = i, x;
    const uint64_t got = below(&state, n);
    do {
      x = mix(want += GOLDEN);
      rejected += x * n < (0 - n) % n;
    } while (x * n < (0 - n) % n);
    REQUIRE(state == want && got < n && got == multiply_high(x, n), "number %d", (int)i);
  }
  REQUIRE(rejected > 50, "%d are rejected", rejected);

  for (int64_t fanout : {-1, 0, 1, 2, 5, 31, 32, 33, 70})
    for (bool replace : {false, true}) {
      const int bits = fanout == 2 ? 64 : fanout == 5 ? 32 : 13 + (int)fanout % 20;
      Hop h = {{0, 1, 2, 5, 31, 32, 33, 64, 65, 71, 200, 3000, 0}, {}, fanout, replace, bits};
      for (int i = 0; i < 40; i++) h.targets.push_back(below((int64_t)h.lengths.size()));
      check_hop(h, (uint64_t)(10 * fanout + replace + 11));
      h.padded = true;
      h.targets.insert(h.targets.begin() + 30, {-1, -1});
      h.targets.push_back(-1);
      check_hop(h, (uint64_t)(10 * fanout + replace + 11));
      h.targets.clear();
      check_hop(h, 3);
    }
  Hop many = {{}, {}, 3, false, 6}; /* of several chunks */
  for (int i = 0; i < 50; i++) many.lengths.push_back(below(9));
  for (int i = 0; i < 2 * FGC_CHUNK + 77; i++) many.targets.push_back(below(50));
  check_hop(many, 5);
  check_hop({{3, 4}, {1, -1, 0, 2, 1}, 2, false, 64}, 6); /* no nodes, which have no edges */
  check_hop({{3, 4}, {1, -2, 0, -1, 1}, 2, false, 64, true}, 6); /* no nodes; one pads */
}
