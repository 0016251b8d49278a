// Grouping by source, Fused-Map and the gathering of rows.
#include <algorithm>
#include <unordered_map>

#include "check.h"

using namespace fgc;

namespace {

struct Transposed {
  Array<int64_t> source_ptr;
  Indices target, edge;
  Array<uint64_t> status{1};
  Transposed(int64_t sources, int64_t n, bool wide) : source_ptr(sources + 1), target(n, wide), edge(n, wide) {
    status[0] = 0;
  }
};

void transpose(const Graph &g, int64_t sources, bool wide, bool only_group, uint64_t seed, Transposed *out) {
  const int64_t n = (int64_t)g.index.size();
  Indices index(g.index, wide);
  Array<int64_t> ptr(g.ptr);
  fg_transposition in = {};
  in.struct_size = sizeof in;
  in.index_bytes = wide ? 8 : 4;
  in.ptr = only_group ? nullptr : ptr.data();
  in.rows = only_group ? 0 : g.rows();
  in.index = index.data();
  in.num_index = n;
  in.sources = sources;
  in.source_ptr = out->source_ptr.data();
  in.target = only_group ? nullptr : out->target.data();
  in.edge = out->edge.data();
  fgc_plan p;
  int64_t n_bytes = -1;
  REQUIRE(fgc_plan_transpose(&in, nullptr, &n_bytes, 0, &p) == FG_OK && p.num_launches == 0 && n_bytes >= 0, "%s",
      p.message);
  Array<uint64_t> scratch(n_bytes / 8 + 2); /* exactly, but for the alignment */
  int64_t less = n_bytes - 1;
  if (n_bytes > 0) REQUIRE(fgc_plan_transpose(&in, scratch.data(), &less, 0, &p) == FG_INVALID, "too little scratch");
  void *at = (void *)((uintptr_t)scratch.data() & ~(uintptr_t)15);
  if (at < (void *)scratch.data()) at = (char *)at + 16;
  REQUIRE(fgc_plan_transpose(&in, at, &n_bytes, (uintptr_t)out->status.data(), &p) == FG_OK, "%s", p.message);
  run(p, seed);
}

void check_one(const std::vector<int64_t> &lengths, int64_t sources, bool wide) {
  const Graph g = graph_of(lengths, sources);
  const int64_t n = (int64_t)g.index.size();
  Transposed t(sources, n, wide), grouped(sources, n, wide);
  transpose(g, sources, wide, false, 3, &t);
  transpose(g, sources, wide, true, 4, &grouped);
  REQUIRE(t.status[0] == 0, "status %lx", (unsigned long)t.status[0]);
  std::vector<std::vector<int64_t>> of_source((size_t)sources);
  std::vector<int64_t> row_of_edge((size_t)n);
  for (int64_t r = 0; r < g.rows(); r++)
    for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++) row_of_edge[(size_t)k] = r;
  for (int64_t k = 0; k < n; k++) of_source[(size_t)g.index[(size_t)k]].push_back(k);
  int64_t at = 0;
  for (int64_t s = 0; s < sources; s++) {
    REQUIRE(t.source_ptr[s] == at && grouped.source_ptr[s] == at, "source_ptr[%ld]: %ld, got %ld", (long)s, (long)at,
        (long)t.source_ptr[s]);
    for (int64_t k : of_source[(size_t)s]) {
      REQUIRE(t.edge[at] == k && grouped.edge[at] == k, "edge[%ld]: %ld, got %ld", (long)at, (long)k, (long)t.edge[at]);
      REQUIRE(t.target[at] == row_of_edge[(size_t)k], "target[%ld]", (long)at);
      at++;
    }
  }
  REQUIRE(t.source_ptr[sources] == n && grouped.source_ptr[sources] == n, "the end");
}

}  // namespace

void check_transpose() {
  for (int64_t sources : {1, 2, 255, 256, 257, 5000})
    for (bool wide : {false, true}) {
      check_one({0, 1, 31, 32, 33, 0, 3, 100}, sources, wide);
      check_one({FGC_TILE, 1, 700, 0, FGC_TILE + 3}, sources, wide);
    }
  check_one({5, 0, 4}, 70000, true); /* three digits */
  check_one({}, 5, true);
  check_one({0, 0}, 0, false);

  const std::vector<int64_t> lengths = {3, 4, 2};
  for (int64_t bad : {-5, 10}) { /* absent: the lists hold the others */
    Graph g = graph_of(lengths, 10);
    g.index[4] = g.index[6] = bad;
    Transposed t(10, 9, true);
    transpose(g, 10, true, false, 9, &t);
    REQUIRE(FG_BAD_KIND(t.status[0]) == FG_BAD_INDEX && FG_BAD_POSITION(t.status[0]) == 4, "status %lx",
        (unsigned long)t.status[0]);
    REQUIRE(t.source_ptr[10] == 7, "%ld edges are left", (long)t.source_ptr[10]);
    for (int64_t i = 0; i < 7; i++) REQUIRE(t.edge[i] != 4 && t.edge[i] != 6, "edge %ld", (long)t.edge[i]);
  }
  Graph g = graph_of(lengths, 10);
  g.ptr[0] = 2;
  Transposed t(10, 9, false);
  transpose(g, 10, false, false, 9, &t);
  REQUIRE(FG_BAD_KIND(t.status[0]) == FG_BAD_PTR && FG_BAD_POSITION(t.status[0]) == 0, "status %lx",
      (unsigned long)t.status[0]);
}

namespace {

/* Ids in order of first occurrence, by a loop; the first `kept` have their places as numbers. */
void check_ids(const std::vector<int64_t> &ids, bool wide, int orders, int64_t kept = 0, bool padded = false) {
  const int64_t n = (int64_t)ids.size();
  std::unordered_map<int64_t, int64_t> number;
  std::vector<int64_t> node;
  int64_t bad = -1;
  for (int64_t i = 0; i < n; i++) {
    const int64_t id = ids[(size_t)i];
    if ((id >= 0 && number.emplace(id, (int64_t)node.size()).second) || i < kept) node.push_back(id);
    if (bad < 0 && id < (padded ? -1 : 0)) bad = i;
  }
  Indices id(ids, wide);
  for (int order = 0; order < orders; order++) {
    Indices nodes(n, wide), local(n, wide);
    Array<int64_t> count(1);
    Array<uint64_t> status(1);
    status[0] = 0;
    fg_mapping in = {};
    in.struct_size = sizeof in;
    in.index_bytes = wide ? 8 : 4;
    in.id = id.data();
    in.n = n;
    in.kept = kept;
    in.padded = padded;
    in.node = nodes.data();
    in.local = local.data();
    in.count = count.data();
    fgc_plan p;
    int64_t n_bytes = 0;
    REQUIRE(fgc_plan_map(&in, nullptr, &n_bytes, 0, &p) == FG_OK, "%s", p.message);
    Array<uint64_t> scratch(n_bytes / 8);
    REQUIRE(fgc_plan_map(&in, scratch.data(), &n_bytes, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
    run(p, 100 * (uint64_t)order + 1);
    REQUIRE(count[0] == (int64_t)node.size(), "%zu ids, got %ld", node.size(), (long)count[0]);
    for (size_t i = 0; i < node.size(); i++)
      REQUIRE(nodes[(int64_t)i] == node[i], "node[%zu]: %ld, got %ld", i, (long)node[i], (long)nodes[(int64_t)i]);
    for (int64_t i = 0; i < n; i++) {
      const int64_t want = ids[(size_t)i] < 0 ? -1 : number[ids[(size_t)i]];
      REQUIRE(local[i] == want, "local[%ld]: %ld, got %ld", (long)i, (long)want, (long)local[i]);
    }
    REQUIRE(bad < 0 ? status[0] == 0 : FG_BAD_KIND(status[0]) == FG_BAD_INDEX && FG_BAD_POSITION(status[0]) == bad,
        "status");
  }
}

}  // namespace

void check_map() {
  for (int64_t n : {0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 5000}) {
    for (int64_t range : {(int64_t)1, (int64_t)7, n + 1, (int64_t)1 << 30}) {
      std::vector<int64_t> ids((size_t)n);
      for (auto &id : ids) id = below(range);
      check_ids(ids, n % 2 == 0, 3);
    }
    std::vector<int64_t> descending;
    for (int64_t i = 0; i < n; i++) descending.push_back(3 * (n - i));
    check_ids(descending, true, 2);
  }
  std::vector<int64_t> ids;
  /* 64 bits, alike in the lower ones */
  for (int i = 0; i < 3000; i++) ids.push_back(i % 5 == 0 ? INT64_MAX : below(900) * ((int64_t)1 << 32));
  check_ids(ids, true, 4);
  ids[700] = -1;
  ids[900] = INT64_MIN;
  check_ids(ids, true, 2);
  check_ids(ids, true, 2, 800, true); /* the one pads, the other is wrong */

  for (int64_t range : {3, 900, 1 << 20})
    for (int64_t kept : {0, 1, 33, 1024, 1500})
      for (bool padded : {false, true}) {
        ids.resize((size_t)(kept + 2100));
        for (auto &id : ids) id = below(range);
        for (int64_t i = kept / 2; padded && i < kept; i++) ids[(size_t)i] = -1;
        if (padded) ids[(size_t)kept + 40] = ids.back() = -1;
        check_ids(ids, kept % 2 == 0, 1, kept, padded);
      }
}

void check_gather() {
  for (int64_t row_bytes : {1, 2, 3, 4, 6, 8, 12, 16, 20, 48, 100, 512, 520, 2048, 2408})
    for (int shift : {0, 4, 1}) {
      const int64_t table_rows = 37, cache_rows = 11, n = 90, table_stride = row_bytes + (shift == 4 ? 16 : 0),
          cache_stride = row_bytes;
      Array<unsigned char> table(table_rows * table_stride, shift), cache(cache_rows * cache_stride),
          out(n * row_bytes);
      for (int64_t i = 0; i < table.size(); i++) table[i] = (unsigned char)rng()();
      for (int64_t i = 0; i < cache.size(); i++) cache[i] = (unsigned char)rng()();
      std::vector<int64_t> rows;
      std::vector<int32_t> slots;
      for (int64_t i = 0; i < n; i++) {
        slots.push_back(below(2) == 0 ? (int32_t)below(cache_rows) : -1);
        rows.push_back(slots.back() >= 0 ? (int64_t)1 << 30 : below(table_rows)); /* not read where the row is cached */
      }
      const bool bad = shift == 0;
      if (bad) {
        slots[5] = (int32_t)cache_rows;
        slots[8] = slots[9] = -1;
        rows[8] = -1;
        rows[9] = table_rows;
      }
      Indices index(rows, row_bytes % 2 == 0);
      Array<int32_t> slot(slots);
      Array<uint64_t> status(1);
      status[0] = 0;
      fg_gathering in = {};
      in.struct_size = sizeof in;
      in.index_bytes = row_bytes % 2 == 0 ? 8 : 4;
      in.n = n;
      in.row_bytes = row_bytes;
      in.index = index.data();
      in.table = table.data();
      in.table_rows = table_rows;
      in.table_stride = table_stride;
      in.slot = slot.data();
      in.cache = cache.data();
      in.cache_rows = cache_rows;
      in.cache_stride = cache_stride;
      in.out = out.data();
      fgc_plan p;
      REQUIRE(fgc_plan_gather(&in, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
      run(p, 8);
      for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < row_bytes; b++) {
          const bool wrong = bad && (i == 5 || i == 8 || i == 9);
          const unsigned char want = wrong              ? 0
                                     : slots[(size_t)i] >= 0 ? cache[slots[(size_t)i] * cache_stride + b]
                                                        : table[rows[(size_t)i] * table_stride + b];
          REQUIRE(out[i * row_bytes + b] == want, "byte %ld of row %ld", (long)b, (long)i);
        }
      if (bad)
        REQUIRE(FG_BAD_KIND(status[0]) == FG_BAD_SLOT && FG_BAD_POSITION(status[0]) == 5, "status %lx",
            (unsigned long)status[0]);
      else
        REQUIRE(status[0] == 0, "status %lx", (unsigned long)status[0]);

      /* nothing is cached, and nothing is to be had */
      in.slot = nullptr;
      in.cache = nullptr;
      in.cache_rows = 0;
      in.table = nullptr;
      in.table_rows = 0;
      status[0] = 0;
      REQUIRE(fgc_plan_gather(&in, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
      run(p, 8);
      for (int64_t i = 0; i < out.size(); i++) REQUIRE(out[i] == 0, "byte %ld", (long)i);
      REQUIRE(FG_BAD_KIND(status[0]) == FG_BAD_INDEX && FG_BAD_POSITION(status[0]) == 0, "status %lx",
          (unsigned long)status[0]);
    }
}
