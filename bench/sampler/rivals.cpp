#include "rivals.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

// table is an anonymous map in huge pages: zeroed, and untouched pages cost nothing.
template <typename T>
struct table {
  T *data = nullptr;
  size_t bytes = 0;
  void open(int64_t n) {
    bytes = static_cast<size_t>(n) * sizeof(T);
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    madvise(p, bytes, MADV_HUGEPAGE);
    data = static_cast<T *>(p);
  }
  ~table() { munmap(data, bytes); }
};

constexpr uint64_t golden = 0x9e3779b97f4a7c15;

inline uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

inline uint64_t absorb(uint64_t key, uint64_t word) { return mix((key ^ word) + golden); }

inline uint64_t hop_key(uint64_t seed, uint64_t epoch, uint64_t batch, int hop) {
  return absorb(absorb(absorb(absorb(absorb(0, 1), seed), epoch), batch), hop);
}

inline uint64_t below(uint64_t &state, uint64_t n) {
  unsigned __int128 product = static_cast<unsigned __int128>(mix(state += golden)) * n;
  if (__builtin_expect(static_cast<uint64_t>(product) < n, 0)) {
    const uint64_t reject = -n % n;
    while (static_cast<uint64_t>(product) < reject) product = static_cast<unsigned __int128>(mix(state += golden)) * n;
  }
  return static_cast<uint64_t>(product >> 64);
}

// draw writes the positions drawn for one target and returns their number.
inline int64_t draw(uint64_t state, int64_t start, int64_t deg, int64_t k, int64_t *out) {
  if (deg <= k) {
    for (int64_t i = 0; i < deg; i++) out[i] = start + i;
    return deg;
  }
  uint64_t j = deg - k;
  uint64_t filter = 0;
  if (deg <= 64) {
    for (int64_t i = 0; i < k; i++, j++) {
      uint64_t t = below(state, j + 1);
      t = filter >> t & 1 ? j : t;
      filter |= uint64_t{1} << t;
      out[i] = start + static_cast<int64_t>(t);
    }
    return k;
  }
  for (int64_t i = 0; i < k; i++, j++) {
    uint64_t t = below(state, j + 1);
    if (filter >> (t & 63) & 1 && std::find(out, out + i, start + static_cast<int64_t>(t)) != out + i) t = j;
    filter |= uint64_t{1} << (t & 63);
    out[i] = start + static_cast<int64_t>(t);
  }
  return k;
}

struct span {
  int64_t start, deg;
};

}  // namespace

struct rival {
  int64_t graph_nodes;
  const int64_t *indptr;
  const int32_t *indices;
  table<int64_t> fanouts;
  int32_t hops;
  table<uint32_t> stamps, row;
  table<int64_t> nodes, ptr, pos;
  table<span> spans;
  uint32_t base = 1;
  int64_t n = 0;

  void begin(const int64_t *seeds, int64_t num_seeds) {
    base += static_cast<uint32_t>(n);  // the bench draws far fewer than 2^32 nodes
    n = num_seeds;
    for (int64_t i = 0; i < num_seeds; i++) {
      nodes.data[i] = seeds[i];
      if (stamps.data[seeds[i]] < base) stamps.data[seeds[i]] = base + static_cast<uint32_t>(i);
    }
    ptr.data[0] = 0;
  }

  // add draws the edge at position p as number e.
  void add(int64_t p, int64_t e) {
    pos.data[e] = p;
    number(indices[p], e);
  }

  // number makes u the source of edge e.
  void number(uint32_t u, int64_t e) {
    uint32_t stamp = stamps.data[u];
    if (stamp < base) {
      stamp = stamps.data[u] = base + static_cast<uint32_t>(n);
      nodes.data[n++] = u;
    }
    row.data[e] = stamp - base;
  }

  void report(int64_t targets, rival_batch *out) const {
    *out = {nodes.data, ptr.data, pos.data, row.data, n, targets, ptr.data[targets]};
  }
};

rival *rival_new(int64_t num_nodes, const int64_t *indptr, const int32_t *indices, const int64_t *fanouts, int32_t hops,
    int64_t max_seeds) {
  auto *r = new rival;
  r->graph_nodes = num_nodes;
  r->indptr = indptr;
  r->indices = indices;
  r->hops = hops;
  r->fanouts.open(hops);
  std::copy(fanouts, fanouts + hops, r->fanouts.data);
  int64_t nodes = max_seeds, edges = 0, layer = max_seeds;
  for (int32_t h = 0; h < hops; h++) {
    layer = std::min(layer, num_nodes + max_seeds) * fanouts[h];
    nodes += layer;
    edges += layer;
  }
  r->stamps.open(num_nodes);
  r->row.open(edges + 1);
  r->pos.open(edges + 64);
  r->nodes.open(nodes + 1);
  r->ptr.open(nodes + 1);
  r->spans.open(nodes + 1);
  return r;
}

void rival_free(rival *r) { delete r; }

void rival_simple(rival *r, uint64_t seed, uint64_t epoch, uint64_t batch, const int64_t *seeds, int64_t num_seeds,
    rival_batch *out) {
  r->begin(seeds, num_seeds);
  int64_t first = 0, edge = 0;
  for (int hop = 0; hop < r->hops; hop++) {
    const int64_t end = r->n;
    const uint64_t key = hop_key(seed, epoch, batch, hop);
    for (int64_t t = first; t < end; t++) {
      const int64_t v = r->nodes.data[t], start = r->indptr[v];
      const int64_t drawn = draw(absorb(key, v), start, r->indptr[v + 1] - start, r->fanouts.data[hop],
          r->pos.data + edge);
      for (int64_t e = edge; e < edge + drawn; e++) {
        const uint32_t u = r->indices[r->pos.data[e]];
        uint32_t stamp = r->stamps.data[u];
        if (stamp < r->base) {
          stamp = r->stamps.data[u] = r->base + static_cast<uint32_t>(r->n);
          r->nodes.data[r->n++] = u;
        }
        r->row.data[e] = stamp - r->base;
      }
      edge += drawn;
      r->ptr.data[t + 1] = edge;
    }
    first = end;
  }
  r->report(first, out);
}

void rival_staged(rival *r, uint64_t seed, uint64_t epoch, uint64_t batch, const int64_t *seeds, int64_t num_seeds,
    rival_batch *out) {
  constexpr int64_t unit = 32, ahead = 64;
  r->begin(seeds, num_seeds);
  const int64_t *const indptr = r->indptr;
  const int32_t *const indices = r->indices;
  uint32_t *const stamps = r->stamps.data, *const row = r->row.data;
  int64_t *const nodes = r->nodes.data, *const ptr = r->ptr.data, *const pos = r->pos.data;
  const uint32_t base = r->base;
  int64_t first = 0;
  for (int hop = 0; hop < r->hops; hop++) {
    const int64_t end = r->n, k = r->fanouts.data[hop];
    const uint64_t key = hop_key(seed, epoch, batch, hop);
    for (int64_t t = first; t < std::min(first + ahead, end); t++) __builtin_prefetch(indptr + nodes[t]);
    for (int64_t t = first; t < end; t++) {
      if (t + ahead < end) __builtin_prefetch(indptr + nodes[t + ahead]);
      const int64_t v = nodes[t], start = indptr[v], deg = indptr[v + 1] - start;
      r->spans.data[t - first] = {start, deg};
      ptr[t + 1] = ptr[t] + std::min(deg, k);
    }
    int64_t n = r->n;
    const int64_t units = (end - first + unit - 1) / unit;
    const auto edge_of = [&](int64_t u) { return ptr[std::min(first + u * unit, end)]; };
    for (int64_t u = 0; u < units + 2; u++) {
      if (u < units) {
        for (int64_t t = first + u * unit; t < std::min(first + (u + 1) * unit, end); t++) {
          const span s = r->spans.data[t - first];
          int64_t *const p = pos + ptr[t];
          const int64_t drawn = draw(absorb(key, nodes[t]), s.start, s.deg, k, p);
          for (int64_t i = 0; i < drawn; i++) __builtin_prefetch(indices + p[i]);
        }
      }
      if (u >= 1 && u < units + 1) {
        for (int64_t e = edge_of(u - 1), stop = edge_of(u); e < stop; e++) {
          row[e] = indices[pos[e]];
          __builtin_prefetch(stamps + row[e]);
        }
      }
      if (u >= 2) {
        for (int64_t e = edge_of(u - 2), stop = edge_of(u - 1); e < stop; e++) {
          const uint32_t id = row[e];
          uint32_t stamp = stamps[id];
          if (stamp < base) {
            stamp = stamps[id] = base + static_cast<uint32_t>(n);
            nodes[n++] = id;
          }
          row[e] = stamp - base;
        }
      }
    }
    r->n = n;
    first = end;
  }
  r->report(first, out);
}

void rival_weighted(rival *r, const float *weights, uint64_t seed, uint64_t epoch, uint64_t batch, const int64_t *seeds,
    int64_t num_seeds, rival_batch *out) {
  r->begin(seeds, num_seeds);
  std::vector<std::pair<double, int64_t>> keys;
  int64_t first = 0, edge = 0;
  for (int hop = 0; hop < r->hops; hop++) {
    const int64_t end = r->n, k = r->fanouts.data[hop];
    const uint64_t key = hop_key(seed, epoch, batch, hop);
    for (int64_t t = first; t < end; t++) {
      const int64_t v = r->nodes.data[t];
      uint64_t state = absorb(key, v);
      keys.clear();
      for (int64_t p = r->indptr[v]; p < r->indptr[v + 1]; p++) {
        if (!(weights[p] > 0)) continue;
        const double u = (static_cast<double>(mix(state += golden) >> 11) + 0.5) * 0x1p-53;
        keys.emplace_back(-std::log(u) / weights[p], p);
      }
      const int64_t drawn = std::min<int64_t>(k, keys.size());
      std::partial_sort(keys.begin(), keys.begin() + drawn, keys.end());
      for (int64_t i = 0; i < drawn; i++) r->add(keys[i].second, edge++);
      r->ptr.data[t + 1] = edge;
    }
    first = end;
  }
  r->report(first, out);
}

void rival_walks(rival *r, int64_t walks, int64_t length, double restart, uint64_t seed, uint64_t epoch, uint64_t batch,
    const int64_t *seeds, int64_t num_seeds, rival_batch *out) {
  r->begin(seeds, num_seeds);
  std::vector<int64_t> visits;
  std::vector<std::pair<int64_t, int64_t>> found;  // -times, node
  int64_t first = 0, edge = 0;
  for (int hop = 0; hop < r->hops; hop++) {
    const int64_t end = r->n;
    const uint64_t key = hop_key(seed, epoch, batch, hop);
    for (int64_t t = first; t < end; t++) {
      const int64_t v = r->nodes.data[t];
      visits.clear();
      for (int64_t w = 0; w < walks && r->indptr[v + 1] > r->indptr[v]; w++) {
        uint64_t state = absorb(absorb(key, v), w);
        int64_t at = v;
        for (int64_t step = 0; step < length; step++) {
          if (step > 0 && static_cast<double>(mix(state += golden) >> 11) < restart * 0x1p53) at = v;
          if (r->indptr[at] == r->indptr[at + 1]) at = v;
          at = r->indices[r->indptr[at] + static_cast<int64_t>(below(state, r->indptr[at + 1] - r->indptr[at]))];
          visits.push_back(at);
        }
      }
      std::sort(visits.begin(), visits.end());
      found.clear();
      for (int64_t u : visits) {
        if (found.empty() || found.back().second != u) found.emplace_back(0, u);
        found.back().first--;
      }
      const int64_t kept = std::min<int64_t>(r->fanouts.data[hop], found.size());
      std::partial_sort(found.begin(), found.begin() + kept, found.end());
      for (int64_t i = 0; i < kept; i++) {
        r->pos.data[edge] = -found[i].first;
        r->number(static_cast<uint32_t>(found[i].second), edge++);
      }
      r->ptr.data[t + 1] = edge;
    }
    first = end;
  }
  r->report(first, out);
}

int64_t random_loads(const int32_t *array, int64_t length, int64_t n) {
  int64_t sum = 0;
  uint64_t x = 1;
  for (int64_t i = 0; i < n; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    sum += array[static_cast<unsigned __int128>(x) * static_cast<uint64_t>(length) >> 64];
  }
  return sum;
}
