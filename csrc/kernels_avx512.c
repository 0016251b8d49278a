/* The kernels for AVX-512 (F, BW, DQ, VL). Only called where the processor has them (aggregate.c). */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#endif
#define WIDE 64
#define F16C 1
#define TABLE fgi_avx512
#include "isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
