#include "buffer.h"

#include <stdlib.h>
#include <string.h>

#include "freshgo.h"

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

/* Of the interpreter that loaded this library; written once, before there is a capsule. */
static fg_python_api python;

/* Indexed by `versioned`. Here and not in Python, because a capsule keeps the address of its name. */
static const char *const NAMES[] = {"dltensor", "dltensor_versioned"};

void fg_python_init(const fg_python_api *api) { python = *api; }

/* A consumer renames the capsule it takes the tensor from; one with its first name still owns it. */
static void destroy_capsule(void *capsule) {
  for (int versioned = 0; versioned < 2; versioned++)
    if (python.capsule_is_valid(capsule, NAMES[versioned]))
      fgi_tensor_delete(python.capsule_get_pointer(capsule, NAMES[versioned]), versioned);
}

void *fg_capsules_new(fg_tensor *tensors, int32_t num_tensors, int32_t versioned) {
  void *list = python.list_new(num_tensors);
  if (list == NULL) return NULL;
  for (int32_t i = 0; i < num_tensors; i++) {
    void *capsule = python.capsule_new(tensors[i].managed, NAMES[versioned != 0], destroy_capsule);
    if (capsule == NULL) {
      python.decref(list);
      return NULL;
    }
    tensors[i].managed = NULL;
    python.list_set_item(list, i, capsule); /* cannot fail: i is within the new list, which takes the reference */
  }
  return list;
}
