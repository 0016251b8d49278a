/*
 * DLPack: how a tensor passes from one library to another without a copy.
 *
 * Our own declarations of the parts that freshgo hands out, laid out as the
 * DLPack specification says (ABI 1.0, and the unversioned structure of 0.x).
 * The structure belongs to its receiver, who calls `deleter` exactly once.
 */
#ifndef FRESHGO_DLPACK_H
#define FRESHGO_DLPACK_H

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

#endif
