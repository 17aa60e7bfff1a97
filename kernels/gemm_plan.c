/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_plan.c - see gemm_plan.h. */
#include "kernels/gemm_plan.h"

#include <string.h>

#define RESULTS 8
#define LARGEST_ALIGNMENT 256u /* that makes a difference to the library */
#define EXACT_INPUTS 64u       /* up to so many a plan is for one number of them */

/* ------------------------------------------------------------------------------- shapes */

static uint32_t
alignment_of(const void *address)
{
    const uintptr_t its = (uintptr_t)address | LARGEST_ALIGNMENT;

    return (uint32_t)(its & (~its + 1));
}

berthi_gemm_shape
berthi_gemm_shape_of(const berthi_gemm_task *t)
{
    berthi_gemm_shape s = { .dtype = t->dtype, .has_bias = t->bias != NULL,
                            .rows = t->rows, .columns = t->columns, .stride = t->stride,
                            .inputs = t->count };

    s.alignments[0] = alignment_of(t->weight);
    s.alignments[1] = alignment_of(t->inputs);
    s.alignments[2] = alignment_of(t->outputs);
    s.bias_alignment = alignment_of(t->bias);
    if (s.inputs > EXACT_INPUTS)
        s.inputs = berthi_round_up(s.inputs, EXACT_INPUTS);
    return s;
}

/* -------------------------------------------------------------------------- remembering */

static void
drop_plan(const berthi_gemm_plans *c, berthi_gemm_plan *p)
{
    if (p->operation != NULL)
        (void)c->calls.operation_destroy(p->operation);
    if (p->weight != NULL)
        (void)c->calls.layout_destroy(p->weight);
    if (p->input != NULL)
        (void)c->calls.layout_destroy(p->input);
    if (p->output != NULL)
        (void)c->calls.layout_destroy(p->output);
    *p = (berthi_gemm_plan){ .used = 0 };
}

static bool
is_same(const berthi_gemm_shape *a, const berthi_gemm_shape *b)
{
    return a->dtype == b->dtype && a->has_bias == b->has_bias && a->rows == b->rows
           && a->columns == b->columns && a->stride == b->stride && a->inputs == b->inputs
           && a->bias_alignment == b->bias_alignment
           && memcmp(a->alignments, b->alignments, sizeof a->alignments) == 0;
}

/* The plan of the shape, or, with nothing in it, the one used longest ago. */
static berthi_gemm_plan *
find_plan(berthi_gemm_plans *c, const berthi_gemm_shape *wanted)
{
    berthi_gemm_plan *oldest = &c->at[0];

    for (size_t i = 0; i < BERTHI_GEMM_PLANS; i++) {
        berthi_gemm_plan *const p = &c->at[i];

        if (p->used != 0 && is_same(&p->shape, wanted))
            return p;
        if (p->used < oldest->used)
            oldest = p;
    }
    drop_plan(c, oldest);
    return oldest;
}

/* Statuses of the library from here on. */
static int
describe(const berthi_gemm_plans *c, const berthi_gemm_shape *s, uint64_t inputs,
         berthi_gemm_plan *p)
{
    static const int32_t turned = BERTHI_GEMM_TURNED;
    static const uint32_t epilogue = BERTHI_GEMM_ADD_BIAS;
    const bool is_i8 = s->dtype == BERTH_I8;
    const int type = is_i8                     ? BERTHI_GEMM_I8
                     : s->dtype == BERTH_BF16 ? BERTHI_GEMM_BF16
                     : s->dtype == BERTH_F16  ? BERTHI_GEMM_F16
                                              : BERTHI_GEMM_F32;
    int code = c->calls.operation_create(&p->operation,
                                         is_i8 ? BERTHI_GEMM_SUM_I32 : BERTHI_GEMM_SUM_F32,
                                         is_i8 ? BERTHI_GEMM_I32 : BERTHI_GEMM_F32);

    if (code == BERTHI_GEMM_OK)
        code = c->calls.operation_set(p->operation, BERTHI_GEMM_TURN_A, &turned,
                                      sizeof turned);
    if (code == BERTHI_GEMM_OK && s->has_bias)
        code = c->calls.operation_set(p->operation, BERTHI_GEMM_EPILOGUE, &epilogue,
                                      sizeof epilogue);
    if (code == BERTHI_GEMM_OK)
        code = c->calls.layout_create(&p->weight, type, s->columns, s->rows,
                                      (int64_t)s->columns);
    if (code == BERTHI_GEMM_OK)
        code = c->calls.layout_create(&p->input, type, s->columns, inputs,
                                      (int64_t)s->columns);
    if (code == BERTHI_GEMM_OK)
        code = c->calls.layout_create(&p->output, is_i8 ? BERTHI_GEMM_I32 : type, s->rows,
                                      inputs, (int64_t)s->stride);
    p->inputs = inputs;
    return code;
}

/* The algorithm of a plan serves a little more or fewer inputs, if the library says so. */
static int
resize(const berthi_gemm_plans *c, uint64_t inputs, berthi_gemm_plan *p)
{
    berthi_gemm_result result;
    int code;

    if (p->inputs == inputs)
        return BERTHI_GEMM_OK;
    p->inputs = inputs;
    code = c->calls.layout_set(p->input, BERTHI_GEMM_COLUMNS, &inputs, sizeof inputs);
    if (code == BERTHI_GEMM_OK)
        code = c->calls.layout_set(p->output, BERTHI_GEMM_COLUMNS, &inputs, sizeof inputs);
    if (code != BERTHI_GEMM_OK)
        return code;
    memset(&result, 0, sizeof result);
    p->has_algorithm =
        c->calls.check(c->handle, p->operation, p->weight, p->input, p->output, p->output,
                       &p->algorithm, &result) == BERTHI_GEMM_OK
        && result.workspace_bytes <= c->workspace_bytes;
    return BERTHI_GEMM_OK;
}

static int
prefer(const berthi_gemm_plans *c, const berthi_gemm_shape *s, void *preference)
{
    static const int attributes[4] = { BERTHI_GEMM_ALIGNMENT_A, BERTHI_GEMM_ALIGNMENT_B,
                                       BERTHI_GEMM_ALIGNMENT_C, BERTHI_GEMM_ALIGNMENT_D };
    int code = c->calls.preference_set(preference, BERTHI_GEMM_WORKSPACE,
                                       &c->workspace_bytes, sizeof c->workspace_bytes);

    for (size_t i = 0; i < 4 && code == BERTHI_GEMM_OK; i++)
        code = c->calls.preference_set(preference, attributes[i],
                                       &s->alignments[i < 2 ? i : 2],
                                       sizeof s->alignments[0]);
    return code;
}

/* The first of the library's candidates, fastest first, that can be had here. */
static int
search(const berthi_gemm_plans *c, berthi_gemm_plan *p)
{
    berthi_gemm_result results[RESULTS];
    void *preference = NULL;
    int count = 0;
    int code = c->calls.preference_create(&preference);

    memset(results, 0, sizeof results);
    if (code == BERTHI_GEMM_OK)
        code = prefer(c, &p->shape, preference);
    if (code == BERTHI_GEMM_OK)
        code = c->calls.search(c->handle, p->operation, p->weight, p->input, p->output,
                               p->output, preference, RESULTS, results, &count);
    if (preference != NULL)
        (void)c->calls.preference_destroy(preference);
    if (code != BERTHI_GEMM_OK)
        return code;
    for (int i = 0; i < count && i < RESULTS && !p->has_algorithm; i++) {
        p->has_algorithm = results[i].status == BERTHI_GEMM_OK
                           && results[i].workspace_bytes <= c->workspace_bytes;
        p->algorithm = results[i].algorithm;
    }
    return p->has_algorithm ? BERTHI_GEMM_OK : BERTHI_GEMM_UNSUPPORTED;
}

int
berthi_gemm_plans_make(berthi_gemm_plans *c, const berthi_gemm_shape *s,
                       const berthi_gemm_task *task, berthi_gemm_plan **out)
{
    berthi_gemm_plan *const p = find_plan(c, s);
    int code = BERTHI_GEMM_OK;

    if (p->used == 0) {
        p->shape = *s;
        code = describe(c, s, task->count, p);
    }
    /* Before the search, which learns its alignment from it. */
    if (code == BERTHI_GEMM_OK && s->has_bias)
        code = c->calls.operation_set(p->operation, BERTHI_GEMM_BIAS_POINTER, &task->bias,
                                      sizeof task->bias);
    if (code == BERTHI_GEMM_OK)
        code = resize(c, task->count, p);
    if (code == BERTHI_GEMM_OK && !p->has_algorithm)
        code = search(c, p);
    if (code != BERTHI_GEMM_OK) {
        drop_plan(c, p);
        return code;
    }
    p->used = ++c->turn;
    *out = p;
    return BERTHI_GEMM_OK;
}

void
berthi_gemm_plans_clear(berthi_gemm_plans *c)
{
    for (size_t i = 0; i < BERTHI_GEMM_PLANS; i++)
        drop_plan(c, &c->at[i]);
}
