/* The options of a loader, by subject. */
#ifndef FRESHGO_API_LOADER_OPTIONS_H
#define FRESHGO_API_LOADER_OPTIONS_H

#include "base.h"
#include "history.h"
#include "table.h"

/* A table whose rows training changes. A batch has its rows as a tensor "table/K" of K, the table's place among the
 * loader's: uint8 [nodes of the type, row_bytes + FG_TABLE_TRAILER], in the order of n_id. What the caller writes to
 * its payloads before the next call of fg_loader_next, fg_loader_start, fg_loader_stop, fg_loader_settle or
 * fg_loader_close are the rows from then on; for several adjacent ranks, what fg_loader_put writes. Of a node that n_id
 * has several times, the first row counts. */
typedef struct fg_loader_table {
  fg_table *table;   /* open, and kept open by the caller until the loader is closed */
  int64_t node_type; /* of its rows: one for each node */
} fg_loader_table;

/* Random walks from a node. */
typedef struct fg_walk {
  int64_t walks;  /* walks from each node */
  int64_t length; /* steps of a walk; along a metapath, passes through the metapath */
  double restart; /* probability of returning to the start before a step, in [0, 1) */
} fg_walk;

/* The name of a tensor. */
typedef struct fg_name {
  FG_IN char *name; /* NULL: none */
} fg_name;

/* The edge types that a walk follows, from target to source, by their numbers in the graph. */
typedef struct fg_metapath {
  FG_IN int64_t *edge_types; /* in the order of the steps */
  int64_t num_edge_types;    /* at least 1 */
} fg_metapath;

/* Links as seeds, and their negatives. */
typedef struct fg_links {
  FG_IN int64_t *sources; /* [num_links]; both NULL: every edge of `relation`, in the caller's order */
  FG_IN int64_t *targets;
  int64_t num_links;
  FG_IN double *src_weight; /* by node: draws sources of negatives in proportion to it; NULL: uniformly */
  int64_t num_src_weight;   /* its length */
  FG_IN double *dst_weight; /* by node: the same for targets of negatives */
  int64_t num_dst_weight;
  double negatives;         /* per link; the number per batch is rounded up; 0: none */
  int32_t triplets;         /* 1: a negative is another target for the source of a link; 0: a pair */
  int32_t strict;           /* excludes edges, links and self-loops from negatives */
  int32_t exclude;          /* 1: removes the batch's links from its edges; 2: also their reverses in `reverse` */
  int32_t relation;         /* the edge type of the links, whose ids are within its node types; 0 if homogeneous */
  int32_t reverse;          /* the edge type from targets to sources, for `exclude` 2; 0 if homogeneous */
  int32_t reserved;         /* zero */
} fg_links;

/* `seeds`, `hotness` and `held` number the nodes of all types consecutively, in the order of the types: node v of a
 * type is v plus the number of nodes of the preceding types. Seeds are grouped by type, in any order of the types. */
typedef struct fg_loader_options {
  uint32_t struct_size;

  /* Sampling. Relations are the edge types of the graph in order, or `metapaths`. A homogeneous graph has one. */
  int32_t num_hops;             /* 0: a batch has only its seeds and their rows */
  int64_t num_relations;        /* ignored without hops */
  FG_IN int64_t *fanouts;       /* [num_relations, num_hops]: neighbours per node, nearest the seeds first; -1: all,
                                   0: none of this relation in this hop */
  FG_IN fg_walk *walks;         /* [num_relations, num_hops]: random walks, whose `fanouts` most visited nodes are the
                                   neighbours; heterogeneous graphs need `metapaths`; NULL: no walks */
  FG_IN fg_metapath *metapaths; /* [num_relations]: the paths of `walks` in a heterogeneous graph, and the edge types of
                                   its batches; not with `cache` "expected"; NULL: none */
  FG_IN char *weight_attr;      /* edge tensor: draws edges in proportion to it, and uniformly in relations without
                                   it; NULL: uniformly, or by `weight_attrs` */
  FG_IN fg_name *weight_attrs;  /* [num_relations]: one edge tensor per relation; NULL: see `weight_attr` */
  uint64_t seed;                /* determines all random draws */
  FG_IN char *sampler;          /* "labor": layer-wise draws, with one variate per source for all targets of a hop;
                                   NULL: chosen by the other options */
  FG_IN char *sampler_options;  /* options of `sampler`, a JSON object. "labor": "batch_dependency", the number of
                                   batches that share variates, and "layer_dependency", whether all hops share them;
                                   NULL: {"batch_dependency": 1, "layer_dependency": false} */
  int32_t replace;              /* draw with replacement */
  int32_t subgraph_type;        /* edges of a batch. 0: drawn edges; 1: also their reverses; 2: all among its nodes */

  /* Batches. */
  FG_IN int64_t *seeds; /* in the caller's order */
  int64_t num_seeds;
  int64_t batch_size;   /* seeds, or links, per batch */
  int32_t all_nodes;    /* every node is a seed; `seeds` is ignored */
  FG_IN double *input_weight; /* per seed, or link: an epoch draws as many as there are, with replacement and in
                                 proportion to it; NULL: each comes once */
  int64_t num_input_weight;   /* its length */
  FG_IN int64_t *envelope; /* of `pad`: for each node type, for the seeds and each hop, the nodes; then for each
                              relation, for each hop, the edges; NULL: learned when the loader is opened, see
                              "envelope" of its stats */
  int64_t num_envelope;    /* its length */
  int32_t shuffle;      /* permute the seeds in every epoch */
  int32_t drop_last;    /* drop the last batch if it is not full */
  int32_t transpose;    /* batches also have their edges grouped by source */
  int32_t no_edge_ids;  /* batches have no e_id of edge types without tensors */
  int32_t no_edge_weight; /* batches have no edge_weight */
  int32_t pad;          /* batches have the sizes of `envelope`, unless they exceed them: nodes that pad have n_id -1,
                           edges that pad have e_id -1 and lead from such nodes to such nodes, rows of both are zero */
  int32_t num_workers;  /* sampling threads; 0: chosen; more than 1024 count as 1024 */
  int32_t prefetch;     /* batches prepared ahead; more than 1024 count as 1024; FG_AUTO: one for each thread, in a
                           quarter of `memory`, and at least 4; 4 with a history or tables that training changes */

  /* Memory, in bytes. The four below `memory` are parts of it, or FG_AUTO. */
  int64_t memory;         /* total; 0: unlimited */
  int64_t feature_cache;  /* for cached rows */
  int64_t neighbor_cache; /* for adjacency */
  int64_t trace_memory;   /* for traces and plans */
  int64_t buffer_memory;  /* for rows read before their batch */
  int32_t spare;          /* `memory` excludes the graph in memory and its index, and batches are measured only
                             if their worst case may exceed it */
  int32_t reserved;       /* zero */

  /* Cache and plan. The values of `cache` and `transfer` are listed below. */
  FG_IN char *cache;     /* which rows are cached; NULL: "auto" */
  FG_IN char *transfer;  /* how rows that are not cached are read; NULL: "auto" */
  int64_t superbatch;    /* "belady": batches planned together, or FG_AUTO */
  int32_t carry_over;    /* "belady": a superbatch starts with the rows that the previous one left */
  int32_t lookahead;     /* "belady": a plan looks ahead over the next superbatch */
  int64_t presc_epochs;  /* epochs that "presc" and "oracle" count; 0: 1; FG_AUTO with "oracle": as many as needed */
  FG_IN float *hotness;  /* "vector": a score for each node, finite and not negative */
  int64_t num_hotness;   /* its length */
  uint64_t hotness_seed; /* "random": the seed of the scores */
  int64_t reorder;       /* batches per block whose order may change, with a cache that changes; 0: none, or FG_AUTO */
  int64_t reorder_rows;  /* capacity of the cache by which orders are compared; FG_AUTO: of this loader's cache */

  /* Disk. */
  FG_IN char *io;          /* "auto", "io_uring", "pread", "buffered"; NULL: "auto" */
  FG_IN char *scratch;     /* directory for a temporary file; NULL: none */
  int64_t scratch_size;    /* size limit of that file, or FG_AUTO; 0: none */
  FG_IN char *calibration; /* file with the measured rates of the device; NULL: measured at each opening */
  int32_t checksums;       /* verify every page that is read */
  int32_t lock_memory;     /* tensors are in locked memory, see fg_buffers_lock */
  FG_IN char *aggregate;   /* tensor of fg_propagate_start that replaces its source in batches; NULL: none */
  FG_IN char *feature_dtype; /* dtype of narrow floats in batches: "float32" or "stored"; NULL: "float32" */

  /* History. */
  FG_IN fg_history_options *history; /* NULL: none */

  /* Links. */
  FG_IN fg_links *links; /* links as seeds, with `all_nodes`; NULL: nodes as seeds */

  /* Times. */
  FG_IN char *time_attr;     /* edge or node tensor of integer times: draws nothing later than the seed's time; NULL:
                                no times */
  FG_IN int64_t *input_time; /* per seed, or link. NULL: the times of the nodes, if `time_attr` is a node tensor and
                                there are no links, or of the edges, if it is an edge tensor and every edge is a
                                link */
  int64_t num_input_time;    /* its length: the number of seeds, or of links */
  int64_t time_window;       /* draws only what is less than this much earlier than the seed; 0: unlimited */
  int32_t temporal_last;     /* draws the latest neighbours instead of any */
  int32_t disjoint;          /* one tree per seed; always with `time_attr` */

  /* Device. */
  FG_IN int32_t *held; /* per node: its row in the caller's table, or -1; NULL: the caller has no table */
  int64_t num_held;    /* its length */
  int64_t holds;       /* batches that the caller keeps at a time, which count in `memory`; 0: one */
  int32_t packed;      /* batches are packed, see fg_batch */
  int32_t rows_by_id;  /* batches bring no rows of the tensors of fg_loader_tables: the caller reads them by n_id */
  int32_t seeds_only;  /* batches of an epoch are their seeds, without edges, and "fg/key", int64: the keys by which the
                          caller draws them (fg_cuda_draw) along the lists of fg_loader_list, [num_relations, num_hops],
                          and the number of the batch. The caller pads them. Needs `rows_by_id` */
  int32_t reserved2;   /* zero */

  /* Tables. */
  FG_IN fg_loader_table *tables; /* tables whose rows batches bring and the caller changes; NULL: none */
  int64_t num_tables;            /* their number */
} fg_loader_options;

/* Values of `cache`. Planned: "belady". Filled once, by hotness: "degree", "in-degree", "random", "presc", "expected",
 * "oracle" (counts of the epoch that runs next), "vector". Online: "lru", "clock", "sieve", "s3fifo", "match" (the rows
 * of the previous batch). "none". "auto": "belady" wherever batches can be planned.
 * Values of `transfer`: "auto", "random", "page-once", "scan", "pack", "forward", and "page-once", "scan" or "pack"
 * with "+forward". Both decide when a row is read, never the content of a batch. */

#endif
