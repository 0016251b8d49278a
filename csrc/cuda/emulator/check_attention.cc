// The softmax over a target's edges and its derivative against loops in double.
#include "check.h"

using namespace fgc;

namespace {

template <typename T>
struct Case {
  Graph g;
  int64_t heads, sources, rows, edges, self_rows;
  double slope;
  Indices index;
  Array<int64_t> ptr;
  Array<T> src, dst, edge, alpha, alpha_self, grad, grad_self, grad_edge, grad_edge_self, grad_dst;
  bool has_dst, has_edge;
  Array<uint64_t> status{1};
  fg_attention in = {};

  Case(const std::vector<int64_t> &lengths, int64_t heads, bool self, double slope, bool wide)
      : g(graph_of(lengths, (int64_t)lengths.size() + 5)), heads(heads), sources((int64_t)lengths.size() + 5),
        rows(g.rows()), edges((int64_t)g.index.size()), self_rows(self && rows > 0 ? rows - 1 : 0), slope(slope),
        index(g.index, wide), ptr(g.ptr),
        src(sources * heads), dst(rows * heads), edge(edges * heads), alpha(edges * heads),
        alpha_self(self_rows * heads),
        grad(edges * heads), grad_self(self_rows * heads), grad_edge(edges * heads), grad_edge_self(self_rows * heads),
        grad_dst(rows * heads), has_dst(below(2) == 0), has_edge(below(2) == 0) {
    for (Array<T> *a : {&src, &dst, &edge, &grad, &grad_self})
      for (int64_t i = 0; i < a->size(); i++) (*a)[i] = (T)(uniform() * 5);
    in.struct_size = sizeof in;
    in.index_bytes = wide ? 8 : 4;
    in.is_double = sizeof(T) == 8;
    in.heads = heads;
    in.src = src.data();
    in.src_rows = sources;
    in.dst = has_dst ? dst.data() : nullptr;
    in.edge = has_edge ? edge.data() : nullptr;
    in.ptr = ptr.data();
    in.rows = rows;
    in.index = index.data();
    in.num_index = edges;
    in.self_rows = self_rows;
    in.slope = slope;
    in.alpha = alpha.data();
    in.alpha_self = alpha_self.data();
    in.grad = grad.data();
    in.grad_self = grad_self.data();
    in.grad_edge = grad_edge.data();
    in.grad_edge_self = grad_edge_self.data();
    in.grad_dst = grad_dst.data();
    status[0] = 0;
  }

  void forward(uint64_t seed) { go(0, seed); }
  void back(uint64_t seed) { go(1, seed); }
  void go(int32_t which, uint64_t seed) {
    fgc_plan p;
    REQUIRE(fgc_plan_attention(&in, which, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
    run(p, seed);
  }

  double logit(int64_t source, int64_t row, int64_t k, int64_t h) {
    double v = (double)src[source * heads + h];
    if (has_dst) v += (double)dst[row * heads + h];
    if (has_edge && k >= 0) v += (double)edge[k * heads + h];
    return v;
  }
  double activated(double v) { return v > 0 ? v : v * slope; }

  /* The edges of a row that count: edges of it that are not from itself, and then -1 for that one. */
  std::vector<int64_t> of_row(int64_t r) {
    std::vector<int64_t> list;
    for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++)
      if (r >= self_rows || g.index[(size_t)k] != r) list.push_back(k);
    if (r < self_rows) list.push_back(-1);
    return list;
  }
  double logit_of(int64_t k, int64_t r, int64_t h) { return logit(k < 0 ? r : g.index[(size_t)k], r, k, h); }
  T &at(Array<T> &edges_of, Array<T> &self, int64_t k, int64_t r, int64_t h) {
    return k < 0 ? self[r * heads + h] : edges_of[k * heads + h];
  }

  void near(double got, double want, double scale, const char *what, int64_t r, int64_t k) {
    REQUIRE(fabs(got - want) <= (sizeof(T) == 8 ? 1e-12 : 2e-5) * (1 + scale), "%s of row %ld, edge %ld: %g, got %g",
        what, (long)r, (long)k, want, got);
  }

  void check_forward() {
    forward(1);
    std::vector<T> first(alpha.data(), alpha.data() + alpha.size());
    forward(77);
    REQUIRE(first.empty() || memcmp(first.data(), alpha.data(), first.size() * sizeof(T)) == 0, "orders differ");
    REQUIRE(status[0] == 0, "status %lx", (unsigned long)status[0]);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t h = 0; h < heads; h++) {
        double most = -INFINITY, total = 0;
        for (int64_t k : of_row(r)) most = fmax(most, activated(logit_of(k, r, h)));
        for (int64_t k : of_row(r)) total += exp(activated(logit_of(k, r, h)) - most);
        for (int64_t k : of_row(r))
          near((double)at(alpha, alpha_self, k, r, h), exp(activated(logit_of(k, r, h)) - most) / total, 0, "alpha", r,
              k);
        for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++)
          if (r < self_rows && g.index[(size_t)k] == r)
            REQUIRE(alpha[k * heads + h] == 0, "an edge that a self-loop replaces");
      }
  }

  void check_back() {
    forward(5);
    back(6);
    std::vector<T> first(grad_edge.data(), grad_edge.data() + grad_edge.size());
    back(78);
    REQUIRE(first.empty() || memcmp(first.data(), grad_edge.data(), first.size() * sizeof(T)) == 0, "orders differ");
    for (int64_t r = 0; r < rows; r++)
      for (int64_t h = 0; h < heads; h++) {
        double mean = 0, total = 0, scale = 0;
        for (int64_t k : of_row(r))
          mean += (double)at(alpha, alpha_self, k, r, h) * (double)at(grad, grad_self, k, r, h);
        for (int64_t k : of_row(r)) {
          double want = (double)at(alpha, alpha_self, k, r, h) * ((double)at(grad, grad_self, k, r, h) - mean);
          if (logit_of(k, r, h) <= 0) want *= slope;
          near((double)at(grad_edge, grad_edge_self, k, r, h), want, fabs(mean), "gradient", r, k);
          total += want;
          scale += fabs(want);
        }
        for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++)
          if (r < self_rows && g.index[(size_t)k] == r)
            REQUIRE(grad_edge[k * heads + h] == 0, "an edge that a self-loop replaces");
        near((double)grad_dst[r * heads + h], total, scale, "gradient of dst", r, -2);
      }
  }
};

template <typename T>
void check_both(bool back) {
  for (int64_t heads : {1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 40, 70})
    for (bool self : {false, true}) {
      Case<T> c({0, 1, 31, 32, 33, 2, 0, 100, 9}, heads, self, heads % 3 == 0 ? 1.5 : 0.2, heads % 2 == 0);
      back ? c.check_back() : c.check_forward();
    }
  for (int64_t heads : {1, 3, 33}) {
    Case<T> c({4, FGC_LONG, FGC_LONG + 1, 0, 2 * FGC_LONG + 5, 3}, heads, heads != 3, 0.2, true);
    back ? c.check_back() : c.check_forward();
  }
  Case<T> none({}, 4, true, 0.2, false), empty({0, 0, 0}, 4, true, 0.2, false);
  back ? none.check_back() : none.check_forward();
  back ? empty.check_back() : empty.check_forward();
}

}  // namespace

void check_attention() {
  check_both<float>(false);
  check_both<double>(false);
  Case<float> big({2, 100000, 1}, 2, true, 0.2, false);
  big.check_forward();

  Case<double> large({20}, 2, false, 0.2, false); /* exponentials that only a stable softmax survives */
  for (int64_t i = 0; i < large.src.size(); i++) large.src[i] *= 1e4;
  large.check_forward();

  Case<float> nan({3, 3}, 2, false, 0.2, false); /* NaN spoils its head of its rows and no other */
  nan.has_edge = true;
  nan.in.edge = nan.edge.data();
  nan.edge[1 * 2] = NAN;
  nan.forward(3);
  for (int64_t k = 0; k < 6; k++)
    for (int64_t h = 0; h < 2; h++)
      REQUIRE(isnan(nan.alpha[k * 2 + h]) == (k < 3 && h == 0), "NaN at %ld, %ld", (long)k, (long)h);

  for (int64_t bad : {-1, 9}) { /* absent, whether others are there or not */
    Case<float> c({4, 1, 2}, 1, false, 0.2, true);
    ((int64_t *)c.index.data())[2] = ((int64_t *)c.index.data())[4] = bad;
    c.forward(2);
    REQUIRE(FG_BAD_KIND(c.status[0]) == FG_BAD_INDEX && FG_BAD_POSITION(c.status[0]) == 2, "status %lx",
        (unsigned long)c.status[0]);
    REQUIRE(c.alpha[2] == 0 && fabs(c.alpha[0] + c.alpha[1] + c.alpha[3] - 1) < 1e-6, "alpha %g", c.alpha[2]);
    c.back(2);
    REQUIRE(c.grad_edge[2] == 0 && c.grad_edge[4] == 0, "gradient %g", c.grad_edge[2]);
  }
}

void check_attention_back() {
  check_both<float>(true);
  check_both<double>(true);
  Case<double> big({2, 30000, 1}, 2, true, 0.2, false);
  big.check_back();
}
