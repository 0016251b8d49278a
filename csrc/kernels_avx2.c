/* The kernels for AVX2 with FMA and F16C. Only called where the processor has them (aggregate.c). */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#define WIDE 32
#define F16C 1
#define TABLE fgi_avx2
#include "isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
