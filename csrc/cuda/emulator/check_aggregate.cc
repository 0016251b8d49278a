// Sums, extremes and products against loops over rows and edges, for element types, widths, lengths and strides.
#include <memory>
#include <type_traits>

#include "check.h"

using namespace fgc;

namespace {

const std::vector<int64_t> LENGTHS = {0, 1, 31, 32, 33, 5, 0, 64, 2, 100, 7, 1};
constexpr int64_t SEGMENT = 1 << FGC_SEGMENT_BITS, LONG = 2 * SEGMENT; /* a row of so many edges is cut */
const std::vector<int64_t> WITH_LONG = {3, LONG - 1, LONG, 0, LONG + 1, 4 * LONG + 77, 2 * LONG - 3, 1, 20};

template <class E>
DLDataType dtype() {
  return {(uint8_t)(std::is_same<E, BF16>::value ? kDLBfloat : kDLFloat), 8 * sizeof(typename E::Stored), 1};
}

/* Rows of an element type, a stride apart; `grain` makes equal values likely. */
template <class E>
struct Rows {
  typedef typename E::Stored Stored;
  int64_t columns, stride;
  Array<Stored> data;
  Rows(int64_t rows, int64_t columns, int64_t stride, double grain = 0, int64_t shift = 0)
      : columns(columns), stride(stride), data(rows == 0 ? 0 : (rows - 1) * stride + columns, shift) {
    for (int64_t i = 0; i < data.size(); i++) {
      double v = uniform() * 4;
      if (grain > 0) v = nearbyint(v / grain) * grain;
      data[i] = E::store((typename E::Real)v);
    }
  }
  typename E::Real at(int64_t row, int64_t column) { return E::load(data[row * stride + column]); }
};

template <typename T>
std::unique_ptr<Array<T>> reals(bool wanted, int64_t n) {
  std::unique_ptr<Array<T>> a;
  if (!wanted) return a;
  a.reset(new Array<T>(n));
  for (int64_t i = 0; i < n; i++) (*a)[i] = (T)uniform();
  return a;
}
template <typename T>
T *address(const std::unique_ptr<Array<T>> &a) {
  return a ? a->data() : nullptr;
}

/* One call, with what it needs beside its rows. */
template <class E>
struct Call {
  typedef typename E::Real Real;
  Graph g;
  Indices index;
  Array<int64_t> ptr;
  Array<uint64_t> status{1};
  fg_aggregation in = {};
  int more_bits = 0; /* of segments, as graphs with more edges have them */
  Array<int64_t> cut{1};
  Call(const Graph &graph, bool wide, int32_t kind, int64_t columns, int64_t heads)
      : g(graph), index(graph.index, wide), ptr(graph.ptr) {
    in.struct_size = sizeof in;
    in.kind = kind;
    in.index_bytes = wide ? 8 : 4;
    in.dtype = dtype<E>();
    in.cut = -1;
    in.columns = columns;
    in.heads = heads;
    in.ptr = ptr.data();
    in.rows = g.rows();
    in.index = index.data();
    in.num_index = (int64_t)g.index.size();
    in.self_heads = 1;
    status[0] = 0;
  }
  void read(Rows<E> &x, int64_t rows) {
    in.x = x.data.data();
    in.x_rows = rows;
    in.x_stride = x.stride;
  }
  void compare_with(Rows<E> &own) {
    in.own = own.data.data();
    in.own_stride = own.stride;
  }
  /* As run_twice, of a graph without mistakes. */
  template <typename T>
  void run_good(Array<T> &out) {
    run_twice(out);
    REQUIRE(status[0] == 0, "status %lx", (unsigned long)status[0]);
  }
  /* Runs in two orders, which must give the same bits in `out`. */
  template <typename T>
  void run_twice(Array<T> &out) {
    in.out = out.data();
    fgc_plan p;
    int64_t n = 0;
    REQUIRE(fgc_plan_aggregate(&in, nullptr, &n, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
    REQUIRE(p.num_launches == 0, "asked for scratch and got %d launches", p.num_launches);
    Array<uint64_t> scratch(n / 8 + 2);
    char *start = (char *)(((uintptr_t)scratch.data() + 15) / 16 * 16);
    REQUIRE(fgc_plan_aggregate(&in, start, &n, (uintptr_t)status.data(), &p) == FG_OK, "%s", p.message);
    for (int i = 0; i < p.num_launches && more_bits > 0; i++) {
      fgc_aggregate a;
      memcpy((void *)&a, p.launches[i].words, sizeof a);
      a.segment_bits += more_bits;
      if (a.of_segments)
        p.launches[i].blocks =
            (((a.graph.num_index >> a.segment_bits) + 1) * a.tiles * a.lanes + FGC_THREADS - 1) / FGC_THREADS;
      memcpy(p.launches[i].words, (void *)&a, sizeof a);
    }
    run(p, 1);
    std::vector<T> first(out.data(), out.data() + out.size());
    memset((void *)out.data(), 0xfb, (size_t)out.size() * sizeof(T));
    run(p, 1000);
    REQUIRE(first.empty() || memcmp(first.data(), out.data(), first.size() * sizeof(T)) == 0, "orders differ: %s",
        p.launches[0].kernel);
  }
};

template <class E>
void same(typename E::Stored got, typename E::Real want, const char *what, int64_t row, int64_t column) {
  const typename E::Real value = E::load(got);
  REQUIRE(isnan(want) ? isnan(value) : value == want, "%s[%ld, %ld]: %g, got %g", what, (long)row, (long)column,
      (double)want, (double)value);
}

/* The sum of the terms of one element, in the order of its edges and exactly (or nearly so). */
template <class E>
struct Total {
  typedef typename E::Real Real;
  Real sum = 0;
  double exact = 0, magnitude = 0;
  int64_t n = 0;
  void add(Real w, Real x) {
    sum += w * x;
    exact += (double)w * (double)x;
    magnitude += fabs((double)w * (double)x);
    n++;
  }
  /* A row that one team sums: to the bit. One that is cut: by segments, and then over these, and each addition and
   * multiplication costs half a unit in the last place of what was summed so far. */
  void compare(typename E::Stored got, double scale, Real more, const char *what, int64_t row, int64_t column) const {
    const Real value = E::load(got);
    if (n < LONG) {
      same<E>(got, E::load(E::store(sum * (Real)scale + more)), what, row, column);
      return;
    }
    const double want = exact * scale + (double)more;
    const double half_unit = sizeof(Real) == 8 ? 0x1p-53 : 0x1p-24,
        rounding = dtype<E>().code == kDLBfloat ? 0x1p-8 : sizeof(got) == 2 ? 0x1p-11 : half_unit;
    const double summing = (double)(4 * SEGMENT + n / SEGMENT + 80) * half_unit * magnitude * fabs(scale);
    const double allowed = summing + 2 * rounding * fabs(want) + 1e-6;
    REQUIRE(isnan(want) ? isnan(value) : fabs((double)value - want) <= allowed, "%s[%ld, %ld]: %g, got %g, allowed %g",
        what, (long)row,
            (long)column, want, (double)value, allowed);
  }
};

struct Options {
  bool wide, weight, edge, row_scale, col_scale, self_weight, skip_self, nan, mean;
  int64_t heads, stride_more, shift, cut;
};

template <class E>
void check_sum(const std::vector<int64_t> &lengths, int64_t columns, const Options &o, int more_bits = 0) {
  typedef typename E::Real Real;
  const int64_t rows = (int64_t)lengths.size(), sources = rows + 9;
  Graph g = graph_of(lengths, sources);
  /* lists that ascend, as those of a part of a larger graph; others end at the first beyond, too, while nothing cuts
   * them */
  const bool any_long = std::any_of(lengths.begin(), lengths.end(), [](int64_t n) { return n >= LONG; });
  if (o.cut >= 0 && (o.wide || any_long))
    for (int64_t r = 0; r < rows; r++)
      std::sort(g.index.begin() + g.ptr[(size_t)r], g.index.begin() + g.ptr[(size_t)r + 1]);
  const int64_t edges = (int64_t)g.index.size(), weights = o.edge ? edges + 5 : edges;
  const bool of_larger = o.cut >= 0 && any_long; /* the lists; half of the times only the device knows the cut */
  const bool on_device = of_larger && o.wide;
  if (of_larger) g.index.resize((size_t)edges + 700, -5);
  Call<E> c(g, o.wide, o.mean ? FG_MEAN : FG_SUM, columns, o.heads);
  c.cut[0] = o.cut;
  Rows<E> x(sources, columns, columns + o.stride_more, 0, o.shift);
  if (o.nan) x.data[3 * x.stride] = E::store((Real)NAN);
  auto weight = reals<Real>(o.weight, weights * o.heads);
  auto row_scale = reals<Real>(o.row_scale && !o.mean, rows), col_scale = reals<Real>(o.col_scale, sources);
  auto mean = reals<Real>(o.mean, rows);
  auto own = reals<Real>(o.self_weight, (rows - 1) * o.heads);
  std::vector<int64_t> of_edge(g.index.size());
  for (auto &e : of_edge) e = below(weights);
  Indices edge(of_edge, o.wide);
  Array<typename E::Stored> out(rows * columns);
  c.read(x, sources);
  c.in.cut = on_device ? -1 : o.cut;
  c.in.cut_at = on_device ? c.cut.data() : nullptr;
  c.in.skip_self = o.skip_self;
  c.in.weight = address(weight);
  c.in.num_weights = weight ? weights : 0;
  c.in.edge = o.edge ? edge.data() : nullptr;
  c.in.row_scale = address(row_scale);
  c.in.col_scale = address(col_scale);
  c.in.self_weight = address(own);
  c.in.self_rows = own ? rows - 1 : 0;
  c.in.self_heads = own ? o.heads : 1;
  c.in.count = address(mean);
  c.more_bits = more_bits;
  c.run_good(out);

  for (int64_t r = 0; mean && r < rows; r++) {
    const Real want = 1 / (Real)std::max<int64_t>(lengths[(size_t)r], 1);
    REQUIRE((*mean)[r] == want, "mean of %ld: %g, got %g", (long)r, (double)want, (double)(*mean)[r]);
  }
  const auto &scale = mean ? mean : row_scale;
  const int64_t width = columns / o.heads;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t col = 0; col < columns; col++) {
      const int64_t h = col / width;
      Total<E> total;
      for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++) {
        const int64_t s = g.index[(size_t)k];
        if (o.cut >= 0 && s >= o.cut) break;
        Real w = col_scale ? (*col_scale)[s] : 1;
        if (weight) w *= (*weight)[(o.edge ? of_edge[(size_t)k] : k) * o.heads + h];
        if (o.skip_self && s == r) w = 0;
        total.add(w, x.at(s, col));
      }
      total.n = lengths[(size_t)r];
      const Real more = own && r < rows - 1 ? x.at(r, col) * (*own)[r * o.heads + h] : 0;
      total.compare(out[r * columns + col], scale ? (double)(*scale)[r] : 1, more, "sum", r, col);
    }
}

template <class E>
void check_extreme(const std::vector<int64_t> &lengths, int64_t columns, const Options &o, bool least, bool counted) {
  typedef typename E::Real Real;
  const int64_t rows = (int64_t)lengths.size(), sources = 40;
  const Graph g = graph_of(lengths, sources);
  Call<E> c(g, o.wide, least ? FG_MIN : FG_MAX, columns, 1);
  Rows<E> x(sources, columns, columns + o.stride_more, 0.5, o.shift); /* many are equal */
  if (o.nan)
    for (int64_t i = 0; i < x.data.size(); i += 37) x.data[i] = E::store((Real)NAN);
  if (o.nan) x.data[5] = E::store((Real)(least ? INFINITY : -INFINITY));
  Array<typename E::Stored> out(rows * columns);
  Array<Real> count(counted ? rows * columns : 0);
  c.read(x, sources);
  c.in.count = counted ? count.data() : nullptr;
  c.run_good(out);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t col = 0; col < columns; col++) {
      std::vector<Real> values;
      for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++) values.push_back(x.at(g.index[(size_t)k], col));
      Real want = 0, n = 1;
      if (!values.empty()) {
        want = values[0];
        n = 0;
        for (Real v : values)
          if (isnan(v)) want = v;
        for (Real v : values)
          if (!isnan(want) && (least ? v < want : v > want)) want = v;
        for (Real v : values) n += v == want;
        if (isnan(want)) n = 0; /* the rows after the last NaN equal nothing: it counts itself */
      }
      same<E>(out[r * columns + col], want, least ? "min" : "max", r, col);
      if (!counted) continue;
      if (isnan(want)) n = 1;
      REQUIRE(count[r * columns + col] == n, "count[%ld, %ld]: %g, got %g", (long)r, (long)col, (double)n,
          (double)count[r * columns + col]);
    }

  /* the way back: out[s] = sum of y[t] where x[t] equals own[s], over the same lists */
  const int64_t targets = sources;
  Rows<E> best(targets, columns, columns, 0.5), share(targets, columns, columns),
      own(rows, columns, columns + o.stride_more, 0.5, o.shift);
  Call<E> b(g, o.wide, FG_EXTREME_BACK, columns, 1);
  b.read(best, targets);
  b.compare_with(own);
  b.in.y = share.data.data();
  b.run_twice(out);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t col = 0; col < columns; col++) {
      Total<E> total;
      for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++)
        if (best.at(g.index[(size_t)k], col) == own.at(r, col)) total.add(1, share.at(g.index[(size_t)k], col));
      total.n = lengths[(size_t)r];
      total.compare(out[r * columns + col], 1, 0, "extreme_back", r, col);
    }
}

template <class E>
void check_dot(const std::vector<int64_t> &lengths, int64_t columns, const Options &o) {
  typedef typename E::Real Real;
  const int64_t rows = (int64_t)lengths.size(), sources = rows + 9;
  const Graph g = graph_of(lengths, sources);
  Call<E> c(g, o.wide, FG_DOT, columns, o.heads);
  Rows<E> x(sources, columns, columns + o.stride_more, 0, o.shift), own(rows, columns, columns);
  auto row_scale = reals<Real>(o.row_scale, rows), col_scale = reals<Real>(o.col_scale, sources);
  Array<Real> out((int64_t)g.index.size() * o.heads);
  c.read(x, sources);
  c.compare_with(own);
  c.in.row_scale = address(row_scale);
  c.in.col_scale = address(col_scale);
  c.in.skip_self = o.skip_self;
  c.run_good(out);
  const int64_t width = columns / o.heads;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++)
      for (int64_t h = 0; h < o.heads; h++) {
        const int64_t s = g.index[(size_t)k];
        double sum = 0, scale = 0;
        for (int64_t col = h * width; col < (h + 1) * width; col++) {
          sum += (double)x.at(s, col) * (double)own.at(r, col);
          scale += fabs((double)x.at(s, col) * (double)own.at(r, col));
        }
        if (row_scale) sum *= (double)(*row_scale)[r];
        if (col_scale) sum *= (double)(*col_scale)[s];
        if (o.skip_self && s == r) sum = 0;
        const double got = (double)out[k * o.heads + h];
        REQUIRE(fabs(got - sum) <= (sizeof(Real) == 8 ? 0x1p-48 : 0x1p-20) * (1 + scale), "dot[%ld, %ld]: %g, got %g",
            (long)k, (long)h, sum, got);
      }
}

template <class Check>
void of_all_types(Check check) {
  check(F32());
  check(F64());
  check(F16());
  check(BF16());
}
void sums_of(const std::vector<int64_t> &lengths, int64_t columns, const Options &o) {
  of_all_types([&](auto e) { check_sum<decltype(e)>(lengths, columns, o); });
}
void dots_of(const std::vector<int64_t> &lengths, int64_t columns, const Options &o) {
  of_all_types([&](auto e) { check_dot<decltype(e)>(lengths, columns, o); });
}
void extremes_of(const std::vector<int64_t> &lengths, int64_t columns, const Options &o, bool least, bool counted) {
  of_all_types([&](auto e) { check_extreme<decltype(e)>(lengths, columns, o, least, counted); });
}

bool coin() { return below(2) == 0; }

Options any_options() {
  Options o = {};
  o.wide = coin();
  o.weight = coin();
  o.edge = o.weight && coin();
  o.row_scale = coin();
  o.col_scale = coin();
  o.self_weight = coin();
  o.skip_self = coin();
  o.nan = below(4) == 0;
  o.mean = coin();
  o.heads = 1;
  o.stride_more = below(3) == 0 ? below(9) : 0;
  o.shift = below(4) == 0 ? 8 : 0;
  o.cut = -1;
  return o;
}

const std::vector<int64_t> WIDTHS = {1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 64, 65, 100, 127, 128, 129, 200, 256, 300};

}  // namespace

void check_sums() {
  const std::vector<int64_t> few = {0, 3, 1, 33};
  for (int64_t columns = 1; columns <= 300; columns++) {
    Options o = {};
    o.wide = columns % 2;
    o.heads = 1;
    o.cut = -1;
    check_sum<F32>(few, columns, o);
    o.weight = true;
    check_sum<BF16>(few, columns, o);
  }
  for (int64_t columns : WIDTHS) sums_of(LENGTHS, columns, any_options());
  for (int i = 0; i < 4; i++) {
    Options o = any_options();
    o.heads = 1 + below(9);
    o.weight = true;
    sums_of(LENGTHS, o.heads * (1 + below(20)), o);
    o = any_options();
    sums_of(WITH_LONG, 1 + below(40), o);
    o.cut = below(17);
    o.skip_self = o.mean = false;
    sums_of(WITH_LONG, 1 + below(20), o);
    sums_of(LENGTHS, 1 + below(150), o);
  }
  Options o = {};
  o.heads = 1;
  o.cut = -1;
  for (int more_bits : {0, 2}) {
    check_sum<F32>({2, 100000, 3}, 4, o, more_bits);
    check_sum<F32>({2, 5000, 3, 2047, 2048, 0, 4100}, 40, o, more_bits);
  }
  check_sum<F32>({}, 4, o);
  check_sum<F32>({0, 0}, 4, o);
}

void check_extremes() {
  for (int64_t columns : WIDTHS) extremes_of(LENGTHS, columns, any_options(), coin(), coin());
  for (int i = 0; i < 4; i++) extremes_of(WITH_LONG, 1 + below(40), any_options(), i % 2 == 0, true);
  check_extreme<F16>({2, 100000, 3}, 8, any_options(), false, true);
}

void check_dots() {
  for (int64_t columns : WIDTHS) dots_of(LENGTHS, columns, any_options());
  for (int i = 0; i < 10; i++) {
    Options o = any_options();
    o.heads = 1 + below(9);
    dots_of(LENGTHS, o.heads * (1 + below(30)), o);
  }
  Options o = any_options();
  check_dot<F32>(WITH_LONG, 16, o);
}

/* What is wrong is noted, absent, and never a wild read: the arrays end at a page that ends the program. */
void check_bad_graphs() {
  const std::vector<int64_t> lengths = {3, 40, 0, 2 * LONG + 50, 6};
  const int64_t rows = (int64_t)lengths.size(), sources = 20, columns = 12;
  for (int kind = 0; kind < 7; kind++)
    for (int64_t bad : {(int64_t)-1, sources, (int64_t)INT32_MAX, (int64_t)INT32_MIN}) {
      Graph g = graph_of(lengths, sources);
      const int64_t at[] = {1, 42, 500};
      std::vector<int64_t> of_edge(g.index.size());
      for (size_t i = 0; i < of_edge.size(); i++) of_edge[i] = (int64_t)i;
      int64_t want_kind = FG_BAD_INDEX, want_position = at[0];
      std::vector<bool> absent(g.index.size());
      const bool weighted = kind == 1;
      for (int64_t i : at) {
        absent[(size_t)i] = true;
        if (weighted)
          of_edge[(size_t)i] = bad == sources ? (int64_t)g.index.size() : bad;
        else if (kind < 2)
          g.index[(size_t)i] = bad;
      }
      if (weighted) want_kind = FG_BAD_EDGE;
      if (kind >= 2) {
        absent.assign(g.index.size(), false);
        want_kind = FG_BAD_PTR;
        const int64_t end = (int64_t)g.index.size();
        switch (kind) {
          case 2: g.ptr[0] = 1, want_position = 0; break;           /* begins late: its edge is nobody's */
          case 3: g.ptr[1] = -1, want_position = 1; break;
          case 4: g.ptr[4] = end + 1, want_position = 4; break;
          case 5: g.ptr[2] = 2, want_position = 2; break;           /* decreases */
          default: g.ptr[5] = end - 1, want_position = 5; break;
        }
      }
      for (int32_t what : {FG_SUM, FG_MAX, FG_EXTREME_BACK, FG_DOT}) {
        if (weighted && what != FG_SUM) continue;
        Call<F32> c(g, false, what, columns, 1);
        Rows<F32> x(sources, columns, columns), own(rows, columns, columns);
        Indices edge(of_edge, false);
        auto weight = reals<float>(true, (int64_t)g.index.size());
        Array<float> out(what == FG_DOT ? (int64_t)g.index.size() : rows * columns);
        c.read(x, sources);
        c.compare_with(own);
        c.in.y = what == FG_EXTREME_BACK ? x.data.data() : own.data.data();
        c.in.weight = weighted ? weight->data() : nullptr;
        c.in.edge = weighted ? edge.data() : nullptr;
        c.in.num_weights = weighted ? (int64_t)g.index.size() : 0;
              c.run_twice(out);
        if (what != FG_DOT || (kind != 3 && kind != 4 && kind != 5)) /* products notice what they meet */
          REQUIRE(FG_BAD_KIND(c.status[0]) == want_kind && FG_BAD_POSITION(c.status[0]) == want_position,
                  "kind %d, operator %d: noted %d at %ld, expected %ld at %ld", kind, what, FG_BAD_KIND(c.status[0]),
                  (long)FG_BAD_POSITION(c.status[0]), (long)want_kind, (long)want_position);
        if (what != FG_SUM || kind >= 2) continue;
        for (int64_t r = 0; r < rows; r++)
          for (int64_t col = 0; col < columns; col++) {
            Total<F32> total;
            for (int64_t k = g.ptr[(size_t)r]; k < g.ptr[(size_t)r + 1]; k++) {
              if (absent[(size_t)k]) continue;
              total.add(weighted ? (*weight)[of_edge[(size_t)k]] : 1, x.at(g.index[(size_t)k], col));
            }
            total.n = lengths[(size_t)r];
            total.compare(out[r * columns + col], 1, 0, "with absent edges", r, col);
          }
      }
    }
}
