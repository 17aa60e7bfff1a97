/* SPDX-License-Identifier: Apache-2.0 */
/* passed.c - passes over a loaded model; see passed.h. */
#include "tests/passed.h"

#include <stdlib.h>

#include "kernels/digest.h"
#include "tests/t.h"

/* A tensor as a layer's work finds it. */
typedef struct seen {
    berth_model_tensor tensor;
    uint32_t expected;
    uint32_t crc;
    bool is_done;
} seen;

static void
look(void *user)
{
    seen *const s = user;

    s->crc = 0;
    for (uint32_t i = 0; i < s->tensor.part_count; i++)
        s->crc = berthi_digest_crc32(s->crc, s->tensor.parts[i].memory,
                                     (size_t)s->tensor.parts[i].bytes);
    s->is_done = true;
}

typedef struct passing {
    loaded *l;
    void **streams; /* of devices; NULL: no layer is computed there, or by the host */
    seen *found;    /* of berths */
} passing;

/* The number of the device of a layer's home; the host's is behind them. */
static uint32_t
device_of(const passing *p, uint32_t layer)
{
    berth_plan_layer of_layer;
    berth_plan_tier tier;
    uint32_t number = 0;

    CHECK_EQ(berth_plan_get_layer(p->l->p.plan, layer, &of_layer), BERTH_OK);
    for (uint32_t t = 0; t < of_layer.home; t++)
        number += berth_plan_get_tier(p->l->p.plan, t, &tier) == BERTH_OK
                  && tier.kind == BERTH_TIER_GPU;
    return number;
}

/* What of a layer can be used on its home is looked at there, in the stream's order. */
static void
use_layer(passing *p, uint32_t layer)
{
    const uint32_t number = device_of(p, layer);
    void *const stream = p->l->devices != NULL ? p->streams[number] : NULL;
    berth_plan_layer of_layer;
    berth_error error;

    CHECK_EQ(berth_plan_get_layer(p->l->p.plan, layer, &of_layer), BERTH_OK);
    if (!CHECK_EQ(berth_layer_acquire(p->l->model, layer, stream, &error), BERTH_OK))
        t_note("%s", error.message);
    for (uint64_t i = 0; i < of_layer.berth_count; i++) {
        seen *const s = &p->found[of_layer.first_berth + i];

        CHECK_EQ(
            berth_model_get_tensor(p->l->model, of_layer.first_berth + i, &s->tensor),
            BERTH_OK);
        if (s->tensor.part_count == 0 || s->tensor.parts[0].memory == NULL)
            continue;
        if (p->l->devices != NULL)
            CHECK_EQ(
                berth_stream_call(p->l->devices, number, stream, look, s, 1e-4, NULL),
                BERTH_OK);
        else
            look(s);
    }
    CHECK_EQ(berth_layer_release(p->l->model, layer, stream, NULL), BERTH_OK);
}

uint64_t
passed(loaded *l, uint32_t passes)
{
    const uint32_t count = l->devices != NULL ? berth_devices_count(l->devices) : 0;
    passing p = {.l = l};
    uint64_t looked = 0;

    p.streams = calloc(count + 1, sizeof *p.streams);
    p.found = calloc(l->p.summary.berth_count, sizeof *p.found);
    for (uint32_t layer = 0; layer < l->p.summary.layer_count; layer++) {
        const uint32_t d = device_of(&p, layer);

        if (d < count && p.streams[d] == NULL)
            CHECK_EQ(berth_stream_create(l->devices, d, &p.streams[d], NULL), BERTH_OK);
    }
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++)
        CHECK_EQ(berth_model_digest(l->model, i, &p.found[i].expected, NULL), BERTH_OK);
    for (uint32_t n = 0; n < passes; n++) {
        looked = 0;
        for (uint32_t layer = 0; layer < l->p.summary.layer_count; layer++)
            use_layer(&p, layer);
        for (uint32_t d = 0; d < count; d++)
            if (p.streams[d] != NULL)
                CHECK_EQ(berth_stream_wait(l->devices, d, p.streams[d], -1, NULL),
                         BERTH_OK);
        for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
            looked += p.found[i].is_done;
            if (p.found[i].is_done && !CHECK_EQ(p.found[i].crc, p.found[i].expected))
                t_note("%s in pass %u", p.found[i].tensor.name, n);
            p.found[i].is_done = false;
        }
    }
    for (uint32_t d = 0; d < count; d++)
        if (p.streams[d] != NULL)
            berth_stream_destroy(l->devices, d, p.streams[d]);
    free(p.streams);
    free(p.found);
    return looked;
}
