/* What the checks of the kernels share: memory that ends where it ends, random numbers, running a plan. */
#ifndef FRESHGO_CUDA_CHECK_H
#define FRESHGO_CUDA_CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

#include "../kernels.h"
#include "emulator.h"

extern "C" {
#include "../plan.h"
}

#define REQUIRE(condition, ...)                                            \
  do {                                                                     \
    if (!(condition)) {                                                    \
      fprintf(stderr, "%s:%d: %s is false: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                        \
      fprintf(stderr, "\n");                                               \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

inline std::mt19937_64 &rng() {
  static std::mt19937_64 random(7);
  return random;
}
inline int64_t below(int64_t n) { return (int64_t)(rng()() % (uint64_t)n); }

/* An array behind whose last element (before whose first, where `low`) lies a page that nobody may touch. Its elements
 * are of a pattern that is a large negative number or NaN until they are written. */
template <typename T>
class Array {
 public:
  explicit Array(int64_t n, int64_t shift = 0) : n_(n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)(n * (int64_t)sizeof(T) + shift);
    size_ = (bytes + page - 1) / page * page + page;
    base_ = (char *)mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(base_ != MAP_FAILED, "no memory");
    mprotect(base_ + size_ - page, page, PROT_NONE);
    /* the largest alignment that the size allows, less `shift`, which makes it worse */
    data_ = (T *)(base_ + size_ - page - bytes);
    memset((void *)data_, 0xfb, (size_t)n * sizeof(T));
  }
  explicit Array(const std::vector<T> &v) : Array((int64_t)v.size()) {
    for (int64_t i = 0; i < n_; i++) data_[i] = v[(size_t)i];
  }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  ~Array() { munmap(base_, size_); }
  T *data() { return data_; }
  T &operator[](int64_t i) { return data_[i]; }
  int64_t size() const { return n_; }
  bool same(const Array &other) const {
    return n_ == other.n_ && memcmp(data_, other.data_, (size_t)n_ * sizeof(T)) == 0;
  }

 private:
  char *base_;
  T *data_;
  int64_t n_;
  size_t size_;
};

/* Integers of 4 or 8 bytes. */
class Indices {
 public:
  Indices(const std::vector<int64_t> &v, bool wide) : wide_(wide), a4_(wide ? 0 : (int64_t)v.size()),
      a8_(wide ? (int64_t)v.size() : 0) {
    for (size_t i = 0; i < v.size(); i++)
      if (wide)
        a8_[(int64_t)i] = v[i];
      else
        a4_[(int64_t)i] = (int32_t)v[i];
  }
  Indices(int64_t n, bool wide) : wide_(wide), a4_(wide ? 0 : n), a8_(wide ? n : 0) {}
  void *data() { return wide_ ? (void *)a8_.data() : (void *)a4_.data(); }
  int64_t operator[](int64_t i) { return wide_ ? a8_[i] : a4_[i]; }

 private:
  bool wide_;
  Array<int32_t> a4_;
  Array<int64_t> a8_;
};

inline void run(const fgc_plan &p, uint64_t seed) {
  for (int i = 0; i < p.num_launches; i++) {
    const fgc_launch &l = p.launches[i];
    size_t size = 0;
    fgc::emulator::Kernel kernel = fgc::emulator::find(l.kernel, &size);
    REQUIRE(kernel != nullptr, "no kernel %s", l.kernel);
    REQUIRE(size == (size_t)l.num_words * 8, "%s takes %zu bytes, got %d", l.kernel, size, l.num_words * 8);
    fgc::emulator::launch(kernel, l.words, l.blocks, FGC_THREADS, (size_t)l.shared_bytes, seed + (uint64_t)i);
  }
}

/* Grouped edges: rows of the given lengths, sources drawn with repetition. */
struct Graph {
  std::vector<int64_t> ptr, index;
  int64_t rows() const { return (int64_t)ptr.size() - 1; }
};
inline Graph graph_of(const std::vector<int64_t> &lengths, int64_t sources) {
  Graph g;
  g.ptr.push_back(0);
  for (int64_t n : lengths) {
    for (int64_t i = 0; i < n; i++) {
      const bool repeat = i > 0 && below(8) == 0;
      g.index.push_back(repeat ? g.index.back() : below(sources));
    }
    g.ptr.push_back((int64_t)g.index.size());
  }
  return g;
}

/* In [-1, 1). */
inline double uniform() { return (double)(rng()() >> 11) * 0x1p-52 - 1; }

void check_numbers();
void check_emulator();
void check_sums();
void check_extremes();
void check_dots();
void check_bad_graphs();
void check_attention();
void check_attention_back();
void check_transpose();
void check_map();
void check_gather();
void check_draws();

#endif
