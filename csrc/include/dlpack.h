/*
 * DLPack: how a tensor passes from one library to another without a copy.
 *
 * Our own declarations of the parts that freshgo hands out, laid out as the
 * DLPack specification says (ABI 1.0, and the unversioned structure of 0.x).
 * The structure belongs to its receiver, which calls `deleter` exactly once.
 */
#ifndef FRESHGO_DLPACK_H
#define FRESHGO_DLPACK_H

#include <stddef.h>
#include <stdint.h>

enum { kDLCPU = 1 };

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

/* An element: kind, width in bits, and 1 lane. */
typedef struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements */
  uint64_t byte_offset;
} DLTensor;

/* In a Python capsule named "dltensor". */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

/* In a Python capsule named "dltensor_versioned". flags = 0: writable. */
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* Who consumes these structures was compiled with declarations of its own. */
#ifdef __cplusplus
#define FG_LAYOUT(condition) static_assert(condition, "not laid out as DLPack says")
#else
#define FG_LAYOUT(condition) _Static_assert(condition, "not laid out as DLPack says")
#endif
FG_LAYOUT(sizeof(void *) == 8);
FG_LAYOUT(sizeof(DLDevice) == 8);
FG_LAYOUT(sizeof(DLDataType) == 4 && offsetof(DLDataType, bits) == 1 && offsetof(DLDataType, lanes) == 2);
FG_LAYOUT(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16);
FG_LAYOUT(offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32);
FG_LAYOUT(offsetof(DLTensor, byte_offset) == 40);
FG_LAYOUT(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, manager_ctx) == 48);
FG_LAYOUT(offsetof(DLManagedTensor, deleter) == 56);
FG_LAYOUT(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, manager_ctx) == 8);
FG_LAYOUT(offsetof(DLManagedTensorVersioned, deleter) == 16 && offsetof(DLManagedTensorVersioned, flags) == 24);
FG_LAYOUT(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
#undef FG_LAYOUT

#endif
