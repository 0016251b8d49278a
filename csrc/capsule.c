#include "buffer.h"
#include "freshgo.h"

/* Of the interpreter that loaded this library; written once, before there is a capsule. */
static fg_python_api python;

/* Indexed by `versioned`. Here and not in Python, because a capsule keeps the address of its name. */
static const char *const NAMES[] = {"dltensor", "dltensor_versioned"};

void fg_python_init(const fg_python_api *api) { python = *api; }

/* A consumer renames the capsule it takes the tensor from; one with its first name still owns it. */
static void destroy(void *capsule) {
  for (int versioned = 0; versioned < 2; versioned++)
    if (python.capsule_is_valid(capsule, NAMES[versioned]))
      fgi_tensor_delete(python.capsule_get_pointer(capsule, NAMES[versioned]), versioned);
}

void *fg_capsules_new(fg_tensor *tensors, int32_t num_tensors, int32_t versioned) {
  void *list = python.list_new(num_tensors);
  if (list == NULL) return NULL;
  for (int32_t i = 0; i < num_tensors; i++) {
    void *capsule = python.capsule_new(tensors[i].managed, NAMES[versioned != 0], destroy);
    if (capsule == NULL) {
      python.decref(list);
      return NULL;
    }
    tensors[i].managed = NULL;
    python.list_set_item(list, i, capsule); /* cannot fail: i is within the new list, which takes the reference */
  }
  return list;
}
