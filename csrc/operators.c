#include "operators.h"

#include <stdatomic.h>
#include <string.h>

#include "threads.h"

/* atomic: set before the first operator runs, and by tests between calls; -1: not yet chosen */
static _Atomic int32_t chosen = -1;

static int32_t best(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return FG_ISA_AVX512;
    return FG_ISA_AVX2;
  }
#endif
  return FG_ISA_PORTABLE;
}

int32_t fg_operators_init(void *team, int32_t isa) {
  int32_t can = best();
  if (isa < 0 || isa > can) isa = can;
  atomic_store(&chosen, isa);
  /* a function's address comes as void*, as dlsym gives it; memcpy because ISO C has no such cast */
  fgi_team run;
  memcpy(&run, &team, sizeof run);
  fgi_threads_borrow(run);
  return isa;
}

const fgi_kernels *fgi_kernels_of(fgi_dtype dtype) {
  int32_t isa = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (isa < 0) atomic_store(&chosen, isa = best());
#if defined(__x86_64__)
  if (isa == FG_ISA_AVX512) return &fgi_avx512[dtype];
  if (isa == FG_ISA_AVX2) return &fgi_avx2[dtype];
#endif
  return &fgi_portable[dtype];
}

bool fgi_dtype_of(DLDataType t, fgi_dtype *out, int64_t *element) {
  static const struct {
    uint8_t code, bits;
  } DTYPES[FGI_DTYPES] = {[FGI_F32] = {kDLFloat, 32}, [FGI_F64] = {kDLFloat, 64}, [FGI_BF16] = {kDLBfloat, 16},
      [FGI_F16] = {kDLFloat, 16}};
  for (int d = 0; d < FGI_DTYPES; d++)
    if (t.lanes == 1 && t.code == DTYPES[d].code && t.bits == DTYPES[d].bits) {
      *out = (fgi_dtype)d;
      *element = t.bits / 8;
      return true;
    }
  return false;
}

int32_t fgi_check_ptr(const int64_t *ptr, int64_t rows, int64_t num_index, bool part, fg_error *err) {
  int64_t falls = 0;
  for (int64_t r = 0; r < rows; r++) falls |= ptr[r + 1] - ptr[r]; /* the sign bit */
  const bool ends = part ? ptr[rows] <= num_index : ptr[rows] == num_index;
  if (ptr[0] == 0 && ends && falls >= 0) {
    /* no difference was negative, unless one overflowed: then some element is negative */
    int64_t negative = 0;
    for (int64_t r = 0; r <= rows; r++) negative |= ptr[r];
    if (negative >= 0) return FG_OK;
  }
  if (ptr[0] != 0) return fgi_fail(err, FG_INVALID, "ptr[0] is %lld, expected 0", (long long)ptr[0]);
  if (!ends)
    return fgi_fail(err, FG_INVALID, "ptr[-1] is %lld, expected %s%lld: index has shape [%lld], ptr has shape [%lld]",
                    (long long)ptr[rows], part ? "at most " : "", (long long)num_index, (long long)num_index,
                    (long long)rows + 1);
  for (int64_t r = 0; r < rows; r++)
    if (ptr[r + 1] < ptr[r])
      return fgi_fail(err, FG_INVALID,
          "ptr must not decrease: ptr[%lld] is %lld and ptr[%lld] is %lld (ptr has shape [%lld])",
                      (long long)r, (long long)ptr[r], (long long)r + 1, (long long)ptr[r + 1], (long long)rows + 1);
  return fgi_fail(err, FG_INVALID, "ptr changed while it was read");
}

int32_t fgi_bad_index(const void *index, int32_t index_bytes, int64_t n, int64_t limit, int cut, const char *name,
    fg_error *err) {
  for (int64_t i = 0; i < n; i++) {
    int64_t j = fgi_index(index, index_bytes, i);
    if (j < 0 || (j >= limit && !cut))
      return fgi_fail(err, FG_INVALID,
          "%s[%lld] is %lld, expected [0, %lld): %s has shape [%lld] and selects among %lld rows",
                      name, (long long)i, (long long)j, (long long)limit, name, (long long)n, (long long)limit);
  }
  return fgi_fail(err, FG_INVALID, "%s changed while it was read", name);
}
