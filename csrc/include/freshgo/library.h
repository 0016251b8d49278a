/* The library's version and its live objects. */
#ifndef FRESHGO_API_LIBRARY_H
#define FRESHGO_API_LIBRARY_H

#include "base.h"

/* The sizes of structs, by which a binding checks its declarations. */
typedef struct fg_version_info {
  uint32_t abi; /* FG_ABI_VERSION; the sizes below are meaningful only if it agrees */
  uint32_t size_error;
  uint32_t size_counters_info;
  uint32_t size_array;
  uint32_t size_tensor;
  uint32_t size_progress;
  uint32_t size_graph_input;
  uint32_t size_convert_input;
  uint32_t size_loader_options;
  uint32_t size_loader_details;
  uint32_t size_batch;
  uint32_t size_python_api;
  uint32_t size_simulation;
  uint32_t size_relayout_input;
  uint32_t size_history_options;
  uint32_t size_history_layer;
  uint32_t size_node_type;
  uint32_t size_edge_type;
} fg_version_info;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK. */
int32_t fg_version(fg_version_info *out, fg_error *err);

/* Counts of live objects. All are zero after everything is closed and deleted. */
typedef struct fg_counters_info {
  int64_t stores;
  int64_t graphs;
  int64_t loaders;
  int64_t jobs;
  int64_t buffers;      /* tensor memory in use: number of buffers ... */
  int64_t buffer_bytes; /* ... and their size */
  int64_t pooled_bytes; /* kept for reuse; bounded, zero when no loader is open */
} fg_counters_info;

/* Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK. */
int32_t fg_counters(fg_counters_info *out, fg_error *err);

#endif
