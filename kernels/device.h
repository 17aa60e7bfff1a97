/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - something that holds weights and computes: its memory, copies,
 * streams, events and operations. Nothing above kernels/ knows more of a GPU.
 *
 *   device_cpu.c   host memory, real arithmetic, everything done when asked
 *   device_sim.c   a GPU that is not there: memory that is enforced, copies that
 *                  happen late, links with a rate, a clock of its own; sim*.c
 *   device_cuda.c  GPUs by the CUDA runtime; cuda_*.c
 *   device_pin.c   host memory that is pinned in pieces
 *   device.c       which devices exist
 *
 * A stream is a line of work that is done in order; streams know nothing of each
 * other but what events tell them. An event stands for all work of a stream up
 * to its record(); recorded again, it stands for the new place. Whoever waits for
 * an event that was never recorded does not wait.
 *
 * Every call that can fail says so, and leaves nothing behind. What goes wrong
 * in work that was only asked for is told by the next call that waits: await(),
 * query(). A device that is lost (DEVICE_LOST) stays lost: every later call says
 * the same, and giving back still works.
 *
 * Any thread may call; calls about one stream are in the order they are made.
 */
#ifndef BERTH_KERNELS_DEVICE_H
#define BERTH_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/decode_weight.h"
#include "kernels/decoder.h"
#include "kernels/experts.h"
#include "kernels/int8_input.h"
#include "kernels/int8_output.h"
#include "kernels/kernel.h"
#include "kernels/memory.h"
#include "kernels/multiply.h"
#include "kernels/multiply_plain.h"
#include "kernels/nvlink.h"
#include "kernels/optimizer.h"
#include "kernels/pci.h"

/* A device's own; the NULL stream is one, too. */
typedef struct berthi_stream berthi_stream;
typedef struct berthi_event berthi_event;
typedef struct berthi_device berthi_device;

typedef struct berthi_device_properties {
    char name[32];          /* "cpu", "cuda:0", "sim:0": what `name` of a tier may be     */
    char description[96];   /* "NVIDIA H200", "simulated, 24.0 GiB, 25 GB/s"              */
    uint64_t memory_bytes;  /* of all                                                     */
    uint64_t free_bytes;    /* that can still be allocated; UINT64_MAX: nobody knows      */
    int32_t numa_node;      /* -1: unknown                                                */
    uint32_t copy_engines;  /* 0: unknown, or none                                        */
    bool is_host;           /* its memory is host memory: both can be read and written
                               with plain loads and stores, nothing has to be copied      */
    bool is_simulated;
} berthi_device_properties;

/* What it has to the host and to others like it. */
typedef struct berthi_device_links {
    berthi_pci_link pci;
    berthi_nvlinks nv;
} berthi_device_links;

/* ------------------------------------------------------------------------ copies */

typedef enum berthi_copy_kind {
    BERTHI_COPY_TO_DEVICE,
    BERTHI_COPY_TO_HOST,
    BERTHI_COPY_WITHIN, /* the device's own memory */
    BERTHI_COPY_TO_PEER /* from the device's memory to that of another it reaches */
} berthi_copy_kind;

/* No overlap. */
typedef struct berthi_copy {
    int32_t kind;     /* berthi_copy_kind */
    bool is_pinned;   /* its host side has been pinned for this device, whatever pieces
                         that was done in; else the call returns only when the host side
                         has been read or written */
    void *to;
    const void *from;
    uint64_t bytes;
    berthi_device *peer; /* TO_PEER: whose memory `to` is */
    uint32_t layer;   /* for who listens: of the plan, and 1; 0: not known */
} berthi_copy;

/* -------------------------------------------------------------------- operations */

/*
 * What a device can be asked to compute. Pointers among the arguments are the
 * device's memory, but those of tables (`map`), which are the host's.
 */
typedef enum berthi_operation {
    BERTHI_OPERATION_ENCODE_NF4,    /* berthi_encode_arguments */
    BERTHI_OPERATION_ENCODE_FP4,
    BERTHI_OPERATION_ENCODE_ROWS,   /* berthi_rows_arguments   */
    BERTHI_OPERATION_ENCODE_DOUBLE, /* berthi_offset_arguments */
    BERTHI_OPERATION_DECODE_NF4,    /* berthi_decode_blocks_task */
    BERTHI_OPERATION_DECODE_FP4,
    BERTHI_OPERATION_DECODE_ROWS,   /* berthi_decode_rows_task */
    BERTHI_OPERATION_MULTIPLY_NF4,  /* berthi_multiply_arguments */
    BERTHI_OPERATION_MULTIPLY_FP4,
    BERTHI_OPERATION_EXPERTS_NF4,   /* berthi_experts_arguments */
    BERTHI_OPERATION_EXPERTS_FP4,
    BERTHI_OPERATION_MULTIPLY_PLAIN, /* berthi_multiply_plain_arguments */
    BERTHI_OPERATION_INT8_INPUT,    /* berthi_int8_input_task  */
    BERTHI_OPERATION_MULTIPLY_INT8,  /* berthi_multiply_int8_arguments */
    BERTHI_OPERATION_INT8_OUTPUT,   /* berthi_int8_output_task */
    BERTHI_OPERATION_UPDATE,        /* berthi_update_request   */
    BERTHI_OPERATION_MEASURE,       /* berthi_measure_arguments */
    BERTHI_OPERATION_ACCUMULATE,    /* berthi_accumulate_arguments */
    BERTHI_OPERATION_TAKE,          /* berth_take              */
    BERTHI_OPERATION_NORM,          /* berth_norm              */
    BERTHI_OPERATION_ROTATE,        /* berth_rotate            */
    BERTHI_OPERATION_ATTEND,        /* berth_attend            */
    BERTHI_OPERATION_GATE,          /* berth_gate              */
    BERTHI_OPERATION_ADD,           /* berth_add               */
    BERTHI_OPERATION_CHOOSE,        /* berth_choose            */
    BERTHI_OPERATION_LARGEST,       /* berth_largest           */
    BERTHI_OPERATION_CALL,          /* berthi_call_arguments   */
    BERTHI_OPERATION_COUNT
} berthi_operation;

/* First-level absmax -> offset (their mean, in the published order), codes, absmax2. */
typedef struct berthi_offset_arguments {
    const float *absmax;
    uint64_t count;
    uint8_t *codes;
    float *absmax2;
    float *offset;  /* 1 */
    float *scratch; /* berthi_offset_scratch() values */
} berthi_offset_arguments;

uint64_t berthi_offset_scratch(uint64_t count);
/* On host memory: what the CPU does, and what every other device has to equal. */
void berthi_encode_offset(const berthi_operations *operations,
                          const berthi_offset_arguments *arguments);

/*
 * A function of the caller, in the order of the stream, on any thread. Only a
 * simulated device lets it touch its memory; `seconds` is how long it takes there.
 */
typedef struct berthi_call_arguments {
    void (*call)(void *user);
    void *user;
    double seconds;
} berthi_call_arguments;

/* Work to be asked for. Arguments are copied; what they point to is not. */
typedef struct berthi_request {
    int32_t operation; /* berthi_operation */
    union {
        berthi_encode_arguments encode;
        berthi_rows_arguments rows;
        berthi_offset_arguments offset;
        berthi_decode_blocks_task decode;
        berthi_decode_rows_task decode_rows;
        berthi_multiply_arguments multiply;
        berthi_experts_arguments experts;
        berthi_multiply_plain_arguments plain;
        berthi_int8_input_task int8_input;
        berthi_multiply_int8_arguments int8;
        berthi_int8_output_task int8_output;
        berthi_update_request update;
        berthi_measure_arguments measure;
        berthi_accumulate_arguments accumulate;
        berth_take take;
        berth_norm norm;
        berth_rotate rotate;
        berth_attend attend;
        berth_gate gate;
        berth_add add;
        berth_choose choose;
        berth_largest largest;
        berthi_call_arguments call;
    } arguments;
} berthi_request;

/* What an operation is, done at once on host memory: by the CPU, and by simulations. */
bool berthi_operation_is_known(int32_t operation);
/* BERTH_OK; UNSUPPORTED, or of a decoder's steps EINVAL: what no device can be asked for. */
berth_status berthi_operation_check(const char *device, const berthi_request *request,
                                    berth_error *error);
void berthi_operation_run(const berthi_operations *operations,
                          const berthi_request *request);

/* ------------------------------------------------------------------------- table */

typedef struct berthi_device_table {
    const char *kind; /* "cpu", "sim", "cuda" */
    void (*describe)(berthi_device *device, berthi_device_properties *out);
    /* NULL: it has none. */
    void (*find_links)(berthi_device *device, berthi_device_links *out);

    /* A multiple of 256, uninitialised. NO_FIT: the device has not so much left. */
    berth_status (*alloc)(berthi_device *device, uint64_t bytes, void **out,
                          berth_error *error);
    void (*free)(berthi_device *device, void *memory, uint64_t bytes);
    /*
     * Host memory that this device may copy from and to while the caller goes on;
     * whole pages. Refused (NO_MEMORY): copies of it are not pinned, nothing else.
     */
    berth_status (*pin)(berthi_device *device, void *memory, uint64_t bytes,
                        berth_error *error);
    void (*unpin)(berthi_device *device, void *memory, uint64_t bytes);

    berth_status (*stream_create)(berthi_device *device, berthi_stream **out,
                                  berth_error *error);
    /* Waits for what is under way in it; not for what can never happen. NULL is allowed. */
    void (*stream_destroy)(berthi_device *device, berthi_stream *stream);
    berth_status (*event_create)(berthi_device *device, berthi_event **out,
                                 berth_error *error);
    /* Also before it has passed; streams that wait for it go on waiting. */
    void (*event_destroy)(berthi_device *device, berthi_event *event);

    /* The event stands for what `stream` has been asked for so far. */
    berth_status (*record)(berthi_device *device, berthi_event *event,
                           berthi_stream *stream, berth_error *error);
    /* Later work of `stream` begins when the event has passed. The host goes on. */
    berth_status (*wait)(berthi_device *device, berthi_stream *stream,
                         berthi_event *event, berth_error *error);
    /* Has it passed? Fails as the work before it did. */
    berth_status (*query)(berthi_device *device, berthi_event *event, bool *out_is_past,
                          berth_error *error);
    /* The host waits; BERTH_PENDING when `deadline_ns` (berthi_sys_now_ns) comes first. */
    berth_status (*await)(berthi_device *device, berthi_event *event,
                          uint64_t deadline_ns, berth_error *error);

    berth_status (*copy)(berthi_device *device, const berthi_copy *copy,
                         berthi_stream *stream, berth_error *error);
    /*
     * Few bytes of the host, which it may use for something else when this returns: there in the
     * stream's order, and nobody waits for them. A graph that captures it has them as they are
     * now. Words, BERTHI_WRITE_BYTES at most, to a multiple of 4. NULL: berthi_device_write()
     * copies them.
     */
    berth_status (*write)(berthi_device *device, void *to, const void *from, uint64_t bytes,
                          berthi_stream *stream, berth_error *error);
    /*
     * Whether it can be asked for copies TO_PEER; may make that so. Of the same devices,
     * and never itself. NULL: of none; bytes for others go through host memory.
     */
    bool (*reaches)(berthi_device *device, berthi_device *other);
    /* Zeroes. */
    berth_status (*clear)(berthi_device *device, void *memory, uint64_t bytes,
                          berthi_stream *stream, berth_error *error);
    bool (*has_operation)(const berthi_device *device, int32_t operation);
    /*
     * Whether products of experts are to be asked for as one operation, of up to
     * BERTHI_EXPERTS_INPUTS inputs each: it has the bits of one after the other. `request` need
     * not have addresses. NULL: whenever it has the operation.
     */
    bool (*groups_experts)(const berthi_device *device, const berthi_request *request);
    berth_status (*launch)(berthi_device *device, const berthi_request *request,
                           berthi_stream *stream, berth_error *error);
    /*
     * Operations that need nothing of each other: products with the same inputs may be one grid.
     * NULL: they are asked for one after the other.
     */
    berth_status (*launch_together)(berthi_device *device, const berthi_request *requests,
                                    uint32_t count, berthi_stream *stream, berth_error *error);
    /*
     * These bytes of an allocation, in which nothing is yet, are read by operations or
     * copied to the host. Where a simulation keeps digests instead of bytes, it keeps
     * them all the same; elsewhere nothing has to be done. NULL: nothing ever has.
     */
    berth_status (*keep)(berthi_device *device, void *memory, uint64_t bytes,
                         berth_error *error);
    /*
     * crc32 of memory, when everything asked for so far has been done. Waits; for
     * checks only.
     */
    berth_status (*digest)(berthi_device *device, const void *memory, uint64_t bytes,
                           uint32_t *out_crc, berth_error *error);
    /*
     * Gives the device up: it is lost, and nothing of it touches memory any more. Also
     * while something of it hangs. NULL: nothing of it is ever under way.
     */
    void (*stop)(berthi_device *device);
    /*
     * True: it has been given up, and what hung then may use memory of it, and host memory that
     * is pinned for it, for good. NULL: never.
     */
    bool (*has_hung)(berthi_device *device);
    /* Its clock: monotonic time, or that of its simulation. */
    uint64_t (*now_ns)(berthi_device *device);
} berthi_device_table;

/* What each kind's own state begins with. */
struct berthi_device {
    const berthi_device_table *table;
    berth_context *context;
    uint32_t number; /* among those opened with it */
    int32_t ordinal; /* what its runtime calls it; 0 without one */
};

static inline bool
berthi_device_has_hung(berthi_device *device)
{
    return device->table->has_hung != NULL && device->table->has_hung(device);
}

/* Whether one can be asked for copies to the other: see `reaches`. */
static inline bool
berthi_device_reaches(berthi_device *device, berthi_device *other)
{
    return device->table->reaches != NULL && device->table->reaches(device, other);
}

#define BERTHI_WRITE_BYTES 2048u

/* Words of the host, read when it returns; where there is no write(), by a copy. */
berth_status berthi_device_write(berthi_device *device, void *to, const void *from,
                                 uint64_t bytes, berthi_stream *stream, berth_error *error);
bool berthi_device_groups_experts(const berthi_device *device, const berthi_request *request);

/* --------------------------------------------------------------- pinning (device_pin.c) */

/*
 * Memory that is larger is pinned in pieces of so many bytes at most: other calls of a
 * driver wait while one is registered, a cancel is heard between two, and drivers have
 * refused half a terabyte at once. Pages that are new come at 2.5 GB/s where memory is slow,
 * and are registered at 10: 67 ms a piece, of the 100 that a cancel may take. Pieces end at
 * multiples of this, so whoever copies from them can tell where by the address alone.
 */
#define BERTHI_PIN_PIECE (UINT64_C(128) << 20)

/* Told of each piece, also of the last one. */
typedef struct berthi_pin_watch {
    void *user;
    /* Other than BERTH_OK: nothing is to be pinned any more. */
    berth_status (*note_pinned)(void *user, uint64_t bytes, berth_error *error);
} berthi_pin_watch;

/* The piece that begins at `at`, of the `bytes` of memory that are left from there on. */
uint64_t berthi_pin_piece(const void *at, uint64_t bytes);
/*
 * All of it or nothing, piece by piece: as pin(), or as `watch` says, which may be NULL.
 * `memory` has to be unpinned by berthi_device_unpin().
 */
berth_status berthi_device_pin(berthi_device *device, void *memory, uint64_t bytes,
                               const berthi_pin_watch *watch, berth_error *error);
void berthi_device_unpin(berthi_device *device, void *memory, uint64_t bytes);

/* Where what is used of its memory is noted: tiers have the names of their devices. */
berthi_book *berthi_device_book(berthi_device *device);
/* One line a context: what is refused once is refused again and again. */
void berthi_device_note_unpinned(berth_context *context, const berth_error *error);

/* ----------------------------------------------------------------------- devices */

/*
 * Devices of one machine: simulated ones share links and a clock.
 *
 *   "cpu"                     host memory; "cpu*2": two that share it
 *   "sim:24GiB,h2d=25GB/s"    see berth-devices(5); several are parted by ";", and
 *                             "sim:...*4" stands for four
 *   "cuda"                    all GPUs; NO_DEVICE where this build or machine has none
 *   "cuda:1;GPU-UUID"         these, by number, UUID or ("cuda:0000:3b:00.0") PCI address; a
 *                             part of one as "MIG-UUID"
 */
typedef struct berth_devices berthi_devices;
typedef struct berthi_cuda_calls berthi_cuda_calls; /* cuda_calls.h */

berth_status berthi_devices_open(berth_context *context, const char *words,
                                 berthi_devices **out, berth_error *error);
/* The same, with GPUs by these calls instead of those this was built with; NULL: none. */
berth_status berthi_devices_open_cuda(berth_context *context,
                                      const berthi_cuda_calls *calls, const char *words,
                                      berthi_devices **out, berth_error *error);
/*
 * Things of `context`, theirs or another one, are about to be on them: it is asked for what it
 * keeps when they are closed. NULL is allowed.
 */
berth_status berthi_devices_visit(berthi_devices *devices, berth_context *context,
                                  berth_error *error);
/* They are given up; what waited for what hung on them can be given back. NULL is allowed. */
void berthi_devices_stop(berthi_devices *devices);
/*
 * Everything made on them has been given back, or is kept for what hangs (berthi_context_keep())
 * by their context, or by one that has visited them, and is given back now. NULL is allowed.
 */
void berthi_devices_close(berthi_devices *devices);
/*
 * What GPUs this build has kernels for, by architecture: "75 80 90, PTX 90"; "": it drives
 * none. `calls` as above.
 */
void berthi_devices_architectures(const berthi_cuda_calls *calls, char *out, size_t capacity);
/* Those this was built with; NULL: none. */
const berthi_cuda_calls *berthi_devices_cuda(void);
uint32_t berthi_devices_count(const berthi_devices *devices);
berthi_device *berthi_devices_at(const berthi_devices *devices, uint32_t number);
/* Of the clock that they share, since they were opened. */
uint64_t berthi_devices_elapsed_ns(const berthi_devices *devices);

/* The kinds. `out` gets one device a word of the kind; device.c parts the words. */
berth_status berthi_device_cpu_open(berth_context *context, berthi_device **out,
                                    berth_error *error);
void berthi_device_cpu_close(berthi_device *device);

/* A simulated machine: what its devices share. */
typedef struct berthi_sim berthi_sim;

berth_status berthi_sim_open(berth_context *context, const char *words, berthi_sim **out,
                             berth_error *error);
/* NULL is allowed. */
void berthi_sim_close(berthi_sim *sim);
uint32_t berthi_sim_count(const berthi_sim *sim);
berthi_device *berthi_sim_at(berthi_sim *sim, uint32_t number);

/* GPUs of this machine. */
typedef struct berthi_cuda berthi_cuda;

berth_status berthi_cuda_open(berth_context *context, const berthi_cuda_calls *calls,
                              const char *words, berthi_cuda **out, berth_error *error);
/* NULL is allowed. */
void berthi_cuda_close(berthi_cuda *cuda);
uint32_t berthi_cuda_count(const berthi_cuda *cuda);
berthi_device *berthi_cuda_at(berthi_cuda *cuda, uint32_t number);

#endif
