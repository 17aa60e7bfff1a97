/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - weights in their berths: one slab a tier, the devices they are on,
 * and where each tensor lies.
 *
 *   slab of a tier   [ berths | slots | slots of experts | scratch ]
 *                     as the plan says, to the byte
 *
 * Made by load*.c, which fills it; afterwards only slots change (lease.h). It
 * borrows checkpoint, plan and, where the caller has opened them, devices.
 */
#ifndef BERTH_LOADER_MODEL_H
#define BERTH_LOADER_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "loader/checkpoint.h"
#include "loader/cut.h"
#include "placement/plan.h"
#include "placement/slab.h"
#include "quant/stored.h"

typedef struct berthi_model_tier {
    char name[24];         /* of the plan's tier; in the books */
    berthi_device *device; /* whose memory it is: "cpu" for host memory; NULL: the disk */
    uint32_t number;       /* of `device` among the caller's; NO_DEVICE: the model's own */
    int32_t kind;          /* berth_tier_kind */
    uint8_t *slab;         /* NULL where `bytes` is 0 */
    uint64_t bytes;
    uint64_t slots;        /* where slots begin: slot_count times slot_bytes */
    uint64_t slot_bytes;
    uint32_t slot_count;
    uint64_t expert_slots; /* where they begin */
    uint64_t scratch;      /* where it begins */
    uint64_t scratch_bytes;
    berthi_slab_parts parts; /* as booked while there is a slab */
    bool is_pinned;        /* host memory: pinned for every device that asks for it */
    /* Where the tier sleeps: see move.h. */
    bool is_held;          /* its berths lie in the hold, too, or in the checkpoint */
    bool has_discarded;    /* those that lie there do not lie in the hold */
    bool is_hold_pinned;
    uint8_t *hold;         /* host memory; NULL where it takes nothing */
    uint64_t hold_bytes;   /* whole pages */
} berthi_model_tier;

/* What brings streamed layers, lease.h. */
typedef struct berthi_lease_options {
    int32_t io;          /* berth_io */
    bool no_uring;
    uint32_t readers;
    uint64_t ring_bytes; /* of staging for what comes from the disk */
} berthi_lease_options;

struct berth_model {
    berthi_kept kept; /* first: what the context has of a model that hangs is this */
    berth_context *context;
    const berth_checkpoint *checkpoint;
    const berth_plan *plan;    /* behind the gate: a move puts another one here */
    uint32_t layer_count;      /* of any plan that it can have, */
    uint64_t berth_count;      /* and that */
    berth_devices *devices;    /* of the plan's GPUs; NULL: there are none */
    bool owns_devices;
    char (*gpus)[24];          /* their names, as the plan of the load has them */
    uint32_t gpu_count;
    berth_slab_memory memory;  /* the caller's hooks; `alloc` NULL: there are none */
    berthi_device *host;       /* "cpu" */
    berthi_model_tier *tiers;  /* of the plan */
    uint32_t tier_count;
    float *offsets;            /* of berths; what the second level is moved by */
    uint64_t offset_bytes;     /* whole pages */
    bool has_pinned_offsets;
    uint64_t tensor_count;     /* of the checkpoint */
    uint32_t *berth_of;        /* of the checkpoint's tensors, the first; BERTHI_NO_BERTH */
    uint32_t *next_berth;      /* of berths: that of the next expert of the same stack;
                                  NULL: no stack is taken apart */
    uint64_t next_count;
    bool *is_turned;           /* of the checkpoint's tensors; NULL: none is */
    _Atomic uint32_t staged;   /* buffers for staging, so far */
    _Atomic uint64_t bytes;    /* devices and hooks were asked for, and have not got back */
    uint64_t wait_ns;          /* longest wait for a device or disk that does not move */
    /* Guards `leases` and `leased` for whoever asks while a job moves the model. */
    pthread_mutex_t lease_lock;
    struct berthi_leases *leases; /* NULL: nothing is streamed */
    struct berthi_offload *offload; /* NULL: the checkpoint has all that is on the disk */
    char *offload_dir;         /* where moves write what it does not have; NULL: nowhere */
    uint64_t offload_dir_bytes;
    berthi_lease_options lease_options; /* they begin with */
    berth_lease_summary leased;   /* by leases that have ended */
    _Atomic uint32_t *held;       /* of layers: leases while nothing of it is streamed */
    uint32_t *expert_slots;       /* the same: of leases that ended, for while it sleeps */
    _Atomic uint32_t gate;        /* calls about layers under way, and: */
    _Atomic uint32_t exports;     /* tensors that others use, and: */
    _Atomic uint32_t stranded;    /* moves whose copies hang, and use its memory */
};

#define BERTHI_MODEL_MOVING (UINT32_C(1) << 31) /* a job has the model for itself */
#define BERTHI_MODEL_ASLEEP (UINT32_C(1) << 30)
#define BERTHI_MODEL_TAKEN (UINT32_C(1) << 29)  /* of a job: nothing is leased any more */
#define BERTHI_MODEL_DESTROYED (UINT32_C(1) << 31) /* the last of `exports` frees it */

#define BERTHI_NO_BERTH UINT32_MAX

/* ---------------------------------------------------------------- cargo (cargo.c) */

/* Where the bytes of one part of a berth come from. */
typedef struct berthi_cargo_part {
    uint64_t offset;  /* in the berth */
    uint64_t bytes;
    uint64_t entry;   /* of the checkpoint's table: as it is stored there */
    berthi_cut cut;   /* what of it */
    int32_t role;     /* berth_role */
    int32_t dtype;
} berthi_cargo_part;

/*
 * What a berth holds, and how it comes there: `is_copied` part by part as it is
 * stored, else encoded from the values of entry 0.
 */
typedef struct berthi_cargo {
    berthi_storage storage;
    const berthi_quantized *record; /* as it is stored; NULL: plain numbers */
    berthi_slice slice;
    uint64_t shape[BERTH_MAX_RANK]; /* of the values, those of the slice */
    uint32_t rank;
    uint64_t elements;
    berthi_cut cut;                 /* plain numbers: of the entry that they come from */
    bool is_copied;
    bool is_turned;                 /* its values are read as [shape[1], shape[0]] */
    bool is_flat;                   /* its slice would split what shares a second level: parts[1]
                                       are floats, and its cut is of their stored codes */
    uint32_t part_count;
    berthi_cargo_part parts[BERTH_MODEL_PARTS];
} berthi_cargo;

/*
 * NULL, or why what is stored cannot be cut so and stay as it is. `record` NULL: plain
 * numbers of `dtype`. The slice is inside.
 */
const char *berthi_cargo_refusal(const berth_checkpoint *checkpoint,
                                 const berthi_slice *slice, const uint64_t *shape,
                                 uint32_t rank, int32_t dtype,
                                 const berthi_quantized *record);
/*
 * The first dimension of a tensor that has a berth, counted in values; 0: it has no
 * dimensions.
 */
uint64_t berthi_cargo_rows(const berth_checkpoint *checkpoint, uint64_t tensor);
/* True where each part lies together in the checkpoint: it is copied, whole or as rows. */
bool berthi_cargo_is_stored(const berthi_cargo *cargo);
/*
 * Bytes of a buffer for digests of what lies on a disk: no more than the largest part has,
 * nor than are worth mapping, and at least one.
 */
uint64_t berthi_cargo_digest_bytes(const berthi_cargo *cargo);
/*
 * The cargo of a berth of the plan, where no weight is turned. EINTEGRITY: the plan is
 * not for this checkpoint. UNSUPPORTED: berth does not bring such a weight, or such a
 * slice of it, into that encoding while it loads.
 */
berth_status berthi_cargo_get(const berth_checkpoint *checkpoint, const berth_plan *plan,
                              uint64_t berth, berthi_cargo *out, berth_error *error);
/* The same of a model: `is_turned` counts. */
berth_status berthi_model_cargo(const berth_model *model, uint64_t berth,
                                berthi_cargo *out, berth_error *error);

/* --------------------------------------------------- memory (model.c, model_pin.c) */

/*
 * Opens devices where the caller has none, and allocates every slab; nothing is in
 * them yet. On failure as after free.
 */
berth_status berthi_model_create(berth_context *context,
                                 const berth_checkpoint *checkpoint,
                                 const berth_plan *plan,
                                 const berth_load_options *options, berth_model **out,
                                 berth_error *error);
/*
 * Ends leases, gives slabs and devices back. Where copies of leases or of a move hang, the
 * context gets all of it (stranded.h): neither checkpoint nor plan are needed any more.
 * NULL is allowed.
 */
void berthi_model_free(berth_model *model);
/* True: copies of a move hang; those that are over are given back first. */
bool berthi_model_is_stranded(berth_model *model);
/* TIMEOUT: it is. */
berth_status berthi_model_fail_stranded(berth_error *error);

/*
 * Pins whole pages for every device of the model, or for none: false, noted where it is
 * refused; false, too, where no device asks for it.
 */
bool berthi_model_try_pin(const berth_model *model, void *memory, uint64_t bytes);
void berthi_model_unpin(const berth_model *model, void *memory, uint64_t bytes);
/*
 * The same of a buffer for staging, which nobody has written to: it comes from the node of
 * a device (node.h). All devices share such buffers, so they take turns.
 */
bool berthi_model_pin_stage(berth_model *model, void *memory, uint64_t bytes);

/* The device that a GPU of a plan is, by its name; BERTHI_NO_DEVICE: none of the model's. */
uint32_t berthi_model_find_gpu(const berth_model *model, const char *name);
/* Tiers of the plan, whose GPUs are all the model's, on its devices; none has a slab. */
void berthi_model_describe(const berth_model *model, const berth_plan *plan,
                           berthi_model_tier *tiers);
/* Nothing where it has no bytes. It is not pinned. On failure there is none. */
berth_status berthi_model_create_slab(berth_model *model, berthi_model_tier *tier,
                                      berth_error *error);
/* Nothing where there is none. */
void berthi_model_free_slab(berth_model *model, berthi_model_tier *tier);
/* Nothing for no bytes. It is not pinned. */
berth_status berthi_model_create_hold(berth_model *model, berthi_model_tier *tier,
                                      uint64_t bytes, berth_error *error);
void berthi_model_free_hold(berth_model *model, berthi_model_tier *tier);
/*
 * Pins a slab in host memory, or the hold of one on a device, in pieces of which `watch` is
 * told. Refused, it stays as it is, and that is noted; CANCELLED: by `watch`, and so it does.
 */
berth_status berthi_model_pin_slab(const berth_model *model, berthi_model_tier *tier,
                                   const berthi_pin_watch *watch, berth_error *error);
berth_status berthi_model_pin_hold(const berth_model *model, berthi_model_tier *tier,
                                   const berthi_pin_watch *watch, berth_error *error);
/* Bytes of those slabs that are there and are to be pinned. */
uint64_t berthi_model_pin_bytes(const berth_model *model);

/* TIMEOUT: what a device of the model's was asked for has not ended for wait_ns. */
berth_status berthi_model_fail_copies(const berth_model *model, const berthi_device *device,
                                      const berthi_about *about, berth_error *error);

/* ------------------------------------------------- whose memory (model_memory.c) */

/*
 * Memory for a slab of device `number`, of the host where it is BERTHI_NO_DEVICE: the
 * caller's, or the device's own. NO_FIT, of host memory NO_MEMORY: there is none.
 */
berth_status berthi_model_alloc(berth_model *model, uint32_t number, uint64_t bytes,
                                const char *purpose, void **out, berth_error *error);
/* As it was allocated; it is unpinned. */
void berthi_model_dealloc(berth_model *model, uint32_t number, void *memory,
                          uint64_t bytes, const char *purpose);
/* What has been pinned here is not any more. */
void berthi_model_unpin_host(const berth_model *model, void *memory, uint64_t bytes);

/* ---------------------------------------------------------------- gate (model_gate.c) */

/*
 * Before and after each call that uses layers; refused (EINVAL) while the model is
 * asleep or a job moves it.
 */
berth_status berthi_model_enter(berth_model *model, berth_error *error);
/* The same of a call that gives back: refused only where nothing can be leased. */
berth_status berthi_model_enter_to_release(berth_model *model, berth_error *error);
void berthi_model_leave(berth_model *model);
/*
 * A job begins to move it: EINVAL where one does, or others use what would move; TIMEOUT
 * where copies of an earlier one hang. `is_asleep`: what it has to be; `called`: in messages,
 * "the model".
 */
berth_status berthi_model_begin_move(berth_model *model, bool is_asleep, const char *called,
                                     berth_error *error);
/*
 * Until calls that began before are over and what they asked for has ended, or `job` is
 * cancelled; from then on none begins. EINVAL where layers are leased, which can still be
 * released.
 */
berth_status berthi_model_take(berth_model *model, const berth_job *job,
                               berth_error *error);
void berthi_model_end_move(berth_model *model, bool is_asleep);

/* The next berth of the same stored tensor; BERTHI_NO_BERTH: there is none. */
static inline uint32_t
berthi_model_next(const berth_model *model, uint32_t berth)
{
    return model->next_berth != NULL ? model->next_berth[berth] : BERTHI_NO_BERTH;
}

/* Where a berth lies; NULL: on the disk. */
static inline uint8_t *
berthi_model_place(const berth_model *model, uint64_t berth)
{
    const berthi_berth *const b = &model->plan->berths[berth];
    const berthi_model_tier *const tier = &model->tiers[b->tier];

    return tier->slab != NULL ? tier->slab + b->offset : NULL;
}

#endif
