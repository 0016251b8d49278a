/*
 * Logarithms and exponentials of weighted draws: the sequence of operations of core/sample/logarithm.go, which explains
 * it. Each is rounded by itself, so that all processors and devices have the same bits.
 */
#ifndef FRESHGO_CUDA_LOGARITHM_H
#define FRESHGO_CUDA_LOGARITHM_H

#include "number.h"

namespace fgc {

#if defined(__CUDACC__)
FGC_FN double plus(double a, double b) { return __dadd_rn(a, b); }
FGC_FN double times(double a, double b) { return __dmul_rn(a, b); }
FGC_FN double over(double a, double b) { return __ddiv_rn(a, b); }
FGC_FN uint64_t bits_of(double v) { return (uint64_t)__double_as_longlong(v); }
FGC_FN double double_of(uint64_t b) { return __longlong_as_double((long long)b); }
#else /* compiled with -ffp-contract=off */
FGC_FN double plus(double a, double b) { return a + b; }
FGC_FN double times(double a, double b) { return a * b; }
FGC_FN double over(double a, double b) { return a / b; }
FGC_FN uint64_t bits_of(double v) {
  uint64_t b;
  memcpy(&b, &v, sizeof b);
  return b;
}
FGC_FN double double_of(uint64_t b) {
  double v;
  memcpy(&v, &b, sizeof v);
  return v;
}
#endif
FGC_FN double minus(double a, double b) { return plus(a, -b); }

#define FGC_LN2_HI 6.93147180369123816490e-01
#define FGC_LN2_LO 1.90821492927058770002e-10

FGC_FN double logarithm(double x) {
  const uint64_t b = bits_of(x), fraction = b & 0xfffffffffffffull, below = (fraction - 0x6a09e667f3bcdull) >> 63;
  const double k = (double)((int64_t)(b >> 52) - 1022 - (int64_t)below);
  const double f = minus(double_of(fraction | (1022 + below) << 52), 1);
  const double s = over(f, plus(2, f)), s2 = times(s, s), s4 = times(s2, s2);
  double odd = plus(times(s4, 1.479819860511658591e-01), 1.818357216161805012e-01);
  odd = plus(times(s4, odd), 2.857142874366239149e-01);
  odd = plus(times(s4, odd), 6.666666666666735130e-01);
  double even = plus(times(s4, 1.531383769920937332e-01), 2.222219843214978396e-01);
  even = plus(times(s4, even), 3.999999999940941908e-01);
  double r = plus(times(s2, odd), times(s4, even));
  const double half = times(times(0.5, f), f);
  r = plus(times(s, plus(half, r)), times(k, FGC_LN2_LO));
  return minus(times(k, FGC_LN2_HI), minus(minus(half, r), f));
}

FGC_FN double exponential_minus_1(double x) {
  int64_t k = 0;
  double c = 0;
  if (x <= -3.88162421113569373274e+01) return -1;
  if (x < -3.46573590279972654709e-01) {
    k = -1;
    if (x <= -1.03972077083991796413e+00) k = (int64_t)minus(times(1.44269504088896338700e+00, x), 0.5);
    const double hi = minus(x, times((double)k, FGC_LN2_HI)), lo = times((double)k, FGC_LN2_LO);
    x = minus(hi, lo);
    c = minus(minus(hi, x), lo);
  } else if (x > -0x1p-54) {
    return x;
  }
  const double half = times(0.5, x), square = times(x, half);
  double p = plus(times(square, -2.01099218183624371326e-07), 4.00821782732936239552e-06);
  p = plus(times(square, p), -7.93650757867487942473e-05);
  p = plus(times(square, p), 1.58730158725481460165e-03);
  p = plus(times(square, p), -3.33333333333331316428e-02);
  p = plus(times(square, p), 1);
  const double t = minus(3, times(p, half));
  double e = times(square, over(minus(p, t), minus(6, times(x, t))));
  if (k == 0) return minus(x, minus(times(x, e), square));
  e = minus(minus(times(x, minus(e, c)), c), square);
  if (k == -1) return minus(times(0.5, minus(x, e)), 0.5);
  return minus(double_of(bits_of(minus(1, minus(e, x))) + ((uint64_t)k << 52)), 1);
}

/* core/sample/race.go: a draw from the exponential distribution, from uniform bits. */
FGC_FN double exponential(uint64_t x) {
  return -logarithm(times(plus((double)(x >> 11), 0.5), 0x1p-53));
}

}  // namespace fgc

#endif
