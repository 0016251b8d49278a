/* Element types: how they are stored, loaded several at a time, and rounded. */
#ifndef FRESHGO_CUDA_NUMBER_H
#define FRESHGO_CUDA_NUMBER_H

#include "warp.h"

#if !defined(__CUDACC__)
#include <math.h>
#include <string.h>
#endif

namespace fgc {

struct F32 {
  typedef float Stored;
  typedef float Real;
  static FGC_FN float load(float v) { return v; }
  static FGC_FN float store(float v) { return v; }
};

struct F64 {
  typedef double Stored;
  typedef double Real;
  static FGC_FN double load(double v) { return v; }
  static FGC_FN double store(double v) { return v; }
};

FGC_FN uint32_t bits_of(float v) {
#if defined(__CUDACC__)
  return __float_as_uint(v);
#else
  uint32_t b;
  memcpy(&b, &v, sizeof b);
  return b;
#endif
}
FGC_FN float float_of(uint32_t b) {
#if defined(__CUDACC__)
  return __uint_as_float(b);
#else
  float v;
  memcpy(&v, &b, sizeof v);
  return v;
#endif
}

/* The upper half of a float. Rounds to nearest even; NaN stays NaN. */
struct BF16 {
  typedef uint16_t Stored;
  typedef float Real;
  static FGC_FN float load(uint16_t v) { return float_of((uint32_t)v << 16); }
  static FGC_FN uint16_t store(float v) {
    const uint32_t b = bits_of(v);
    return (uint16_t)(v != v ? (b >> 16) | 0x40 : (b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
};

struct F16 {
  typedef uint16_t Stored;
  typedef float Real;
#if defined(__CUDACC__)
  static FGC_FN float load(uint16_t v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
    return f;
  }
  static FGC_FN uint16_t store(float v) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
  }
#else
  static float load(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return float_of(sign | ((rest << 13) + ((127 - 15) << 23)));
    return float_of(sign | bits_of((float)rest * 0x1p-24f));
  }
  static uint16_t store(float v) {
    const uint32_t b = bits_of(v), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (rest >= 0x38800000) return (uint16_t)(sign | ((rest + 0xfff + (rest >> 13 & 1) - ((127 - 15) << 23)) >> 13));
    /* adding 0.5 rounds to a multiple of 2^-24 */
    return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
  }
#endif
};

/* n bytes that are loaded and stored at once; the address is a multiple of n, up to 16. */
template <int n>
struct alignas(n < 16 ? n : 16) Bytes {
  unsigned char b[n];
};

/* Some elements as they lie in memory. */
template <typename E, int V>
struct alignas(V * sizeof(typename E::Stored)) Pack {
  typename E::Stored e[V];
};

/* Loads for data that no lane writes: through the read-only path of the device. */
template <typename T>
FGC_FN T load_const(const void *p) {
#if defined(__CUDACC__)
  static_assert(sizeof(T) == 16 || sizeof(T) == 8 || sizeof(T) == 4 || sizeof(T) == 2 || sizeof(T) == 1, "one load");
  T v;
  if constexpr (sizeof(T) == 16) {
    const uint4 w = __ldg((const uint4 *)p);
    __builtin_memcpy(&v, &w, 16);
  } else if constexpr (sizeof(T) == 8) {
    const uint2 w = __ldg((const uint2 *)p);
    __builtin_memcpy(&v, &w, 8);
  } else if constexpr (sizeof(T) == 4) {
    const unsigned w = __ldg((const unsigned *)p);
    __builtin_memcpy(&v, &w, 4);
  } else if constexpr (sizeof(T) == 2) {
    const unsigned short w = __ldg((const unsigned short *)p);
    __builtin_memcpy(&v, &w, 2);
  } else {
    const unsigned char w = __ldg((const unsigned char *)p);
    __builtin_memcpy(&v, &w, 1);
  }
  return v;
#else
  emulator::check_aligned(p, sizeof(T));
  T v;
  memcpy(&v, p, sizeof v);
  return v;
#endif
}

template <typename T>
FGC_FN void put(void *p, const T &v) {
#if !defined(__CUDACC__)
  emulator::check_aligned(p, sizeof(T));
#endif
  *(T *)p = v;
}

FGC_FN float infinity(float) { return float_of(0x7f800000); }
FGC_FN double infinity(double) { return (double)float_of(0x7f800000); }

}  // namespace fgc

#endif
