/* What a loader is told, grouped by subject. */
#ifndef FRESHGO_API_LOADER_OPTIONS_H
#define FRESHGO_API_LOADER_OPTIONS_H

#include "base.h"
#include "history.h"

/* Random walks that start at a node. */
typedef struct fg_walk {
  int64_t walks;  /* how many start */
  int64_t length; /* steps of each; along a metapath, how often each goes through it */
  double restart; /* probability to go back to the start before a step, in [0, 1) */
} fg_walk;

/* The name of a tensor. */
typedef struct fg_name {
  FG_IN char *name; /* NULL: none */
} fg_name;

/* Edge types that walks go along, by their places in the graph. Each is walked against its edges. */
typedef struct fg_metapath {
  FG_IN int64_t *edge_types; /* in the order of walking */
  int64_t num_edge_types;    /* at least 1 */
} fg_metapath;

/* Links that batches are drawn for, and negatives beside them. */
typedef struct fg_links {
  FG_IN int64_t *sources; /* [num_links]; NULL, as `targets`: every edge of `relation`, in the caller's order */
  FG_IN int64_t *targets;
  int64_t num_links;
  FG_IN double *src_weight; /* by node: sources of negatives are drawn in proportion to it; NULL: uniformly */
  int64_t num_src_weight;   /* its length */
  FG_IN double *dst_weight; /* the same of their targets */
  int64_t num_dst_weight;
  double negatives;         /* for each link, rounded up for a batch; 0: none */
  int32_t triplets;         /* negatives are targets for the source of each link, else pairs */
  int32_t strict;           /* a negative is no edge, no link and no node with itself */
  int32_t exclude;          /* 1: the batch's links are not among its edges; 2: nor those of `reverse` against them */
  int32_t relation;         /* the edge type of the links; ids are those within its node types; 0 if homogeneous */
  int32_t reverse;          /* the edge type from targets to sources, for `exclude` 2; 0 if homogeneous */
  int32_t reserved;         /* zero */
} fg_links;

/* Nodes of all types are numbered one after the other, in the order of the types: node v of a type is v plus the number
 * of nodes of the types before. `seeds`, `hotness` and `held` go by these numbers. The seeds of one type follow one
 * another, the types come in any order. */
typedef struct fg_loader_options {
  uint32_t struct_size;

  /* Sampling. Relations are the edge types of the graph in its order, or `metapaths`. A homogeneous graph has one. */
  int32_t num_hops;             /* 0: a batch is its seeds and their rows */
  int64_t num_relations;        /* not read without hops */
  FG_IN int64_t *fanouts;       /* [num_relations, num_hops]: neighbours per node, nearest the seeds first; -1: all,
                                   0: none of this relation in this hop */
  FG_IN fg_walk *walks;         /* [num_relations, num_hops]: neighbours by random walks, `fanouts` are kept of them; a
                                   heterogeneous graph needs `metapaths` for them; NULL: no walks */
  FG_IN fg_metapath *metapaths; /* [num_relations]: what `walks` go along in a heterogeneous graph, and the edge types
                                   of its batches; not with a `cache` of "expected"; NULL: none */
  FG_IN char *weight_attr;      /* edge tensor that edges are drawn in proportion to, uniformly in relations without
                                   it; NULL: uniformly, or by `weight_attrs` */
  FG_IN fg_name *weight_attrs;  /* [num_relations]: the same by relation; NULL: see `weight_attr` */
  uint64_t seed;                /* everything random follows from it */
  FG_IN char *sampler;          /* "labor": draw layer by layer, the sources of a hop have one variate for all targets;
                                   NULL: what other options ask for */
  FG_IN char *sampler_options;  /* of `sampler`, as a JSON object. "labor": "batch_dependency", for how many batches a
                                   source keeps its variate, and "layer_dependency", whether all hops share it; NULL:
                                   {"batch_dependency": 1, "layer_dependency": false} */
  int32_t replace;              /* draw with replacement */
  int32_t subgraph_type;        /* edges of a batch. 0: those drawn; 1: also one against each; 2: all among its nodes */

  /* Batches. */
  FG_IN int64_t *seeds; /* in the caller's order */
  int64_t num_seeds;
  int64_t batch_size;   /* seeds, or links, per batch */
  int32_t all_nodes;    /* every node is a seed; `seeds` is not read */
  FG_IN double *input_weight; /* of each seed, or link: an epoch draws as many as there are, in proportion to it and
                                 with replacement; NULL: each comes once */
  int64_t num_input_weight;   /* its length */
  int32_t shuffle;      /* a new order of the seeds in every epoch */
  int32_t drop_last;    /* leave out a last batch that is not full */
  int32_t transpose;    /* batches also bring their edges grouped by source */
  int32_t no_edge_ids;  /* batches bring no e_id of edge types without tensors, whose numbers are not read */
  int32_t no_edge_weight; /* batches bring no edge_weight */
  int32_t num_workers;  /* sampling threads; 0: chosen; more than 1024 count as 1024 */
  int32_t prefetch;     /* batches prepared ahead; more than 1024 count as 1024 */

  /* Memory, in bytes. The four below `memory` are parts of it, or FG_AUTO. */
  int64_t memory;         /* for everything; 0: unlimited */
  int64_t feature_cache;  /* for cached rows */
  int64_t neighbor_cache; /* for adjacency */
  int64_t trace_memory;   /* for traces and plans */
  int64_t buffer_memory;  /* for rows read before their batch */
  int32_t spare;          /* `memory` is what is left beside a graph in memory: its index comes on top, and batches are
                             measured only where the most that they may need is more */
  int32_t reserved;       /* zero */

  /* Cache and plan. What `cache` and `transfer` may be is said below. */
  FG_IN char *cache;     /* which rows are cached; NULL: "auto" */
  FG_IN char *transfer;  /* how rows that are not cached are read; NULL: "auto" */
  int64_t superbatch;    /* "belady": batches planned together, or FG_AUTO */
  int32_t carry_over;    /* "belady": a superbatch begins with the rows that the one before left */
  int32_t lookahead;     /* "belady": a plan knows the superbatch after its own */
  int64_t presc_epochs;  /* "presc": epochs that are sampled to count; 0: 1. "oracle": FG_AUTO: as many as it needs */
  FG_IN float *hotness;  /* "vector": a score for each node, finite and not negative */
  int64_t num_hotness;   /* its length */
  uint64_t hotness_seed; /* "random": what the scores are drawn from */
  int64_t reorder;       /* batches per block that may change places; 0: none, or FG_AUTO */
  int64_t reorder_rows;  /* rows of the cache that an order is judged with, or FG_AUTO: those of this loader */

  /* Disk. */
  FG_IN char *io;          /* "auto", "io_uring", "pread", "buffered"; NULL: "auto" */
  FG_IN char *scratch;     /* directory for a temporary file; NULL: none */
  int64_t scratch_size;    /* bytes that the file may take, or FG_AUTO; 0: none */
  FG_IN char *calibration; /* file that keeps what the device was found to do; NULL: measured anew */
  int32_t checksums;       /* check every page that is read */
  int32_t lock_memory;     /* tensors come in memory that is locked, see fg_buffers_lock */
  FG_IN char *aggregate;   /* tensor of fg_propagate_start that batches bring, instead of what it was made from; NULL:
                              none of these */
  FG_IN char *feature_dtype; /* floats that are stored in fewer bytes come as "float32", or "stored"; NULL: "float32" */

  /* History. */
  FG_IN fg_history_options *history; /* NULL: none */

  /* Links. */
  FG_IN fg_links *links; /* what batches are drawn for, with `all_nodes`; NULL: for seeds */

  /* Times. */
  FG_IN char *time_attr;     /* edge or node tensor of integers: when each was. Of a neighbour nothing later than its
                                seed is drawn; NULL: without times */
  FG_IN int64_t *input_time; /* of each seed, or link. NULL: the times of the nodes, where `time_attr` is of nodes and
                                there are no links, or of the edges, where it is of edges and every edge is a link */
  int64_t num_input_time;    /* its length: the number of seeds, or of links */
  int64_t time_window;       /* draw only what is less than so much earlier; 0: all that is earlier */
  int32_t temporal_last;     /* draw the latest, not any */
  int32_t disjoint;          /* every seed has a tree of its own; with `time_attr` always */

  /* Device. */
  FG_IN int32_t *held; /* for each node the row of the caller's that it is, or -1; NULL: the caller holds none */
  int64_t num_held;    /* its length */
  int64_t holds;       /* batches that the caller keeps at a time, counted in `memory`; 0: one */
} fg_loader_options;

/* What `cache` may be. Planned: "belady". By hotness, filled once: "degree", "in-degree", "random", "presc",
 * "expected", "oracle" (counts of the epoch that runs next), "vector". Batch by batch: "lru", "clock", "sieve",
 * "s3fifo", "match" (what the batch before held). And "none", and "auto": "belady" unless it cannot be.
 * What `transfer` may be: "auto", "random", "page-once", "scan", "pack", "forward", and one of the middle three with
 * "+forward". All of them change when a row is read, none what is in a batch. */

#endif
