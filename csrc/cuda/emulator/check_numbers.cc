// Element types against arithmetic in double; the emulator against what it must refuse.
#include <sys/wait.h>

#include "check.h"

using namespace fgc;

namespace {

/* The value of a binary float of `mantissa` bits and `exponent` bits, from the definition. */
double value_of(uint32_t bits, int mantissa, int exponent) {
  const uint32_t fraction = bits & ((1u << mantissa) - 1), e = bits >> mantissa & ((1u << exponent) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  const double sign = bits >> (mantissa + exponent) ? -1 : 1;
  if (e == (1u << exponent) - 1) return fraction ? NAN : sign * INFINITY;
  if (e == 0) return sign * ldexp(fraction, 1 - bias - mantissa);
  return sign * ldexp(1 + ldexp(fraction, -mantissa), (int)e - bias);
}

/* v rounded to the nearest such float, to even where two are as near. */
double nearest(double v, int mantissa, int exponent) {
  const int bias = (1 << (exponent - 1)) - 1;
  if (v == 0 || isnan(v) || isinf(v)) return v;
  int e;
  frexp(v, &e);
  const double unit = ldexp(1, (e - 1 < 1 - bias ? 1 - bias : e - 1) - mantissa);
  const double r = nearbyint(v / unit) * unit, most = ldexp(2 - ldexp(1, -mantissa), bias);
  return fabs(r) > most ? copysign(INFINITY, v) : r;
}

template <class E>
void check_type(int mantissa, int exponent) {
  std::vector<double> values;
  for (uint32_t b = 0; b < 1 << 16; b++) {
    const double want = value_of(b, mantissa, exponent);
    const float got = E::load((uint16_t)b);
    REQUIRE(isnan(want) ? isnan(got) : (double)got == want && signbit(got) == signbit(want), "%04x is %g, got %g", b,
        want, got);
    if (isnan(want))
      REQUIRE(isnan(E::load(E::store(got))), "NaN %04x is stored as a number", b);
    else
      REQUIRE(E::store((float)want) == b, "%04x is stored as %04x", b, E::store((float)want));
  }
  for (int i = 0; i < 1000000; i++) {
    uint32_t b = (uint32_t)rng()();
    if (i % 2) b = (b & ~((1u << (23 - mantissa)) - 1)) | (1u << (22 - mantissa)); /* half way */
    if (i % 4 >= 2) b = (b & 0x807fffff) | (uint32_t)(100 + below(45)) << 23;  /* where a half has its range */
    const float v = float_of(b);
    const double want = nearest(v, mantissa, exponent);
    const float got = E::load(E::store(v));
    REQUIRE(isnan(want) ? isnan(got) : (double)got == want && signbit(got) == signbit(want), "%a is stored as %a", v,
        got);
  }
}

template <typename Body>
Body *body;
template <typename Body>
void call(const void *) {
  (*body<Body>)();
}

/* Whether a kernel of this body ends the program. */
template <typename Body>
bool refused(Body b) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    body<Body> = &b;
    emulator::launch(call<Body>, nullptr, 2, 64, 256, 1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* The bits of core/sample/testdata/logarithm.txt. */
void check_logarithms() {
  FILE *file = fopen("../../core/sample/testdata/logarithm.txt", "r");
  REQUIRE(file != nullptr, "no vectors");
  char of[4];
  unsigned long x, want;
  int n = 0;
  for (; fscanf(file, "%3s %lx %lx", of, &x, &want) == 3; n++) {
    const double got = of[0] == 'l' ? logarithm(double_of(x)) : exponential_minus_1(double_of(x));
    REQUIRE(bits_of(got) == want, "%s of %lx is %lx, got %lx", of, x, want, (unsigned long)bits_of(got));
  }
  REQUIRE(n > 300, "%d vectors", n);
  fclose(file);
}

}  // namespace

void check_numbers() {
  check_logarithms();
  check_type<F16>(10, 5);
  check_type<BF16>(7, 8);
}

void check_emulator() {
  REQUIRE(!refused([] {
            sync_block();
            if (any_in_block(thread_index() == 3) == false) abort();
            const Team t = team_of(8);
            if (shuffle(t, thread_index(), 5) != thread_index() / 8 * 8 + 5) abort();
            if (shuffle_xor(t, thread_index(), 4) != (thread_index() ^ 4)) abort();
            if (ballot(t, t.lane % 3 == 0) != 0x49) abort();
            if (same_as((uint32_t)lane_index() % 2) != (lane_index() % 2 ? 0xaaaaaaaau : 0x55555555u)) abort();
          }),
          "what is allowed");
  REQUIRE(refused([] {
            if (thread_index() != 5) sync_block();
          }),
          "a lane ends without the barrier");
  REQUIRE(refused([] {
            if (lane_index() < 16) ballot(true);
          }),
          "half a warp votes for all");
  REQUIRE(refused([] {
            if (lane_index() < 16)
              ballot(true);
            else
              shuffle(team_of(32), 1, 0);
          }),
          "lanes meet for different things");
  REQUIRE(refused([] { emulator::check_aligned((void *)6, 4); }), "alignment");

  /* Blocks, and lanes between meetings, run in any order; the same seed gives the same. */
  static std::vector<int> order[3];
  auto record = [](const void *p) { order[*(const int *)p].push_back((int)(block_index() * 64 + thread_index())); };
  for (int i = 0; i < 3; i++) emulator::launch(record, &i, 20, 64, 0, i == 2 ? 8 : 9);
  REQUIRE(order[0].size() == 20 * 64 && order[0] == order[1] && order[0] != order[2], "orders");
  std::vector<int> sorted = order[0];
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 20 * 64; i++) REQUIRE(sorted[(size_t)i] == i, "lane %d ran not once", i);
}
