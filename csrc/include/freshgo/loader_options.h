/* What a loader is told: hops, batches, memory, caches, walks, links, times. */
#ifndef FRESHGO_API_LOADER_OPTIONS_H
#define FRESHGO_API_LOADER_OPTIONS_H

#include "base.h"
#include "history.h"

typedef struct fg_walk {
  int64_t walks;  /* that start at a target */
  int64_t length; /* steps of each */
  double restart; /* probability to go back to the target before a step, in [0, 1) */
} fg_walk;

/* Edge types that walks go along in a graph with types, by their places in it: each is walked against its edges. */
typedef struct fg_metapath {
  FG_IN int64_t *path; /* [length], in the order of walking */
  int64_t length;      /* at least 1 */
} fg_metapath;

/* Links that batches are drawn for, and negatives beside them. */
typedef struct fg_links {
  FG_IN int64_t *sources; /* [num_links]; NULL, as `targets`: every edge of the graph, in the caller's order */
  FG_IN int64_t *targets;
  int64_t num_links;
  FG_IN double *src_weight; /* by node: what sources of negatives are drawn in proportion to; NULL: uniformly */
  int64_t num_src_weight;   /* its length */
  FG_IN double *dst_weight; /* and their targets */
  int64_t num_dst_weight;
  double negatives;         /* for each link, rounded up for a batch; 0: none */
  int32_t triplets;         /* negatives are targets for the source of each link, else pairs */
  int32_t strict;           /* a negative is no edge, no link and no node with itself */
  int32_t exclude;          /* 1: the batch's links are not among its edges; 2: nor their reverse */
  int32_t reserved;         /* zero */
} fg_links;

typedef struct fg_loader_options {
  uint32_t struct_size;
  int32_t num_hops;       /* 0: a batch is its seeds and their rows */
  FG_IN int64_t *fanouts; /* neighbours per hop, nearest the seeds first; -1: all */
  FG_IN int64_t *seeds;   /* node ids in the caller's order */
  int64_t num_seeds;
  int64_t batch_size; /* seeds per batch */
  uint64_t seed;      /* everything random follows from it */
  int32_t all_nodes;  /* every node is a seed; `seeds` is ignored */
  int32_t replace;    /* draw with replacement */
  int32_t shuffle;    /* the seeds anew in every epoch */
  int32_t drop_last;  /* leave out a last batch that is not full */
  int32_t checksums;  /* check every page that is read */
  int32_t workers;    /* sampling threads; 0: chosen */
  int32_t prefetch;   /* batches prepared ahead */
  int32_t transpose;  /* batches bring their edges grouped by source too */
  int64_t memory;     /* bytes for everything; 0: unlimited */
  int64_t feature_cache;  /* bytes of it for cached rows, or FG_AUTO */
  int64_t neighbor_cache; /* bytes of it for adjacency, or FG_AUTO */
  FG_IN char *cache;      /* which rows are cached, see below; NULL: "auto" */
  FG_IN char *io;         /* "auto", "io_uring", "pread", "buffered"; NULL: "auto" */
  int64_t superbatch;     /* "belady": batches planned together, or FG_AUTO */
  int32_t carry_over;     /* "belady": a superbatch begins with the rows that the one before left */
  int32_t lookahead;      /* "belady": a plan knows the superbatch after its own */
  FG_IN float *hotness;   /* "vector": a score per node id, finite and not negative */
  int64_t num_hotness;    /* its length */
  uint64_t hotness_seed;  /* "random": what the scores are drawn from */
  int32_t presc_epochs;   /* "presc": epochs that are sampled to count; 0: 1 */
  int32_t reserved2;      /* zero */
  int64_t reorder;        /* batches per block that may change places; 0: none, or FG_AUTO */
  int64_t reorder_rows;   /* rows of the cache that an order is judged with, or FG_AUTO: those of this loader */
  FG_IN char *transfer;   /* how rows that are not cached are read, see below; NULL: "auto" */
  int64_t trace_memory;   /* bytes of `memory` for traces and plans, or FG_AUTO */
  int64_t buffer_memory;  /* bytes of `memory` for rows read before their batch, or FG_AUTO */
  FG_IN char *scratch;    /* directory for a temporary file; NULL: none */
  int64_t scratch_bytes;  /* what that file may take, or FG_AUTO; 0: none */
  FG_IN char *calibration; /* file that keeps what the device was found to do; NULL: measured anew */
  FG_IN fg_history_options *history; /* NULL: none */
  FG_IN int32_t *held;    /* by node id: which of the caller's rows it is, or -1; NULL: he holds none */
  int64_t num_held;       /* its length */
  int32_t holds;          /* batches that the caller keeps at a time, counted in `memory`; 0: one */
  int32_t reserved3;      /* zero */
  FG_IN char *weight_attr; /* edge tensor that edges are drawn in proportion to; NULL: uniformly */
  int32_t labor;           /* 1: draw layer by layer: the sources of a hop have one variate for all targets; 2: and
                              give no edge_weight */
  int32_t layer_dependency; /* "labor": and for all hops */
  int64_t batch_dependency; /* "labor": for how many batches a source keeps its variate, at least 1 */
  FG_IN fg_walk *walks;    /* [num_hops]: neighbours by random walks, of which `fanouts` are kept; NULL: none */
  int32_t subgraph_type;   /* edges of a batch: 0: those drawn; 1: and one against each; 2: all among its nodes */
  int32_t reserved4;       /* zero */
  FG_IN fg_links *links;   /* what batches are drawn for, with `all_nodes`; NULL: for seeds */
  FG_IN int64_t *relation_fanouts; /* of a graph with types: [num_relations, num_hops], the edge types in its order; 0: none
                                      of this type in this hop. `fanouts` is then not read. NULL: `fanouts` for each */
  int64_t num_relations;           /* rows of it: as many as there are edge types */
  FG_IN char *time_attr;   /* edge or node tensor of integers, when each was: of a neighbour nothing later than its seed
                              is drawn; NULL: without times */
  FG_IN int64_t *input_time; /* of each seed, or link; NULL: those of the nodes, where `time_attr` has times of nodes and
                                there are no links, or of the edges, where every edge is a link and edges have times */
  int64_t num_input_time;  /* its length: the number of seeds, or links */
  int64_t time_window;     /* draw only what is less than so much earlier; 0: whatever is past */
  int32_t temporal_last;   /* draw the latest, not any */
  int32_t disjoint;        /* every seed has a tree of its own; with `time_attr` always */
  int32_t link_relation;   /* of a graph with types: the edge type that `links` are of, ids are those of its types; else 0 */
  int32_t link_reverse;    /* and the one from target to source that `exclude` 2 looks in; else 0 */
  FG_IN fg_metapath *metapaths; /* of a graph with types: [num_metapaths]. They are in the place of edge types, also in
                                   `relation_fanouts`; `walks` is then [num_metapaths, num_hops]. NULL: none */
  int64_t num_metapaths;
} fg_loader_options;

/* What `cache` may be. Planned: "belady". By hotness, filled once: "degree", "in-degree", "random", "presc",
 * "expected", "oracle" (counts of the epoch that runs next), "vector". Batch by batch: "lru", "clock", "sieve",
 * "s3fifo", "match" (what the batch before held). And "none", and "auto": "belady" unless it cannot be.
 * With types, nodes of all types are numbered one after the other: node v of a type is v plus the number of nodes of the
 * types before. `seeds` and `hotness` are by these numbers; the seeds of a type follow one another, the types in any
 * order. `weight_attr` names a tensor of one edge type at least; types without it are drawn from uniformly. `cache` is
 * not "expected"; there is no `history`, no `held`, no `walks` without `metapaths`.
 * What `transfer` may be: "auto", "random", "page-once", "scan", "pack", "forward", and one of the middle three with
 * "+forward". All of them change when a row is read, none what is in a batch. */

#endif
