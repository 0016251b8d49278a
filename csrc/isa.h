/*
 * The kernels of one instruction set. Included by kernels_*.c with
 *   WIDE   bytes of its vectors: 16, 32 or 64
 *   TABLE  name of the table that is defined
 *   F16C   1 where the processor converts float16
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "operators.h"

#if F16C
#include <immintrin.h>
#endif

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#if defined(__clang__) /* has no shuffle by a vector; turns these lanes into one */
#define PERMUTE(a, lanes)                                                         \
  ({                                                                              \
    __typeof__(a) from_ = (a), to_;                                               \
    __typeof__(lanes) lanes_ = (lanes);                                           \
    for (unsigned i_ = 0; i_ < sizeof from_ / sizeof from_[0]; i_++) to_[i_] = from_[lanes_[i_]]; \
    to_;                                                                          \
  })
#else
#define PERMUTE(a, lanes) __builtin_shuffle(a, lanes)
#endif

static const uint32_t LANE_NUMBERS_32[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint64_t LANE_NUMBERS_64[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* ---- float32 and float64 are loaded as they are ------------------------ */

#define LOAD(p) ((V)(*(const VU *)(p)))
#define STORE(p, v) (*(VU *)(p) = (v))

#define TYPE f64
#define ELEMENT double
#define REAL double
#define LANE_NUMBERS LANE_NUMBERS_64
#define BITS uint64_t
#define LANES_OF_64 8
#define LANES_OF_32 4
#define LANES_OF_16 2
#include "lengths.h"
#undef ELEMENT
#undef REAL
#undef BITS
#undef LANE_NUMBERS
#undef LANES_OF_64
#undef LANES_OF_32
#undef LANES_OF_16

/* The other types are added up as float. */
#define REAL float
#define LANE_NUMBERS LANE_NUMBERS_32
#define BITS uint32_t
#define LANES_OF_64 16
#define LANES_OF_32 8
#define LANES_OF_16 4

#define TYPE f32
#define ELEMENT float
#include "lengths.h"
#undef ELEMENT
#undef LOAD
#undef STORE

/* ---- bfloat16: the upper half of a float -------------------------------- */

/* Rounds to nearest even; NaN stays NaN, though rounding alone could carry it into infinity. */
#define BF16(L)                                                                                                  \
  typedef float bf16_real_##L __attribute__((vector_size(4 * L)));                                               \
  typedef uint32_t bf16_bits_##L __attribute__((vector_size(4 * L)));                                            \
  typedef uint16_t bf16_half_##L __attribute__((vector_size(2 * L), aligned(2), may_alias));                     \
  static inline __attribute__((always_inline)) bf16_real_##L bf16_load_##L(const void *p) {                      \
    return (bf16_real_##L)(__builtin_convertvector(*(const bf16_half_##L *)p, bf16_bits_##L) << 16);             \
  }                                                                                                              \
  static inline __attribute__((always_inline)) void bf16_store_##L(void *p, bf16_real_##L v) {                   \
    bf16_bits_##L b = (bf16_bits_##L)v, nan = (bf16_bits_##L)(v != v);                                           \
    b = (((b + 0x7fff + ((b >> 16) & 1)) >> 16) & ~nan) | (((b >> 16) | 0x40) & nan);                            \
    *(bf16_half_##L *)p = __builtin_convertvector(b, bf16_half_##L);                                             \
  }

#if WIDE >= 64
BF16(16)
#endif
#if WIDE >= 32
BF16(8)
#endif
BF16(4)

static inline float bf16_load_one(const void *p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  uint32_t b = (uint32_t)h << 16;
  float f;
  memcpy(&f, &b, sizeof f);
  return f;
}
static inline void bf16_store_one(void *p, float f) {
  uint32_t b;
  memcpy(&b, &f, sizeof b);
  uint16_t h = (uint16_t)(f != f ? (b >> 16) | 0x40 : (b + 0x7fff + ((b >> 16) & 1)) >> 16);
  memcpy(p, &h, sizeof h);
}
#define bf16_load_1(p) ((V){bf16_load_one(p)})
#define bf16_store_1(p, v) bf16_store_one(p, (v)[0])

#define TYPE bf16
#define ELEMENT uint16_t
#define LOAD(p) JOIN(bf16_load, LANES)(p)
#define STORE(p, v) JOIN(bf16_store, LANES)(p, v)
#include "lengths.h"
#undef LOAD
#undef STORE

/* ---- float16 -------------------------------------------------------------- */

#if F16C
#define f16_load_16(p) ((V)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p))))
#define f16_store_16(p, v) _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph((__m512)(v), _MM_FROUND_TO_NEAREST_INT))
#define f16_load_8(p) ((V)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p))))
#define f16_store_8(p, v) _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph((__m256)(v), _MM_FROUND_TO_NEAREST_INT))
#define f16_load_4(p) ((V)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(p))))
#define f16_store_4(p, v) _mm_storel_epi64((__m128i *)(p), _mm_cvtps_ph((__m128)(v), _MM_FROUND_TO_NEAREST_INT))
#define f16_load_1(p) ((V){_cvtsh_ss(*(const uint16_t *)(p))})
#define f16_store_1(p, v) (*(uint16_t *)(p) = _cvtss_sh((v)[0], _MM_FROUND_TO_NEAREST_INT))

#else /* in software, one at a time */

static inline float f16_load(const void *p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff, b;
  if (rest >= 0x7c00) {
    b = sign | 0x7f800000 | (rest & 0x3ff) << 13; /* infinity, NaN */
  } else if (rest >= 0x400) {
    b = sign | ((rest << 13) + ((127 - 15) << 23));
  } else { /* zero and subnormals: rest * 2^-24, exact */
    float f = (float)rest * 0x1p-24f;
    memcpy(&b, &f, sizeof b);
    b |= sign;
  }
  float f;
  memcpy(&f, &b, sizeof f);
  return f;
}
static inline void f16_store(void *p, float f) {
  uint32_t b;
  memcpy(&b, &f, sizeof b);
  uint32_t sign = b >> 16 & 0x8000, rest = b & 0x7fffffff, h;
  if (rest > 0x7f800000) {
    h = 0x7e00 | (rest >> 13 & 0x3ff); /* NaN */
  } else if (rest >= 0x477ff000) {
    h = 0x7c00; /* rounds to infinity */
  } else if (rest >= 0x38800000) {
    h = (rest + 0xfff + (rest >> 13 & 1) - ((127 - 15) << 23)) >> 13;
  } else { /* subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the last bits */
    float magnitude;
    memcpy(&magnitude, &rest, sizeof magnitude);
    magnitude += 0.5f;
    memcpy(&h, &magnitude, sizeof h);
    h -= 0x3f000000;
  }
  uint16_t out = (uint16_t)(sign | h);
  memcpy(p, &out, sizeof out);
}
#define f16_load_4(p) ((V){f16_load(p), f16_load((p) + 2), f16_load((p) + 4), f16_load((p) + 6)})
#define f16_store_4(p, v)                                                                             \
  (f16_store(p, (v)[0]), f16_store((p) + 2, (v)[1]), f16_store((p) + 4, (v)[2]), f16_store((p) + 6, (v)[3]))
#define f16_load_1(p) ((V){f16_load(p)})
#define f16_store_1(p, v) f16_store(p, (v)[0])
#endif

#define TYPE f16
#define LOAD(p) JOIN(f16_load, LANES)(p)
#define STORE(p, v) JOIN(f16_store, LANES)(p, v)
#include "lengths.h"
#undef LOAD
#undef STORE
#undef ELEMENT
#undef REAL
#undef BITS
#undef LANE_NUMBERS

/* ---- the longest vector that a row (for weights and products: a head) has room for ---- */

#if WIDE >= 64
#define PICK64(w, t, op, l16, l8, l4) if ((w) >= l16) { op##_##t##_##l16(s); return; }
#else
#define PICK64(w, t, op, l16, l8, l4)
#endif
#if WIDE >= 32
#define PICK32(w, t, op, l16, l8, l4) if ((w) >= l8) { op##_##t##_##l8(s); return; }
#else
#define PICK32(w, t, op, l16, l8, l4)
#endif
#define PICK(w, t, op, l16, l8, l4)               \
  PICK64(w, t, op, l16, l8, l4)                   \
  PICK32(w, t, op, l16, l8, l4)                   \
  if ((w) >= l4) { op##_##t##_##l4(s); return; }  \
  op##_##t##_1(s)

#define ENTRIES(t, ...)                                                                                        \
  static void t##_sum(const fgi_slice *s) {                                                                    \
    int64_t w = s->weight == NULL ? s->heads * s->width : s->width;                                            \
    PICK(w, t, sum, __VA_ARGS__);                                                                              \
  }                                                                                                            \
  static void t##_extreme(const fgi_slice *s) { PICK(s->width, t, extreme, __VA_ARGS__); }                     \
  static void t##_extreme_back(const fgi_slice *s) { PICK(s->width, t, extreme_back, __VA_ARGS__); }           \
  static void t##_dot(const fgi_slice *s) { PICK(s->width, t, dot, __VA_ARGS__); }                             \
  static void t##_finish(const fgi_finish *s) { PICK(s->width, t, finish, __VA_ARGS__); }

ENTRIES(f32, 16, 8, 4)
ENTRIES(bf16, 16, 8, 4)
ENTRIES(f16, 16, 8, 4)
ENTRIES(f64, 8, 4, 2)

/* ---- exponentials ------------------------------------------------------ */

/* x[i] = e^x[i], none positive; NaN stays NaN. Of float to 2 units in the last place, and 0 below -87.3. */

typedef float exp_vec __attribute__((vector_size(WIDE)));
typedef float exp_vec_at __attribute__((vector_size(WIDE), aligned(4), may_alias));
typedef int32_t exp_bits __attribute__((vector_size(WIDE)));

/* 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], the coefficients of Cephes' expf. */
static inline __attribute__((always_inline)) exp_vec exp_of(exp_vec x) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which is then in the last bits */
  exp_vec t = x * 1.44269504f + magic, n = t - magic;
  exp_vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
  exp_vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  exp_vec power = (exp_vec)(((exp_bits)t << 23) + (127 << 23));
  return (exp_vec)((exp_bits)(p * power) & ~(exp_bits)(x < -87.3f));
}

static void exp_float(void *data, int64_t n) {
  float *x = data;
  enum { LANES_ = WIDE / 4 };
  int64_t i = 0;
  for (; i + LANES_ <= n; i += LANES_) *(exp_vec_at *)(x + i) = exp_of((exp_vec)(*(exp_vec_at *)(x + i)));
  if (i < n) {
    exp_vec rest = {0};
    memcpy(&rest, x + i, (size_t)(n - i) * sizeof *x);
    rest = exp_of(rest);
    memcpy(x + i, &rest, (size_t)(n - i) * sizeof *x);
  }
}

static void exp_double(void *data, int64_t n) {
  double *x = data;
  for (int64_t i = 0; i < n; i++) x[i] = exp(x[i]);
}

/* ---- attention --------------------------------------------------------- */

enum { EDGES_AHEAD = 16 }; /* whose rows of src are prefetched */

#define REAL float
#define BITS uint32_t
#define EXP exp_float
#define LANES 8
#define SOFT(f) f##_float_8
#include "softmax.h"
#define LANES 4
#define SOFT(f) f##_float_4
#include "softmax.h"
#define LANES 1
#define SOFT(f) f##_float_1
#include "softmax.h"
#undef REAL
#undef BITS
#undef EXP

#define REAL double
#define BITS uint64_t
#define EXP exp_double
#define LANES 4
#define SOFT(f) f##_double_4
#include "softmax.h"
#define LANES 1
#define SOFT(f) f##_double_1
#include "softmax.h"

#define ATTENTION(name)                                                                               \
  static bool name##_float(const fg_attention *in, int64_t row, int64_t end, void *scratch) {         \
    if (in->heads % 8 == 0) return name##_float_8(in, row, end, scratch);                             \
    return (in->heads % 4 == 0 ? name##_float_4 : name##_float_1)(in, row, end, scratch);             \
  }                                                                                                   \
  static bool name##_double(const fg_attention *in, int64_t row, int64_t end, void *scratch) {        \
    return (in->heads % 4 == 0 ? name##_double_4 : name##_double_1)(in, row, end, scratch);           \
  }
ATTENTION(attention)
ATTENTION(attention_back)

#define KERNELS(t, real) \
  {t##_sum, t##_extreme, t##_extreme_back, t##_dot, t##_finish, attention_##real, attention_back_##real}
const fgi_kernels TABLE[FGI_DTYPES] = {
    [FGI_F32] = KERNELS(f32, float),
    [FGI_F64] = KERNELS(f64, double),
    [FGI_BF16] = KERNELS(bf16, float),
    [FGI_F16] = KERNELS(f16, float),
};
