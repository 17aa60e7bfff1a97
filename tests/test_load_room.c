/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_room.c - one of several devices has no room for its slab, when others have
 * theirs already: all is given back, and the next load in the process works.
 */
#include <string.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

#define LAYERS       16u /* of 1.5 MiB */
#define MOST_DEVICES 8u
#define MIB          (UINT64_C(1) << 20)
#define NO_DEVICE    UINT32_MAX

/* ------------------------------------------------------------------------- machines */

/* Layers lie on their devices in equal parts; those of `without` on the one before it. */
static void
spread(berth_plan_options *options, const char **pins, uint32_t devices, uint32_t without)
{
    const char *memory = "";

    for (uint32_t d = 0; d < devices; d++)
        memory = fixture_format("%s%u=%uMiB,", memory, d, d == without ? 2 : 64);
    for (uint32_t i = 0; i < LAYERS; i++) {
        const uint32_t device = i * devices / LAYERS;

        pins[i] =
            fixture_format("model.layers.%u=cuda:%u", i, device - (device == without));
    }
    options->max_memory = fixture_format("%scpu=64MiB", memory);
    options->pins = pins;
    options->pin_count = LAYERS;
}

/* All have room but one; it is that small, or others have taken of it what is missing. */
static const char *
machine_of(uint32_t devices, uint32_t small)
{
    const char *words = "";

    for (uint32_t d = 0; d < devices; d++)
        words = fixture_format("%s%s%s", words, d > 0 ? ";" : "",
                               d != small      ? "sim:64MiB"
                               : small % 2 > 0 ? "sim:2MiB"
                                               : "sim:64MiB,steal=62MiB");
    return words;
}

/* --------------------------------------------------------------------------- checks */

static uint64_t
free_bytes(const loaded *l, uint32_t number)
{
    berth_device device;

    CHECK_EQ(berth_devices_get(l->devices, number, &device), BERTH_OK);
    return device.free_bytes;
}

/* All that the context has of it, for whatever purpose. */
static berth_memory
account_of(const loaded *l, const char *tier)
{
    berth_memory m = {.current_bytes = 0};

    for (uint32_t i = 0; i < berth_memory_tiers(l->p.context); i++)
        if (berth_memory_get(l->p.context, i, BERTH_MEMORY_ALL, &m) == BERTH_OK
            && strcmp(m.tier, tier) == 0)
            return m;
    return (berth_memory){.current_bytes = 0};
}

/* What the plan has of the GPU of this number. */
static uint64_t
slab_of(const loaded *l, uint32_t number)
{
    berth_plan_tier tier;

    CHECK_EQ(berth_plan_get_tier(l->p.plan, number, &tier), BERTH_OK);
    CHECK_EQ(tier.kind, BERTH_TIER_GPU);
    return tier.weights + tier.slots + tier.expert_slots + tier.scratch;
}

/* The devices before it had their slabs, which are gone; those behind it never did. */
static void
check_given_back(const loaded *l, uint32_t devices, uint32_t small, uint32_t loads)
{
    for (uint32_t d = 0; d < devices; d++) {
        const berth_memory m = account_of(l, fixture_format("cuda:%u", d));

        CHECK_EQ(free_bytes(l, d), d == small ? 2 * MIB : 64 * MIB);
        CHECK_EQ(m.current_bytes, 0);
        CHECK_EQ(m.allocated_bytes, d < small ? loads * slab_of(l, d) : 0);
        CHECK_EQ(m.freed_bytes, m.allocated_bytes);
    }
}

static void
check_refused(loaded *l, uint32_t small)
{
    loaded_load(l);
    CHECK_EQ(l->status, BERTH_ENOFIT);
    CHECK_EQ(l->error.reason, BERTH_REASON_NO_FIT);
    CHECK_CONTAINS(l->error.message, fixture_format("sim:%u: ", small));
    CHECK_EQ(l->error.expected, slab_of(l, small));
    CHECK_EQ(l->error.actual, 2 * MIB);
}

/* The same model in the same context, on the same devices. */
static void
check_goes_on(loaded *l, const char *folder, berth_plan_options *options)
{
    berth_plan_destroy(l->p.plan);
    l->p.plan = NULL;
    CHECK_EQ(
        berth_plan_create(l->p.context, l->p.checkpoint, options, &l->p.plan, &l->error),
        BERTH_OK);
    T_REQUIRE(l->p.plan != NULL);
    berth_plan_get(l->p.plan, &l->p.summary);
    loaded_load(l);
    if (!CHECK_EQ(l->status, BERTH_OK))
        t_note("%s", l->error.message);
    if (l->status == BERTH_OK) {
        loaded_check(l, folder);
        CHECK_EQ(passed(l, 1), LAYERS * 10 + 3);
    }
}

static void
check_small(const char *source, const char *folder, int32_t type, uint32_t devices,
            uint32_t small)
{
    berth_plan_options options = loaded_options("");
    const char *pins[LAYERS];
    uint64_t host_bytes;
    loaded l;

    options.type = type;
    options.double_quant = type == BERTH_ENCODING_NF4;
    spread(&options, pins, devices, NO_DEVICE);
    loaded_begin(&l, source, &options, machine_of(devices, small));
    check_refused(&l, small);
    check_given_back(&l, devices, small, 1);
    /* Lists of the devices have grown by now. */
    host_bytes = loaded_bytes(l.p.context);
    check_refused(&l, small);
    check_given_back(&l, devices, small, 2);
    CHECK_EQ(loaded_bytes(l.p.context), host_bytes);
    spread(&options, pins, devices, small);
    check_goes_on(&l, folder, &options);
    loaded_end(&l);
}

/* Each but the first, of two, three and eight. */
static void
check_all(const char *source, const char *folder, int32_t type)
{
    static const uint32_t counts[] = {2, 3, MOST_DEVICES};

    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (uint32_t small = 1; small < counts[i]; small++)
            check_small(source, folder, type, counts[i], small);
}

static void
test_a_device_without_room(void)
{
    const char *const source = loaded_llama(LAYERS, "BF16", 1);

    check_all(source, source, BERTH_ENCODING_NATIVE);
}

/* Scratch is a part of slabs. */
static void
test_a_device_without_room_for_scratch(void)
{
    const char *const source = loaded_llama(LAYERS, "BF16", 1);
    berth_plan_options options = loaded_options("");

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    check_all(source, loaded_quantized(source, &options), BERTH_ENCODING_NF4);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_a_device_without_room);
    T_RUN(test_a_device_without_room_for_scratch);
    T_MAIN_END;
}
