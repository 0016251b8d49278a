/*
 * One element type at one vector length. Included again and again, by lengths.h, with
 *   ELEMENT, REAL, BITS  the stored type, the type of sums, the unsigned type as wide as REAL
 *   TYPE                 which begins the suffix of the functions
 *   LANES                elements of a vector, a number: its end
 *   LOAD(p), STORE(p, v) between LANES stored elements and a vector of REAL
 *
 * A row that is no whole number of vectors ends in one that overlaps the one before: what both compute is equal, so
 * there is no tail. Callers see to width >= LANES.
 */
#define FN(name) JOIN(name, JOIN(TYPE, LANES))
#define V FN(vec)
#define VU FN(vecu)
#define M FN(mask)

typedef REAL V __attribute__((vector_size(LANES * sizeof(REAL))));
typedef REAL VU __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef BITS M __attribute__((vector_size(LANES * sizeof(REAL))));
typedef BITS FN(masku) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

#define PUT(p, c, v) (*(VU *)((REAL *)(p) + (c)) = (v))
#define GET(p, c) ((V)(*(const VU *)((const REAL *)(p) + (c))))
/* Vectors in registers at a time: half of 16 registers. Single elements are for rows of fewer than four. */
#if LANES > 1
#define GROUP 8
#else
#define GROUP 3
#endif
#define PAIRS (GROUP < 4 ? GROUP : 4) /* where each takes two registers */

/* Where vector v of a group that begins at c0 lies behind c0: one after the other, the last one not past the end. */
#define STEP(v) ((v) == nv - 1 ? last : (int64_t)(v)*LANES)
#define BYTES(c) ((c) * (int64_t)sizeof(ELEMENT))

static inline __attribute__((always_inline)) int64_t FN(last)(int nv, int64_t c0, int64_t width) {
  int64_t last = (int64_t)(nv - 1) * LANES;
  return c0 + last > width - LANES ? width - LANES - c0 : last;
}

static inline __attribute__((always_inline)) void FN(prefetch)(const char *row, int nv) {
#pragma GCC unroll 8
  for (int64_t b = 0; b < BYTES((int64_t)nv * LANES); b += 64) __builtin_prefetch(row + b);
}

/* The sum of a vector, by halves that stay in the register: many of these are in flight at a time. */
static inline __attribute__((always_inline)) REAL FN(total)(V a) {
  const M lane = *(const FN(masku) *)LANE_NUMBERS;
#pragma GCC unroll 4
  for (int half = LANES / 2; half > 0; half /= 2) a += PERMUTE(a, lane ^ (BITS)half);
  return a[0];
}

/* Weighted: one weight for each head of a row, heads being whole vectors, or a single head. */
static inline __attribute__((always_inline)) void FN(sum_group)(const fgi_slice *s, int64_t width, int64_t c0,
    const int nv, const int weighted) {
  V a[GROUP];
  int64_t head[GROUP];
  const int64_t last = FN(last)(nv, c0, width), n = s->n, ahead = s->ahead, stride = s->weight_stride;
  const char *x = s->x + BYTES(c0);
  const int64_t *at = s->at;
  const REAL *w = s->weight;
  REAL *sum = (REAL *)s->sum + c0;
#pragma GCC unroll 8
  for (int v = 0; v < nv; v++) {
    head[v] = weighted && s->heads > 1 ? (c0 + STEP(v)) / s->width : 0;
    a[v] = s->fresh ? (V){0} : GET(sum, STEP(v));
  }
  for (int64_t k = 0; k < n; k++) {
    FN(prefetch)(x + at[k + ahead], nv);
    const char *row = x + at[k];
#pragma GCC unroll 8
    for (int v = 0; v < nv; v++) {
      V r = LOAD(row + BYTES(STEP(v)));
      a[v] += weighted ? w[head[v]] * r : r;
    }
    if (weighted) w += stride;
  }
#pragma GCC unroll 8
  for (int v = 0; v < nv; v++) PUT(sum, STEP(v), a[v]);
}

/* The running extreme and how many rows had it. `flip` is the sign bit where the least is sought. */
static inline __attribute__((always_inline)) void FN(extreme_group)(const fgi_slice *s, int64_t width, int64_t c0,
    const int nv, const int counted) {
  V a[GROUP], n[GROUP];
  const int64_t last = FN(last)(nv, c0, width), ahead = s->ahead;
  const char *x = s->x + BYTES(c0);
  const int64_t *at = s->at;
  REAL *sum = (REAL *)s->sum + c0, *count = counted ? (REAL *)s->count + c0 : NULL;
  const M flip = (M){0} + (s->least ? (BITS)1 << (8 * sizeof(REAL) - 1) : 0);
#pragma GCC unroll 8
  for (int v = 0; v < nv; v++) {
    a[v] = s->fresh ? (V){0} - (REAL)__builtin_inf() : (V)((M)GET(sum, STEP(v)) ^ flip);
    if (counted) n[v] = s->fresh ? (V){0} : GET(count, STEP(v));
  }
  for (int64_t k = 0; k < s->n; k++) {
    FN(prefetch)(x + at[k + ahead], nv);
    const char *row = x + at[k];
#pragma GCC unroll 8
    for (int v = 0; v < nv; v++) {
      V r = (V)((M)LOAD(row + BYTES(STEP(v))) ^ flip);
      M above = (M)((r > a[v]) | (r != r));
      if (counted) {
        const V one = (V){0} + 1;
        n[v] = (V)(((M)one & above) | ((M)(n[v] + (V)((M)one & (M)(r == a[v]))) & ~above));
      }
      a[v] = (V)(((M)r & above) | ((M)a[v] & ~above));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < nv; v++) {
    PUT(sum, STEP(v), (V)((M)a[v] ^ flip));
    if (counted) PUT(count, STEP(v), n[v]);
  }
}

static inline __attribute__((always_inline)) void FN(back_group)(const fgi_slice *s, int64_t width, int64_t c0,
    const int nv) {
  V a[GROUP], own[GROUP];
  const int64_t last = FN(last)(nv, c0, width), ahead = s->ahead;
  const char *x = s->x + BYTES(c0), *y = s->y + BYTES(c0);
  const int64_t *at = s->at;
  REAL *sum = (REAL *)s->sum + c0;
#pragma GCC unroll 4
  for (int v = 0; v < nv; v++) {
    a[v] = s->fresh ? (V){0} : GET(sum, STEP(v));
    own[v] = LOAD(s->own + BYTES(c0 + STEP(v)));
  }
  for (int64_t k = 0; k < s->n; k++) {
    FN(prefetch)(x + at[k + ahead], nv);
    FN(prefetch)(y + at[k + ahead], nv);
    const char *row = x + at[k], *other = y + at[k];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++)
      a[v] += (V)((M)(LOAD(row + BYTES(STEP(v))) == own[v]) & (M)LOAD(other + BYTES(STEP(v))));
  }
#pragma GCC unroll 4
  for (int v = 0; v < nv; v++) PUT(sum, STEP(v), a[v]);
}

/* Calls body with the number of vectors as a constant, for all groups of a row. No group is a single vector that
 * overlaps the group before: that one has been added to already. */
#define GROUPS(width, most, body)                                                          \
  for (int64_t c0 = 0, take = 0; c0 < (width); c0 += take * LANES) {                       \
    int64_t left = ((width) - c0 + LANES - 1) / LANES;                                     \
    take = left <= (most) ? left : left == (most) + 1 ? (most)-1 : (most);                 \
    switch (take) {                                                                        \
      case 8: if (8 <= (most)) { enum { NV = 8 }; body; } break;                         \
      case 7: if (7 <= (most)) { enum { NV = 7 }; body; } break;                         \
      case 6: if (6 <= (most)) { enum { NV = 6 }; body; } break;                         \
      case 5: if (5 <= (most)) { enum { NV = 5 }; body; } break;                         \
      case 4: if (4 <= (most)) { enum { NV = 4 }; body; } break;                         \
      case 3: if (3 <= (most)) { enum { NV = 3 }; body; } break;                         \
      case 2: if (2 <= (most)) { enum { NV = 2 }; body; } break;                         \
      default: { enum { NV = 1 }; body; } break;                                           \
    }                                                                                      \
  }

static void FN(weighted)(const fgi_slice *s) {
  int64_t width = s->heads * s->width;
  GROUPS(width, GROUP, FN(sum_group)(s, width, c0, NV, 1))
}

static void FN(sum)(const fgi_slice *s) {
  if (s->weight == NULL) {
    int64_t width = s->heads * s->width;
    GROUPS(width, GROUP, FN(sum_group)(s, width, c0, NV, 0))
  } else if (s->heads == 1 || s->width % LANES == 0) {
    FN(weighted)(s);
  } else { /* a vector would reach into the next head */
    fgi_slice one = *s;
    one.heads = 1;
    for (int64_t h = 0; h < s->heads; h++) {
      one.x = s->x + BYTES(h * s->width);
      one.weight = (const REAL *)s->weight + h;
      one.sum = (REAL *)s->sum + h * s->width;
      FN(weighted)(&one);
    }
  }
}

static void FN(extreme)(const fgi_slice *s) {
  if (s->count != NULL) {
    GROUPS(s->width, PAIRS, FN(extreme_group)(s, s->width, c0, NV, 1))
  } else {
    GROUPS(s->width, GROUP, FN(extreme_group)(s, s->width, c0, NV, 0))
  }
}

static void FN(extreme_back)(const fgi_slice *s) { GROUPS(s->width, PAIRS, FN(back_group)(s, s->width, c0, NV)) }

/* The row multiplied by as reals, whole vectors for each head: the last one is zero where it overlaps another. */
static const REAL *FN(widened)(const fgi_slice *s, int64_t nv) {
  const int64_t last = s->width - LANES, overlap = nv * LANES - s->width;
  if (sizeof(ELEMENT) == sizeof(REAL) && overlap == 0) return (const REAL *)s->own; /* already wide */
  REAL *own = s->scratch;
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t v = 0; v < nv; v++) {
      V g = LOAD(s->own + BYTES(h * s->width + (v == nv - 1 ? last : v * LANES)));
      if (v == nv - 1)
        for (int64_t i = 0; i < overlap; i++) g[i] = 0;
      PUT(own, (h * nv + v) * LANES, g);
    }
  return own;
}

/* A row's product, of one head; g is what its columns are multiplied by. */
static inline __attribute__((always_inline)) V FN(product)(const char *row, const REAL *g, int64_t nv, int64_t last) {
  V a = {0}, b = {0}; /* two chains: one would wait for its own latency */
  int64_t v = 0;
  for (; v + 2 < nv; v += 2) {
    a += LOAD(row + BYTES(v * LANES)) * GET(g, v * LANES);
    b += LOAD(row + BYTES((v + 1) * LANES)) * GET(g, (v + 1) * LANES);
  }
  if (v + 1 < nv) a += LOAD(row + BYTES(v * LANES)) * GET(g, v * LANES);
  b += LOAD(row + BYTES(last)) * GET(g, (nv - 1) * LANES);
  return a + b;
}

static void FN(dot)(const fgi_slice *s) {
  const int64_t nv = (s->width + LANES - 1) / LANES, last = s->width - LANES;
  const REAL *own = FN(widened)(s, nv);
  REAL *out = s->sum;
  for (int64_t k = 0; k < s->n; k++) {
    const char *next = s->x + s->at[k + s->ahead], *row = s->x + s->at[k];
    for (int64_t b = 0; b < BYTES(s->heads * s->width); b += 64) __builtin_prefetch(next + b);
    if (nv == 1) /* a head is a vector */
      for (int64_t h = 0; h < s->heads; h++) *out++ = FN(total)(LOAD(row + BYTES(h * LANES)) * GET(own, h * LANES));
    else
      for (int64_t h = 0; h < s->heads; h++)
        *out++ = FN(total)(FN(product)(row + BYTES(h * s->width), own + h * nv * LANES, nv, last));
  }
}

static void FN(finish)(const fgi_finish *f) {
  const REAL scale = (REAL)f->scale;
  const REAL *self = f->self;
  const int64_t last = f->width - LANES;
  for (int64_t h = 0; h < f->heads; h++) {
    const REAL *sum = (const REAL *)f->sum + h * f->width;
    const int64_t first = h * f->width;
    const V end = GET(sum, last) * scale; /* read before it is overwritten: `sum` may be `out` */
    for (int64_t c = 0; c < f->width; c += LANES) {
      const int64_t at = c > last ? last : c;
      V r = at == last ? end : GET(sum, at) * scale;
      if (f->own != NULL) r += LOAD(f->own + BYTES(first + at)) * self[h * f->self_stride];
      STORE(f->out + BYTES(first + at), r);
    }
  }
}

#undef FN
#undef V
#undef VU
#undef M
#undef PUT
#undef GET
#undef GROUP
#undef PAIRS
#undef STEP
#undef BYTES
#undef GROUPS
#undef LANES
