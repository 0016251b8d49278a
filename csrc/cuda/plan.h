/*
 * From a call of the C API to launches of kernels: which, how many blocks, with what. Reads nothing but the struct, so
 * it is the same with and without a device.
 */
#ifndef FRESHGO_CUDA_PLAN_H
#define FRESHGO_CUDA_PLAN_H

#include <stdint.h>

#include "args.h"
#include "freshgo.h"

typedef struct fgc_launch {
  char kernel[32];
  int64_t blocks; /* of FGC_THREADS threads */
  int32_t shared_bytes;
  int32_t num_words;
  uint64_t words[32]; /* the kernel's one argument */
} fgc_launch;

/* One after the other on a stream. */
typedef struct fgc_plan {
  int32_t num_launches;
  int32_t reserved;
  fgc_launch launches[16];
  char message[256]; /* why the call is refused */
} fgc_plan;

/* All return FG_OK, or a code and the plan's message. With `scratch` NULL, *scratch_bytes becomes what is needed and
 * the plan is empty. `status` is an address of the device, or 0. */
int32_t fgc_plan_aggregate(FG_IN fg_aggregation *in, void *scratch, int64_t *scratch_bytes, uintptr_t status,
    fgc_plan *out);
int32_t fgc_plan_attention(FG_IN fg_attention *in, int32_t back, uintptr_t status, fgc_plan *out);
int32_t fgc_plan_transpose(FG_IN fg_transposition *in, void *scratch, int64_t *scratch_bytes, uintptr_t status,
    fgc_plan *out);
int32_t fgc_plan_map(FG_IN fg_mapping *in, void *scratch, int64_t *scratch_bytes, uintptr_t status, fgc_plan *out);
int32_t fgc_plan_draw_count(FG_IN fg_drawing *in, void *scratch, int64_t *scratch_bytes, uintptr_t status,
    fgc_plan *out);
int32_t fgc_plan_draw(FG_IN fg_drawing *in, uintptr_t status, fgc_plan *out);
int32_t fgc_plan_gather(FG_IN fg_gathering *in, uintptr_t status, fgc_plan *out);

#endif
