// The rivals of bench/sampler: the same batches as core/sample draws, by C++ loops on one thread.
#ifndef FRESHGO_BENCH_SAMPLER_RIVALS_H
#define FRESHGO_BENCH_SAMPLER_RIVALS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// rival is the scratch and the last batch of one loop. Its arrays stay the rival's and are valid until the next batch.
typedef struct rival rival;

typedef struct {
  const int64_t *nodes, *ptr, *pos;
  const uint32_t *row;
  int64_t num_nodes, num_targets, num_edges;
} rival_batch;

rival *rival_new(int64_t num_nodes, const int64_t *indptr, const int32_t *indices, const int64_t *fanouts, int32_t hops,
    int64_t max_seeds);
void rival_free(rival *r);

// rival_simple draws one edge after the other; rival_staged works in units with prefetch. Both draw without
// replacement.
void rival_simple(rival *r, uint64_t seed, uint64_t epoch, uint64_t batch, const int64_t *seeds, int64_t num_seeds,
    rival_batch *out);
void rival_staged(rival *r, uint64_t seed, uint64_t epoch, uint64_t batch, const int64_t *seeds, int64_t num_seeds,
    rival_batch *out);

// rival_weighted draws in proportion to weights, one of each edge: keys of an exponential race for all edges of a list,
// of which it sorts out the smallest.
void rival_weighted(rival *r, const float *weights, uint64_t seed, uint64_t epoch, uint64_t batch, const int64_t *seeds,
    int64_t num_seeds, rival_batch *out);
// rival_walks keeps the nodes most often visited by walks with restart, as core/sample does, one step after the other.
// Its batches have visits in place of pos.
void rival_walks(rival *r, int64_t walks, int64_t length, double restart, uint64_t seed, uint64_t epoch, uint64_t batch,
    const int64_t *seeds, int64_t num_seeds, rival_batch *out);

// random_loads makes n independent loads all over an array and returns their sum.
int64_t random_loads(const int32_t *array, int64_t length, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
