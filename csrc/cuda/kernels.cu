// The device's code: every kernel of instances.h around its body. Parameters go by value into constant memory.
#include "kernels.h"

using namespace fgc;

#define FGC_KERNEL(name, arguments, body) \
  extern "C" __global__ void __launch_bounds__(FGC_THREADS) name(const __grid_constant__ arguments a) { body; }
#include "instances.h"
