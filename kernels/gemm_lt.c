/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt.c - products by cuBLASLt: plans, rooms, slabs; see gemm_lt.h. */
#include "kernels/gemm_lt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gemm_plan.h"
#include "kernels/number.h"

#define HOPPER 90u

/* Memory of the GPU that one stream at a time works in. */
typedef struct room {
    uint64_t used; /* when; 0: never */
    void *stream;
    void *event;   /* after its last product */
    bool is_unmarked; /* the event does not stand for that */
    void *workspace;
    void *slab;
} room;

struct berthi_gemm {
    berthi_cuda_device *device;
    pthread_mutex_t lock; /* of all that follows; an operation carries the bias of one call */
    bool has_lock;
    char why[BERTHI_GEMM_WHY_CAPACITY]; /* it cannot be used, and is not asked for again */
    berthi_gemm_plans plans; /* with the library's calls */
    uint64_t turn;
    room rooms[BERTHI_GEMM_ROOMS];
};

/* --------------------------------------------------------------------------- crossover */

/*
 * Computed from traffic, not measured. Weights of 4 bits berth's kernel reads once for every
 * 32 inputs; this way each is also written and read as two bytes, then multiplied at full
 * rate. Without tensor cores of berth's own any batch that fills the library's tiles wins.
 * Of other weights berth's kernels serve up to as many inputs as share one pass over them.
 */
uint32_t
berthi_gemm_least_inputs(berthi_gemm_weight weight, int32_t dtype, uint32_t capability)
{
    static const struct {
        uint32_t capability;
        uint32_t least[BERTHI_GEMM_WEIGHTS][4]; /* bf16, f16, f32, int8 */
    } table[] = {
        { 80,
          { { 193, 193, 33, UINT32_MAX },
            { PLAIN_INPUTS + 1, PLAIN_INPUTS + 1, PLAIN_INPUTS + 1, INT8_SUM_INPUTS + 1 } } },
        { 75,
          { { UINT32_MAX, 33, 33, UINT32_MAX },
            { UINT32_MAX, PLAIN_INPUTS + 1, PLAIN_INPUTS + 1, INT8_SUM_INPUTS + 1 } } },
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (capability >= table[i].capability)
            switch (dtype) {
            case BERTH_BF16: return table[i].least[weight][0];
            case BERTH_F16: return table[i].least[weight][1];
            case BERTH_F32: return table[i].least[weight][2];
            case BERTH_I8: return table[i].least[weight][3];
            default: return UINT32_MAX;
            }
    return UINT32_MAX;
}

/* ---------------------------------------------------------------------------- failures */

/* What the library takes for a failed execution may be the end of the GPU: the runtime knows. */
static berth_status
judge_execution(const berthi_cuda_call *call, void *stream)
{
    const int code = call->calls->stream_query(stream);

    if (code != BERTHI_CUDA_NOT_READY)
        return berthi_cuda_judge(call, code);
    (void)call->calls->last_error();
    return BERTH_OK;
}

static berth_status
judge(const berthi_gemm *g, const berthi_cuda_call *call, int code)
{
    berth_reason reason = BERTH_REASON_DEVICE;

    if (code == BERTHI_GEMM_OK)
        return BERTH_OK;
    if (code == BERTHI_GEMM_NO_MEMORY)
        reason = BERTH_REASON_NO_MEMORY;
    if (code == BERTHI_GEMM_MISMATCH || code == BERTHI_GEMM_UNSUPPORTED)
        reason = BERTH_REASON_UNSUPPORTED;
    return berthi_fail(call->error, reason, NULL, "%s: libcublasLt: %s: %s",
                       g->device->name, call->what, g->plans.calls.status_words(code));
}

/* ----------------------------------------------------------------------------- opening */

static berth_status
refuse(const berthi_gemm *g, const berthi_cuda_call *call)
{
    return berthi_fail(call->error, BERTH_REASON_UNSUPPORTED, NULL, "%s: %s",
                       g->device->name, g->why);
}

/* Not asked for again, which is said once. */
static berth_status
give_up(berthi_gemm *g, const berthi_cuda_call *call)
{
    berthi_log(g->device->base.context, BERTH_LOG_WARNING,
               "%s: %s: products of many inputs take longer", g->device->name, g->why);
    return refuse(g, call);
}

static berth_status
open_library(berthi_gemm *g, const berthi_cuda_call *call)
{
    int code;

    if (g->plans.handle != NULL)
        return BERTH_OK;
    if (g->why[0] != '\0')
        return refuse(g, call);
    if (!call->calls->open_gemm(&g->plans.calls, g->why))
        return give_up(g, call);
    code = g->plans.calls.create(&g->plans.handle);
    if (code == BERTHI_GEMM_OK)
        return BERTH_OK;
    g->plans.handle = NULL;
    if (code == BERTHI_GEMM_NO_MEMORY)
        return judge(g, call, code);
    snprintf(g->why, sizeof g->why, "libcublasLt does not begin: %s",
             g->plans.calls.status_words(code));
    return give_up(g, call);
}

/* That of the device, made at the first product; NULL: there is no memory for it. */
static berthi_gemm *
gemm_of(berthi_cuda_device *device)
{
    const uint32_t capability =
        (uint32_t)(10 * device->properties.major + device->properties.minor);
    berthi_gemm *g;

    pthread_mutex_lock(&device->lock);
    g = device->gemm;
    if (g == NULL) {
        g = berthi_memory_zalloc(device->base.context, BERTHI_PURPOSE_OBJECT, sizeof *g);
        if (g != NULL) {
            g->device = device;
            g->plans.workspace_bytes = capability >= HOPPER ? BERTHI_GEMM_WORKSPACE_BYTES
                                                      : BERTHI_GEMM_SMALL_WORKSPACE_BYTES;
            g->has_lock = pthread_mutex_init(&g->lock, NULL) == 0;
        }
        if (g != NULL && !g->has_lock) {
            berthi_memory_free(device->base.context, BERTHI_PURPOSE_OBJECT, g, sizeof *g);
            g = NULL;
        }
        device->gemm = g;
    }
    pthread_mutex_unlock(&device->lock);
    return g;
}

/* ------------------------------------------------------------------------------- rooms */

static room *
find_room(berthi_gemm *g, const void *stream)
{
    room *oldest = &g->rooms[0];

    for (size_t i = 0; i < BERTHI_GEMM_ROOMS; i++)
        if (g->rooms[i].used != 0 && g->rooms[i].stream == stream)
            return &g->rooms[i];
    for (size_t i = 1; i < BERTHI_GEMM_ROOMS; i++)
        if (g->rooms[i].used < oldest->used)
            oldest = &g->rooms[i];
    return oldest;
}

/* What another stream has asked for in this room comes first. */
static berth_status
wait_for_room(const berthi_cuda_call *call, const room *r, void *stream)
{
    if (r->used == 0 || r->stream == stream)
        return BERTH_OK;
    return berthi_cuda_judge(call, r->is_unmarked
                                       ? call->calls->synchronize()
                                       : call->calls->stream_wait(stream, r->event));
}

static berth_status
take_room(berthi_gemm *g, const berthi_cuda_call *call, void *stream, bool needs_slab,
          room **out)
{
    room *const r = find_room(g, stream);
    berth_status status = BERTH_OK;

    if (r->event == NULL)
        status = berthi_cuda_judge(call, call->calls->event_create(&r->event));
    if (status == BERTH_OK && r->workspace == NULL)
        status = berthi_cuda_judge(call,
                                   call->calls->alloc(&r->workspace, g->plans.workspace_bytes));
    if (status == BERTH_OK && needs_slab && r->slab == NULL)
        status = berthi_cuda_judge(call,
                                   call->calls->alloc(&r->slab, BERTHI_GEMM_SLAB_BYTES));
    if (status == BERTH_OK)
        status = wait_for_room(call, r, stream);
    if (status != BERTH_OK)
        return status;
    r->stream = stream;
    r->used = ++g->turn;
    *out = r;
    return BERTH_OK;
}

/* Also after a failure: some of the work may have been asked for. */
static berth_status
leave_room(const berthi_cuda_call *call, room *r, berth_status status)
{
    berthi_cuda_call its = *call;
    berth_status marked;

    if (status != BERTH_OK)
        its.error = NULL; /* the first failure is the one to be told */
    marked = berthi_cuda_judge(&its, call->calls->event_record(r->event, r->stream));
    r->is_unmarked = marked != BERTH_OK;
    return status != BERTH_OK ? status : marked;
}

/* ---------------------------------------------------------------------------- products */

static uint64_t
bytes_of(int32_t dtype)
{
    return berth_dtype_bits(dtype) / 8;
}

/* What the library asks of 8-bit integers, and of anything: sizes of 32 bits, whole values. */
static bool
can_multiply(const berthi_gemm_task *t, const berthi_gemm_shape *s)
{
    const bool is_i8 = t->dtype == BERTH_I8;
    const uint64_t unit = is_i8 ? 4 : bytes_of(t->dtype);

    if (!is_i8 && t->dtype != BERTH_BF16 && t->dtype != BERTH_F16 && t->dtype != BERTH_F32)
        return false;
    if (t->columns == 0 || t->stride < t->rows || t->rows > INT32_MAX
        || t->columns > INT32_MAX || t->count > INT32_MAX || t->stride > INT32_MAX)
        return false;
    if (is_i8
        && (t->bias != NULL || t->columns % 4 != 0 || t->rows % 4 != 0 || t->stride % 4 != 0))
        return false;
    return s->alignments[0] >= unit && s->alignments[1] >= unit && s->alignments[2] >= unit
           && s->bias_alignment >= unit;
}

static berth_status
check_task(const berthi_gemm *g, const berthi_cuda_call *call, const berthi_gemm_task *t,
           const berthi_gemm_shape *s)
{
    if (can_multiply(t, s))
        return BERTH_OK;
    return berthi_fail(call->error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s: libcublasLt multiplies no %s of %" PRIu64 " x %" PRIu64
                       " with these addresses",
                       g->device->name, berth_dtype_name(t->dtype), t->rows, t->columns);
}

/* One product in a room that has been taken. */
static berth_status
multiply(berthi_gemm *g, const berthi_cuda_call *call, const berthi_gemm_task *t,
         const room *r)
{
    static const float factors[2] = { 1.0f, 0.0f };
    static const int32_t integer_factors[2] = { 1, 0 };
    const bool is_i8 = t->dtype == BERTH_I8;
    const void *const one = is_i8 ? (const void *)&integer_factors[0] : &factors[0];
    const void *const zero = is_i8 ? (const void *)&integer_factors[1] : &factors[1];
    const berthi_gemm_shape s = berthi_gemm_shape_of(t);
    berth_status status = check_task(g, call, t, &s);
    berthi_gemm_plan *p;
    int code;

    if (status != BERTH_OK)
        return status;
    code = berthi_gemm_plans_make(&g->plans, &s, t, &p);
    if (code != BERTHI_GEMM_OK)
        return judge(g, call, code);
    code = g->plans.calls.multiply(g->plans.handle, p->operation, one, t->weight, p->weight,
                                   t->inputs, p->input, zero, t->outputs, p->output,
                                   t->outputs, p->output, &p->algorithm, r->workspace,
                                   g->plans.workspace_bytes, r->stream);
    if (code == BERTHI_GEMM_EXECUTION)
        status = judge_execution(call, r->stream);
    return status != BERTH_OK ? status : judge(g, call, code);
}

/* A room of an open library, with the lock held; else nothing is. */
static berth_status
begin(const berthi_cuda_call *call, void *stream, bool needs_slab, berthi_gemm **out,
      room **out_room)
{
    berthi_gemm *const g = gemm_of(call->device);
    berth_status status;

    if (g == NULL)
        return berthi_fail_memory(call->error, "products of many inputs");
    pthread_mutex_lock(&g->lock);
    status = open_library(g, call);
    if (status == BERTH_OK)
        status = take_room(g, call, stream, needs_slab, out_room);
    if (status != BERTH_OK)
        pthread_mutex_unlock(&g->lock);
    *out = g;
    return status;
}

berth_status
berthi_gemm_multiply(const berthi_cuda_call *call, const berthi_gemm_task *task,
                     berthi_stream *stream)
{
    berthi_gemm *g;
    room *r;
    berth_status status;

    if (task->rows == 0 || task->count == 0)
        return BERTH_OK;
    status = begin(call, stream, false, &g, &r);
    if (status != BERTH_OK)
        return status;
    status = leave_room(call, r, multiply(g, call, task, r));
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* ------------------------------------------------------------------------------- slabs */

static uint64_t
greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Rows that are decoded at once: they begin with a block, of the absmax, too. 0: too many. */
static uint64_t
slab_rows(const berthi_gemm_4bit *t)
{
    const uint64_t unit =
        (uint64_t)t->block_size * (t->double_absmax != NULL ? BERTHI_DOUBLE_BLOCK : 1);
    const uint64_t step = unit / greatest_divisor(unit, t->columns);
    const uint64_t most = BERTHI_GEMM_SLAB_BYTES / bytes_of(t->dtype) / t->columns;

    return most >= t->rows ? t->rows : most - most % step;
}

static berth_status
decode_slab(const berthi_cuda_call *call, const berthi_gemm_4bit *t, uint64_t row,
            uint64_t rows, const room *r)
{
    const uint64_t first = row * t->columns;
    const uint64_t block = first / t->block_size;
    const berthi_double_absmax *const d = t->double_absmax;
    const berthi_decode_arguments arguments = {
        .codes = t->codes + first / 2,
        .absmax = d == NULL ? t->absmax + block : NULL,
        .count = rows * t->columns,
        .block_size = t->block_size,
        .dtype = t->dtype,
        .values = r->slab,
    };
    berthi_double_absmax its = { .codes = NULL };
    berthi_launch launch;
    berth_status status;

    if (d != NULL)
        its = (berthi_double_absmax){ .codes = d->codes + block,
                                      .absmax2 = d->absmax2 + block / BERTHI_DOUBLE_BLOCK,
                                      .map = d->map,
                                      .offset = d->offset,
                                      .offset_value = d->offset_value };
    status = berthi_launch_decode_4bit(&arguments, t->values, d != NULL ? &its : NULL, &launch,
                                       call->error);
    return status == BERTH_OK
               ? berthi_cuda_judge(call, call->calls->launch(&launch, r->stream))
               : status;
}

static berth_status
multiply_slabs(berthi_gemm *g, const berthi_cuda_call *call, const berthi_gemm_4bit *t,
               uint64_t step, const room *r)
{
    const uint64_t bytes = bytes_of(t->dtype);
    berth_status status = BERTH_OK;

    for (uint64_t row = 0; row < t->rows && status == BERTH_OK; row += step) {
        const uint64_t rows = berthi_min_u64(step, t->rows - row);
        const berthi_gemm_task slab = {
            .weight = r->slab, .inputs = t->inputs,
            .bias = t->bias != NULL ? (const uint8_t *)t->bias + row * bytes : NULL,
            .outputs = (uint8_t *)t->outputs + row * bytes, .dtype = t->dtype, .rows = rows,
            .columns = t->columns, .count = t->count, .stride = t->rows
        };

        status = decode_slab(call, t, row, rows, r);
        if (status == BERTH_OK)
            status = multiply(g, call, &slab, r);
    }
    return status;
}

static bool
has_slabs(const berthi_gemm_4bit *t)
{
    return berthi_is_number(t->dtype) && t->block_size >= 32 && t->columns > 0
           && t->columns <= INT32_MAX && t->rows <= INT32_MAX && slab_rows(t) > 0;
}

berth_status
berthi_gemm_multiply_4bit(const berthi_cuda_call *call, const berthi_gemm_4bit *task,
                          berthi_stream *stream)
{
    berthi_gemm *g;
    room *r;
    berth_status status;

    if (task->rows == 0 || task->count == 0)
        return BERTH_OK;
    if (!has_slabs(task))
        return berthi_fail(call->error, BERTH_REASON_UNSUPPORTED, NULL,
                           "%s: weights of %" PRIu64 " columns cannot be decoded in slabs",
                           call->device->name, task->columns);
    status = begin(call, stream, true, &g, &r);
    if (status != BERTH_OK)
        return status;
    status = leave_room(call, r, multiply_slabs(g, call, task, slab_rows(task), r));
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* ---------------------------------------------------------------------------- giving back */

/* The runtime waits for all that is under way: not for what hangs. */
static void
free_rooms(berthi_gemm *g, const berthi_cuda_call *call)
{
    const bool has_hung = atomic_load(&g->device->machine->has_hung);

    for (size_t i = 0; i < BERTHI_GEMM_ROOMS; i++) {
        room *const r = &g->rooms[i];

        if (r->event != NULL)
            (void)berthi_cuda_judge(call, call->calls->event_destroy(r->event));
        if (r->slab != NULL && !has_hung)
            (void)berthi_cuda_judge(call, call->calls->free(r->slab));
        if (r->workspace != NULL && !has_hung)
            (void)berthi_cuda_judge(call, call->calls->free(r->workspace));
    }
    if (g->plans.handle != NULL && !has_hung)
        (void)g->plans.calls.destroy(g->plans.handle);
}

void
berthi_gemm_destroy(berthi_gemm *gemm)
{
    berthi_cuda_call call;

    if (gemm == NULL)
        return;
    berthi_cuda_enter_back(&call, &gemm->device->base);
    berthi_gemm_plans_clear(&gemm->plans);
    free_rooms(gemm, &call);
    berthi_cuda_leave(&call, BERTH_OK);
    pthread_mutex_destroy(&gemm->lock);
    berthi_memory_free(gemm->device->base.context, BERTHI_PURPOSE_OBJECT, gemm, sizeof *gemm);
}
