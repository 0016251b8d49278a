/*
 * The softmax of graph attention over the edges of a target, and its derivative. Included by isa.h for each type and
 * number of lanes, with
 *   REAL, BITS  float or double, and the unsigned integer as wide
 *   LANES       heads that are taken together: it divides their number
 *   SOFT(f)     the name of function f for these
 *   EXP(x, n)   x[i] = e^x[i] for n reals, none positive
 *
 * What is written is one number for an edge and head. If there are LANES heads, as is usual, what is kept for a target
 * stays in registers; a call of expf for each edge would cost as much as the rows that the weights are for.
 */
typedef REAL SOFT(v) __attribute__((vector_size(LANES * sizeof(REAL))));
typedef REAL SOFT(vu) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef BITS SOFT(m) __attribute__((vector_size(LANES * sizeof(REAL))));
#define V SOFT(v)
#define M SOFT(m)
#define AT(p, i) (*(SOFT(vu) *)((p) + (i)))
#define READ(p, i) ((V)(*(const SOFT(vu) *)((p) + (i))))
#define CHOOSE(condition, yes, no) ((V)(((M)(condition) & (M)(yes)) | (~(M)(condition) & (M)(no))))
#define HEADS for (int64_t h = 0; h < heads; h += LANES)

static inline __attribute__((always_inline)) void SOFT(expect)(const fg_attention *in, int64_t edge, int64_t heads) {
  if (edge + EDGES_AHEAD < in->num_index)
    __builtin_prefetch((const REAL *)in->src + fgi_index(in->index, in->index_bytes, edge + EDGES_AHEAD) * heads);
}

/* scratch: what a target keeps for its heads, three numbers each. */
static inline __attribute__((always_inline)) bool SOFT(forward)(const fg_attention *in, int64_t row, REAL *most,
                                                                const int64_t heads) {
  const int64_t first = in->ptr[row], n = in->ptr[row + 1] - first;
  const REAL *src = in->src, *dst = in->dst != NULL ? (const REAL *)in->dst + row * heads : NULL,
      slope = (REAL)in->slope;
  const REAL *edge = in->edge != NULL ? (const REAL *)in->edge + first * heads : NULL;
  REAL *alpha = (REAL *)in->alpha + first * heads, *total = most + heads, *base = total + heads;
  REAL *own = row < in->self_rows ? (REAL *)in->alpha_self + row * heads : NULL;
  HEADS {
    AT(base, h) = dst != NULL ? READ(dst, h) : (V){0};
    V v = (V){0} - (REAL)INFINITY;
    if (own != NULL) {
      v = READ(src, row * heads + h) + READ(base, h);
      AT(own, h) = v = CHOOSE(v > 0, v, v * slope);
    }
    AT(most, h) = v;
  }
  for (int64_t i = 0; i < n; i++) {
    const int64_t s = fgi_index(in->index, in->index_bytes, first + i);
    if ((uint64_t)s >= (uint64_t)in->src_rows) return false;
    SOFT(expect)(in, first + i, heads);
    HEADS {
      V v = READ(src, s * heads + h) + READ(base, h);
      if (edge != NULL) v += READ(edge, i * heads + h);
      v = CHOOSE(v > 0, v, v * slope);
      if (own != NULL && s == row) v = (V){0} - (REAL)INFINITY;
      AT(alpha, i * heads + h) = v;
      AT(most, h) = CHOOSE(v > READ(most, h), v, READ(most, h));
    }
  }
  for (int64_t i = 0; i < n; i++) HEADS AT(alpha, i * heads + h) -= READ(most, h);
  EXP(alpha, n * heads);
  if (own != NULL) {
    HEADS AT(own, h) -= READ(most, h);
    EXP(own, heads);
  }
  HEADS AT(total, h) = own != NULL ? READ(own, h) : (V){0};
  for (int64_t i = 0; i < n; i++) HEADS AT(total, h) += READ(alpha, i * heads + h);
  HEADS AT(total, h) = 1 / READ(total, h);
  for (int64_t i = 0; i < n; i++) HEADS AT(alpha, i * heads + h) *= READ(total, h);
  if (own != NULL) HEADS AT(own, h) *= READ(total, h);
  return true;
}

/* d(logit) = alpha * (grad - sum of alpha * grad), times the slope where leaky_relu was negative. */
static inline __attribute__((always_inline)) bool SOFT(back)(const fg_attention *in, int64_t row, REAL *mean,
                                                             const int64_t heads) {
  const int64_t first = in->ptr[row], n = in->ptr[row + 1] - first;
  const REAL *src = in->src, *dst = in->dst != NULL ? (const REAL *)in->dst + row * heads : NULL,
      slope = (REAL)in->slope;
  const REAL *edge = in->edge != NULL ? (const REAL *)in->edge + first * heads : NULL;
  const REAL *alpha = (const REAL *)in->alpha + first * heads, *grad = (const REAL *)in->grad + first * heads;
  const REAL *own = in->alpha_self, *own_grad = in->grad_self;
  const bool has_self = row < in->self_rows;
  REAL *out = (REAL *)in->grad_edge + first * heads, *total = mean + heads, *base = total + heads;
  HEADS {
    AT(base, h) = dst != NULL ? READ(dst, h) : (V){0};
    AT(mean, h) = has_self ? READ(own, row * heads + h) * READ(own_grad, row * heads + h) : (V){0};
  }
  for (int64_t i = 0; i < n; i++) HEADS AT(mean, h) += READ(alpha, i * heads + h) * READ(grad, i * heads + h);
  HEADS {
    V d = {0};
    if (has_self) {
      V v = READ(src, row * heads + h) + READ(base, h);
      d = READ(own, row * heads + h) * (READ(own_grad, row * heads + h) - READ(mean, h));
      AT((REAL *)in->grad_edge_self, row * heads + h) = d = CHOOSE(v > 0, d, d * slope);
    }
    AT(total, h) = d;
  }
  for (int64_t i = 0; i < n; i++) {
    const int64_t s = fgi_index(in->index, in->index_bytes, first + i);
    if ((uint64_t)s >= (uint64_t)in->src_rows) return false;
    SOFT(expect)(in, first + i, heads);
    HEADS {
      V v = READ(src, s * heads + h) + READ(base, h);
      if (edge != NULL) v += READ(edge, i * heads + h);
      V d = READ(alpha, i * heads + h) * (READ(grad, i * heads + h) - READ(mean, h));
      d = CHOOSE(v > 0, d, d * slope);
      if (has_self && s == row) d = (V){0}; /* its alpha is 0, but 0 times what is not finite is not */
      AT(out, i * heads + h) = d;
      AT(total, h) += d;
    }
  }
  HEADS AT((REAL *)in->grad_dst, row * heads + h) = READ(total, h);
  return true;
}

static bool SOFT(attention)(const fg_attention *in, int64_t row, int64_t end, void *scratch) {
  bool good = true;
  REAL kept[3 * LANES];
  for (; good && row < end; row++)
    good = in->heads == LANES ? SOFT(forward)(in, row, kept, LANES) : SOFT(forward)(in, row, scratch, in->heads);
  return good;
}

static bool SOFT(attention_back)(const fg_attention *in, int64_t row, int64_t end, void *scratch) {
  bool good = true;
  REAL kept[3 * LANES];
  for (; good && row < end; row++)
    good = in->heads == LANES ? SOFT(back)(in, row, kept, LANES) : SOFT(back)(in, row, scratch, in->heads);
  return good;
}

#undef V
#undef M
#undef AT
#undef READ
#undef CHOOSE
#undef HEADS
#undef LANES
#undef SOFT
