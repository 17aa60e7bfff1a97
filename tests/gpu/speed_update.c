/* SPDX-License-Identifier: Apache-2.0 */
/* speed_update.c - AdamW with states in 8 bits, bf16 parameters and gradients; see speed.h */
#include <stdlib.h>
#include <string.h>

#include "kernels/optimizer.h"
#include "tests/gpu/speed.h"

#define TURNS 2u
#define WINDOW 65536u /* elements that are checked, a multiple of the block */
#define BLOCK BERTHI_UPDATE_BLOCK

typedef struct parameter {
    uint64_t count;
    uint16_t *values[TURNS];
    uint16_t *gradients[TURNS];
    uint8_t *codes[TURNS][2];
    float *absmax[TURNS][2];
    uint64_t *not_finite;
} parameter;

static uint64_t
bytes_of(uint64_t count)
{
    return TURNS * (count * 6 + count / BLOCK * 8 + 4096);
}

static void
begin(gpu_speed *s, parameter *p)
{
    p->not_finite = gpu_alloc(s, sizeof *p->not_finite);
    gpu_require(s, s->calls->clear(p->not_finite, sizeof *p->not_finite, s->stream),
                "clearing");
    for (uint32_t i = 0; i < TURNS; i++) {
        p->values[i] = gpu_alloc(s, p->count * 2);
        p->gradients[i] = gpu_alloc(s, p->count * 2);
        gpu_fill_normal(s, p->values[i], BERTH_BF16, p->count, 2 * i);
        gpu_fill_normal(s, p->gradients[i], BERTH_BF16, p->count, 2 * i + 1);
        for (uint32_t k = 0; k < 2; k++) {
            const uint64_t blocks = p->count / BLOCK * sizeof(float);

            p->codes[i][k] = gpu_alloc(s, p->count);
            p->absmax[i][k] = gpu_alloc(s, blocks);
            gpu_require(s, s->calls->clear(p->codes[i][k], p->count, s->stream), "clearing");
            gpu_require(s, s->calls->clear(p->absmax[i][k], blocks, s->stream), "clearing");
        }
    }
    gpu_sync(s);
}

static void
end(gpu_speed *s, parameter *p)
{
    for (uint32_t i = 0; i < TURNS; i++) {
        gpu_free(s, p->values[i]);
        gpu_free(s, p->gradients[i]);
        for (uint32_t k = 0; k < 2; k++) {
            gpu_free(s, p->codes[i][k]);
            gpu_free(s, p->absmax[i][k]);
        }
    }
    gpu_free(s, p->not_finite);
}

static berthi_update_constants
constants_of(void)
{
    const berthi_update_settings settings = berthi_update_defaults(BERTHI_UPDATE_ADAMW);

    return berthi_update_constants_of(&settings, 100);
}

static void
ask(gpu_speed *s, void *user, uint32_t turn)
{
    const parameter *const p = user;
    const uint32_t i = turn % TURNS;
    const berthi_update_request request = {
        .arguments = { .count = p->count, .parameter = p->values[i], .dtype = BERTH_BF16,
                       .gradient = p->gradients[i], .gradient_dtype = BERTH_BF16,
                       .state = { { NULL, p->codes[i][0], p->absmax[i][0] },
                                  { NULL, p->codes[i][1], p->absmax[i][1] } } },
        .constants = constants_of(),
        .not_finite = p->not_finite,
    };
    berthi_launch l;

    gpu_require_ok(berthi_launch_update(&request, &l, NULL), NULL);
    gpu_launch(s, &l, 1);
}

/* ------------------------------------------------------------------------- what is right */

/* The last elements of the first buffer, and their states. */
typedef struct window {
    uint64_t count;
    uint16_t values[WINDOW];
    uint16_t gradients[WINDOW];
    uint8_t codes[2][WINDOW];
    float absmax[2][WINDOW / BLOCK];
} window;

static void
fetch(gpu_speed *s, const parameter *p, window *w)
{
    const uint64_t first = p->count - w->count;

    gpu_fetch(s, w->values, p->values[0] + first, w->count * 2);
    gpu_fetch(s, w->gradients, p->gradients[0] + first, w->count * 2);
    for (uint32_t k = 0; k < 2; k++) {
        gpu_fetch(s, w->codes[k], p->codes[0][k] + first, w->count);
        gpu_fetch(s, w->absmax[k], p->absmax[0][k] + first / BLOCK,
                  w->count / BLOCK * sizeof(float));
    }
}

/* One more update of what is there is the one of the plain loops. */
static bool
is_update_right(gpu_speed *s, const char *name, parameter *p)
{
    window *const expected = calloc(2, sizeof *expected);
    window *const found = expected + 1;
    const berthi_update_constants constants = constants_of();
    bool is_right = false;

    if (expected != NULL) {
        expected->count = found->count = p->count < WINDOW ? p->count : WINDOW;
        fetch(s, p, expected);
        ask(s, p, 0);
        gpu_sync(s);
        fetch(s, p, found);
        (void)berthi_update_plainly(
            &(berthi_update_arguments){
                .count = expected->count, .parameter = expected->values, .dtype = BERTH_BF16,
                .gradient = expected->gradients, .gradient_dtype = BERTH_BF16,
                .state = { { NULL, expected->codes[0], expected->absmax[0] },
                           { NULL, expected->codes[1], expected->absmax[1] } } },
            &constants);
        is_right = memcmp(expected, found, sizeof *expected) == 0;
    }
    free(expected);
    return gpu_is_right(s, name, is_right);
}

void
gpu_speed_update(gpu_speed *s)
{
    static const char name[] = "AdamW in 8 bits, 134 M parameters";
    parameter p = { .count = s->is_tiny ? 4096 : UINT64_C(1) << 27 };
    const gpu_work work = { ask, &p };
    gpu_timing t;
    const gpu_row row = { .group = "updates", .name = name, .timing = &t, .relation = ">=",
                          .target = 0.80 };

    if (s->pass != GPU_JUDGED || !gpu_can_begin(s, name, bytes_of(p.count)))
        return;
    begin(s, &p);
    gpu_time(s, &work, 1, &t);
    /* A gradient read; parameter and two states read and written. */
    if (is_update_right(s, name, &p))
        gpu_tell(s, &row, (double)p.count * (2.0 + 2 * (2.0 + 2 * (1.0 + 4.0 / BLOCK))),
                 s->copy_gbps, "of copy");
    end(s, &p);
}
