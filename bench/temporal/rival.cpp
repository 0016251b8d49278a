// As pyg-lib does it: trees one after the other through each hop, the allowed edges by std::upper_bound in a list that
// is sorted by time, draws without replacement through a small set, pairs of tree and node numbered by a hash map.
#include "rival.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

struct std_map {
  std::unordered_map<uint64_t, int64_t> map;
  bool add(uint64_t key, int64_t n) { return map.emplace(key, n).second; }
};

struct flat_map {
  std::vector<uint64_t> keys = std::vector<uint64_t>(1 << 12, ~0ull);
  size_t n = 0;
  bool add(uint64_t key, int64_t) {
    if (2 * (n + 1) > keys.size()) {
      std::vector<uint64_t> old(keys.size() * 2, ~0ull);
      old.swap(keys);
      for (uint64_t k : old)
        if (k != ~0ull) place(k);
    }
    if (!place(key)) return false;
    n++;
    return true;
  }
  bool place(uint64_t key) {
    const size_t mask = keys.size() - 1;
    for (size_t i = mix(key) & mask;; i = (i + 1) & mask) {
      if (keys[i] == key) return false;
      if (keys[i] == ~0ull) {
        keys[i] = key;
        return true;
      }
    }
  }
};

template <typename Map>
int64_t draw(const rival_graph *g, uint64_t state, const int64_t *seeds, const int64_t *seed_times, int64_t num_seeds,
    int64_t *num_nodes, uint64_t *sum) {
  std::vector<std::pair<int64_t, int64_t>> nodes;
  std::vector<int64_t> drawn;
  Map map;
  for (int64_t i = 0; i < num_seeds; i++) {
    nodes.emplace_back(i, seeds[i]);
    map.add(static_cast<uint64_t>(i) << 32 | seeds[i], i);
  }
  int64_t edges = 0;
  size_t first = 0;
  for (int64_t hop = 0; hop < g->hops; hop++) {
    const size_t end = nodes.size();
    const int64_t k = g->fanouts[hop];
    for (size_t t = first; t < end; t++) {
      const auto [tree, v] = nodes[t];
      int64_t from = g->indptr[v];
      const int64_t to = std::upper_bound(g->times + from, g->times + g->indptr[v + 1], seed_times[tree]) - g->times;
      if (g->last) from = std::max(from, to - k);
      const int64_t have = to - from;
      drawn.clear();
      if (have <= k) {
        for (int64_t p = from; p < to; p++) drawn.push_back(p);
      } else {
        for (int64_t j = have - k; j < have; j++) {
          state += 0x9e3779b97f4a7c15;
          int64_t p = from + static_cast<int64_t>(static_cast<unsigned __int128>(mix(state)) * (j + 1) >> 64);
          if (std::find(drawn.begin(), drawn.end(), p) != drawn.end()) p = from + j;
          drawn.push_back(p);
        }
      }
      for (const int64_t p : drawn) {
        const int64_t u = g->indices[p];
        if (map.add(static_cast<uint64_t>(tree) << 32 | u, nodes.size())) nodes.emplace_back(tree, u);
        *sum += p;
      }
      edges += drawn.size();
    }
    first = end;
  }
  *num_nodes = nodes.size();
  return edges;
}

} // namespace

int64_t rival_draw(const rival_graph *g, uint64_t seed, const int64_t *seeds, const int64_t *seed_times,
    int64_t num_seeds, int64_t *nodes, uint64_t *sum) {
  if (g->table) return draw<flat_map>(g, seed, seeds, seed_times, num_seeds, nodes, sum);
  return draw<std_map>(g, seed, seeds, seed_times, num_seeds, nodes, sum);
}
