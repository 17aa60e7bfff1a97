/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_room.h - what cuBLASLt works in on a GPU, and how its products are begun and ended.
 * Only for the files of gemm_lt.h:
 *
 *   gemm_lt.c    the library, and products with whole values
 *   gemm_plan.c  how a product is computed
 *   gemm_room.c  memory, events and a stream beside the caller's
 *   gemm_slab.c  weights of 4 bits, decoded some rows at a time
 *   gemm_wide.c  weights of 4 bits by kernels of berth's own, without the library
 */
#ifndef BERTH_KERNELS_GEMM_ROOM_H
#define BERTH_KERNELS_GEMM_ROOM_H

#include "kernels/gemm_lt.h"
#include "kernels/gemm_plan.h"

/* One slab: when its last values have been decoded, and when they are needed no more. */
typedef struct berthi_gemm_slab {
    uint8_t *values;
    void *decoded; /* events */
    void *released;
} berthi_gemm_slab;

/*
 * What one of the caller's streams at a time works in. What a graph has captured is done again
 * at any time, so that its room is nobody else's any more, nor for eager work of the stream: that
 * has another one. Graphs of one stream share a room, as callers are told: they are done one
 * after another.
 */
typedef struct berthi_gemm_room {
    uint64_t used; /* when; 0: never */
    void *stream;
    uint64_t number;  /* the stream's own; its handle may be another's by now */
    bool is_captured;
    void *event;      /* after its last eager product */
    bool is_unmarked; /* the event does not stand for all that was asked for */
    void *workspace;
    uint32_t *flags; /* of wide products, whose parts lie in the workspace; all down, once */
    bool has_flags;  /* that has been asked for */
    void *side;       /* a stream that decodes while products are under way */
    bool is_forked;   /* it has work that `stream` does not wait for so far */
    void *memory;     /* of all slabs, each of so many bytes */
    uint64_t slab_bytes;
    berthi_gemm_slab slabs[BERTHI_GEMM_SLABS];
} berthi_gemm_room;

struct berthi_gemm {
    berthi_cuda_device *device;
    pthread_mutex_t lock; /* of all that follows; an operation carries the bias of one call */
    bool has_lock;
    char why[BERTHI_GEMM_WHY_CAPACITY]; /* it cannot be used, and is not asked for again */
    berthi_gemm_plans plans; /* with the library's calls */
    uint64_t turn;
    berthi_gemm_room rooms[BERTHI_GEMM_ROOMS];
};

static inline uint64_t
berthi_gemm_bytes_of(int32_t dtype)
{
    return berth_dtype_bits(dtype) / 8;
}

/* What a product needs beside a workspace. */
typedef enum berthi_gemm_need {
    BERTHI_GEMM_NEEDS_LIBRARY,
    BERTHI_GEMM_NEEDS_SLABS, /* and the library */
    BERTHI_GEMM_NEEDS_FLAGS  /* and no library */
} berthi_gemm_need;

/* -------------------------------------------------------------------------- gemm_room.c */

berth_status berthi_gemm_take_room(berthi_gemm *g, const berthi_cuda_call *call, void *stream,
                                   berthi_gemm_need need, berthi_gemm_room **out);
/* For a graph that the stream captures, where nothing has to be made for it; else UNSUPPORTED. */
berth_status berthi_gemm_take_captured(berthi_gemm *g, const berthi_cuda_call *call,
                                       void *stream, berthi_gemm_need need,
                                       berthi_gemm_room **out);
/* Also after a failure: some of the work may have been asked for. */
berth_status berthi_gemm_leave_room(const berthi_cuda_call *call, berthi_gemm_room *room,
                                    berth_status status);
/* With the lock held. */
void berthi_gemm_forget_rooms(berthi_gemm *g, const void *stream);
void berthi_gemm_free_rooms(berthi_gemm *g, const berthi_cuda_call *call);

/* ---------------------------------------------------------------------------- gemm_lt.c */

/* A room, of an open library where that is needed, with the lock held until the end; else none. */
berth_status berthi_gemm_begin(const berthi_cuda_call *call, void *stream, berthi_gemm_need need,
                               berthi_gemm **out, berthi_gemm_room **out_room);
berth_status berthi_gemm_end(berthi_gemm *g, const berthi_cuda_call *call,
                             berthi_gemm_room *room, berth_status status);
/* One product between the two. */
berth_status berthi_gemm_ask(berthi_gemm *g, const berthi_cuda_call *call,
                             const berthi_gemm_task *task, const berthi_gemm_room *room);

#endif
