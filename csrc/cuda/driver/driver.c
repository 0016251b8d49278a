/*
 * libcuda.a: what libfreshgo_cuda.so is linked with instead of the driver.
 *
 * A library that is linked with the driver cannot be loaded where there is none, initialises it as soon as it is loaded
 * (gorgonia.org/cu calls cuInit in an init function, and ends the process if that fails), and so spoils every later
 * fork. Here cuInit does nothing, and the first call of anything else looks for libcuda.so.1 and initialises it. The
 * functions that we call are passed on; all others of the driver's header (refused.h, which `make cuda` makes of that),
 * to which cu refers, say that they are not there.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

/* The driver's API, as far as it is called: versions of functions do not change once they have been published. */
typedef int CUresult;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_STUB_LIBRARY = 34, CUDA_ERROR_NO_DEVICE = 100 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static CUresult state = CUDA_ERROR_STUB_LIBRARY;
static char why[400];

static void open_driver(void) {
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(why, sizeof why, "there is no CUDA driver: %s", dlerror());
    return;
  }
  CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(library, "cuInit");
  CUresult (*text)(CUresult, const char **) = (CUresult(*)(CUresult, const char **))dlsym(library, "cuGetErrorString");
  if (init == NULL || text == NULL) {
    snprintf(why, sizeof why, "libcuda.so.1 is not the CUDA driver");
    return;
  }
  state = init(0);
  const char *words = NULL;
  if (state != CUDA_SUCCESS && (text(state, &words) != CUDA_SUCCESS || words == NULL)) words = "unknown error";
  if (state != CUDA_SUCCESS)
    snprintf(why, sizeof why, "the CUDA driver does not start: %s (CUresult %d)%s", words, state,
             state != CUDA_ERROR_NO_DEVICE ? ""
                                           : ": CUDA_VISIBLE_DEVICES must name a device that `nvidia-smi -L` lists, "
                                             "with MIG an instance");
}

const char *fgc_driver(void) {
  pthread_once(&once, open_driver);
  return state == CUDA_SUCCESS ? NULL : why;
}

/* NULL, and then the code in `state`, where there is no driver, or one that does not have the function. */
static void *find(const char *name) {
  pthread_once(&once, open_driver);
  return state == CUDA_SUCCESS ? dlsym(library, name) : NULL;
}

#define PASS_ON(name, parameters, arguments)                                              \
  CUresult name parameters {                                                              \
    CUresult(*call) parameters = (CUresult(*) parameters)find(#name);                     \
    return call != NULL ? call arguments : state != CUDA_SUCCESS ? state : CUDA_ERROR_STUB_LIBRARY; \
  }

CUresult cuInit(unsigned flags) {
  (void)flags;
  return CUDA_SUCCESS;
}

PASS_ON(cuDriverGetVersion, (int *version), (version))
PASS_ON(cuDeviceGetCount, (int *count), (count))
PASS_ON(cuDeviceGet, (int *device, int ordinal), (device, ordinal))
PASS_ON(cuDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device))
PASS_ON(cuDevicePrimaryCtxRetain, (void **context, int device), (context, device))
PASS_ON(cuCtxPushCurrent_v2, (void *context), (context))
PASS_ON(cuCtxPopCurrent_v2, (void **context), (context))
PASS_ON(cuModuleLoadData, (void **module, const void *image), (module, image))
PASS_ON(cuModuleGetFunction, (void **function, void *module, const char *name), (function, module, name))
PASS_ON(cuLaunchKernel,
        (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
         void *stream, void **parameters, void **extra),
        (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
PASS_ON(cuMemGetInfo_v2, (size_t * available, size_t *total), (available, total))
PASS_ON(cuMemHostRegister_v2, (void *p, size_t n_bytes, unsigned flags), (p, n_bytes, flags))
PASS_ON(cuMemHostUnregister, (void *p), (p))
PASS_ON(cuMemHostGetDevicePointer_v2, (unsigned long long *address, void *p, unsigned flags), (address, p, flags))

#define REFUSE(name) \
  CUresult name(void) { return CUDA_ERROR_STUB_LIBRARY; }
#include "refused.h"
