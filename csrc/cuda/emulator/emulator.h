/*
 * The machine that kernels run on without a GPU: for tests of their logic, never for work.
 *
 * Every lane has a stack of its own and runs until it meets others: at a barrier of its block, or in an exchange with
 * lanes of its warp. Then a lane drawn at random goes on, of all blocks that are resident; blocks become resident in a
 * random order; atomics yield now and then. So an order that a GPU could choose is as likely as the one that a kernel's
 * author had in mind. What no GPU forgives is an error here: lanes of a mask that meet for different things, lanes that
 * end while others wait for them, loads and stores that are not aligned.
 */
#ifndef FRESHGO_CUDA_EMULATOR_H
#define FRESHGO_CUDA_EMULATOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace fgc {
namespace emulator {

/* The calling lane's place. */
int thread();
int64_t block();
int64_t blocks();
char *shared();

/* Meets all lanes of the block; whether v held in one of them. */
bool meet_block(bool v);

/* Meets the lanes of `mask`; returns the 8 bytes that lane `from` of the warp brought. */
uint64_t exchange_bits(unsigned mask, uint64_t v, int from);
/* Bit i: v of lane i. */
unsigned vote(unsigned mask, bool v);
/* The lanes with the same v. */
unsigned match(unsigned mask, uint32_t v);

void perhaps_yield();

/* Ends the program with a message if p is not a multiple of n. */
void check_aligned(const void *p, size_t n);

template <typename T>
T exchange(unsigned mask, T v, int from) {
  static_assert(sizeof(T) <= 8, "one exchange");
  uint64_t bits = 0;
  memcpy(&bits, &v, sizeof v);
  bits = exchange_bits(mask, bits, from);
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* A kernel by name, NULL if there is none, and the size of the struct that it takes. */
typedef void (*Kernel)(const void *arguments);
Kernel find(const char *name, size_t *arguments_size);

/* Runs a kernel to its end in an order that follows from `seed`. */
void launch(Kernel kernel, const void *arguments, int64_t blocks, int threads, size_t shared_bytes, uint64_t seed);

}  // namespace emulator
}  // namespace fgc

#endif
