/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt.c - products by cuBLASLt; see gemm_lt.h. */
#include "kernels/gemm_lt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gemm_room.h"

#define HOPPER 90u

/* --------------------------------------------------------------------------- crossover */

/*
 * Weights of 4 bits: computed from traffic, not measured. berth's kernel reads them once for
 * every 32 inputs; this way each is also written and read as two bytes, then multiplied at
 * full rate. Without tensor cores of berth's own any batch that fills the library's tiles
 * wins.
 *
 * Others, 8192 x 28672 on an H200: of bf16 the library takes 121 us for 8 inputs, of int8 75
 * for 16, and berth's kernels 209 and 81 for one, 87 and 41 more for each other one. Of f32,
 * and before tensor cores of that kind, they serve up to as many as share a pass.
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
            { 2, 2, PLAIN_INPUTS + 1, 2 } } },
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

/* ---------------------------------------------------------------------------- products */

/* What the library asks of 8-bit integers, and of anything: sizes of 32 bits, whole values. */
static bool
can_multiply(const berthi_gemm_task *t, const berthi_gemm_shape *s)
{
    const bool is_i8 = t->dtype == BERTH_I8;
    const uint64_t unit = is_i8 ? 4 : berthi_gemm_bytes_of(t->dtype);

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

berth_status
berthi_gemm_ask(berthi_gemm *g, const berthi_cuda_call *call, const berthi_gemm_task *t,
                const berthi_gemm_room *r)
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
    if (code == BERTHI_GEMM_EXECUTION && !r->is_captured) /* which bears no questions */
        status = judge_execution(call, r->stream);
    return status != BERTH_OK ? status : judge(g, call, code);
}

static berth_status
begin_eager(berthi_gemm *g, const berthi_cuda_call *call, void *stream, berthi_gemm_need need,
            berthi_gemm_room **out)
{
    const berth_status status =
        need == BERTHI_GEMM_NEEDS_FLAGS ? BERTH_OK : open_library(g, call);

    return status == BERTH_OK ? berthi_gemm_take_room(g, call, stream, need, out) : status;
}

berth_status
berthi_gemm_begin(const berthi_cuda_call *call, void *stream, berthi_gemm_need need,
                  berthi_gemm **out, berthi_gemm_room **out_room)
{
    berthi_gemm *const g = gemm_of(call->device);
    bool is_captured = false;
    berth_status status;

    if (g == NULL)
        return berthi_fail_memory(call->error, "products of many inputs");
    pthread_mutex_lock(&g->lock);
    status = berthi_cuda_judge(call, call->calls->stream_is_capturing(&is_captured, stream));
    if (status == BERTH_OK && is_captured)
        status = berthi_gemm_take_captured(g, call, stream, need, out_room);
    else if (status == BERTH_OK)
        status = begin_eager(g, call, stream, need, out_room);
    if (status != BERTH_OK)
        pthread_mutex_unlock(&g->lock);
    *out = g;
    return status;
}

berth_status
berthi_gemm_end(berthi_gemm *g, const berthi_cuda_call *call, berthi_gemm_room *room,
                berth_status status)
{
    status = berthi_gemm_leave_room(call, room, status);
    pthread_mutex_unlock(&g->lock);
    return status;
}

berth_status
berthi_gemm_multiply(const berthi_cuda_call *call, const berthi_gemm_task *task,
                     berthi_stream *stream)
{
    berthi_gemm *g;
    berthi_gemm_room *r;
    berth_status status;

    if (task->rows == 0 || task->count == 0)
        return BERTH_OK;
    status = berthi_gemm_begin(call, stream, BERTHI_GEMM_NEEDS_LIBRARY, &g, &r);
    if (status != BERTH_OK)
        return status;
    return berthi_gemm_end(g, call, r, berthi_gemm_ask(g, call, task, r));
}

/* ---------------------------------------------------------------------------- giving back */

void
berthi_gemm_forget(berthi_cuda_device *device, const void *stream)
{
    berthi_gemm *g;

    pthread_mutex_lock(&device->lock);
    g = device->gemm;
    pthread_mutex_unlock(&device->lock);
    if (g == NULL)
        return;
    pthread_mutex_lock(&g->lock);
    berthi_gemm_forget_rooms(g, stream);
    pthread_mutex_unlock(&g->lock);
}

void
berthi_gemm_destroy(berthi_gemm *gemm)
{
    berthi_cuda_call call;

    if (gemm == NULL)
        return;
    berthi_cuda_enter_back(&call, &gemm->device->base);
    berthi_gemm_plans_clear(&gemm->plans);
    berthi_gemm_free_rooms(gemm, &call);
    if (gemm->plans.handle != NULL && !atomic_load(&gemm->device->machine->has_hung))
        (void)gemm->plans.calls.destroy(gemm->plans.handle);
    berthi_cuda_leave(&call, BERTH_OK);
    pthread_mutex_destroy(&gemm->lock);
    berthi_memory_free(gemm->device->base.context, BERTHI_PURPOSE_OBJECT, gemm, sizeof *gemm);
}
