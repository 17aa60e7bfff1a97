/* SPDX-License-Identifier: Apache-2.0 */
/* drawn.c - see drawn.h. */
#define _POSIX_C_SOURCE 200809L

#include "tests/drawn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/printed.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MOST_TIERS 8
#define MOST_LAYERS 4096

static void *
must(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

uint32_t
drawn_tier(draw_map *map, const char *name, uint64_t budget)
{
    berth_plan_tier *f;

    if (map->tiers == NULL) {
        map->tiers = must(calloc(MOST_TIERS, sizeof *map->tiers));
        map->layers = must(calloc(MOST_LAYERS, sizeof *map->layers));
        map->has_lines = true;
    }
    f = &map->tiers[map->tier_count].facts;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->budget = budget;
    return (uint32_t)map->tier_count++;
}

uint32_t
drawn_layer(draw_map *map, const char *name, uint32_t home, const char *reason)
{
    draw_layer *const layer = &map->layers[map->layer_count];

    layer->name = must(strdup(name));
    layer->reason = must(strdup(reason));
    layer->home = home;
    map->tiers[home].facts.layers++;
    map->summary.layer_count++;
    return (uint32_t)map->layer_count++;
}

void
drawn_tensor(draw_map *map, const char *name, uint32_t tier, uint64_t bytes,
             int32_t encoding, int32_t dtype, bool is_expert)
{
    const uint32_t number = (uint32_t)map->layer_count - 1;
    draw_layer *const layer = &map->layers[number];
    const berth_berth b = { .layer = number, .tier = tier, .bytes = bytes,
                            .encoding = encoding, .dtype = dtype, .is_expert = is_expert };

    if (!draw_map_add(map, number, &b, name))
        abort();
    layer->bytes += bytes;
    map->summary.bytes += bytes;
    map->summary.berth_count++;
    map->tiers[tier].facts.weights += bytes;
    if (tier == layer->home) {
        layer->resident_bytes += bytes;
        return;
    }
    layer->cause = BERTH_PLAN_SHORT;
    layer->link_bytes += bytes;
    map->summary.link_bytes += bytes;
}

void
drawn_plain_layer(draw_map *map, const char *name, uint32_t home, uint32_t tier,
                  uint64_t bytes)
{
    drawn_layer(map, name, home, "why");
    drawn_tensor(map, fixture_format("%s.weight", name), tier, bytes, BERTH_ENCODING_NATIVE,
                 BERTH_F32, false);
}

void
drawn_finish(draw_map *map)
{
    for (size_t i = 0; i < map->tier_count; i++) {
        berth_plan_tier *const f = &map->tiers[i].facts;
        const uint64_t used = f->weights + f->cache + f->activations + f->slots
                              + f->expert_slots + f->scratch + f->turned + f->staging
                              + f->reserve;

        f->free = f->budget == UINT64_MAX ? UINT64_MAX : f->budget - used;
    }
    map->summary.tier_count = (uint32_t)map->tier_count;
    if (!draw_map_arrange(map))
        abort();
}

/* --------------------------------------------------------------------- dense */

static void
add_decoder(draw_map *map, unsigned number, uint32_t home, uint32_t tier)
{
    static const char *const names[] = { "mlp.down_proj.weight", "mlp.gate_proj.weight",
                                         "mlp.up_proj.weight", "self_attn.k_proj.weight",
                                         "self_attn.o_proj.weight",
                                         "self_attn.q_proj.weight",
                                         "self_attn.v_proj.weight" };
    char name[128];
    char path[64];

    snprintf(path, sizeof path, "model.layers.%u", number);
    drawn_layer(map, path, home,
                tier == home ? "on cuda:0: all of it fits"
                             : "streamed from cpu: cuda:1 is short of 412.00 MiB");
    snprintf(name, sizeof name, "%s.input_layernorm.weight", path);
    drawn_tensor(map, name, tier, MIB, BERTH_ENCODING_NATIVE, BERTH_BF16, false);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", path, names[i]);
        drawn_tensor(map, name, tier, i < 3 ? 45 * MIB : 16 * MIB, BERTH_ENCODING_NF4,
                     BERTH_BF16, false);
    }
}

void
drawn_dense(draw_map *map)
{
    memset(map, 0, sizeof *map);
    drawn_tier(map, "cuda:0", 3 * GIB);
    drawn_tier(map, "cuda:1", 2 * GIB);
    drawn_tier(map, "cpu", 64 * GIB);
    drawn_layer(map, "model.embed_tokens", 0, "on cuda:0: all of it fits");
    drawn_tensor(map, "model.embed_tokens.weight", 0, 500 * MIB, BERTH_ENCODING_NATIVE,
                 BERTH_BF16, false);
    for (unsigned i = 0; i < 12; i++)
        add_decoder(map, i, i >= 7, i < 7 ? 0 : i == 8 || i == 10 ? 2 : 1);
    drawn_layer(map, "model.norm", 1, "on cuda:1: all of it fits");
    drawn_tensor(map, "model.norm.weight", 1, MIB, BERTH_ENCODING_NATIVE, BERTH_BF16, false);
    drawn_layer(map, "lm_head", 1, "on cuda:1: all of it fits");
    drawn_tensor(map, "lm_head.weight", 1, 500 * MIB, BERTH_ENCODING_NATIVE, BERTH_BF16,
                 false);
    for (size_t i = 0; i < 2; i++) {
        map->tiers[i].facts.cache = 96 * MIB;
        map->tiers[i].facts.activations = 40 * MIB;
        map->tiers[i].facts.scratch = 64 * MIB;
        map->tiers[i].facts.reserve = map->tiers[i].facts.budget / 10;
    }
    map->tiers[1].facts.slots = 2 * 200 * MIB;
    map->tiers[2].facts.staging = 512 * MIB;
    map->tiers[2].facts.reserve = map->tiers[2].facts.budget / 10;
    map->summary.type = BERTH_ENCODING_NF4;
    map->summary.double_quant = 1;
    map->summary.context = 4096;
    map->summary.batch = 1;
    map->summary.tokens_per_second = 23.456;
    drawn_finish(map);
}

/* -------------------------------------------------------------------- experts */

static void
add_mixture(draw_map *map, unsigned number, uint32_t home)
{
    static const char *const names[] = { "down_proj", "gate_proj", "up_proj" };
    char name[128];

    for (unsigned e = 0; e < 256; e++)
        for (size_t i = 0; i < 3; i++) {
            /* A weight, and the scales beside it. */
            snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s.weight", number,
                     e, names[i]);
            drawn_tensor(map, name, e % 8 == 0 ? home : 2, 7 * MIB, BERTH_ENCODING_NF4,
                         BERTH_BF16, true);
            strcpy(strrchr(name, '.'), ".bias");
            drawn_tensor(map, name, e % 8 == 0 ? home : 2, 256, BERTH_ENCODING_NATIVE,
                         BERTH_BF16, true);
        }
}

void
drawn_experts(draw_map *map)
{
    memset(map, 0, sizeof *map);
    drawn_tier(map, "cuda:0", 80 * GIB);
    drawn_tier(map, "cuda:1", 80 * GIB);
    drawn_tier(map, "cpu", 512 * GIB);
    drawn_tier(map, "disk", UINT64_MAX);
    for (unsigned i = 0; i < 61; i++) {
        const uint32_t home = i >= 31;
        char name[128];

        snprintf(name, sizeof name, "model.layers.%u", i);
        drawn_layer(map, name, home, "streamed from cpu: the device is short of 4.00 GiB");
        for (unsigned n = 0; n < 12; n++) {
            snprintf(name, sizeof name, "model.layers.%u.self_attn.part_%u.weight", i, n);
            drawn_tensor(map, name, home, 12 * MIB, BERTH_ENCODING_NF4, BERTH_BF16, false);
        }
        if (i >= 3)
            add_mixture(map, i, home);
    }
    for (size_t i = 0; i < 2; i++) {
        map->tiers[i].facts.cache = 2 * GIB;
        map->tiers[i].facts.expert_slots = 3 * GIB;
        map->tiers[i].facts.reserve = 8 * GIB;
    }
    map->summary.type = BERTH_ENCODING_NF4;
    drawn_finish(map);
}

/* ----------------------------------------------------------------------- drawing */

const screen drawn_unicode = { .has_unicode = true };
const screen drawn_ascii = { .has_unicode = false };
const screen drawn_colourful = { .has_unicode = true, .has_colour = true };

static const char *path;
static output out;

void
drawn_begin(void)
{
    path = printed_begin(&out);
}

output *
drawn_out(void)
{
    return &out;
}

const char *
drawn_written(size_t *length)
{
    return printed_end(&out, path, length);
}

void
drawn_check_golden(const char *name)
{
    const char *const golden = fixture_format("tests/data/map/%s", name);
    const char *const text = drawn_written(NULL);
    char *expected;

    if (getenv("UPDATE") != NULL)
        fixture_text(golden, text);
    expected = fixture_read(golden, NULL);
    if (!CHECK(strcmp(text, expected) == 0))
        T_NOTE("%s differs", name);
    free(expected);
}

size_t
drawn_count(const char *text, const char *word)
{
    size_t count = 0;

    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        count++;
    return count;
}
