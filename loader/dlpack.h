/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.h - the structs of DLPack 1.0, as its header lays them out. Not installed: who
 * takes what berth exports has a header of DLPack's, whose tag is the same.
 */
#ifndef BERTH_LOADER_DLPACK_H
#define BERTH_LOADER_DLPACK_H

#include <stddef.h>
#include <stdint.h>

#define BERTHI_DLPACK_MAJOR 1u
#define BERTHI_DLPACK_MINOR 0u

#define BERTHI_DLPACK_CPU 1
#define BERTHI_DLPACK_CUDA 2
#define BERTHI_DLPACK_CUDA_HOST 3

#define BERTHI_DLPACK_INT 0u
#define BERTHI_DLPACK_UINT 1u
#define BERTHI_DLPACK_FLOAT 2u
#define BERTHI_DLPACK_BFLOAT 4u
#define BERTHI_DLPACK_COMPLEX 5u
#define BERTHI_DLPACK_BOOL 6u

#define BERTHI_DLPACK_READ_ONLY UINT64_C(1)

typedef struct berthi_dlpack_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} berthi_dlpack_dtype;

typedef struct berthi_dlpack_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    berthi_dlpack_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} berthi_dlpack_tensor;

struct DLManagedTensorVersioned {
    uint32_t major;
    uint32_t minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    berthi_dlpack_tensor dl_tensor;
};

_Static_assert(sizeof(berthi_dlpack_dtype) == 4, "DLDataType");
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(berthi_dlpack_tensor) == 48, "DLTensor");
_Static_assert(offsetof(berthi_dlpack_tensor, device_type) == 8, "device");
_Static_assert(offsetof(berthi_dlpack_tensor, ndim) == 16, "ndim");
_Static_assert(offsetof(berthi_dlpack_tensor, dtype) == 20, "dtype");
_Static_assert(offsetof(berthi_dlpack_tensor, shape) == 24, "shape");
_Static_assert(offsetof(berthi_dlpack_tensor, byte_offset) == 40, "byte_offset");
_Static_assert(sizeof(struct DLManagedTensorVersioned) == 80, "DLManagedTensorVersioned");
_Static_assert(offsetof(struct DLManagedTensorVersioned, flags) == 24, "flags");
_Static_assert(offsetof(struct DLManagedTensorVersioned, dl_tensor) == 32, "dl_tensor");
#endif

#endif
