/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_calls.h - the calls of the CUDA runtime that berth makes, as a table.
 *
 *   cuda_runtime.c       fills it from the toolkit's static library, where there is one
 *   cuda_driver.c        finds what only the driver has
 *   tests/fake_cuda.c    fills it with a GPU of malloc and lanes on the host
 *   device_cuda.c        makes the calls, and knows of neither
 *
 * Plain C types, so that only cuda_runtime.c needs the toolkit. What the calls return is
 * the runtime's own number for an error. Unless said otherwise they are about the calling
 * thread's current device, and a stream is a cudaStream_t, NULL the device's first one.
 */
#ifndef BERTH_KERNELS_CUDA_CALLS_H
#define BERTH_KERNELS_CUDA_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/gemm_calls.h"
#include "kernels/launch.h"
#include "kernels/nvml_calls.h"

/* The runtime's numbers that berth tells apart. */
typedef enum berthi_cuda_error {
    BERTHI_CUDA_OK = 0,
    BERTHI_CUDA_NO_MEMORY = 2,
    BERTHI_CUDA_UNLOADING = 4,
    BERTHI_CUDA_OLD_DRIVER = 35, /* or none at all */
    BERTHI_CUDA_NO_FUNCTION = 98,
    BERTHI_CUDA_NO_DEVICE = 100,
    BERTHI_CUDA_NO_IMAGE = 209,
    BERTHI_CUDA_ECC = 214,
    BERTHI_CUDA_INVALID_PTX = 218,
    BERTHI_CUDA_NVLINK = 220,
    BERTHI_CUDA_NO_COMPILER = 221,
    BERTHI_CUDA_OLD_PTX_COMPILER = 222,
    BERTHI_CUDA_NO_COMPILING = 223,
    BERTHI_CUDA_CONTAINED = 226,
    BERTHI_CUDA_NOT_READY = 600,
    BERTHI_CUDA_ILLEGAL_ADDRESS = 700,
    BERTHI_CUDA_TIMEOUT = 702,
    BERTHI_CUDA_PEER_ENABLED = 704, /* it was already */
    BERTHI_CUDA_DESTROYED = 709,
    BERTHI_CUDA_ASSERT = 710,
    BERTHI_CUDA_REGISTERED = 712,
    BERTHI_CUDA_STACK = 714,
    BERTHI_CUDA_INSTRUCTION = 715,
    BERTHI_CUDA_MISALIGNED = 716,
    BERTHI_CUDA_ADDRESS_SPACE = 717,
    BERTHI_CUDA_COUNTER = 718,
    BERTHI_CUDA_LAUNCH = 719,
    BERTHI_CUDA_TENSOR_LEAK = 721,
    BERTHI_CUDA_UNSUPPORTED = 801,
    BERTHI_CUDA_MPS_CLIENT = 810,     /* the server of MPS has ended this process' work */
    BERTHI_CUDA_EXTERNAL_DEVICE = 911
} berthi_cuda_error;

/*
 * From this release on there are GPUs that copy tiles of matrices, and a call of the driver that
 * makes of a matrix what they take it by.
 */
#define BERTHI_CUDA_TILES_VERSION 12000
/* That call: what it really takes is known where it is called. */
typedef void berthi_cuda_tiles(void);

/* From this release on, the runtime's and the driver's, graphs capture launches that overlap. */
#define BERTHI_CUDA_OVERLAPPING_VERSION 12030

#define BERTHI_CUDA_APART 2 /* a mode of captures */

/* Of a stream that each thread has for itself: one handle for all of them (cudaStreamPerThread). */
#define BERTHI_CUDA_STREAM_OF_THREAD ((void *)2)

typedef struct berthi_cuda_properties {
    char name[96];
    uint8_t uuid[16];
    int32_t pci_domain;
    int32_t pci_bus;
    int32_t pci_device;
    int32_t major; /* of its architecture: sm_90 is 9 and 0 */
    int32_t minor;
    int32_t numa_node; /* -1: unknown */
    int32_t processors; /* multiprocessors */
    int32_t copy_engines;
    uint32_t room_bytes; /* shared memory that a CTA may have, at most */
    uint64_t memory_bytes;
} berthi_cuda_properties;

/*
 * The driver's calls about contexts, of the calling thread. The runtime makes one for a GPU when
 * it is first made current, and then knows no way back to none.
 */
typedef struct berthi_cuda_contexts {
    int (*current)(void **out);                  /* NULL: none */
    int (*make_current)(void *context);          /* NULL: none */
    int (*find_device)(int *out, int ordinal);   /* the driver's number of a GPU */
    int (*retain)(void **out, int device);       /* the runtime's, made where it is not there */
} berthi_cuda_contexts;

struct berthi_cuda_calls {
    int32_t runtime_version;       /* 13000: CUDA 13.0 */
    const int32_t *architectures;  /* with machine code: 90 is sm_90; ascending */
    uint32_t architecture_count;
    const int32_t *ptx;            /* those that PTX is for; ascending */
    uint32_t ptx_count;
    int32_t wide;                  /* the architecture that wide kernels are for, 90, which run
                                      on no other; 0: there are none */

    const char *(*error_words)(int error); /* never NULL */
    int (*last_error)(void);               /* and forgets it; of the thread */
    int (*driver_version)(int *out);       /* 0: no driver */
    int (*device_count)(int *out);
    int (*device_properties)(int device, berthi_cuda_properties *out);
    int (*get_device)(int *out);           /* the thread's current one */
    int (*set_device)(int device);
    bool (*find_contexts)(berthi_cuda_contexts *out); /* false: the driver does not tell */
    bool (*find_tiles)(berthi_cuda_tiles **out); /* false: toolkit or driver have no such call */
    int (*synchronize)(void);              /* everything of the current device is done */

    int (*memory_info)(uint64_t *out_free, uint64_t *out_total);
    int (*alloc)(void **out, uint64_t bytes);
    int (*free)(void *memory);
    int (*pin)(void *memory, uint64_t bytes); /* for all devices */
    int (*unpin)(void *memory);

    int (*stream_create)(void **out);         /* does not wait for the first one */
    int (*stream_destroy)(void *stream);      /* does not wait */
    int (*stream_query)(void *stream);        /* NOT_READY: something is under way */
    int (*stream_wait)(void *stream, void *event);
    /* A graph captures what it is asked for, also one that has become invalid. */
    int (*stream_is_capturing)(bool *out, void *stream);
    /*
     * Its own, of all streams that there ever are, where handles come again; not to be asked
     * while it is captured. NULL: this runtime has no numbers.
     */
    int (*stream_number)(uint64_t *out, void *stream);
    /*
     * How the thread's calls stand to captures, exchanged for how they did. At first they fail, and
     * spoil the capture, if it does not bear them: be it another stream's and another thread's.
     * BERTHI_CUDA_APART: those alone that are about what is captured.
     */
    int (*capture_mode)(int *mode);
    int (*event_create)(void **out);          /* without a time */
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);          /* NOT_READY: it has not passed */

    int (*copy)(void *to, const void *from, uint64_t bytes, int32_t kind, void *stream);
    int (*peer_can)(int *out, int device, int peer); /* 1: one can reach the other's memory */
    int (*peer_enable)(int peer);                    /* the current device reaches it */
    int (*peer_copy)(void *to, int to_device, const void *from, int from_device,
                     uint64_t bytes, void *stream);
    int (*clear)(void *memory, uint64_t bytes, void *stream);
    /*
     * Not of KERNEL_NONE; `tiles` for launches with matrices, which others are without.
     * `overlaps`: see berthi_launch_overlaps().
     */
    int (*launch)(const berthi_launch *launch, berthi_cuda_tiles *tiles, bool overlaps,
                  void *stream);
    /* Its launches may have so much room: before the first one on a device that has any. */
    int (*allow_room)(berthi_kernel_id kernel, uint32_t bytes);
    int (*call)(void (*call)(void *user), void *user, void *stream);

    /* cuBLASLt's calls, opened when they are first needed; false: `why` there are none. */
    bool (*open_gemm)(berthi_gemm_calls *out, char why[BERTHI_GEMM_WHY_CAPACITY]);
    /* Those of the driver's library for management; false: it is not there. */
    bool (*open_nvml)(berthi_nvml_calls *out);
};

/* Of the driver that is there, which the runtime has opened before. */
bool berthi_cuda_find_contexts(berthi_cuda_contexts *out);
bool berthi_cuda_find_tiles(berthi_cuda_tiles **out);
/* The toolkit's; only where this was built with one. */
const berthi_cuda_calls *berthi_cuda_runtime(void);

#endif
