// The rival of bench/hetero: the same batches as core/sample draws of a graph with types, by a C++ loop on one thread.
#ifndef FRESHGO_BENCH_HETERO_RIVALS_H
#define FRESHGO_BENCH_HETERO_RIVALS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int32_t source, target;
  const int64_t *indptr;
  const int32_t *indices;
} hetero_relation;

// hetero_rival is the scratch and the last batch of the loop: one edge after the other, a map of ids for each node
// type.
typedef struct hetero_rival hetero_rival;

// With hash, the maps are hash tables of the batch's nodes, as pyg-lib's are, else arrays over all nodes of the type.
// The arrays of the relations stay the caller's; hops fanouts for each relation follow one another.
hetero_rival *hetero_rival_new(const int64_t *num_nodes, int32_t types, const hetero_relation *relations,
    int32_t num_relations,
                               const int64_t *fanouts, int32_t hops, int32_t hash);
void hetero_rival_free(hetero_rival *r);

// Draws the batch for seeds of one type and returns the number of its edges.
int64_t hetero_rival_sample(hetero_rival *r, uint64_t seed, uint64_t epoch, uint64_t batch, int32_t type,
    const int64_t *seeds, int64_t num_seeds);

// The last batch.
int64_t hetero_rival_nodes(hetero_rival *r, int32_t type, const int64_t **nodes);
int64_t hetero_rival_edges(hetero_rival *r, int32_t relation, const int64_t **pos, const uint32_t **row);

#ifdef __cplusplus
}
#endif
#endif
