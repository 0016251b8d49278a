#include "buffer.h"

#include <stdlib.h>
#include <string.h>

/* One allocation per tensor: the DLPack structure its receiver sees, then what only the deleter needs. The
 * variable parts follow: shape[ndim], strides[ndim], the name. */
typedef struct tensor {
  union {
    DLManagedTensor legacy;
    DLManagedTensorVersioned versioned;
  } managed;
  fgi_buffer *buffer;
  const char *name;
  int64_t dims[];
} tensor;

static void destroy(tensor *t) {
  fgi_buffer_release(t->buffer);
  free(t);
}

static void delete_legacy(DLManagedTensor *m) { destroy(m->manager_ctx); }
static void delete_versioned(DLManagedTensorVersioned *m) { destroy(m->manager_ctx); }

void *fgi_tensor_new(fgi_buffer *b, DLDataType dtype, int32_t ndim, const int64_t *shape, int versioned,
                     const char *name, size_t name_bytes) {
  size_t dims = (size_t)ndim;
  tensor *t = calloc(1, sizeof *t + 2 * dims * sizeof(int64_t) + name_bytes + 1);
  if (t == NULL) return NULL;
  fgi_buffer_retain(b);
  t->buffer = b;

  int64_t *strides = t->dims + dims, stride = 1;
  for (size_t i = dims; i-- > 0;) {
    t->dims[i] = shape[i];
    strides[i] = stride;
    stride *= shape[i];
  }
  t->name = memcpy(t->dims + 2 * dims, name, name_bytes);

  DLTensor view = {
      .data = fgi_buffer_data(b),
      .device = {.device_type = kDLCPU},
      .ndim = ndim,
      .dtype = dtype,
      .shape = t->dims,
      .strides = strides,
  };
  if (versioned) {
    t->managed.versioned = (DLManagedTensorVersioned){
        .version = {.major = 1}, .manager_ctx = t, .deleter = delete_versioned, .dl_tensor = view};
  } else {
    t->managed.legacy = (DLManagedTensor){.dl_tensor = view, .manager_ctx = t, .deleter = delete_legacy};
  }
  return &t->managed;
}

const char *fgi_tensor_name(const void *managed) {
  const tensor *t = managed; /* the structure is its first member */
  return t->name;
}

void fgi_tensor_delete(void *managed, int versioned) {
  if (versioned) {
    DLManagedTensorVersioned *m = managed;
    if (m->deleter != NULL) m->deleter(m);
  } else {
    DLManagedTensor *m = managed;
    if (m->deleter != NULL) m->deleter(m);
  }
}
