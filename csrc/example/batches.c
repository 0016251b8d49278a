/*
 * Batches of a store, through the C API alone:
 *
 *     batches STORE
 *
 * opens a store of a homogeneous graph, prints its description and the shapes of the tensors of a few batches, and
 * closes everything. Compile and run it with
 *
 *     cc -std=c11 -Wall -Wextra -Icsrc/include csrc/example/batches.c path/to/libfreshgo.so -o batches
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <freshgo.h>

enum { BATCHES = 3, STEP_MS = 100 };

/* Every function returns a code. One other than FG_OK is an error here; calls that may return FG_END look before. */
static void check(int32_t code, const fg_error *err) {
  if (code != FG_OK) {
    fprintf(stderr, "freshgo error %d: %s\n", (int)code, err->message);
    exit(EXIT_FAILURE);
  }
}

/* Waits for a job in steps, closes it, and returns what it made. */
static void *finish(fg_job *job, fg_error *err) {
  fg_progress progress;
  int32_t code = FG_TIMEOUT;
  while (code == FG_TIMEOUT) code = fg_job_wait(job, STEP_MS, &progress, err);
  check(code, err);
  void *result = progress.result;
  check(fg_job_close(job, err), err);
  return result;
}

static void describe(fg_store *store, fg_error *err) {
  int64_t n_bytes;
  check(fg_store_describe(store, NULL, 0, &n_bytes, err), err); /* only the length */
  char *json = malloc((size_t)n_bytes);
  if (json == NULL) exit(EXIT_FAILURE);
  check(fg_store_describe(store, json, n_bytes, &n_bytes, err), err);
  printf("%.*s\n", (int)n_bytes, json);
  free(json);
}

static fg_loader *open_loader(fg_store *store, fg_error *err) {
  const int64_t fanouts[] = {10, 5};
  const fg_loader_options options = {
      .struct_size = sizeof options,
      .num_hops = 2,
      .num_relations = 1, /* the graph is homogeneous */
      .fanouts = fanouts,
      .all_nodes = 1,
      .batch_size = 64,
      .shuffle = 1,
      .prefetch = 2,
      .checksums = 1,
      .memory = 64 << 20,
      .feature_cache = FG_AUTO,
      .neighbor_cache = FG_AUTO,
      .trace_memory = FG_AUTO,
      .buffer_memory = FG_AUTO,
      .superbatch = FG_AUTO,
      .carry_over = 1,
      .lookahead = 1,
  };
  fg_job *job;
  check(fg_loader_open(store, NULL, &options, &job, err), err);
  return finish(job, err); /* what the options point to may go from here on: they name neither seeds nor scores */
}

static void print(const DLTensor *tensor, const char *name) {
  printf("  %s [", name);
  for (int32_t i = 0; i < tensor->ndim; i++) printf("%s%" PRId64, i > 0 ? ", " : "", tensor->shape[i]);
  printf("]\n");
}

/* Prints the next batch and returns 1, or 0 at the end of the epoch. */
static int next(fg_loader *loader, fg_tensor *tensors, int32_t capacity, fg_error *err) {
  fg_batch batch = {.tensors = tensors, .capacity = capacity, .versioned = 1};
  int32_t code = FG_TIMEOUT;
  while (code == FG_TIMEOUT) code = fg_loader_next(loader, STEP_MS, &batch, err);
  if (code == FG_END) return 0;
  check(code, err);
  printf("batch %" PRId64 ": %" PRId64 " seeds\n", batch.index, batch.num_seeds);
  for (int32_t i = 0; i < batch.num_tensors; i++) {
    DLManagedTensorVersioned *managed = tensors[i].managed; /* ours until its deleter is called */
    print(&managed->dl_tensor, tensors[i].name);
    managed->deleter(managed);
  }
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s STORE\n", argv[0]);
    return EXIT_FAILURE;
  }
  fg_error err;
  fg_store *store;
  check(fg_store_open(argv[1], &store, &err), &err);
  describe(store, &err);

  fg_loader *loader = open_loader(store, &err);
  fg_loader_details details;
  check(fg_loader_info(loader, &details, &err), &err);
  fg_tensor *tensors = calloc((size_t)details.max_tensors, sizeof *tensors);
  if (tensors == NULL) return EXIT_FAILURE;
  check(fg_loader_start(loader, 0, 0, FG_TRAIN, &err), &err);
  for (int i = 0; i < BATCHES && next(loader, tensors, details.max_tensors, &err); i++) continue;

  free(tensors);
  check(fg_loader_close(loader, &err), &err);
  check(fg_store_close(store, &err), &err);
  return EXIT_SUCCESS;
}
