// A driver of CUDA without a device: libcuda.so.1 for tests, over the emulator. Memory of the device is memory of the
// host, streams are empty as soon as something is queued, and whatever a real driver would not forgive is an error: a
// call before cuInit or without a context, an image that is no fatbin, a kernel that is not in it, a launch that no
// device takes. FRESHGO_EMULATED_DEVICES says how many devices there are (1),
// FRESHGO_EMULATED_CAPABILITY what they can (90) and FRESHGO_EMULATED_VERSION which CUDA the driver has (13000).
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <vector>

#include "emulator.h"

using namespace fgc::emulator;

namespace {

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
};

std::mutex lock;  // of all below: one launch at a time, the emulator is one machine
bool started;
uint64_t launches;
std::map<void *, size_t> registered;
char contexts[16];
thread_local std::vector<void *> current;

struct Function {
  Kernel kernel;
  size_t size;
};

int setting(const char *name, int usual) {
  const char *n = getenv(name);
  return n != nullptr ? atoi(n) : usual;
}
int devices() { return setting("FRESHGO_EMULATED_DEVICES", 1); }

}  // namespace

#define ENTER                            \
  std::lock_guard<std::mutex> hold(lock); \
  if (!started) return NOT_INITIALIZED
#define ENTER_CONTEXT \
  ENTER;              \
  if (current.empty()) return INVALID_CONTEXT

extern "C" {

int cuInit(unsigned flags) {
  std::lock_guard<std::mutex> hold(lock);
  if (flags != 0) return INVALID_VALUE;
  if (devices() == 0) return NO_DEVICE;
  started = true;
  return SUCCESS;
}

int cuGetErrorString(int code, const char **text) {
  *text = code == NO_DEVICE ? "no CUDA-capable device is detected" : "an error of the emulated driver";
  return SUCCESS;
}

int cuDriverGetVersion(int *version) {
  *version = setting("FRESHGO_EMULATED_VERSION", 13000);
  return SUCCESS;
}

int cuDeviceGetCount(int *count) {
  ENTER;
  *count = devices();
  return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
  ENTER;
  if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER;
  const int capability = setting("FRESHGO_EMULATED_CAPABILITY", 90);
  if (device < 0 || device >= devices()) return INVALID_DEVICE;
  if (attribute != 75 && attribute != 76 && attribute != 91) return INVALID_VALUE;
  *value = attribute == 91 ? 1 : attribute == 75 ? capability / 10 : capability % 10;
  return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER;
  *context = &contexts[device];
  return SUCCESS;
}

int cuCtxPushCurrent_v2(void *context) {
  ENTER;
  current.push_back(context);
  return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context) {
  ENTER_CONTEXT;
  *context = current.back();
  current.pop_back();
  return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
  ENTER;
  *context = current.empty() ? nullptr : current.back();
  return SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) {
  ENTER_CONTEXT;
  const unsigned char magic[] = {0x50, 0xed, 0x55, 0xba};
  if (memcmp(image, magic, sizeof magic) != 0) return INVALID_IMAGE;
  *module = &contexts;
  return SUCCESS;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  ENTER_CONTEXT;
  if (module != &contexts) return INVALID_VALUE;
  Function f;
  f.kernel = find(name, &f.size);
  if (f.kernel == nullptr) return NOT_FOUND;
  *function = new Function(f); /* lives as long as the process, as the module does */
  return SUCCESS;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared,
                   void *stream, void **parameters, void **extra) {
  (void)stream;
  ENTER_CONTEXT;
  if (gx == 0 || gx > 0x7fffffff || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra != nullptr) return INVALID_VALUE;
  const Function *f = (const Function *)function;
  std::vector<char> arguments((const char *)parameters[0], (const char *)parameters[0] + f->size);
  launch(f->kernel, arguments.data(), gx, (int)bx, shared, ++launches);
  return SUCCESS;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
  ENTER_CONTEXT;
  *available = (size_t)5 << 30;
  *total = (size_t)8 << 30;
  return SUCCESS;
}

int cuMemHostRegister_v2(void *p, size_t n_bytes, unsigned flags) {
  ENTER_CONTEXT;
  if (p == nullptr || n_bytes == 0 || flags != 3) return INVALID_VALUE;
  return registered.emplace(p, n_bytes).second ? SUCCESS : ALREADY_REGISTERED;
}

int cuMemHostUnregister(void *p) {
  ENTER_CONTEXT;
  return registered.erase(p) != 0 ? SUCCESS : NOT_REGISTERED;
}

int cuMemHostGetDevicePointer_v2(unsigned long long *address, void *p, unsigned flags) {
  ENTER_CONTEXT;
  if (flags != 0 || registered.find(p) == registered.end()) return INVALID_VALUE;
  *address = (unsigned long long)(uintptr_t)p;
  return SUCCESS;
}

}  // extern "C"
