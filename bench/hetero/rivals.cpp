#include "rivals.h"

#include <vector>

#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // of a struct that this file alone sees
#include "../sampler/rivals.cpp"                       // its draws

namespace {

// id_map numbers the nodes of one type in the order in which they are seen.
struct id_map {
  std::vector<int64_t> nodes;
  std::vector<uint32_t> stamps;  // by node: local id + 1, or empty with hash
  std::vector<uint64_t> slots;   // linear probing: id + 1 above local id; at most half full
  bool hash = false;

  void open(int64_t n, bool with_hash) {
    hash = with_hash;
    if (hash) {
      slots.assign(1 << 12, 0);
    } else {
      stamps.assign(n, 0);
    }
  }

  void begin() {
    if (hash) {
      std::fill(slots.begin(), slots.end(), 0);
    } else {
      for (int64_t v : nodes) stamps[v] = 0;
    }
    nodes.clear();
  }

  uint32_t number(int64_t v) {
    if (!hash) {
      if (stamps[v] == 0) {
        nodes.push_back(v);
        stamps[v] = static_cast<uint32_t>(nodes.size());
      }
      return stamps[v] - 1;
    }
    if (2 * (nodes.size() + 1) > slots.size()) {
      slots.assign(2 * slots.size(), 0);
      for (size_t i = 0; i < nodes.size(); i++) *find(nodes[i]) = static_cast<uint64_t>(nodes[i] + 1) << 32 | i;
    }
    uint64_t *slot = find(v);
    if (*slot == 0) {
      *slot = static_cast<uint64_t>(v + 1) << 32 | nodes.size();
      nodes.push_back(v);
    }
    return static_cast<uint32_t>(*slot);
  }

  uint64_t *find(int64_t v) {
    const uint64_t mask = slots.size() - 1;
    uint64_t i = static_cast<uint64_t>(v) * golden >> 20 & mask;
    while (slots[i] != 0 && static_cast<int64_t>(slots[i] >> 32) != v + 1) i = (i + 1) & mask;
    return &slots[i];
  }
};

struct relation_edges {
  std::vector<int64_t> pos;
  std::vector<uint32_t> row;
};

}  // namespace

struct hetero_rival {
  std::vector<id_map> types;
  std::vector<hetero_relation> relations;
  std::vector<relation_edges> edges;
  std::vector<int64_t> fanouts;
  int32_t hops;
};

hetero_rival *hetero_rival_new(const int64_t *num_nodes, int32_t types, const hetero_relation *relations,
    int32_t num_relations,
                               const int64_t *fanouts, int32_t hops, int32_t hash) {
  auto *r = new hetero_rival;
  r->types.resize(types);
  for (int32_t t = 0; t < types; t++) r->types[t].open(num_nodes[t], hash != 0);
  r->relations.assign(relations, relations + num_relations);
  r->edges.resize(num_relations);
  r->fanouts.assign(fanouts, fanouts + static_cast<size_t>(num_relations) * hops);
  r->hops = hops;
  return r;
}

void hetero_rival_free(hetero_rival *r) { delete r; }

int64_t hetero_rival_sample(hetero_rival *r, uint64_t seed, uint64_t epoch, uint64_t batch, int32_t type,
    const int64_t *seeds, int64_t num_seeds) {
  for (auto &t : r->types) t.begin();
  for (auto &e : r->edges) {
    e.pos.clear();
    e.row.clear();
  }
  for (int64_t i = 0; i < num_seeds; i++) r->types[type].number(seeds[i]);  // which are distinct
  std::vector<int64_t> first(r->types.size()), end(r->types.size()), drawn;
  int64_t total = 0;
  for (int32_t hop = 0; hop < r->hops; hop++) {
    for (size_t t = 0; t < end.size(); t++) end[t] = static_cast<int64_t>(r->types[t].nodes.size());
    for (size_t i = 0; i < r->relations.size(); i++) {
      const hetero_relation &rel = r->relations[i];
      const int64_t k = r->fanouts[i * r->hops + hop];
      const uint64_t key = hop_key(absorb(absorb(absorb(0, 16), i), seed), epoch, batch, hop);
      drawn.resize(k);
      id_map &source = r->types[rel.source];
      for (int64_t t = first[rel.target]; t < end[rel.target]; t++) {
        const int64_t v = r->types[rel.target].nodes[t];
        const int64_t n = draw(absorb(key, v), rel.indptr[v], rel.indptr[v + 1] - rel.indptr[v], k, drawn.data());
        for (int64_t j = 0; j < n; j++) {
          r->edges[i].pos.push_back(drawn[j]);
          r->edges[i].row.push_back(source.number(rel.indices[drawn[j]]));
        }
        total += n;
      }
    }
    first = end;
  }
  return total;
}

int64_t hetero_rival_nodes(hetero_rival *r, int32_t type, const int64_t **nodes) {
  *nodes = r->types[type].nodes.data();
  return static_cast<int64_t>(r->types[type].nodes.size());
}

int64_t hetero_rival_edges(hetero_rival *r, int32_t relation, const int64_t **pos, const uint32_t **row) {
  *pos = r->edges[relation].pos.data();
  *row = r->edges[relation].row.data();
  return static_cast<int64_t>(r->edges[relation].pos.size());
}
