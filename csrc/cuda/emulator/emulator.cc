// See emulator.h. One thread of the host runs it all; lanes are switched by longjmp, which unlike swapcontext makes no
// system call (30 ns against 300).
#include "emulator.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../kernels.h"

namespace fgc {
namespace emulator {
namespace {

constexpr size_t kStack = 64 << 10;
constexpr int kResident = 3;  // blocks at a time: enough for any two to be interleaved with a third that is through

[[noreturn]] void fail(const char *what) {
  fprintf(stderr, "emulator: %s\n", what);
  abort();
}

enum class Meeting { kNone, kBlock, kExchange, kVote, kMatch };

struct Block;

struct Lane {
  Block *home;
  int index;
  jmp_buf at;
  ucontext_t start;
  std::unique_ptr<char[]> stack;
  bool begun, done;
  // What it waits for, what it brought, and what it takes along, which the last to come hands out.
  Meeting meeting;
  unsigned mask;
  int from;
  uint64_t brought, result;
};

struct Block {
  int64_t index;
  std::vector<char> memory;
  std::vector<Lane *> lanes;
  std::vector<int> arrived;  // at each meeting: by the size of its mask, a power of two, and the first lane of that
  int waiting, live;
  bool any, result;
};

/* splitmix64 */
struct Random {
  typedef uint64_t result_type;
  uint64_t state;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~0ull; }
  uint64_t operator()() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
};

struct Machine {
  Kernel kernel;
  const void *arguments;
  int64_t blocks;
  Random random;
  std::vector<Lane *> ready;
  Lane *running;
  jmp_buf scheduler;
} machine;

// Goes on with a lane drawn at random; back to launch() where none is ready.
[[noreturn]] void next() {
  if (machine.ready.empty()) _longjmp(machine.scheduler, 1);
  const size_t pick = (size_t)((machine.random() >> 32) * machine.ready.size() >> 32);
  Lane *lane = machine.running = machine.ready[pick];
  machine.ready[pick] = machine.ready.back();
  machine.ready.pop_back();
  if (lane->begun) _longjmp(lane->at, 1);
  lane->begun = true;
  setcontext(&lane->start);
  abort();
}

void enter() {
  machine.kernel(machine.arguments);
  machine.running->done = true;
  _longjmp(machine.scheduler, 1);
}

void yield() {
  if (_setjmp(machine.running->at) == 0) next();
}

// Runs lanes until one ends, and returns it.
Lane *run_lanes() {
  machine.running = nullptr;
  if (_setjmp(machine.scheduler) == 0) next();
  if (machine.running == nullptr || !machine.running->done) fail("lanes wait for each other for ever");
  return machine.running;
}

// Waits for the lanes of the mask. The last to come hands out the results and lets the others go on.
uint64_t meet(Meeting meeting, unsigned mask, uint64_t v, int from) {
  Lane *lane = machine.running;
  const int own = lane->index % 32;
  if (!(mask >> own & 1)) fail("a lane exchanges under a mask that it is not in");
  if ((__builtin_popcount(mask) & (__builtin_popcount(mask) - 1)) != 0)
    fail("a mask of a size that is no power of two");
  lane->brought = v;
  lane->from = from;
  lane->meeting = meeting;
  lane->mask = mask;
  Lane **warp = &lane->home->lanes[lane->index - own];
  const int size = __builtin_popcount(mask), first = lane->index - own + __builtin_ctz(mask);
  int *arrived = &lane->home->arrived[(size_t)__builtin_ctz(size) * lane->home->lanes.size() + first];
  if (++*arrived < size) {
    yield();
    return lane->result;
  }
  *arrived = 0;
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1 && (warp[i]->meeting != meeting || warp[i]->mask != mask))
      fail("lanes of a mask meet for different things");
  uint64_t votes = 0;
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1 && warp[i]->brought) votes |= 1u << i;
  for (int i = 0; i < 32; i++) {
    if (!(mask >> i & 1)) continue;
    Lane *l = warp[i];
    l->meeting = Meeting::kNone;
    machine.ready.push_back(l);
    if (meeting == Meeting::kExchange) l->result = warp[l->from]->brought;
    if (meeting == Meeting::kVote) l->result = votes;
    if (meeting == Meeting::kMatch) {
      l->result = 0;
      for (int k = 0; k < 32; k++)
        if (mask >> k & 1 && warp[k]->brought == l->brought) l->result |= 1u << k;
    }
  }
  yield();
  return lane->result;
}

}  // namespace

int thread() { return machine.running->index; }
int64_t block() { return machine.running->home->index; }
int64_t blocks() { return machine.blocks; }
char *shared() { return machine.running->home->memory.data(); }

bool meet_block(bool v) {
  Lane *lane = machine.running;
  Block *b = lane->home;
  lane->meeting = Meeting::kBlock;
  b->any = b->any || v;
  if (b->live < (int)b->lanes.size()) fail("a lane waits for a block of which lanes have ended");
  if (++b->waiting == b->live) {
    b->result = b->any;
    b->any = false;
    b->waiting = 0;
    for (Lane *l : b->lanes) {
      l->meeting = Meeting::kNone;
      machine.ready.push_back(l);
    }
  }
  yield();
  return b->result;  // the next meeting cannot be over before this lane is at it
}

uint64_t exchange_bits(unsigned mask, uint64_t v, int from) {
  if (!(mask >> from & 1)) fail("a lane asks one that is not in the mask");
  return meet(Meeting::kExchange, mask, v, from);
}

unsigned vote(unsigned mask, bool v) { return (unsigned)meet(Meeting::kVote, mask, v, 0); }

unsigned match(unsigned mask, uint32_t v) { return (unsigned)meet(Meeting::kMatch, mask, v, 0); }

void perhaps_yield() {
  if (machine.random() % 4 != 0) return;
  machine.ready.push_back(machine.running);
  yield();
}

void check_aligned(const void *p, size_t n) {
  if ((uintptr_t)p % n != 0) fail("an access that is not aligned");
}

void launch(Kernel kernel, const void *arguments, int64_t blocks, int threads, size_t shared_bytes, uint64_t seed) {
  if (threads % 32 != 0 || threads < 32 || threads > 1024 || blocks < 1 || blocks > 0x7fffffff ||
      shared_bytes > 48 << 10)
    fail("a launch that no device takes");
  machine.kernel = kernel;
  machine.arguments = arguments;
  machine.blocks = blocks;
  machine.random.state = seed;
  std::vector<int64_t> order(blocks);
  for (int64_t i = 0; i < blocks; i++) order[i] = i;
  std::shuffle(order.begin(), order.end(), machine.random);

  static std::vector<std::unique_ptr<Lane>> lanes;  // their stacks are used again
  while (lanes.size() < (size_t)(kResident * threads)) {
    lanes.emplace_back(new Lane());
    lanes.back()->stack.reset(new char[kStack]);
  }
  Block places[kResident];
  size_t next = 0;
  int resident = 0;
  auto begin = [&](Block *b, Lane *const *own) {
    b->index = order[next++];
    // what shared memory holds at first is nobody's to rely on
    b->memory.assign(shared_bytes, (char)machine.random());
    b->lanes.assign(own, own + threads);
    b->arrived.assign((size_t)threads * 6, 0);
    b->waiting = 0;
    b->live = threads;
    b->any = b->result = false;
    for (int i = 0; i < threads; i++) {
      Lane *l = b->lanes[i];
      l->home = b;
      l->index = i;
      l->begun = l->done = false;
      l->meeting = Meeting::kNone;
      getcontext(&l->start);
      l->start.uc_stack.ss_sp = l->stack.get();
      l->start.uc_stack.ss_size = kStack;
      l->start.uc_link = nullptr;
      makecontext(&l->start, enter, 0);
      machine.ready.push_back(l);
    }
    resident++;
  };
  std::vector<Lane *> all;
  for (auto &l : lanes) all.push_back(l.get());
  for (int i = 0; i < kResident && next < order.size(); i++) begin(&places[i], &all[(size_t)i * threads]);
  while (resident > 0) {
    const Lane *lane = run_lanes();
    Block *b = lane->home;
    if (b->waiting > 0) fail("a lane ends while others of its block wait for all");
    if (--b->live > 0) continue;
    resident--;
    if (next < order.size()) begin(b, &all[(size_t)(b - places) * threads]);
  }
}

namespace {
struct Entry {
  const char *name;
  size_t size;
  Kernel kernel;
};
#define FGC_KERNEL(kernel, arguments, body) \
  {#kernel, sizeof(arguments), [](const void *p) { \
     const arguments &a = *(const arguments *)p;   \
     body;                                         \
   }},
const Entry kernels[] = {
#include "../instances.h"
};
}  // namespace

Kernel find(const char *name, size_t *arguments_size) {
  for (const Entry &e : kernels)
    if (strcmp(e.name, name) == 0) {
      *arguments_size = e.size;
      return e.kernel;
    }
  return nullptr;
}

}  // namespace emulator
}  // namespace fgc
