/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_calls.h - the calls of NVML that berth makes, as a table: the library for management
 * that comes with the driver.
 *
 *   nvml_open.c          fills it from the library, which is opened at run time
 *   tests/fake_nvml.c    fills it with GPUs that are not there
 *   nvlink.c             makes the calls, and knows of neither
 *
 * The library's own prototypes in plain C types, a nvmlDevice_t as void *, so that its header
 * is not needed; where there is one, cuda_runtime.c holds the numbers against it. What the
 * calls return is the library's own status.
 */
#ifndef BERTH_KERNELS_NVML_CALLS_H
#define BERTH_KERNELS_NVML_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#define BERTHI_NVML_OK 0
#define BERTHI_NVML_UP 1 /* a link */

/* Drivers that are older than one of these refuse it. Speeds are 10^6 bytes a second, one way. */
typedef enum berthi_nvml_field_id {
    BERTHI_NVML_LINK_SPEED_OF_ALL = 90, /* that are up */
    BERTHI_NVML_LINK_COUNT = 91,        /* up or not */
    BERTHI_NVML_LINK_SPEED = 164,       /* of the link in `scope`, and so below */
    BERTHI_NVML_LINK_STATE = 165,
    BERTHI_NVML_C2C_COUNT = 170,
    BERTHI_NVML_C2C_STATE = 171,
    BERTHI_NVML_C2C_SPEED = 172
} berthi_nvml_field_id;

/* Of a value; others are of no field that berth asks for. */
typedef enum berthi_nvml_type {
    BERTHI_NVML_U32 = 1,
    BERTHI_NVML_LONG = 2, /* 64 bits where berth is built */
    BERTHI_NVML_U64 = 3
} berthi_nvml_type;

typedef struct berthi_nvml_field {
    uint32_t id;     /* berthi_nvml_field_id */
    uint32_t scope;
    int64_t at_us;
    int64_t took_us;
    int32_t type;
    int32_t status;  /* of this value alone */
    union {
        uint32_t u32;
        uint64_t u64;
    } value;
} berthi_nvml_field;

/* X(member, arguments, symbol) */
#define BERTHI_NVML_CALLS(X)                                                               \
    X(start, (void), "nvmlInit_v2") /* it counts: each start has its end */                \
    X(end, (void), "nvmlShutdown")                                                         \
    X(find, (const char *address, void **out), "nvmlDeviceGetHandleByPciBusId_v2")         \
    X(link_state, (void *gpu, unsigned int link, int *out), "nvmlDeviceGetNvLinkState")    \
    X(link_version, (void *gpu, unsigned int link, unsigned int *out),                     \
      "nvmlDeviceGetNvLinkVersion") /* 0: invalid, then each version that there was */     \
    X(fields, (void *gpu, int count, berthi_nvml_field *fields), "nvmlDeviceGetFieldValues")

typedef struct berthi_nvml_calls {
#define BERTHI_NVML_MEMBER(member, arguments, symbol) int(*member) arguments;
    BERTHI_NVML_CALLS(BERTHI_NVML_MEMBER)
#undef BERTHI_NVML_MEMBER
} berthi_nvml_calls;

/*
 * False: it is not on this machine, or is too old for a call. What is opened stays loaded:
 * it is the driver's, and others in the process may use it.
 */
bool berthi_nvml_open(berthi_nvml_calls *out);

#endif
