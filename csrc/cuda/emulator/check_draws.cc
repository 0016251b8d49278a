// Draws of a hop against a sampler that keeps a set, and the numbering of batches whose seeds repeat.
#include <set>
#include <unordered_map>

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
  bool replace, wide;
};

void check_hop(const Hop &h, uint64_t seed) {
  const int64_t nodes = (int64_t)h.lengths.size();
  const Graph g = graph_of(h.lengths, nodes);
  Array<int64_t> ptr(g.ptr), target(h.targets), first((int64_t)h.targets.size());
  Indices source(g.index, h.wide);
  Array<uint64_t> total(1), status(1);
  total[0] = status[0] = 0;
  fg_drawing in = {};
  in.struct_size = sizeof in;
  in.index_bytes = h.wide ? 8 : 4;
  in.ptr = ptr.data();
  in.num_nodes = nodes;
  in.source = source.data();
  in.num_edges = (int64_t)g.index.size();
  in.target = target.data();
  in.num_targets = target.size();
  in.fanout = h.fanout;
  in.key = seed * 0x1234567ull;
  in.hop = (int32_t)(seed % 3);
  in.replace = h.replace;
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
    const uint64_t state = absorb(absorb(in.key, (uint64_t)in.hop), (uint64_t)v);
    for (int64_t at : expected(state, g.ptr[(size_t)v], h.lengths[(size_t)v], h.fanout, h.replace))
      positions.push_back(at);
  }
  REQUIRE(total[0] == positions.size(), "%zu edges, got %lu", positions.size(), (unsigned long)total[0]);
  for (size_t i = 0; i < firsts.size(); i++)
    REQUIRE(first[(int64_t)i] == firsts[i], "first[%zu]: %ld, got %ld", i, (long)firsts[i], (long)first[(int64_t)i]);
  in.num_drawn = (int64_t)positions.size();
  Array<int64_t> position(in.num_drawn), neighbor(in.num_drawn);
  in.position = position.data();
  in.neighbor = neighbor.data();
  REQUIRE(fgc_plan_draw(&in, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
  run(p, seed + 50);
  for (size_t i = 0; i < positions.size(); i++) {
    REQUIRE(position[(int64_t)i] == positions[i], "position[%zu]: %ld, got %ld", i, (long)positions[i],
        (long)position[(int64_t)i]);
    REQUIRE(neighbor[(int64_t)i] == g.index[(size_t)positions[i]], "neighbor[%zu]", i);
  }
  const bool bad = std::any_of(h.targets.begin(), h.targets.end(), [&](int64_t v) { return v < 0 || v >= nodes; });
  REQUIRE(bad ? FG_BAD_KIND(status[0]) == FG_BAD_INDEX : status[0] == 0, "status %lx", (unsigned long)status[0]);
}

/* Seeds that repeat keep their places; what comes later has the first one. */
void check_kept(int64_t kept, int64_t n, int64_t range) {
  std::vector<int64_t> ids((size_t)n), node;
  std::unordered_map<int64_t, int64_t> number;
  for (int64_t i = 0; i < n; i++) {
    const int64_t id = ids[(size_t)i] = below(range);
    if (number.emplace(id, (int64_t)node.size()).second || i < kept) node.push_back(id);
  }
  Array<int64_t> id(ids), nodes(n), local(n), count(1);
  fg_mapping in = {};
  in.struct_size = sizeof in;
  in.index_bytes = 8;
  in.id = id.data();
  in.n = n;
  in.kept = kept;
  in.node = nodes.data();
  in.local = local.data();
  in.count = count.data();
  fgc_plan p;
  int64_t n_bytes = 0;
  REQUIRE(fgc_plan_map(&in, nullptr, &n_bytes, 0, &p) == FG_OK, "%s", p.message);
  Array<uint64_t> scratch(n_bytes / 8);
  REQUIRE(fgc_plan_map(&in, scratch.data(), &n_bytes, 0, &p) == FG_OK, "%s", p.message);
  run(p, (uint64_t)(kept + n));
  REQUIRE(count[0] == (int64_t)node.size(), "%zu nodes, got %ld", node.size(), (long)count[0]);
  for (size_t i = 0; i < node.size(); i++) REQUIRE(nodes[(int64_t)i] == node[i], "node[%zu]", i);
  for (int64_t i = kept; i < n; i++)
    REQUIRE(local[i] == number[ids[(size_t)i]], "local[%ld]: %ld, got %ld", (long)i, (long)number[ids[(size_t)i]],
        (long)local[i]);
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
      Hop h = {{0, 1, 2, 5, 31, 32, 33, 64, 65, 71, 200, 3000, 0}, {}, fanout, replace, fanout % 2 == 0};
      for (int i = 0; i < 40; i++) h.targets.push_back(below((int64_t)h.lengths.size()));
      check_hop(h, (uint64_t)(10 * fanout + replace + 11));
      h.targets.clear();
      check_hop(h, 3);
    }
  Hop many = {{}, {}, 3, false, false}; /* of several chunks */
  for (int i = 0; i < 50; i++) many.lengths.push_back(below(9));
  for (int i = 0; i < 2 * FGC_CHUNK + 77; i++) many.targets.push_back(below(50));
  check_hop(many, 5);
  check_hop({{3, 4}, {1, -1, 0, 2, 1}, 2, false, true}, 6); /* no nodes, which have no edges */

  for (int64_t range : {3, 900, 1 << 20})
    for (int64_t kept : {0, 1, 33, 1024, 1500}) check_kept(kept, kept + 2100, range);
}
