// A straightforward C++ loop that draws temporal, disjoint batches.
#ifndef FRESHGO_BENCH_TEMPORAL_RIVAL_H
#define FRESHGO_BENCH_TEMPORAL_RIVAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const int64_t *indptr;
  const int32_t *indices;
  const int64_t *times; // ascending in each list
  const int64_t *fanouts;
  int64_t hops;
  int32_t last;  // the latest, not any
  int32_t table; // a flat hash table, not std::unordered_map
} rival_graph;

// Draws a batch and returns its number of edges; *sum is over the positions of all.
int64_t rival_draw(const rival_graph *g, uint64_t seed, const int64_t *seeds, const int64_t *seed_times,
    int64_t num_seeds, int64_t *nodes, uint64_t *sum);

#ifdef __cplusplus
}
#endif

#endif
