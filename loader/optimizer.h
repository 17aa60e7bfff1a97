/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.h - what a training run keeps of its parameters, and how it is updated.
 *
 *   optimizer.c            parameters and groups, as callers give them
 *   optimizer_create.c     planned, made, looked at
 *   optimizer_destroy.c    given back: at once, or when a device that hangs has come back
 *   optimizer_memory.c     memory of states; pages read and written
 *   optimizer_move.c       states from one place to another
 *   optimizer_read.c       states as numbers; f32 copies as they begin
 *   optimizer_step.c       a step: which pages, in which order
 *   optimizer_measure.c    norms of gradients, and their sums
 *   optimizer_pages.c      pages that visit a device: slots, three streams
 *   optimizer_disk.c       pages from the file: read ahead, written behind
 *   optimizer_file.h       names of what a file of states holds: berth-optimizer(5)
 *   optimizer_save.c       states into a file
 *   optimizer_load.c       states from a file: all are checked before any is read
 *   optimizer_load_find.c  what the file has of each parameter: found and checked
 *   optimizer_load_read.c  digests, and states into pages
 *
 *   host   states ──▶ updated where they lie, shares of pages on several threads
 *   GPU    states beside values ──▶ updated where they lie, on the caller's stream
 *          page ──in──▶ slot ──updated──▶ slot ──out──▶ page     slots take turns
 *   disk   file ──read ahead──▶ buffer ──as one of the above──▶ buffer ──▶ file
 *
 * Which page comes next follows from the list of parameters alone: order, traffic and
 * peak are known before the first step.
 */
#ifndef BERTH_LOADER_OPTIMIZER_H
#define BERTH_LOADER_OPTIMIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/gradient.h"
#include "kernels/memory.h"
#include "kernels/optimizer.h"
#include "loader/file.h"
#include "placement/states.h"
#include "quant/format.h"

#define BERTHI_SLOTS_MAX 16u
#define BERTHI_NOT_ON_DISK UINT64_MAX

typedef struct berthi_trained_tensor {
    const char *name;
    const uint64_t *shape;
    uint8_t *values;      /* the caller's */
    float *sum;           /* of gradients, beside the values; NULL: none are kept */
    uint8_t *memory;      /* its states; NULL: they are on the disk */
    uint64_t file_offset; /* where they lie there, or have lain; NOT_ON_DISK */
    uint64_t step;        /* updates so far */
    berthi_states states;
    uint32_t rank;
    int32_t dtype;
    uint32_t device;
    uint32_t group;
    int32_t place;        /* berth_states_place */
    bool is_pinned;       /* for its device */
    bool has_sum;         /* something has been added to it */
    bool owns_sum;
} berthi_trained_tensor;

/* A place on a device for the page that is updated. Events are of the last page there. */
typedef struct berthi_slot {
    berthi_event *filled;
    berthi_event *updated;
    berthi_event *emptied;
} berthi_slot;

typedef struct berthi_pager {
    berthi_stream *in;
    berthi_stream *out;
    berthi_event *idle;   /* of `out`, at the end of a step */
    berthi_event *brought; /* of `in`, where a step failed half way */
    uint8_t *memory;      /* slots; NULL: there are none */
    uint64_t slot_bytes;
    uint32_t slot_count;
    uint32_t next;        /* slot, of this step */
    berthi_slot slots[BERTHI_SLOTS_MAX];
    berthi_event *copied[BERTHI_STATES_BUFFERS]; /* back into that buffer, before the disk */
} berthi_pager;

typedef struct berthi_optimizer_device {
    berthi_device *device;
    char name[32];        /* in the books */
    bool is_host;
    bool has_parameters;
    berthi_event *done;   /* of what its caller's stream was asked for last */
    uint8_t *scratch;     /* NULL: it is host memory, or updates nothing. The device's own: */
    uint64_t *not_finite; /*   elements, in all steps */
    berthi_gradient_sum *sums; /* of a page */
    uint64_t told;        /* of not_finite, in earlier steps */
    bool is_unknown;      /* what a stream of the caller's was asked for ends nobody knows when */
    bool is_behind;       /* a wait for its first stream has failed: what that was asked for */
    void *late;           /*   may still use this, which was to be given back; NULL: nothing */
    berthi_slab_parts late_parts;
    berthi_pager pager;
} berthi_optimizer_device;

/* Host memory from and to which devices copy. */
typedef struct berthi_page_room {
    uint8_t *memory; /* NULL: there is none */
    uint64_t bytes;
    bool is_pinned;
} berthi_page_room;

/* The file, and the ring of buffers before it: optimizer_disk.c. */
typedef struct berthi_disk {
    const char *folder;   /* NULL: there is none */
    int fd;               /* -1: not open yet */
    uint64_t file_bytes;
    uint64_t used;        /* of them: places of parameters */
    uint8_t *buffers;     /* BERTHI_STATES_BUFFERS of them, or NULL */
    uint64_t buffer_bytes;
    bool is_pinned;
} berthi_disk;

struct berth_optimizer {
    berthi_kept kept; /* first: what the context has of one whose device hangs is this */
    berth_context *context;
    berthi_device *host;  /* "cpu", the optimizer's own */
    berthi_operations operations; /* what it does */
    berthi_optimizer_device *devices;
    uint32_t device_count;
    berth_optimizer_group *groups;
    uint32_t group_count;
    berthi_trained_tensor *parameters;
    uint64_t parameter_count;
    berthi_trained_tensor **by_name;
    berthi_arena arena;   /* names and shapes */
    berthi_page_room room;     /* of a call, for pages */
    berthi_page_room counters; /* of devices; from the first report on */
    berthi_disk disk;
    uint64_t page_elements;
    uint32_t threads;
    uint32_t slots;
    uint64_t wait_ns;
    bool accumulates;
    bool is_torn;         /* a step or load failed half way */
    uint64_t step;
    uint64_t not_finite;  /* elements that the host met, that kept a step from being made, or
                             that a report which failed had read, since the last report */
    berthi_gradient_sum *sums; /* of all gradients; NULL: nobody has asked yet */
    uint64_t sum_count;
    bool has_pinned_sums;
    bool has_late_sums;   /* devices may still copy there what a step has given up on */
};

/* One step. */
typedef struct berthi_step {
    berth_optimizer *optimizer;
    const berth_gradient *gradients; /* NULL: the sums */
    void *const *streams;            /* of devices; NULL */
    float scale;
    uint32_t threads;                /* of the host, at most; 0: nobody has asked yet */
    _Atomic uint64_t not_finite;     /* of what the host has updated */
} berthi_step;

/* ------------------------------------------------------------------- optimizer.c */

/* Checked and copied; ARGUMENT names what is wrong. */
berth_status berthi_optimizer_take_groups(berth_optimizer *optimizer,
                                          const berth_optimizer_group *groups,
                                          uint32_t count, berth_error *error);
/* The same; groups and devices are there. `has_values`: all have to be there. */
berth_status berthi_optimizer_take_parameters(berth_optimizer *optimizer,
                                              const berth_parameter *parameters,
                                              uint64_t count, bool has_values,
                                              berth_error *error);
/* Where it is when it is to be at `place`: for the processor host memory is the device's. */
int32_t berthi_optimizer_place(const berth_optimizer *optimizer,
                               const berthi_trained_tensor *parameter, int32_t place);
/* What a group's updates are made with. */
berthi_update_settings berthi_group_settings(const berth_optimizer_group *group, float scale);
/* A parameter is called so. */
bool berthi_optimizer_has_name(const berth_optimizer *optimizer, const char *name);
/* ARGUMENT about a parameter. */
berth_status berthi_optimizer_fail(const berthi_trained_tensor *parameter, berth_error *error,
                                   const char *what);

/* ------------------------------------------------------------ optimizer_memory.c */

/* What a device has of its own: a counter, sums of a page. 0: host memory, or no parameters. */
uint64_t berthi_optimizer_scratch_bytes(const berth_optimizer *optimizer, uint32_t device);

/* The same, as it is booked. */
static inline berthi_slab_parts
berthi_scratch_parts(const berth_optimizer *optimizer, uint32_t device)
{
    const uint64_t bytes = berthi_optimizer_scratch_bytes(optimizer, device);

    return (berthi_slab_parts){ .bytes = bytes, .scratch = bytes };
}

/* A sum of a parameter's gradients, as it is booked. */
static inline berthi_slab_parts
berthi_sum_parts(const berthi_trained_tensor *parameter)
{
    const uint64_t bytes = parameter->states.elements * sizeof *parameter->sum;

    return (berthi_slab_parts){ .bytes = bytes, .states = bytes };
}

/* Bytes that a parameter's states take at a place: whole pages where they are pinned. */
uint64_t berthi_optimizer_bytes(const berth_optimizer *optimizer,
                                const berthi_trained_tensor *parameter, int32_t place);
/* Zeroed states at the place that the parameter says. On failure there are none. */
berth_status berthi_optimizer_alloc(berth_optimizer *optimizer, berthi_trained_tensor *parameter,
                                    berth_error *error);
void berthi_optimizer_free(berth_optimizer *optimizer, berthi_trained_tensor *parameter);
/* What updates of a parameter need besides: slots, one at least; buffers. */
berth_status berthi_optimizer_prepare(berth_optimizer *optimizer,
                                      const berthi_trained_tensor *parameter,
                                      berth_error *error);
/*
 * Room for pages of the call, one at a time. For devices it is pinned where it can be: what is
 * copied there is waited for as everything else is. Closed while a copy still uses it, it stays
 * until that is over: the next one waits for that.
 */
berth_status berthi_optimizer_open_room(berth_optimizer *optimizer, uint64_t bytes,
                                        bool is_for_devices, const char *what, uint8_t **out,
                                        berth_error *error);
void berthi_optimizer_close_room(berth_optimizer *optimizer);
void berthi_optimizer_free_rooms(berth_optimizer *optimizer);
/* Whether its states are copied to be read: they are in memory of a GPU. */
bool berthi_optimizer_is_far(const berth_optimizer *optimizer,
                             const berthi_trained_tensor *parameter);
/* A page's bytes, in host memory. They wait for what the device was asked for before. */
berth_status berthi_optimizer_get_page(berth_optimizer *optimizer,
                                       const berthi_trained_tensor *parameter, uint64_t page,
                                       void *bytes, berth_error *error);
berth_status berthi_optimizer_put_page(berth_optimizer *optimizer,
                                       const berthi_trained_tensor *parameter, uint64_t page,
                                       const void *bytes, berth_error *error);
/* From a device's memory; waits. */
berth_status berthi_optimizer_fetch(berth_optimizer *optimizer, uint32_t device, void *to,
                                    const void *from, uint64_t bytes, berth_error *error);
/* What the device has counted, the same way; TIMEOUT where it does not come. */
berth_status berthi_optimizer_fetch_count(berth_optimizer *optimizer, uint32_t device,
                                          uint64_t *out, berth_error *error);
/* TIMEOUT: it has not passed for as long as the options say. */
berth_status berthi_optimizer_await(const berth_optimizer *optimizer, uint32_t device,
                                    berthi_event *event, berth_error *error);
/* Waits until nothing of it is under way on its devices. */
berth_status berthi_optimizer_settle(berth_optimizer *optimizer, berth_error *error);
/* Whole pages of host memory, pinned for all devices, or for none: false. */
bool berthi_optimizer_pin(berth_optimizer *optimizer, void *memory, uint64_t bytes);
void berthi_optimizer_unpin(berth_optimizer *optimizer, void *memory, uint64_t bytes);
/* Memory of a device, zeroed, booked for `parts` of it. */
berth_status berthi_optimizer_take(berth_optimizer *optimizer, uint32_t device,
                                   const berthi_slab_parts *parts, void **out,
                                   berth_error *error);
/* Late, where the device is behind: one piece of memory can be; take() waits for it. */
void berthi_optimizer_give(berth_optimizer *optimizer, uint32_t device,
                           const berthi_slab_parts *parts, void *memory);
/* Nothing of the device's first stream is under way any more: what is late is given back. */
void berthi_optimizer_give_late(berth_optimizer *optimizer, uint32_t device);

/* -------------------------------------------------------------- optimizer_read.c */

/* The f32 copy is what the values are; `room` has as many bytes as the first one says. */
uint64_t berthi_optimizer_master_bytes(const berthi_trained_tensor *parameter);
berth_status berthi_optimizer_copy_master(berth_optimizer *optimizer,
                                          const berthi_trained_tensor *parameter, uint8_t *room,
                                          berth_error *error);
/* -------------------------------------------------------------- optimizer_step.c */

/* What it has for a parameter; `values` NULL: nothing. */
berth_gradient berthi_step_gradient(const berthi_step *step, uint64_t parameter);
berthi_stream *berthi_step_stream(const berthi_step *step, uint32_t device);
/* What each device's stream is asked for next follows what another one was asked for before. */
berth_status berthi_step_follow(const berthi_step *step, berth_error *error);
/* Gradients are what they can be; ARGUMENT. */
berth_status berthi_step_check(const berthi_step *step, berth_error *error);
/*
 * Notes where each device's stream is, and what comes and goes: later calls wait for these,
 * and so does who gives the optimizer back. `status` is how it went until here, and stays the
 * answer where something has failed: whatever devices were asked for before is under way.
 */
berth_status berthi_step_end(berthi_step *step, berth_status status, berth_error *error);
/* The same, asked for on the caller's stream of its device. */
berth_status berthi_step_launch(berthi_step *step, uint64_t parameter,
                                const berthi_states_page *page, uint8_t *bytes,
                                berth_error *error);
/* Of the host, for so many parts of a page, or of a gradient. */
uint32_t berthi_step_threads(berthi_step *step, uint64_t parts);
/* On the host, by its threads. */
void berthi_step_update_host(berthi_step *step, uint64_t parameter,
                             const berthi_states_page *page, uint8_t *bytes);

/* ----------------------------------------------------------- optimizer_measure.c */

/* Adds up all gradients, as they were given. */
berth_status berthi_step_measure(berthi_step *step, berthi_gradient_sum *out,
                                 berth_error *error);
/* What was added up begins anew; the second one: where the step is made of that. */
void berthi_optimizer_forget_sums(berth_optimizer *optimizer);
void berthi_step_forget_sums(berthi_step *step);
void berthi_optimizer_free_sums(berth_optimizer *optimizer);

/* ------------------------------------------------------------- optimizer_pages.c */

/* That a page of so many bytes takes. */
uint64_t berthi_pager_slot_bytes(uint64_t page_bytes);
/* Slots of a device for pages of so many bytes: as many as there is room for, or NO_FIT. */
berth_status berthi_pager_open(berth_optimizer *optimizer, uint32_t device,
                               uint64_t slot_bytes, uint32_t least, berth_error *error);
/* Until its streams have done what they were asked for, be it by a step that failed. */
berth_status berthi_pager_settle(berth_optimizer *optimizer, uint32_t device,
                                 berth_error *error);
/* Waits for what is under way. Also of what was never opened. */
void berthi_pager_close(berth_optimizer *optimizer, uint32_t device);
berth_status berthi_pager_begin(berthi_step *step, uint32_t device, berth_error *error);
/*
 * Brings a page from host memory, has it updated, and brings it back; `copied` (may be
 * NULL) passes then.
 */
berth_status berthi_pager_visit(berthi_step *step, uint64_t parameter,
                                const berthi_states_page *page, uint8_t *bytes,
                                bool is_pinned, berthi_event *copied, berth_error *error);
berth_status berthi_pager_end(berthi_step *step, uint32_t device, berth_error *error);

/* -------------------------------------------------------------- optimizer_disk.c */

/* Room for so many bytes more, at once. DISK_FULL. */
berth_status berthi_disk_grow(berth_optimizer *optimizer, uint64_t bytes, berth_error *error);
/* A place in the file for a parameter that has none. */
berth_status berthi_disk_reserve(berth_optimizer *optimizer, berthi_trained_tensor *parameter,
                                 berth_error *error);
/* Buffers for pages of so many bytes, of which each takes: */
uint64_t berthi_disk_buffer_bytes(uint64_t page_bytes);
berth_status berthi_disk_prepare(berth_optimizer *optimizer, uint64_t page_bytes,
                                 berth_error *error);
/* Nothing of them is under way. */
void berthi_disk_free_buffers(berth_optimizer *optimizer);
void berthi_disk_close(berth_optimizer *optimizer);
berth_status berthi_disk_read(const berth_optimizer *optimizer, uint64_t offset, void *bytes,
                              uint64_t size, berth_error *error);
berth_status berthi_disk_write(const berth_optimizer *optimizer, uint64_t offset,
                               const void *bytes, uint64_t size, berth_error *error);
/* Updates what lies on the disk; nothing where there is none. */
berth_status berthi_disk_step(berthi_step *step, berth_error *error);

#endif
